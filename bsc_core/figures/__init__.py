"""Figures from arrays and tables with Altair and Plotly; independent of Streamlit, so they can be tested as data."""
