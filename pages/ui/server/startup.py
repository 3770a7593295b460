"""Server of the app: Streamlit, with checks of the host, the origin and, if shared, the user of every request.

`bsc app` starts it. `bsc app --host` shares the app with the users of `users.toml` in the runs folder.
"""

import argparse
import asyncio
import os
import socket
import sys
import threading
import tomllib
import webbrowser
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import streamlit as st
from starlette.middleware import Middleware
from streamlit.starlette import App

from bsc_core.data.io.limits import MAX_DATA_MB
from bsc_core.errors import BscError
from bsc_core.paths import app_folder
from bsc_core.runs import RunStore
from bsc_core.users.accounts import SHARED, User, read_users
from pages.ui.server import streamlit_patches
from pages.ui.server.compressed_assets import CompressedAssets
from pages.ui.server.log_records import prepare_log
from pages.ui.server.request_guard import ANY_ADDRESS, LOCAL_HOSTS, RequestGuard, allowed_hosts, canonical_host
from pages.ui.server.session_limit import SessionLimit, max_sessions
from pages.ui.server.sign_in import SignIn

APP = app_folder() / "app.py"
PROVIDER_SETTINGS = ("redirect_uri", "cookie_secret", "client_id", "client_secret", "server_metadata_url")
MIN_SECRET, MIN_COMPRESSED = 32, 31  # characters, bytes; 128 random bits have at least 38 bytes
MAX_QUEUED = 512  # connections that wait until they are accepted
QUEUE_SECONDS = 5.0  # after which asyncio has certainly set the length of the queue, to `connection_limits.ACCEPTED`


def main() -> int:
    """Serve the app until it is interrupted; return the exit status."""
    parser = argparse.ArgumentParser(prog="bsc app", description=__doc__)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--no-browser", action="store_true")
    arguments = parser.parse_args()
    sys.argv = [str(APP)]  # Streamlit reads the settings next to app.py
    options: dict[str, Any] = {"logger.enableRich": False}  # which would not use the records of `log_records`
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
        os.umask(0o077)  # as in `bsc app`
        if sys.platform != "win32" and root.stat().st_mode & 0o077:
            sys.stderr.write(f"bsc: other system users of this machine can open {root}; change this with `chmod 700`\n")
        os.environ.setdefault(MAX_DATA_MB, "1000")
        if host not in LOCAL_HOSTS:
            sys.stderr.write("bsc: the connection is not encrypted; see docs/hosting.md for a proxy with TLS\n")
    _raise_file_limit()
    streamlit_patches.apply()
    prepare_log()
    with suppress(KeyboardInterrupt):  # Ctrl-C
        make_app(host, root).run(config=options)
    return 0


def make_app(address: str | None = None, root: Path | None = None) -> App:
    """Return the ASGI application; with the runs folder `root`, only its users may open it."""
    middleware = [Middleware(RequestGuard, hosts=allowed_hosts(address or ""))]
    if root is not None:
        middleware.append(Middleware(SignIn, root=root))
    middleware += [Middleware(SessionLimit, sessions=max_sessions()), Middleware(CompressedAssets)]
    return App(APP, middleware=middleware, lifespan=_open_browser)


@asynccontextmanager
async def _open_browser(app: App) -> AsyncIterator[dict[str, Any]]:
    """Prepare the sockets, and open the browser once the server is about to accept connections."""
    _disable_nagle()
    asyncio.get_running_loop().call_later(QUEUE_SECONDS, _lengthen_queues)
    if not st.get_option("server.headless"):
        threading.Timer(1.0, webbrowser.open, [f"http://localhost:{st.get_option('server.port')}"]).start()
    yield {}


def sign_in_problem(users: dict[str, User]) -> str | None:
    """Return why no owner can sign in to a shared app, or a visitor could as another user; None if all is well."""
    sections = dict(filter(None, map(_provider_section, (Path.cwd(), Path.home(), APP.parent))))
    for path, section in sections.items():
        if (missing := next((name for name in PROVIDER_SETTINGS if not section.get(name)), None)) is not None:
            return f"{path}: [auth] has no {missing}; see docs/hosting.md"
        secret = str(section["cookie_secret"])
        if len(secret) < MIN_SECRET or len(zlib.compress(secret.encode())) < MIN_COMPRESSED:  # it repeats itself
            return (
                f"{path}: the cookie_secret can be guessed, and with it anybody can sign in; use the output of "
                '`python -c "import secrets; print(secrets.token_hex())"`'
            )
    if any(user.is_owner and (user.key_sha256 or (user.email and sections)) for user in users.values()):
        return None
    if any(user.email for user in users.values()) and not sections:
        return "users sign in with their email address, but .streamlit/secrets.toml has no [auth] section"
    return "--host needs an owner who can sign in; add one with `bsc users add NAME --role owner`"


def _provider_section(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the file and its section with the provider; None without one. Streamlit reads it once it runs."""
    path = folder / ".streamlit" / "secrets.toml"
    try:
        section = tomllib.loads(path.read_text(encoding="utf-8"))["auth"]
    except (OSError, ValueError, KeyError):
        return None
    return path, section if isinstance(section, dict) else {}


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


def _listeners() -> Iterator[socket.socket]:
    for connection in psutil.Process().net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.fd >= 0:
            with socket.socket(fileno=os.dup(connection.fd)) as listener:
                yield listener


def _raise_file_limit() -> None:
    """Let this process open as many files, such as connections, as the system allows it."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
