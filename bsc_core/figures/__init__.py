"""Arrays and tables to Altair and Plotly figures: no Streamlit here, so that figures are tested as data."""
