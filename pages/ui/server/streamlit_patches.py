"""Replacements of parts of Streamlit that have no setting, such as limits of what the browser of a user can cause."""

import hashlib
import hmac
import os
import secrets
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.responses import Response
from streamlit import config
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime import memory_media_file_storage
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.media_file_manager import MediaFileMetadata
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests, ScriptRequestType
from streamlit.runtime.secrets import Secrets
from streamlit.runtime.session_manager import SessionClientDisconnectedError
from streamlit.web.server.starlette import starlette_auth_routes, starlette_server
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient

from bsc_core.paths import app_folder
from bsc_core.users.accounts import SHARED
from pages.ui.components.turns import count_preparation
from pages.ui.server.connection_limits import ACCEPTED, LimitedHttp, LimitedWebSocket
from pages.ui.server.messages import MAX_MESSAGE_BYTES

MAX_UNREAD_BYTES = 32 * 2**20  # that wait to be sent to a client
DOWNLOAD_SECONDS = 60  # after which a file that was built for a download may be removed
_FILE_KEY = secrets.token_bytes(32)  # of the ids of downloaded files
COOKIE_VALUES = ("email", "email_verified", "is_logged_in", "origin", "provider")  # of a provider


def apply() -> None:
    """Replace the parts of Streamlit; a process does this once, before it runs the app."""
    _ignore_settings_of_working_folder()
    _limit_waiting_messages()
    _keep_downloads()
    _watch_no_files()
    _ignore_controls_of_timers()
    _ignore_timers_of_other_pages()
    count_preparation()
    _limit_connections()
    _reuse_provider_clients()
    _shorten_provider_cookie()


def _ignore_settings_of_working_folder() -> None:
    """Ignore the settings in the working folder, which may be of others and can name servers of fonts.

    Those of the user and of the app remain. A shared app also reads the secrets of the working folder, with which
    people sign in. No secret becomes an environment variable, such as LD_PRELOAD, of which child processes execute
    code.
    """
    usual_files = config.get_config_files

    def trusted_files(name: str) -> list[str]:
        own = (Path.home(), app_folder())
        paths = usual_files(name)
        is_sign_in = name == "secrets.toml" and SHARED in os.environ
        return [path for path in paths if is_sign_in or Path(path).parents[1] in own]

    config.get_config_files = trusted_files
    Secrets._maybe_set_environment_variable = staticmethod(lambda name, value: None)  # type: ignore[method-assign]


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


def _file_id(content: bytes, mimetype: str, name: str | None = None) -> str:
    """Return the id of a downloaded file, which nobody can compute from a guess of its content.

    That of Streamlit has no key, and ignores most bytes of a file of more than 1 MiB.
    """
    parts = (mimetype.encode(), (name or "").encode(), content)
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hmac.new(_FILE_KEY, digests, hashlib.sha256).hexdigest()


def _watch_no_files() -> None:
    """Watch no source files for a session that reconnects either; Streamlit does so whatever `fileWatcherType` is.

    It needs about a second of the event loop for each, in which the pages of all users wait.
    """
    AppSession.register_file_watchers = lambda session: None  # type: ignore[method-assign]


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


def _limit_connections() -> None:
    """Serve connections that have limits, and refuse large messages of clients, also in parts."""
    usual_settings = starlette_server._get_uvicorn_config_kwargs
    limited = {"http": LimitedHttp, "ws": LimitedWebSocket, "backlog": ACCEPTED}
    starlette_server._get_uvicorn_config_kwargs = lambda: usual_settings() | limited
    starlette_server.get_max_message_size_bytes = lambda: MAX_MESSAGE_BYTES


def _reuse_provider_clients() -> None:
    """Reuse the client of a provider; Streamlit builds one for each request, and its TLS context takes 0.1 s."""
    create_client = starlette_auth_routes._create_oauth_client

    @lru_cache(maxsize=8)
    def provider_client(provider: str) -> tuple[Any, str]:
        import httpx  # installed with authlib, which only this needs

        client, redirect = create_client(provider)
        client.client_kwargs["verify"] = httpx.create_ssl_context()
        return client, redirect

    starlette_auth_routes._create_oauth_client = provider_client


def _shorten_provider_cookie() -> None:
    """Store only the values of a user that are needed, so that the cookie is not divided, and no tokens."""
    set_cookie = starlette_auth_routes._set_auth_cookie

    async def set_short_cookie(response: Response, user_info: dict[str, Any], tokens: dict[str, Any]) -> None:
        await set_cookie(response, {name: user_info[name] for name in COOKIE_VALUES if name in user_info}, {})

    starlette_auth_routes._set_auth_cookie = set_short_cookie
