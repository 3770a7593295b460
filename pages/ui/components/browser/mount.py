"""Browser components from JavaScript and CSS files; each script can use the functions of dom.js."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core.figures import theme

HERE = Path(__file__).parent
COLORS = {
    "query": theme.QUERY,
    "document": theme.DOCUMENT,
    "positive": theme.POSITIVE,
    "negative": theme.HARD_NEGATIVE,
    "repeated": theme.FALSE_NEGATIVE,
}
"""Colors of the theme that the CSS files use as variables, such as `var(--positive)`."""


def mount(name: str, root: str, *scripts: Path) -> Callable[..., Any]:
    """Register a component and return the function that draws it.

    Args:
        name: Name of the component in the page.
        root: CSS class of the element that the component fills.
        scripts: JavaScript files; the last one has the default export. A CSS file of the same name is included.
    """
    styles = [path for script in scripts if (path := script.with_suffix(".css")).is_file()]
    variables = " ".join(f"--{meaning}: {color};" for meaning, color in COLORS.items())
    return st.components.v2.component(
        name,
        html=f'<div class="{root}"></div>',
        css="\n".join([f".{root} {{ {variables} }}", *(path.read_text(encoding="utf-8") for path in styles)]),
        js="\n".join(path.read_text(encoding="utf-8") for path in (HERE / "dom.js", *scripts)),
    )
