"""Records of the server's log: Streamlit writes parts of requests as their clients sent them."""

import logging
import traceback
from typing import Any

from bsc_core.formatting import printable
from pages.ui.server.rate_limits import RateLimit

MAX_CHARACTERS = 4_000
CAUSED_BY_CLIENTS = (  # loggers of records that any client can cause
    "streamlit.runtime.backend_operation_handler",
    "streamlit.error_util",
    "streamlit.runtime.app_session",
    "streamlit.web.server.starlette.starlette_auth_routes",
    "streamlit.web.server.starlette.starlette_websocket",
    "uvicorn.error",
)


def prepare_log() -> None:
    """Limit the length and the number of records that clients cause, and escape their control characters."""
    logging.setLogRecordFactory(PrintableRecord)
    for name in CAUSED_BY_CLIENTS:
        limit = RateLimit(rate=1.0, burst=10.0)
        logging.getLogger(name).addFilter(lambda record, limit=limit: limit.admits())  # type: ignore[misc]


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
