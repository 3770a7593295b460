"""Guard of all requests: allowed hosts, requests from other origins, unusable headers, and headers of all responses."""

import asyncio
import os
import re
import socket
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import unquote_plus

import psutil
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.status import WS_1008_POLICY_VIOLATION
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.ui.server.connection_limits import ALLOWED_HOSTS, MAX_PATH
from pages.ui.server.html_pages import SIGN_OUT
from pages.ui.server.rate_limits import VISITORS_RATE, AddressRateLimits
from pages.ui.server.sign_in import KEY_COOKIE, PROVIDER_SIGN_OUT

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("0.0.0.0", "::")
HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
OTHER_SITES = ("cross-site", "same-site")  # `Sec-Fetch-Site`; other ports of this machine are the same site
STATIC_APP = "staticAppId"  # parameter with which Streamlit's page runs what another site sends, instead of this app
MAX_NAME = 3 * len(STATIC_APP)  # characters of its name, each of which may be escaped as three
MAX_PARAMETERS = 1_000
STATIC_PATH = "/static/"  # of Streamlit's files, which `CompressedAssets` compresses once
COOKIE_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
MAX_COOKIES, MAX_COOKIE_BYTES = 200, 2**15  # of a request; those of a browser for a host are fewer
MAX_PART = 65_536  # bytes of an answer that are sent at a time: a connection that does not read gets no more
RESPONSE_HEADERS = {
    "Content-Security-Policy": "connect-src 'self' blob: data:; font-src 'self' data:; img-src 'self' blob: data:; "
    "frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


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
        self._refused = AddressRateLimits(*VISITORS_RATE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        reason = self._refusal(scope, Headers(scope=scope))
        if reason is None:
            _remove_unusable_headers(scope)
            with suppress(ClientDisconnect):  # while its request was read
                await self.app(scope, receive, _with_headers(scope, send))
            return None
        if (turn := await self._refused.of_request(scope).wait(scope, receive, send)) is None:
            return None
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": WS_1008_POLICY_VIOLATION, "reason": reason})
        return await PlainTextResponse(reason, status_code=403)(scope, turn, _with_headers(scope, send))

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
        if len(path) > MAX_PATH:
            return f"The path has more than {MAX_PATH:,} characters."
        query = scope.get("query_string", b"").decode("latin-1")
        if query.count("&") >= MAX_PARAMETERS:
            return f"The address has more than {MAX_PARAMETERS:,} parameters."
        names = (one.partition("=")[0] for one in query.split("&"))
        if any(STATIC_APP in unquote_plus(name) for name in names if len(name) <= MAX_NAME):
            return f"The parameter {STATIC_APP} is not allowed."
        return None


def _remove_unusable_headers(scope: Scope) -> None:
    """Remove too many cookies, those with escape sequences, different keys of one request, ranges and compression.

    Reading cookies takes Python time with their number, and with the square of escape sequences, which this app does
    not set. A second key is set by another site of the same domain. For each requested range of a file, the server
    would keep a copy until it is read. Streamlit would compress each answer again, on the thread that serves everybody.
    """
    removed = [b"range", *([] if scope["path"].startswith(STATIC_PATH) else [b"accept-encoding"])]
    cookies = [value for name, value in scope["headers"] if name == b"cookie"]
    if sum(map(len, cookies)) > MAX_COOKIE_BYTES or sum(value.count(b";") for value in cookies) > MAX_COOKIES:
        removed.append(b"cookie")
    scope["headers"] = [
        (name, _usable_cookies(value) if name == b"cookie" else value)
        for name, value in scope["headers"]
        if name not in removed
    ]


def _usable_cookies(header: bytes) -> bytes:
    """Return the cookies with a usual name, without the keys if there are different ones.

    Starlette removes more blanks around a name than those of ASCII, so another name can become that of the key.
    """
    cookies = [one for one in header.split(b";") if b"\\" not in one and COOKIE_NAME.fullmatch(_cookie_name(one))]
    keys = {one.partition(b"=")[2].strip() for one in cookies if _cookie_name(one) == KEY_COOKIE.encode()}
    return b";".join(one for one in cookies if len(keys) < 2 or _cookie_name(one) != KEY_COOKIE.encode())


def _cookie_name(cookie: bytes) -> bytes:
    return cookie.partition(b"=")[0].strip()


def _with_headers(scope: Scope, send: Send) -> Send:
    """Add the headers of all responses, and `Secure` to cookies if the browser uses TLS; send long bodies in parts."""
    with_tls = Headers(scope=scope).get("X-Forwarded-Proto", scope.get("scheme")) == "https"

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in RESPONSE_HEADERS.items():
                headers.setdefault(name, value)
            if with_tls:
                message["headers"] = [
                    (name, value + b"; Secure" if name == b"set-cookie" else value) for name, value in headers.raw
                ]
        body = memoryview(message.get("body", b"") if message["type"] == "http.response.body" else b"")
        start = 0
        while len(body) - start > MAX_PART:
            await send({**message, "body": bytes(body[start : start + MAX_PART]), "more_body": True})
            await asyncio.sleep(0)  # others are served between the parts
            start += MAX_PART
        await send({**message, "body": bytes(body[start:])} if start else message)

    return send_with_headers


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


def canonical_host(host: str) -> str:
    """Return an IP address in its shortest notation, without brackets; a host name in lower case."""
    name = host.strip().lower()
    try:
        return ip_address(name.strip("[]")).compressed
    except ValueError:
        return name


def _host_name(host: str) -> str | None:
    """Return the name in a Host header in lower case, without its port; None if the header is malformed."""
    match = HOST.fullmatch(host)
    return match and canonical_host(match["name"])
