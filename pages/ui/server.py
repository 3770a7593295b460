"""Server of the app: Streamlit behind a check of the host and the origin of every request. `bsc app` starts it."""

import argparse
import os
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.starlette import App

APP = Path(__file__).parents[2] / "app.py"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ALLOWED_HOSTS = "BSC_ALLOWED_HOSTS"  # environment variable: additional host names, separated by commas
RESPONSE_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
POLICY_VIOLATION = 1008  # close code of a websocket; sent before it is accepted, the browser receives status 403


class RequestGuard:
    """ASGI middleware that refuses requests for an unknown host or from another origin, and adds security headers.

    A page of another site whose host name resolves to this machine (DNS rebinding) sends its own name as host. A page
    of another origin, also of another port of this machine, sends its origin with each websocket and cross-origin
    request.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        """Wrap an ASGI application. hosts: allowed host names in lower case, without port."""
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        reason = self._refusal(Headers(scope=scope))
        if reason is None:
            return await self.app(scope, receive, _with_headers(send))
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        return await PlainTextResponse(reason, status_code=403)(scope, receive, _with_headers(send))

    def _refusal(self, headers: Headers) -> str | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if _host_name(host) not in self.hosts:
            return f"This host is not allowed. Add its name to {ALLOWED_HOSTS} to open the app under it."
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "Requests from another origin are not allowed."
        return None


def _host_name(host: str) -> str | None:
    """Return the name in a Host header without its port; None if the header is malformed."""
    try:
        return None if "@" in host else urlsplit(f"//{host}").hostname
    except ValueError:  # an invalid IPv6 address
        return None


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(RESPONSE_HEADERS)
        await send(message)

    return send_with_headers


def allowed_hosts() -> frozenset[str]:
    """Return the host names under which the app may be opened, in lower case."""
    names = os.environ.get(ALLOWED_HOSTS, "").split(",")
    return frozenset([*LOCAL_HOSTS, *(name.strip().lower() for name in names if name.strip())])


@asynccontextmanager
async def _open_browser(app: App) -> AsyncIterator[dict[str, Any]]:
    """Open the browser once the server is about to accept connections."""
    if not st.get_option("server.headless"):
        threading.Timer(1.0, webbrowser.open, [f"http://localhost:{st.get_option('server.port')}"]).start()
    yield {}


app = App(APP, middleware=[Middleware(RequestGuard, hosts=allowed_hosts())], lifespan=_open_browser)


def main() -> None:
    """Serve the app until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int)
    parser.add_argument("--no-browser", action="store_true")
    arguments = parser.parse_args()
    sys.argv = [str(APP)]  # Streamlit reads the settings next to this file
    options: dict[str, Any] = {"server.headless": True} if arguments.no_browser else {}
    options |= {"server.port": arguments.port} if arguments.port else {}
    with suppress(KeyboardInterrupt):  # Ctrl-C
        app.run(config=options)


if __name__ == "__main__":
    main()
