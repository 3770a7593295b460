"""Server of the app: Streamlit, with checks of the host, the origin and, if shared, the user of every request.

`bsc app` starts it. `bsc app --host` shares the app with the users of `users.toml` in the runs folder.
"""

import argparse
import asyncio
import base64
import gzip
import hashlib
import json
import os
import re
import socket
import sys
import threading
import time
import tomllib
import webbrowser
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import psutil
import streamlit as st
from google.protobuf.message import DecodeError
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config as streamlit_config
from streamlit.auth_util import (
    encode_provider_token,
    get_origin_from_redirect_uri,
    get_secrets_auth_section,
)
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime import memory_media_file_storage
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.media_file_manager import MediaFileMetadata
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests, ScriptRequestType
from streamlit.runtime.session_manager import SessionClientDisconnectedError
from streamlit.starlette import App
from streamlit.web.server.server_util import get_cookie_secret
from streamlit.web.server.starlette import starlette_auth_routes, starlette_server
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient

from bsc_core.data.io.limits import MAX_DATA_MB
from bsc_core.errors import BscError
from bsc_core.files import error_reason
from bsc_core.runs import RunStore
from bsc_core.users import (
    SHARED,
    USER_HEADER,
    User,
    key_hash,
    read_users,
    user_with_email,
    user_with_key,
    write_audit,
)

APP = Path(__file__).parents[2] / "app.py"
sys.path.insert(0, str(APP.parent))  # which is not a package of the installed project

