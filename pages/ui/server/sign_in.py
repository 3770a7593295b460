"""Sign-in of the users of a shared app, with a secret link or an OpenID Connect provider."""

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.status import HTTP_303_SEE_OTHER, WS_1008_POLICY_VIOLATION, WS_1013_TRY_AGAIN_LATER
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.auth_util import get_origin_from_redirect_uri, get_secrets_auth_section
from streamlit.web.server.server_util import get_cookie_secret
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from bsc_core.errors import BscError
from bsc_core.files import error_reason
from bsc_core.users.accounts import USER_HEADER, User, key_hash, read_users, user_with_email, user_with_key, write_audit
from pages.ui.server.connection_limits import USER
from pages.ui.server.html_pages import SIGN_IN, SIGN_OUT, change_user_page, sign_in_page
from pages.ui.server.messages import while_signed_in, with_delays, without_refused
from pages.ui.server.rate_limits import (
    MEMBER_RATE,
    PROVIDER_RATE,
    VISITORS_RATE,
    AddressRateLimits,
    RateLimit,
    StudentRateLimits,
)

PROVIDER_SIGN_OUT, CALLBACK_PATH = "/auth/logout", "/oauth2callback"
PROVIDER_PATHS = "/auth/login", PROVIDER_SIGN_OUT, CALLBACK_PATH
HEALTH_PATH, UPLOAD_PATH, METRICS_PATH = "/_stcore/health", "/_stcore/upload_file", "/_stcore/metrics"
KEY_COOKIE = "bsc_key"
COOKIE_SECONDS = 30 * 24 * 3600
MAX_FORM_BYTES, MAX_FIELDS = 8192, 10
MAX_SEEN = 10_000  # cookies whose first use was recorded; after that, the next use of each is recorded again
AUDIT_SECONDS = 1.0  # at most one line per user, action and interval is written to the audit log


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
        self._students: defaultdict[str, StudentRateLimits] = defaultdict(StudentRateLimits)  # by user
        self._members: defaultdict[str, RateLimit] = defaultdict(lambda: RateLimit(*MEMBER_RATE))
        self._visitors, self._callbacks = AddressRateLimits(*VISITORS_RATE), AddressRateLimits(*PROVIDER_RATE)
        # Users with the digest of a cookie and the address that sent it, which are in the audit log.
        self._seen: set[tuple[str, str, str]] = set()

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
        respond = partial(self._respond, user=user, email=email, cookies=cookies)
        if user is None or user.may_launch:
            return await respond(scope, receive, send)
        return await self._students[user.name].answer(respond, scope, receive, send)

    async def _respond(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        user: User | None,
        email: str | None,
        cookies: Mapping[str, str],
    ) -> None:
        """Answer a request of a user or a visitor. email: what a provider confirmed."""
        path = scope["path"]
        if (limit := self._rate_limit(scope, user)) is not None:
            if (turn := await limit.wait(scope, receive, send)) is None:
                return None
            receive = turn
        if path == HEALTH_PATH or (path in PROVIDER_PATHS and get_secrets_auth_section()):
            return await self.app(scope, receive, send)
        if user is None or (path.startswith(UPLOAD_PATH) and not user.may_launch):
            if scope["type"] == "websocket":
                return await send(
                    {"type": "websocket.close", "code": WS_1008_POLICY_VIOLATION, "reason": "Sign in first."}
                )
            if user is None:
                response = sign_in_page(_requested(scope), email=email)
            else:
                response = PlainTextResponse("Students cannot upload files.", 403)
            return await response(scope, receive, send)
        self._audit_cookie(scope, user, cookies[USER_COOKIE_NAME if email else KEY_COOKIE])
        if path == METRICS_PATH and not user.is_owner:
            return await PlainTextResponse("Only the owner may read the metrics.", 403)(scope, receive, send)
        MutableHeaders(scope=scope)[USER_HEADER] = user.signed_in_as
        scope[USER] = user.name
        if scope["type"] == "http":
            return await self.app(scope, receive, send)
        receive = while_signed_in(receive, lambda: self._is_signed_in(user, cookies))
        if user.may_launch:
            if not user.is_owner:
                receive = with_delays(receive, self._members[user.name].delay)
            return await self.app(scope, without_refused(receive, user), send)
        return await self._serve_student(scope, receive, send, user)

    async def _serve_student(self, scope: Scope, receive: Receive, send: Send, user: User) -> None:
        """Serve the websocket of a page of a student, or refuse it."""
        student = self._students[user.name]
        if (seconds := student.opening_delay()) is None:
            if await student.refused.wait(scope, receive, send) is None:
                return None
            return await send({"type": "websocket.close", "code": WS_1013_TRY_AGAIN_LATER, "reason": "Too many pages."})
        if seconds:
            await asyncio.sleep(seconds)  # before the session exists
        with student.page() as delay:
            return await self.app(scope, without_refused(with_delays(receive, delay), user), send)

    def _rate_limit(self, scope: Scope, user: User | None) -> RateLimit | None:
        """Return the rate limit of a request; None for one of a member, or one that opens a page of a student."""
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
            return sign_in_page("/", status=200)
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
        key, target = form.get("key", ""), form.get("next", "/")
        try:
            user = user_with_key(read_users(self.root).values(), key.strip())
        except BscError:
            user = None
        if user is None:
            self._audit("", "refused key")
            error = "This key is not valid. Ask the owner of this app for a new link."
            return sign_in_page(target, error=error)
        current, _ = self._user(request.cookies)
        if current is not None and current.name not in (user.name, form.get("replaces")):
            return change_user_page(current.name, user.name, key, target)
        self._audit_cookie(request.scope, user, key.strip(), always=True)
        response = RedirectResponse(_local_path(target), status_code=HTTP_303_SEE_OTHER)
        response.set_cookie(KEY_COOKIE, key.strip(), COOKIE_SECONDS, httponly=True, samesite="lax")
        return response

    def _sign_out(self) -> Response:
        response = RedirectResponse(
            PROVIDER_SIGN_OUT if get_secrets_auth_section() else "/", status_code=HTTP_303_SEE_OTHER
        )
        response.delete_cookie(KEY_COOKIE)
        return response

    def _audit_cookie(self, scope: Scope, user: User, cookie: str, *, always: bool = False) -> None:
        """Write a sign-in to the audit log if the cookie was not used from this address before, or always."""
        address = scope["client"][0] if scope.get("client") else ""
        seen = key_hash(cookie), user.name, address
        if always or seen not in self._seen:
            if len(self._seen) >= MAX_SEEN:  # a user can write the same signature in many ways
                self._seen.clear()
            self._seen.add(seen)
            self._audit(user.name, "sign in")

    def _audit(self, user: str, action: str) -> None:
        """Write an event to the audit log, unless the same one was written within the last second."""
        if (now := time.monotonic()) > self._last_event.get((user, action), -AUDIT_SECONDS) + AUDIT_SECONDS:
            self._last_event[user, action] = now
            try:
                write_audit(self.root, user, action)
            except OSError as error:  # such as a full disk, which only a signed-in owner can clear
                sys.stderr.write(f"bsc: {self.root}: the audit log cannot be written ({error_reason(error)})\n")


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


def _requested(scope: Scope) -> str:
    """Return the path and the parameters of a request."""
    query = scope.get("query_string", b"").decode("latin-1")
    return scope["path"] + (f"?{query}" if query else "")


def _local_path(path: str) -> str:
    """Return a path of this app, or `/` for the address of another site."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local and "\\" not in path else "/"
