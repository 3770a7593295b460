"""Texts as Plotly labels: Plotly reads a few HTML tags and entities in them, and a dataset's text is never markup."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text so that Plotly shows it letter by letter. Quotes stay, since Plotly knows no entity for them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