from pages.ui.components.turns import count_preparation  # noqa: E402
from pages.ui.connections import LimitedHttp, LimitedWebSocket  # noqa: E402
from pages.ui.paces import PROVIDER_PACE, TRY_AGAIN_LATER, VISITORS_PACE, AddressPaces, Pace, StudentPace  # noqa: E402
from pages.ui.server_log import prepare_log  # noqa: E402

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("0.0.0.0", "::")
ALLOWED_HOSTS = "BSC_ALLOWED_HOSTS"  # environment variable: additional host names, separated by commas
HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
OTHER_SITES = ("cross-site", "same-site")  # `Sec-Fetch-Site`; other ports of this machine are the same site
RESPONSE_HEADERS = {
    "Content-Security-Policy": "connect-src 'self' blob: data:; font-src 'self' data:; img-src 'self' blob: data:; "
    "frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
MAX_SESSIONS = "BSC_MAX_SESSIONS"  # environment variable: pages that may be open at the same time
DEFAULT_SESSIONS = 60
PAGES_OF_USER = 3  # that a user may open although another one fills the server
RETRY_SECONDS = 60
FULL_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="{seconds}">
<title>Server full · BSC Lab</title>
<style>{style}</style>
<h1>The server is full</h1>
<p>{sessions} pages are open, the most that this server allows. Try again in a minute; this page reloads itself.</p>
<p>Runs are not affected.</p>
</html>
"""
STATIC_APP = "staticAppId"  # parameter with which Streamlit's page runs what another site sends, instead of this app
STREAM = "/_stcore/stream"
STATIC_FOLDER = Path(st.__file__).parent / "static"
COMPRESSED_TYPES = {".js": "text/javascript", ".css": "text/css"}
MESSAGE_TOO_BIG = 1009  # close code of a websocket
MAX_UNREAD_BYTES = 32 * 2**20  # that wait to be sent to a client
DOWNLOAD_SECONDS = 60  # after which a file that was built for a download may be removed
MAX_MESSAGE_BYTES = 1 << 20  # of a client: values of widgets, such as a selection on a map
MAX_STUDENT_BYTES = 1 << 17  # of a message from a student; Streamlit keeps the values for minutes
MAX_STUDENT_ENTRIES = 10_000
SEE_OTHER = 303
NAME = re.compile(r"[\x20-\x7e]{0,300}")
DOWNLOADS = ("deferred_file", "dataframe_chunk")
POLICY_VIOLATION = 1008  # close code of a websocket; sent before it is accepted, the browser receives status 403


class RequestGuard:
    """ASGI middleware that refuses requests for an unknown host or from another origin, and adds security headers.

    A page of another site whose host name resolves to this machine (DNS rebinding) sends that name as host. A page
    of another origin, also of another port of this machine, sends its origin with each websocket and cross-origin
    request. Browsers also mark frames, images and scripts that another site loads. A link of another site is followed,
    except to sign out.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        """Wrap an ASGI application.

        Args:
            app: The application.
            hosts: Allowed host names in lower case, without port.
        """
        self.app = app
        self.hosts = hosts
        self._refused = AddressPaces(*VISITORS_PACE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        reason = self._refusal(scope, Headers(scope=scope))
        if reason is None:
            _remove_unusable_headers(scope)
            with suppress(ClientDisconnect):  # while its request was read
                await self.app(scope, receive, _with_headers(send))
            return None
        if (turn := await self._refused.of_request(scope).wait(scope, receive, send)) is None:
            return None
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        return await PlainTextResponse(reason, status_code=403)(scope, turn, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> str | None:
        path, host, origin = scope["path"], headers.get("host", "").lower(), headers.get("origin")
        if _host_name(host) not in self.hosts:
            return f"This host is not allowed. Add its name to {ALLOWED_HOSTS} to open the app under it."
        own = (f"http://{host}", f"https://{host}")
        is_foreign = origin is not None and origin.lower() not in own
        signs_out = path in (SIGN_OUT, PROVIDER_SIGN_OUT)
        if signs_out and "sec-fetch-site" not in headers:  # browsers send it to https and localhost only
            is_foreign |= not headers.get("referer", "").lower().startswith(tuple(f"{one}/" for one in own))
        is_link = headers.get("sec-fetch-dest") == "document" and not signs_out
        if is_foreign or (headers.get("sec-fetch-site") in OTHER_SITES and not is_link):
            return "Requests from another origin are not allowed."
        if STATIC_APP in unquote_plus(scope.get("query_string", b"").decode("latin-1")):
            return f"The parameter {STATIC_APP} is not allowed."
        return None


def _remove_unusable_headers(scope: Scope) -> None:
    """Remove too many cookies, those with escape sequences, different keys of one request, and ranges.

    Reading cookies takes Python time with their number, and with the square of escape sequences, which this app does
    not set. A second key is set by another site of the same domain. For each requested range of a file, and for each
    compressed download, the server would keep a copy until it is read.
    """
    removed = [b"range", *([b"accept-encoding"] if scope["path"].startswith(MEDIA_PATH) else [])]
    cookies = [value for name, value in scope["headers"] if name == b"cookie"]
    if sum(map(len, cookies)) > MAX_COOKIE_BYTES or sum(value.count(b";") for value in cookies) > MAX_COOKIES:
        removed.append(b"cookie")
    scope["headers"] = [
        (name, _usable_cookies(value) if name == b"cookie" else value)
        for name, value in scope["headers"]
        if name not in removed
    ]


def _usable_cookies(header: bytes) -> bytes:
    cookies = [one for one in header.split(b";") if b"\\" not in one]
    keys = {one.strip() for one in cookies if one.strip().startswith(f"{KEY_COOKIE}=".encode())}
    return b";".join(one for one in cookies if len(keys) < 2 or one.strip() not in keys)


class SessionLimit:
    """ASGI middleware that limits the number of open pages; further ones get a message.

    A page counts from its request until its websocket closes, or from its websocket if it is opened from another site.
    A page that was sent can always open its websocket, and reopen it after an interruption, so open pages continue to
    work. In a shared app, a user with fewer than PAGES_OF_USER pages still gets one if another user has more than
    that, so nobody can keep the others out: `sessions` more websockets are for pages that reconnect, and as many for
    such users.
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
                page = FULL_PAGE.format(style=PAGE_STYLE, seconds=RETRY_SECONDS, sessions=self.sessions)
                headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
                return await HTMLResponse(page, status_code=503, headers=headers)(scope, receive, send)
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
            return await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": reason})
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
        has_one_many = bool(user) and max(pages.values(), default=0) > PAGES_OF_USER
        if has_one_many and pages[user] < PAGES_OF_USER and pages.total() < 3 * self.sessions:
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


class CompressedAssets:
    """ASGI middleware that sends Streamlit's scripts and styles compressed, from memory.

    Streamlit sends them uncompressed, about 3.5 MB for a first visit instead of 1.1 MB, and reads them in threads that
    wait for the threads of the pages.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an ASGI application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"].endswith(tuple(COMPRESSED_TYPES)):
            response = _compressed(scope["path"])
            if response is not None and "gzip" in Headers(scope=scope).get("accept-encoding", ""):
                return await response(scope, receive, send)
        return await self.app(scope, receive, send)


def _compressed(path: str) -> Response | None:
    """Return the compressed file of a path such as `/static/js/index.js`; None if there is none."""
    try:
        file = (STATIC_FOLDER / path.lstrip("/")).resolve()
        if not file.is_relative_to(STATIC_FOLDER / "static") or not file.is_file():
            return None
    except (OSError, ValueError):  # a name that is too long or contains a zero byte
        return None
    return _compressed_file(file)


@lru_cache(maxsize=512)
def _compressed_file(file: Path) -> Response:
    headers = {  # names of these files contain their hash
        "Cache-Control": "public, immutable, max-age=31536000",
        "Content-Encoding": "gzip",
        "Vary": "Accept-Encoding",
    }
    return Response(gzip.compress(file.read_bytes(), 6), media_type=COMPRESSED_TYPES[file.suffix], headers=headers)


def _host_name(host: str) -> str | None:
    """Return the name in a Host header in lower case, without its port; None if the header is malformed."""
    match = HOST.fullmatch(host)
    return match and canonical_host(match["name"])


def canonical_host(host: str) -> str:
    """Return an IP address in its shortest notation, without brackets; a host name in lower case."""
    name = host.strip().lower()
    try:
        return ip_address(name.strip("[]")).compressed
    except ValueError:
        return name


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in RESPONSE_HEADERS.items():
                headers.setdefault(name, value)
        body = memoryview(message.get("body", b"") if message["type"] == "http.response.body" else b"")
        start = 0
        while len(body) - start > MAX_PART:
            await send({**message, "body": bytes(body[start : start + MAX_PART]), "more_body": True})
            await asyncio.sleep(0)  # others are served between the parts
            start += MAX_PART
        await send({**message, "body": bytes(body[start:])} if start else message)

    return send_with_headers


MAX_PART = 65_536  # bytes of an answer that are sent at a time: a connection that does not read gets no more
SIGN_IN, SIGN_OUT, PROVIDER_SIGN_OUT = "/sign-in", "/sign-out", "/auth/logout"
HEALTH_PATH, CALLBACK_PATH = "/_stcore/health", "/oauth2callback"
PROVIDER_PATHS = "/auth/login", PROVIDER_SIGN_OUT, CALLBACK_PATH
UPLOAD_PATH, METRICS_PATH, MEDIA_PATH = "/_stcore/upload_file", "/_stcore/metrics", "/media/"
USUAL_REQUESTS = ("rerun_script", "stop_script", "file_urls_request", "app_heartbeat", "backend_operation_request")
"""Messages that a browser sends; others clear the caches of all users, for example."""
KEPT = ("email", "email_verified", "is_logged_in", "origin", "provider")  # values of a provider in a cookie
KEY_COOKIE = "bsc_key"
MAX_COOKIES, MAX_COOKIE_BYTES = 200, 2**15  # of a request; those of a browser for a host are fewer
COOKIE_SECONDS = 30 * 24 * 3600
ACCEPTED, MAX_QUEUED = 16, 512  # connections that are accepted at a time, and that wait
QUEUE_SECONDS = 5.0  # after which asyncio has certainly set the length of the queue, to ACCEPTED
MAX_FORM_BYTES, MAX_FIELDS = 8192, 10
MAX_FILE_NAMES = 100  # in a message that asks where to upload files
MAX_WIDGETS, MAX_WIDGETS_OF_STUDENT = 1_000, 200  # in a message, which has all controls of a page
MAX_QUERY, MAX_QUERY_OF_STUDENT = 2**17, 2**15  # characters of the parameters of a page
MAX_TABLES, MAX_ADDED_ROWS = 100, 100  # tables that users edit, and rows that they add to one
CHECK_SECONDS = 20.0  # between checks that the user of a connection is still signed in
AUDIT_SECONDS = 1.0  # at most one line per user, action and interval is written to the audit log
KEY_SCRIPT = """
const key = document.querySelector("input[name=key]");
if (location.hash.length > 1) {
  key.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  key.form.submit();
}
"""
PAGE_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { max-width: 26rem; margin: 15vh auto; padding: 0 1rem; line-height: 1.5; }
h1 { font-size: 1.5rem; }
form { display: grid; gap: 0.5rem; margin: 1.5rem 0; }
input, button, a.button { font: inherit; padding: 0.5rem 0.75rem; border-radius: 8px; border: 1px solid #8A8F98; }
button, a.button { background: #0072B2; color: #FFFFFF; border-color: #0072B2; text-decoration: none; }
a.button { display: inline-block; }
"""
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in · BSC Lab</title>
<style>{style}</style></head>
<body><main><h1>BSC Lab</h1>{content}</main></body>
</html>
"""
REPLACE_FORM = """<p>You are signed in as {current}.</p>
<form method="post" action="{action}"><input type="hidden" name="next" value="{next}">
<input type="hidden" name="key" value="{key}"><input type="hidden" name="replaces" value="{current}">
<button>Sign in as {name}</button></form>
<p><a href="/">Stay signed in as {current}</a></p>"""
KEY_FORM = """<form method="post" action="{action}"><input type="hidden" name="next" value="{next}">
<label for="key">Key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required>
<button>Sign in</button></form><script>{script}</script>"""


class SignIn:
    """ASGI middleware that requires users of a shared app to sign in, and adds their name to each request.

    A user signs in with a secret link, `/sign-in#KEY`, or with an OpenID Connect provider, through Streamlit. The
    browser sends the key in the body of a request, so no log contains it. The key is the value of the cookie, so
    removing a user signs them out. A browser that is signed in as another user asks first, since the link may come
    from another site.
    """

    def __init__(self, app: ASGIApp, root: Path) -> None:
        """Wrap an ASGI application.

        Args:
            app: The application.
            root: The runs folder with the file of users.
        """
        self.app = app
        self.root = root
        self._last_event: dict[tuple[str, str], float] = {}  # time of the last event by user and action
        self._students: defaultdict[str, StudentPace] = defaultdict(StudentPace)  # by user
        self._visitors, self._callbacks = AddressPaces(*VISITORS_PACE), AddressPaces(*PROVIDER_PACE)
        self._confirmed: set[str] = set()  # digests of the cookies of a provider whose sign-in is in the audit log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        del MutableHeaders(scope=scope)[USER_HEADER]
        path = scope["path"]
        if scope["type"] == "http" and path in (SIGN_IN, SIGN_OUT):
            if (turn := await self._visitors.of_request(scope).wait(scope, receive, send)) is None:
                return None
            response = self._sign_out() if path == SIGN_OUT else await self._sign_in(Request(scope, turn))
            return await response(scope, turn, send)
        cookies = HTTPConnection(scope).cookies
        user, email = self._user(cookies)
        if (pace := self._pace(scope, user)) is not None:
            if (turn := await pace.wait(scope, receive, send)) is None:
                return None
            receive = turn
        if path == HEALTH_PATH or (path in PROVIDER_PATHS and get_secrets_auth_section()):
            return await self.app(scope, receive, send)
        if user is None or (path.startswith(UPLOAD_PATH) and not user.may_launch):
            if scope["type"] == "websocket":
                return await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "Sign in first."})
            response = PlainTextResponse("Students cannot upload files.", 403) if user else self._page(scope, email)
            return await response(scope, receive, send)
        if email and (digest := key_hash(cookies[USER_COOKIE_NAME])) not in self._confirmed:
            self._confirmed.add(digest)
            self._audit(user.name, "sign in")
        if path == METRICS_PATH and not user.is_owner:
            return await PlainTextResponse("Only the owner may read the metrics.", 403)(scope, receive, send)
        MutableHeaders(scope=scope)[USER_HEADER] = user.signed_in_as
        if scope["type"] == "websocket":
            receive = _while_signed_in(receive, lambda: self._is_signed_in(user, cookies))
        if user.may_launch:
            receive = _without_refused(receive, user) if scope["type"] == "websocket" else receive
            return await self.app(scope, receive, send)
        student = self._students[user.name]
        if scope["type"] == "http":
            return await self.app(scope, receive, student.paced(send))
        if (seconds := student.opening_delay()) is None:
            if await student.refused.wait(scope, receive, send) is None:
                return None
            return await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": "Too many pages."})
        if seconds:
            await asyncio.sleep(seconds)  # before the session exists
        with student.page() as delay:
            return await self.app(scope, _without_refused(_with_delays(receive, delay), user), send)

    def _pace(self, scope: Scope, user: User | None) -> Pace | None:
        """Return the pace of a request; None for one of a member, or one that opens a page of a student."""
        if scope["path"] == CALLBACK_PATH and get_secrets_auth_section():
            return self._callbacks.of_request(scope)
        if user is None:
            return self._visitors.of_request(scope)
        return None if user.may_launch or scope["type"] == "websocket" else self._students[user.name].requests

    def _is_signed_in(self, user: User, cookies: Mapping[str, str]) -> bool:
        current, _ = self._user(cookies)
        return current is not None and current.signed_in_as == user.signed_in_as

    def _user(self, cookies: Mapping[str, str]) -> tuple[User | None, str | None]:
        """Return the user of a request, and the email address that the provider confirmed."""
        try:
            users = read_users(self.root).values()
        except BscError:  # made invalid while the server runs: nobody is signed in
            return None, None
        if (key := cookies.get(KEY_COOKIE)) and (user := user_with_key(users, key)):
            return user, None
        email = confirmed_email(cookies)
        return (user_with_email(users, email) if email else None), email

    async def _sign_in(self, request: Request) -> Response:
        if request.method != "POST":
            return self._page(request.scope, None, status=200)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                return PlainTextResponse("The form is too long.", 413)
        try:
            fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MAX_FIELDS)
        except ValueError:
            return PlainTextResponse("The form has too many fields.", 413)
        form = {name: values[0] for name, values in fields.items()}
        try:
            user = user_with_key(read_users(self.root).values(), form.get("key", "").strip())
        except BscError:
            user = None
        if user is None:
            self._audit("", "refused key")
            error = "This key is not valid. Ask the owner of this app for a new link."
            return self._page(request.scope, None, error, target=form.get("next", "/"))
        current, _ = self._user(request.cookies)
        if current is not None and current.name not in (user.name, form.get("replaces")):
            texts = {"current": current.name, "name": user.name, "key": form["key"], "next": form.get("next", "/")}
            return _sign_in_page(REPLACE_FORM.format(action=SIGN_IN, **{n: escape(t) for n, t in texts.items()}), 200)
        self._audit(user.name, "sign in")
        response = RedirectResponse(_local_path(form.get("next", "/")), status_code=SEE_OTHER)
        secure = request.headers.get("X-Forwarded-Proto", request.url.scheme) == "https"
        key = form["key"].strip()
        response.set_cookie(KEY_COOKIE, key, COOKIE_SECONDS, httponly=True, samesite="lax", secure=secure)
        return response

    def _sign_out(self) -> Response:
        response = RedirectResponse(PROVIDER_SIGN_OUT if get_secrets_auth_section() else "/", status_code=SEE_OTHER)
        response.delete_cookie(KEY_COOKIE)
        return response

    def _audit(self, user: str, action: str) -> None:
        """Write an event to the audit log, unless the same one was written within the last second."""
        if (now := time.monotonic()) > self._last_event.get((user, action), -AUDIT_SECONDS) + AUDIT_SECONDS:
            self._last_event[user, action] = now
            try:
                write_audit(self.root, user, action)
            except OSError as error:  # such as a full disk, which only a signed-in owner can clear
                sys.stderr.write(f"bsc: {self.root}: the audit log cannot be written ({error_reason(error)})\n")

    def _page(
        self, scope: Scope, email: str | None, error: str = "", *, target: str = "", status: int = 401
    ) -> Response:
        """Return the page on which a user signs in.

        Args:
            scope: The request.
            email: Address that the provider confirmed but that belongs to no user.
            error: Why signing in failed.
            target: The page to open afterwards; by default the requested one.
            status: Status of the response.
        """
        parts = [f"<p role='alert'><strong>{escape(error)}</strong></p>"] if error else []
        if email:
            parts.append(f"<p>{escape(email)} is not a user of this app. Ask its owner to add the address.</p>")
            parts.append(f"<p><a href='{SIGN_OUT}'>Sign out</a></p>")
        elif get_secrets_auth_section():
            token = escape(encode_provider_token("default"))
            parts.append(f"<p><a class='button' href='/auth/login?provider={token}'>Sign in with your account</a></p>")
        parts.append("<p>Open the link that the owner of this app gave you, or enter its key.</p>")
        query = scope.get("query_string", b"").decode("latin-1")
        requested = "/" if scope["path"] == SIGN_IN else scope["path"] + (f"?{query}" if query else "")
        parts.append(KEY_FORM.format(action=SIGN_IN, next=escape(target or requested), script=KEY_SCRIPT))
        return _sign_in_page("\n".join(parts), status)


def _sign_in_page(content: str, status: int) -> Response:
    policy = (
        f"default-src 'none'; style-src {_source(PAGE_STYLE)}; script-src {_source(KEY_SCRIPT)}; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    )
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
    return HTMLResponse(PAGE.format(style=PAGE_STYLE, content=content), status_code=status, headers=headers)


def _while_signed_in(receive: Receive, is_signed_in: Callable[[], bool]) -> Receive:
    """End the connection of a user who was removed, or has another key or role, also if it sends nothing.

    One more message is received, so that the page can show that the user has no access.
    """
    pending: asyncio.Future[Message] | None = None
    is_last = False

    async def receive_checked() -> Message:
        nonlocal pending, is_last
        if is_last:
            await asyncio.sleep(CHECK_SECONDS)
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}
        while True:
            pending = pending or asyncio.ensure_future(receive())
            try:
                done, _ = await asyncio.wait({pending}, timeout=CHECK_SECONDS)
            except asyncio.CancelledError:
                pending.cancel()
                raise
            is_last = not is_signed_in()
            if done:
                message, pending = pending.result(), None
                return message
            if is_last:
                pending.cancel()
                return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}

    return receive_checked


def _without_refused(receive: Receive, user: User) -> Receive:
    """Leave out the messages that no page sends, such as one that clears the caches of all users.

    Left out are also those of students that are large or ask where to upload files, and those with more files, controls
    or added rows of a table than a page has. A message above the limit ends the connection before it is parsed, which
    takes 40 times its size of memory.
    """

    async def receive_others() -> Message:
        message = await receive()
        while message["type"] != "websocket.receive" or len(message.get("bytes") or b"") <= MAX_MESSAGE_BYTES:
            if not _is_refused(message, user):
                return message
            message = await receive()
        return {"type": "websocket.disconnect", "code": MESSAGE_TOO_BIG}

    return receive_others


def _with_delays(receive: Receive, delay: Callable[[], float]) -> Receive:
    """Delay messages that come too fast: each is parsed on the thread that serves everybody, and most draw a page."""

    async def receive_later() -> Message:
        message = await receive()
        if message["type"] == "websocket.receive" and (seconds := delay()):
            await asyncio.sleep(seconds)
        return message

    return receive_later


def _is_refused(message: Message, user: User) -> bool:
    if message["type"] != "websocket.receive":
        return False
    content = message.get("bytes")
    if content is None:  # text, which Streamlit does not expect
        return True
    if not user.may_launch and (len(content) > MAX_STUDENT_BYTES or _entries(content) > MAX_STUDENT_ENTRIES):
        return True
    parsed = BackMsg()
    try:
        parsed.ParseFromString(content)
    except DecodeError:
        return True
    kind, widgets = parsed.WhichOneof("type"), parsed.rerun_script.widget_states.widgets
    if kind == "file_urls_request" and not user.may_launch:
        return True
    most = (MAX_WIDGETS, MAX_QUERY) if user.may_launch else (MAX_WIDGETS_OF_STUDENT, MAX_QUERY_OF_STUDENT)
    has_usual_size = len(widgets) <= most[0] and len(parsed.rerun_script.query_string) <= most[1]
    has_usual_size &= len(parsed.file_urls_request.file_names) <= MAX_FILE_NAMES
    is_usual = kind in USUAL_REQUESTS and has_usual_size and _has_usual_names(parsed)
    tables = [widget.string_value for widget in widgets if widget.string_value.lstrip().startswith("{")]
    return not is_usual or len(tables) > MAX_TABLES or any(map(_adds_many_rows, tables))


def _has_usual_names(parsed: BackMsg) -> bool:
    """Whether the names in a message, which Streamlit writes to the log as they are, can be those of a page."""
    request, state = parsed.backend_operation_request, parsed.rerun_script
    if parsed.HasField("backend_operation_request") and request.WhichOneof("payload") not in DOWNLOADS:
        return False
    names = [request.request_id, request.session_id, request.deferred_file.file_id, request.dataframe_chunk.source_id]
    names += [state.page_script_hash, state.page_name, state.fragment_id]
    return all(map(NAME.fullmatch, names))


def _entries(content: bytes) -> int:
    """Return the most entries that JSON values in a message can have, each of which needs about 200 bytes of memory."""
    return sum(map(content.count, (b"[", b"{", b",")))


def _adds_many_rows(table: str) -> bool:
    """Whether the changes of an edited table have many added rows, which Streamlit adds one by one."""
    try:
        return len(json.loads(table).get("added_rows") or ()) > MAX_ADDED_ROWS
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


_create_provider_client = starlette_auth_routes._create_oauth_client
_set_provider_cookie = starlette_auth_routes._set_auth_cookie


@lru_cache(maxsize=8)
def _provider_client(provider: str) -> tuple[Any, str]:
    """Return the client of a provider, which Streamlit builds for each request: its TLS context takes 0.1 s."""
    import httpx  # installed with authlib, which only this needs

    client, redirect = _create_provider_client(provider)
    client.client_kwargs["verify"] = httpx.create_ssl_context()
    return client, redirect


async def _set_short_cookie(response: Response, user_info: dict[str, Any], tokens: dict[str, Any]) -> None:
    """Store only the values of a user that are needed, so that the cookie is not divided."""
    await _set_provider_cookie(response, {name: user_info[name] for name in KEPT if name in user_info}, tokens)


def confirmed_email(cookies: Mapping[str, str]) -> str | None:
    """Return the email address in the cookie of `st.login`; None if there is no valid cookie."""
    if USER_COOKIE_NAME not in cookies or not get_secrets_auth_section():
        return None

    def decode(name: str) -> bytes | None:
        value = cookies.get(name)
        return None if value is None else decode_signed_value(get_cookie_secret(), name, value.encode("latin-1"))

    try:
        values = json.loads(decode(USER_COOKIE_NAME) or b"{}")  # parts of a divided cookie are signed one by one
    except ValueError:
        return None
    if not isinstance(values, dict):
        return None
    is_current = values.get("is_logged_in") is True and values.get("origin") == get_origin_from_redirect_uri()
    is_confirmed = str(values.get("email_verified", True)).lower() == "true"  # some providers send it as text
    return str(values["email"]) if is_current and is_confirmed and values.get("email") else None


def _local_path(path: str) -> str:
    """Return a path of this app, or `/` for the address of another site."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local and "\\" not in path else "/"


def _source(text: str) -> str:
    """Return the source expression of a content security policy that allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def allowed_hosts(address: str = "") -> frozenset[str]:
    """Return the host names under which the app may be opened, in lower case.

    Args:
        address: Address that the server listens on, if not localhost; 0.0.0.0 and :: are all addresses of the machine.
    """
    names = [*os.environ.get(ALLOWED_HOSTS, "").split(","), address]
    if address in ANY_ADDRESS:
        names += [socket.gethostname(), socket.getfqdn()]
        names += [entry.address for entries in psutil.net_if_addrs().values() for entry in entries]
    return frozenset([*LOCAL_HOSTS, *(canonical_host(name) for name in names if name.strip())])


def max_sessions() -> int:
    """Return how many pages may be open at the same time."""
    return int(os.environ.get(MAX_SESSIONS) or DEFAULT_SESSIONS)


def _listeners() -> Iterator[socket.socket]:
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.fd >= 0:
            with socket.socket(fileno=os.dup(connection.fd)) as listener:
                yield listener


def _disable_nagle() -> None:
    """Turn off Nagle's algorithm on the listening sockets; their connections inherit the setting.

    asyncio does so only for sockets that it creates. With the algorithm, a response waits up to 40 ms for an
    acknowledgment.
    """
    for listener in _listeners():
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _lengthen_queues() -> None:
    """Let many connections wait until they are accepted; asyncio accepts ACCEPTED of them before anything else."""
    for listener in _listeners():
        listener.listen(MAX_QUEUED)


@asynccontextmanager
async def _open_browser(app: App) -> AsyncIterator[dict[str, Any]]:
    """Prepare the sockets, and open the browser once the server is about to accept connections."""
    _disable_nagle()
    asyncio.get_running_loop().call_later(QUEUE_SECONDS, _lengthen_queues)
    if not st.get_option("server.headless"):
        threading.Timer(1.0, webbrowser.open, [f"http://localhost:{st.get_option('server.port')}"]).start()
    yield {}


def make_app(address: str | None = None, root: Path | None = None) -> App:
    """Return the ASGI application; with the runs folder `root`, only its users may open it."""
    middleware = [Middleware(RequestGuard, hosts=allowed_hosts(address or ""))]
    if root is not None:
        middleware.append(Middleware(SignIn, root=root))
    middleware += [Middleware(SessionLimit, sessions=max_sessions()), Middleware(CompressedAssets)]
    return App(APP, middleware=middleware, lifespan=_open_browser)


def _trusted_files(paths: list[str]) -> list[str]:
    """Leave out the settings in the working folder, which may be of others and can name servers of fonts.

    Those of the user and of the app remain, and the secrets, with which people sign in.
    """
    own = (Path.home(), APP.parent)
    return [path for path in paths if Path(path).name != "config.toml" or Path(path).parents[1] in own]


def sign_in_problem(users: dict[str, User]) -> str | None:
    """Return why no owner can sign in to a shared app; None if one can."""
    has_provider = any(map(_configures_provider, (Path.cwd(), Path.home(), APP.parent)))
    if any(user.is_owner and (user.key_sha256 or (user.email and has_provider)) for user in users.values()):
        return None
    if any(user.email for user in users.values()) and not has_provider:
        return "users sign in with their email address, but .streamlit/secrets.toml has no [auth] section"
    return "--host needs an owner who can sign in; add one with `bsc users add NAME --role owner`"


def _configures_provider(folder: Path) -> bool:
    """Whether the secrets in a folder configure a provider; Streamlit itself reads them once it runs."""
    try:
        return "auth" in tomllib.loads((folder / ".streamlit" / "secrets.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _limit_waiting_messages() -> None:
    """End the session of a client that does not read: Streamlit lets 500 messages of any size wait for it."""
    write = StarletteSessionClient.write_forward_msg

    def write_limited(client: Any, message: ForwardMsg) -> None:
        if sum(map(len, client._send_queue._queue)) > MAX_UNREAD_BYTES:
            client._closed.set()
            raise SessionClientDisconnectedError
        write(client, message)

    StarletteSessionClient.write_forward_msg = write_limited  # type: ignore[method-assign]


def _keep_downloads() -> None:
    """Keep files that were built for a download; Streamlit removes them when two scripts of any user have ended."""

    def mark_for_delete(file: Any) -> None:
        file.marked = getattr(file, "marked", time.monotonic())

    def is_marked_for_delete(file: Any) -> bool:
        return time.monotonic() - getattr(file, "marked", time.monotonic()) > DOWNLOAD_SECONDS

    MediaFileMetadata.mark_for_delete = mark_for_delete  # type: ignore[method-assign]
    MediaFileMetadata.is_marked_for_delete = property(is_marked_for_delete)  # type: ignore[assignment, method-assign]
    memory_media_file_storage._calculate_file_id = _file_id


def _ignore_controls_of_timers() -> None:
    """Keep the values of controls when a timer redraws a part of a page: a change of a control sends a request itself.

    The browser sends all values, also those that the server has changed and the page does not show yet. Streamlit would
    take them for changes by the user, such as from the run that a button opened back to the one before.
    """
    request_rerun = ScriptRequests.request_rerun

    def request_without_controls(requests: ScriptRequests, data: RerunData) -> bool:
        # Without values, a request that waits keeps its own; empty values would replace them.
        return request_rerun(requests, replace(data, widget_states=None) if data.is_auto_rerun else data)

    ScriptRequests.request_rerun = request_without_controls  # type: ignore[method-assign]


def _ignore_timers_of_other_pages() -> None:
    """Drop requests to draw a part of a page that the user has left.

    The part can be one of every page, such as the active runs in the sidebar. Streamlit would then tell the browser
    that the previous page is drawn, and the browser would remove all elements of the new one.
    """
    run_script, request_rerun = ScriptRunner._run_script, ScriptRequests.request_rerun

    def run_for_current_page(runner: ScriptRunner, data: RerunData) -> None:
        current = runner._pages_manager.current_page_script_hash
        if not (data.fragment_id_queue and current and data.page_script_hash not in ("", current)):
            run_script(runner, data)

    def request_for_same_page(requests: ScriptRequests, data: RerunData) -> bool:
        waiting = requests._rerun_data if requests._state == ScriptRequestType.RERUN else None
        if data.is_auto_rerun and waiting is not None and waiting.page_script_hash != data.page_script_hash:
            return True  # the user opens another page, which the request of the timer would replace
        return request_rerun(requests, data)

    ScriptRunner._run_script = run_for_current_page  # type: ignore[method-assign]
    ScriptRequests.request_rerun = request_for_same_page  # type: ignore[method-assign]


def _watch_no_files() -> None:
    """Watch no source files for a session that reconnects either; Streamlit does so whatever `fileWatcherType` is.

    It needs about a second of the event loop for each, in which the pages of all users wait.
    """
    AppSession.register_file_watchers = lambda session: None  # type: ignore[method-assign]


def _file_id(content: bytes, mimetype: str, name: str | None = None) -> str:
    """Return the id of a downloaded file; that of Streamlit ignores most bytes of a file of more than 1 MiB."""
    parts = (mimetype.encode(), (name or "").encode(), content)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _raise_file_limit() -> None:
    """Let this process open as many files, such as connections, as the system allows it."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def main() -> int:
    """Serve the app until it is interrupted; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--no-browser", action="store_true")
    arguments = parser.parse_args()
    sys.argv = [str(APP)]  # Streamlit reads the settings next to this file
    options: dict[str, Any] = {"logger.enableRich": False}  # which would not use the records of `server_log`
    options |= {"server.headless": True} if arguments.no_browser or arguments.host else {}
    options |= {"server.port": arguments.port} if arguments.port else {}
    root, host = RunStore().root if arguments.host else None, canonical_host(arguments.host or "")
    if root is not None:
        try:
            problem = sign_in_problem(read_users(root))
            socket.getaddrinfo(host, None)
        except BscError as error:
            problem = str(error)
        except (OSError, UnicodeError):
            problem = f"--host {arguments.host}: this address is unknown; use one of this machine"
        if problem is not None:
            sys.stderr.write(f"bsc: {problem}\n")
            return 2
        shown = socket.gethostname() if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
        # Without an address to show, Streamlit asks a server on the Internet for that of this machine.
        options |= {"server.address": host, "browser.serverAddress": shown}
        os.environ[SHARED] = str(root)
        os.environ.setdefault(MAX_DATA_MB, "1000")
        if host not in LOCAL_HOSTS:
            sys.stderr.write("bsc: the connection is not encrypted; see docs/hosting.md for a proxy with TLS\n")
    usual_files = streamlit_config.get_config_files
    streamlit_config.get_config_files = lambda name: _trusted_files(usual_files(name))
    _raise_file_limit()
    _limit_waiting_messages()
    _keep_downloads()
    _watch_no_files()
    _ignore_controls_of_timers()
    _ignore_timers_of_other_pages()
    count_preparation()
    prepare_log()
    starlette_server.get_max_message_size_bytes = lambda: MAX_MESSAGE_BYTES  # of what clients send, also in parts
    usual_settings = starlette_server._get_uvicorn_config_kwargs
    starlette_auth_routes._create_oauth_client = _provider_client
    starlette_auth_routes._set_auth_cookie = _set_short_cookie
    limited = {"http": LimitedHttp, "ws": LimitedWebSocket, "backlog": ACCEPTED}
    starlette_server._get_uvicorn_config_kwargs = lambda: usual_settings() | limited
    with suppress(KeyboardInterrupt):  # Ctrl-C
        make_app(host, root).run(config=options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
