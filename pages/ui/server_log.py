"""Records of the server's log: Streamlit writes parts of requests as their clients sent them."""

import logging
import traceback
from typing import Any

from bsc_core.formatting import printable

MAX_CHARACTERS = 4_000


class PrintableRecord(logging.LogRecord):
    """Log record of limited length, with control characters as escape sequences."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = _shortened("".join(traceback.format_exception(*self.exc_info)).rstrip("\n"))

    def getMessage(self) -> str:  # noqa: N802  # a method of the library
        """Return the message with its arguments."""
        return _shortened(super().getMessage())


def _shortened(text: str) -> str:
    """Return a text with escaped control characters, without its middle where it is long."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[: MAX_CHARACTERS // 2]} [...] {text[-MAX_CHARACTERS // 2 :]}"
    return printable(text)
