"""Limit of the number of pages that are open at the same time."""

import os
import time
from collections import Counter, deque

from starlette.datastructures import Headers
from starlette.status import WS_1013_TRY_AGAIN_LATER
from starlette.types import ASGIApp, Receive, Scope, Send

from bsc_core.users.accounts import USER_HEADER
from pages.ui.server.html_pages import full_page
from pages.ui.server.request_guard import OTHER_SITES
from pages.ui.server.sign_in import PROVIDER_PATHS

MAX_SESSIONS = "BSC_MAX_SESSIONS"  # environment variable: pages that may be open at the same time
DEFAULT_SESSIONS = 60
PAGES_OF_USER = 3  # that a user may open, at least, although another one fills the server
RETRY_SECONDS = 60
STREAM = "/_stcore/stream"


class SessionLimit:
    """ASGI middleware that limits the number of open pages; further ones get a message.

    A page counts from its request until its websocket closes, or from its websocket if it is opened from another site.
    A page that was sent can always open its websocket, and reopen it after an interruption, so open pages continue to
    work. In a shared app, a user still gets a page if another one has more than PAGES_OF_USER, and this user has fewer
    than that, or fewer than half as many as the other. So nobody can keep the others out, also not those who share a
    link: `sessions` more websockets are for pages that reconnect, and as many for such users.
    """

    def __init__(self, app: ASGIApp, sessions: int) -> None:
        """Wrap an ASGI application.

        Args:
            app: The application.
            sessions: Highest number of pages that may be open.
        """
        self.app = app
        self.sessions = sessions
        self._open: Counter[str] = Counter()  # websockets by user
        self._opening: deque[tuple[float, str]] = deque()  # time and user of pages that have not opened a websocket yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"].endswith(STREAM):
            return await self._serve_session(scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "GET" and _requests_page(scope):
            user = Headers(scope=scope).get(USER_HEADER, "")
            if self._is_full(user):
                return await full_page(self.sessions, RETRY_SECONDS)(scope, receive, send)
            if Headers(scope=scope).get("sec-fetch-site") not in OTHER_SITES:  # which could open any number of pages
                self._opening.append((time.monotonic(), user))
        return await self.app(scope, receive, send)

    async def _serve_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = Headers(scope=scope).get(USER_HEADER, "")
        is_full = self._is_full(user)
        sent = next((one for one in self._opening if one[1] == user), None)
        may_have_more = self._open.total() < 2 * self.sessions and (not user or self._open[user] < self.sessions)
        may_reconnect = may_have_more and _is_reconnecting(scope)  # a client can name any session
        if is_full and sent is None and not may_reconnect:
            reason = "The server is full."
            return await send({"type": "websocket.close", "code": WS_1013_TRY_AGAIN_LATER, "reason": reason})
        if sent is not None:
            self._opening.remove(sent)
        self._open[user] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._open[user] -= 1
            self._open += Counter()  # without users who have no page

    def _is_full(self, user: str) -> bool:
        while self._opening and time.monotonic() - self._opening[0][0] > RETRY_SECONDS:  # closed before it was loaded
            self._opening.popleft()
        pages = self._open + Counter(name for _, name in self._opening)
        most = max(pages.values(), default=0)
        has_few = bool(user) and most > PAGES_OF_USER and pages[user] < max(PAGES_OF_USER, most // 2)
        if has_few and pages.total() < 3 * self.sessions:
            return False
        return pages.total() >= self.sessions


def _requests_page(scope: Scope) -> bool:
    """Return whether a browser requests a page, rather than a file of it or a path that is open to visitors."""
    is_page = not scope["path"].startswith("/_stcore/") and scope["path"] not in PROVIDER_PATHS
    return is_page and "text/html" in Headers(scope=scope).get("accept", "")


def _is_reconnecting(scope: Scope) -> bool:
    """Return whether a websocket names its previous session, after `streamlit` and a token."""
    names = Headers(scope=scope).get("sec-websocket-protocol", "").split(",")
    return len(names) > 2 and bool(names[2].strip())


def max_sessions() -> int:
    """Return how many pages may be open at the same time."""
    return int(os.environ.get(MAX_SESSIONS) or DEFAULT_SESSIONS)
