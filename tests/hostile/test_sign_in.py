"""Requests to a shared app: without a key, with a wrong or removed one, and beyond the role of the user."""

from __future__ import annotations

import asyncio
import errno
import http.client
import ipaddress
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock
from urllib.parse import urlencode

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime import memory_media_file_storage
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.media_file_manager import MediaFileManager, MediaFileMetadata
from streamlit.runtime.media_file_storage import MediaFileKind, MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.session_manager import SessionClientDisconnectedError
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from bsc_core.data.io.limits import MAX_DATA_MB
from bsc_core.users.accounts import AUDIT_FILE, SHARED, USER_HEADER, USERS_FILE, add_user, read_users, remove_user
from pages.ui.server import connection_limits, rate_limits, startup, streamlit_patches
from pages.ui.server.connection_limits import (
    ACCEPTED,
    MAX_BEHIND,
    MAX_COMPRESSED,
    MAX_FRAMES,
    MAX_HEADER_LINES,
    MAX_WAITING_BYTES,
    MAX_WAITING_MESSAGES,
    SLICE_BYTES,
    EndingTransport,
    LimitedHttp,
    LimitedWebSocket,
)
from pages.ui.server.messages import (
    BLOCK_BYTES,
    MAX_ADDED_ROWS,
    MAX_MESSAGE_BYTES,
    MAX_QUERY,
    MAX_QUERY_OF_STUDENT,
    MAX_STUDENT_BYTES,
    MAX_STUDENT_ENTRIES,
    MAX_TABLE_ENTRIES,
    MAX_TABLES,
    MAX_WIDGETS,
    MAX_WIDGETS_OF_STUDENT,
)
from pages.ui.server.rate_limits import MEMBER_RATE, RateLimit
from pages.ui.server.request_guard import _host_name, allowed_hosts
from pages.ui.server.sign_in import KEY_COOKIE, MAX_FORM_BYTES, SignIn
from pages.ui.server.startup import PROVIDER_SETTINGS, main, sign_in_problem
from tests.browser.serving import AppServer
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.hostile.test_requests import WEBSOCKET

HANDSHAKE = (
    b"GET /_stcore/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
HEADER = USER_HEADER.lower().encode()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The keys of the users, and the runs folder under the name `root`."""
    root = tmp_path_factory.mktemp("shared") / "runs"
    users = {"ada": "owner", "ben": "member", "class": "student"}
    return {"root": str(root), **{name: add_user(root, name, role) or "" for name, role in users.items()}}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(keys: dict[str, str]) -> Iterator[AppServer]:
    with AppServer(Path(keys["root"]).parent).running("--host", "localhost") as server:
        yield server


def respond(
    server: AppServer, method: str, path: str, headers: dict[str, str] | None = None, body: str | None = None
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    connection.request(method, path, body, {"Host": f"localhost:{server.port}", **(headers or {})})
    response = connection.getresponse()
    response.text = response.read(100_000).decode() if response.status != 101 else ""  # type: ignore[attr-defined]
    connection.close()
    return response


def cookie(key: str) -> dict[str, str]:
    return {"Cookie": f"{KEY_COOKIE}={key}"}


def sign_in(server: AppServer, key: str, **options: Any) -> http.client.HTTPResponse:
    form = {"key": key, "next": options.pop("next", "/"), "replaces": options.pop("replaces", "")}
    headers = {"Content-Type": "application/x-www-form-urlencoded", **options.pop("headers", {})}
    return respond(server, "POST", "/sign-in", headers, urlencode(form))


PATHS = ("/", "/runs?run=x", "/train", "/_stcore/host-config", "/static/index.js", "/media/x.png", "/component/x")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        cookie(""),
        cookie("x"),
        {USER_HEADER: "ada"},
        {USER_HEADER: "ada", **cookie("x")},
        {"Cookie": "_streamlit_user=e30.x.y"},
        {"Authorization": "Basic YWRhOmFkYQ=="},
    ],
)
def test_nothing_is_served_without_a_valid_key(server: AppServer, path: str, headers: dict[str, str]) -> None:
    response = respond(server, "GET", path, headers)
    assert response.status == 401
    assert "Sign in" in response.text  # type: ignore[attr-defined]
    assert respond(server, "GET", "/_stcore/stream", {**headers, **WEBSOCKET}).status == 403


@pytest.mark.parametrize("name", ["ada", "ben", "class"])
def test_a_user_with_a_key_is_signed_in(server: AppServer, keys: dict[str, str], name: str) -> None:
    assert respond(server, "GET", "/", cookie(keys[name])).status == 200
    assert respond(server, "GET", "/_stcore/stream", {**cookie(keys[name]), **WEBSOCKET}).status == 101
    upload = respond(server, "PUT", "/_stcore/upload_file/a/b", cookie(keys[name]), "x")
    assert (upload.status == 403 and "Students" in upload.text) == (name == "class")  # type: ignore[attr-defined]


def test_only_the_owner_reads_the_metrics_of_the_server(server: AppServer, keys: dict[str, str]) -> None:
    for name, status in (("ada", 200), ("ben", 403), ("class", 403)):
        assert respond(server, "GET", "/_stcore/metrics", cookie(keys[name])).status == status


def test_the_health_of_the_server_is_public(server: AppServer) -> None:
    assert respond(server, "GET", "/_stcore/health").status == 200


def test_other_sites_cannot_sign_a_user_in(server: AppServer, keys: dict[str, str]) -> None:
    assert sign_in(server, keys["ben"], headers={"Origin": "http://evil.example"}).status == 403


def test_a_browser_that_is_signed_in_asks_before_the_user_changes(server: AppServer, keys: dict[str, str]) -> None:
    response = sign_in(server, keys["class"], headers=cookie(keys["ben"]), next="/runs?run=x")
    assert response.status == 200
    assert "Set-Cookie" not in response.headers
    assert "You are signed in as ben" in response.text  # type: ignore[attr-defined]
    assert "Sign in as class" in response.text  # type: ignore[attr-defined]
    confirmed = sign_in(server, keys["class"], headers=cookie(keys["ben"]), next="/runs?run=x", replaces="ben")
    assert confirmed.status == 303
    assert confirmed.headers["Location"] == "/runs?run=x"
    assert f"{KEY_COOKIE}={keys['class']}" in confirmed.headers["Set-Cookie"]
    for name, headers in (("ben", cookie(keys["ben"])), ("ben", cookie("x"))):
        assert sign_in(server, keys[name], headers=headers).status == 303


@pytest.mark.parametrize("path", ["/sign-out", "/auth/logout"])
def test_a_link_of_another_site_does_not_sign_out(server: AppServer, keys: dict[str, str], path: str) -> None:
    headers = {**cookie(keys["ben"]), "Sec-Fetch-Dest": "document"}
    response = respond(server, "GET", path, {**headers, "Sec-Fetch-Site": "cross-site"})
    assert response.status == 403
    assert "Set-Cookie" not in response.headers
    assert respond(server, "GET", path, {**headers, "Sec-Fetch-Site": "same-origin"}).status != 403
    for page in ("http://evil.example/", f"http://localhost.evil.example:{server.port}/", None):  # over plain HTTP
        referer = {} if page is None else {"Referer": page}
        assert respond(server, "GET", path, {**cookie(keys["ben"]), **referer}).status == 403


@pytest.mark.parametrize(("protocol", "secure"), [("http", False), ("https", True)])
def test_the_cookie_is_hidden_from_scripts_and_other_sites(
    server: AppServer, keys: dict[str, str], protocol: str, secure: bool
) -> None:
    response = sign_in(server, keys["ben"], headers={"X-Forwarded-Proto": protocol})
    flags = response.headers["Set-Cookie"].split("; ")
    assert flags[0] == f"{KEY_COOKIE}={keys['ben']}"
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(flags)
    assert ("Secure" in flags) == secure


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/runs?run=a&compare=b", "/runs?run=a&compare=b"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_signing_in_opens_a_page_of_the_app_only(
    server: AppServer, keys: dict[str, str], target: str, location: str
) -> None:
    response = sign_in(server, keys["ben"], next=target)
    assert response.status == 303
    assert response.headers["Location"] == location


def test_markup_in_a_link_is_text(server: AppServer) -> None:
    path = '/runs?run="><script>alert(1)</script>'.replace(" ", "%20")
    response = respond(server, "GET", path.replace("<", "%3C").replace('"', "%22"))
    assert "<script>alert" not in response.text  # type: ignore[attr-defined]
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_a_refused_key_is_recorded_without_its_text_and_a_long_form_is_not_read(
    server: AppServer, keys: dict[str, str]
) -> None:
    sign_in(server, keys["ben"])
    assert sign_in(server, "guess-of-a-key").status == 401
    assert sign_in(server, "x" * (MAX_FORM_BYTES + 1)).status == 413
    log = (Path(keys["root"]) / AUDIT_FILE).read_text()
    assert {"", "ben"} <= {json.loads(line)["user"] for line in log.splitlines()}
    for text in (log, server.log()):
        assert "guess-of-a-key" not in text
        assert keys["ben"] not in text


def test_a_key_that_is_sent_as_a_cookie_is_recorded_once_for_each_address(tmp_path: Path) -> None:
    key = add_user(tmp_path, "ada", "owner")
    headers = [(b"cookie", f"{KEY_COOKIE}={key}".encode())]
    middleware = SignIn(AsyncMock(), tmp_path)
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": list(headers)}
        asyncio.run(middleware(scope | {"client": (address, 1)}, AsyncMock(), AsyncMock()))
        middleware._last_event.clear()  # as a second later
    events = [json.loads(line) for line in (tmp_path / AUDIT_FILE).read_text().splitlines()]
    assert [(event["user"], event["action"]) for event in events] == [("ada", "sign in")] * 2


def test_a_client_that_leaves_while_it_sends_a_form_is_not_logged(server: AppServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"POST /sign-in HTTP/1.1\r\nHost: localhost:{server.port}\r\nContent-Length: 100\r\n"
        connection.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nkey=".encode())
    assert sign_in(server, "unknown").status == 401  # which is answered later
    assert "ClientDisconnect" not in server.log()


def test_signing_out_removes_the_cookie(server: AppServer, keys: dict[str, str]) -> None:
    page = {"Referer": f"http://localhost:{server.port}/runs"}
    response = respond(server, "GET", "/sign-out", {**cookie(keys["ben"]), **page})
    assert response.status == 303
    assert f'{KEY_COOKIE}=""' in response.headers["Set-Cookie"]


def test_a_removed_user_is_refused_at_once(server: AppServer, keys: dict[str, str]) -> None:
    key = add_user(Path(keys["root"]), "eva", "member") or ""
    assert respond(server, "GET", "/", cookie(key)).status == 200
    remove_user(Path(keys["root"]), "eva")
    assert respond(server, "GET", "/", cookie(key)).status == 401


def admitted_name(root: Path, headers: list[tuple[bytes, bytes]], kind: str) -> str | None:
    """Return the user whom the middleware names to the app for a request; None if it does not reach the app."""
    seen: list[dict[bytes, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"]))
        assert [name for name, _ in scope["headers"]].count(HEADER) <= 1

    async def send(message: Any) -> None:
        pass

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    scope = {"type": kind, "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    asyncio.run(SignIn(app, root)(scope, receive, send))  # type: ignore[arg-type]
    return seen[0].get(HEADER, b"").decode().partition(":")[0] if seen else None


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("spelling", [b"x-bsc-user", b"X-Bsc-User"])
def test_a_client_cannot_name_another_user(keys: dict[str, str], kind: str, spelling: bytes) -> None:
    key = (b"cookie", f"{KEY_COOKIE}={keys['class']}".encode())
    claims = [(spelling.lower(), b"ada"), (spelling.lower(), b"ben")]
    assert admitted_name(Path(keys["root"]), [key, *claims], kind) == "class"
    assert admitted_name(Path(keys["root"]), claims, kind) is None


def test_nobody_is_signed_in_with_a_damaged_file_of_users(tmp_path: Path) -> None:
    key = add_user(tmp_path, "ada", "owner") or ""
    headers = [(b"cookie", f"{KEY_COOKIE}={key}".encode())]
    assert admitted_name(tmp_path, headers, "http") == "ada"
    (tmp_path / "users.toml").write_text("[users.ada")
    assert admitted_name(tmp_path, headers, "http") is None


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        ({}, "needs an owner"),
        ({"ben": ("member", None)}, "needs an owner"),
        ({"ada": ("owner", "ada@example.org")}, r"no [auth] section"),
    ],
)
def test_an_app_is_not_shared_if_no_owner_can_sign_in(
    tmp_path: Path, users: dict[str, tuple[Any, str | None]], reason: str
) -> None:
    for name, (role, email) in users.items():
        add_user(tmp_path, name, role, email)
    command = [sys.executable, "-m", "bsc_core.cli", "app", "--host", "0.0.0.0", "--port", "1", "--runs", str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert ended.returncode == 2
    assert reason in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"cookie_secret": "..."}, "can be guessed"),
        ({"cookie_secret": "change me" * 5}, "can be guessed"),
        ({"cookie_secret": ""}, "no cookie_secret"),
        ({"client_id": ""}, "no client_id"),
    ],
)
def test_an_app_with_a_provider_is_shared_with_a_secret_that_nobody_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], reason: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    add_user(tmp_path, "ada", "owner", "ada@example.org")
    settings = dict.fromkeys(PROVIDER_SETTINGS, "a") | {"cookie_secret": secrets.token_hex()} | changes
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text("\n".join(["[auth]", *lines]))
    problem = sign_in_problem(read_users(tmp_path))
    assert problem is None if reason is None else reason in str(problem)


def test_a_provider_without_settings_of_its_own_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    add_user(tmp_path, "ada", "owner")
    (tmp_path / ".streamlit").mkdir()
    for text in ("auth = 1", '[auth.other]\nclient_id = "a"'):
        (tmp_path / ".streamlit" / "secrets.toml").write_text(text)
        assert "[auth] has no redirect_uri" in str(sign_in_problem(read_users(tmp_path)))


def test_the_names_of_this_machine_are_allowed_when_it_listens_on_all_addresses() -> None:
    assert "127.0.0.1" in allowed_hosts("0.0.0.0")
    for written in ("2001:DB8::0001", "[2001:db8::1]", "2001:db8:0:0:0:0:0:1"):
        assert allowed_hosts(written) == allowed_hosts() | {"2001:db8::1"}
        assert _host_name(f"[{written.strip('[]')}]:8501") == "2001:db8::1"
    assert allowed_hosts("lab.example") == allowed_hosts() | {"lab.example"}
    assert "evil.example" not in allowed_hosts("0.0.0.0")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_files_of_a_shared_app_are_closed_to_other_system_users(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    root, new = Path(keys["root"]), Path(keys["root"]) / f"new-{mode}"
    assert root.stat().st_mode & 0o777 == 0o700  # created by `bsc users add`
    monkeypatch.setenv("BSC_RUNS", keys["root"])
    monkeypatch.setenv(SHARED, "")
    monkeypatch.setenv(MAX_DATA_MB, "")
    monkeypatch.setattr("sys.argv", ["bsc", "--host", "localhost"])
    for name in ("streamlit_patches.apply", "prepare_log", "_raise_file_limit"):
        monkeypatch.setattr(f"pages.ui.server.startup.{name}", lambda: None)
    monkeypatch.setattr(startup, "make_app", lambda *values: Mock(run=lambda config: new.touch()))
    umask = os.umask(0o022)
    root.chmod(mode)
    try:
        assert main() == 0
    finally:
        os.umask(umask)
        root.chmod(0o700)
    assert new.stat().st_mode & 0o777 == 0o600
    assert ("change this with `chmod 700`" in capsys.readouterr().err) == (mode != 0o700)


def test_an_unknown_address_is_one_line(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BSC_RUNS", keys["root"])
    monkeypatch.setattr("sys.argv", ["bsc", "--host", "no-such-name.invalid"])
    assert main() == 2
    assert capsys.readouterr().err == (
        "bsc: --host no-such-name.invalid: this address is unknown; use one of this machine\n"
    )


def test_clients_cannot_send_large_messages_to_a_shared_app(server: AppServer, keys: dict[str, str]) -> None:
    headers = {**cookie(keys["class"]), "Origin": f"http://localhost:{server.port}"}
    url = f"ws://localhost:{server.port}/_stcore/stream"
    with connect(url, additional_headers=headers, max_size=None, subprotocols=["streamlit"]) as websocket:  # type: ignore[list-item]
        with suppress(ConnectionClosed):
            websocket.send(b"\0" * (MAX_MESSAGE_BYTES + 1))
            for _ in range(100):
                websocket.recv(PATIENCE_SECONDS)
        assert websocket.close_code == 1009


def test_a_large_message_of_a_user_ends_the_connection_before_it_is_parsed(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.ui.server.messages.BackMsg", lambda: pytest.fail("parsed"))
    message = {"type": "websocket.receive", "bytes": b"\x0a\x00" * (MAX_MESSAGE_BYTES // 2 + 1)}
    assert receive_in_app(keys, [message], 1) == [{"type": "websocket.disconnect", "code": 1009}]


@pytest.mark.parametrize(
    "request_type", ["clear_cache", "load_git_info", "debug_shutdown_runtime", "debug_disconnect_websocket"]
)
def test_a_user_cannot_clear_the_caches_of_all_users(keys: dict[str, str], request_type: str) -> None:
    hostile, usual = BackMsg(**{request_type: True}), BackMsg(stop_script=True)
    unknown_field = b"\xc2\x3e\x05hello"
    contents = [hostile.SerializeToString() + unknown_field, usual.SerializeToString()]
    messages: list[dict[str, Any]] = [{"type": "websocket.receive", "bytes": content} for content in contents]
    assert [message["bytes"] for message in receive_in_app(keys, messages, 1)] == contents[1:]


@pytest.mark.parametrize(("name", "files", "is_refused"), [("class", 1, True), ("ben", 1, False), ("ben", 101, True)])
def test_only_members_ask_where_to_upload_a_few_files(
    keys: dict[str, str], name: str, files: int, *, is_refused: bool
) -> None:
    asked, usual = BackMsg(), BackMsg(stop_script=True)
    asked.file_urls_request.file_names.extend(["a"] * files)
    messages: list[dict[str, Any]] = [
        {"type": "websocket.receive", "bytes": one.SerializeToString()} for one in (asked, usual)
    ]
    (first,) = receive_in_app(keys, messages, 1, name)
    assert first["bytes"] == (usual if is_refused else asked).SerializeToString()


@pytest.mark.parametrize(("name", "most"), [("class", MAX_WIDGETS_OF_STUDENT), ("ben", MAX_WIDGETS)])
def test_a_message_of_more_controls_than_a_page_has_is_ignored(keys: dict[str, str], name: str, most: int) -> None:
    many, few = BackMsg(), BackMsg()
    for message, count in ((many, most + 1), (few, most)):
        for number in range(count):
            message.rerun_script.widget_states.widgets.add(id=str(number))
    messages: list[dict[str, Any]] = [
        {"type": "websocket.receive", "bytes": one.SerializeToString()} for one in (many, few)
    ]
    assert receive_in_app(keys, messages, 1, name)[0]["bytes"] == few.SerializeToString()


@pytest.mark.parametrize(("name", "most"), [("class", MAX_QUERY_OF_STUDENT), ("ben", MAX_QUERY)])
def test_a_message_with_long_parameters_is_ignored(keys: dict[str, str], name: str, most: int) -> None:
    long, usual = BackMsg(), BackMsg()
    long.rerun_script.query_string, usual.rerun_script.query_string = "a" * (most + 1), "a" * most
    messages: list[dict[str, Any]] = [
        {"type": "websocket.receive", "bytes": one.SerializeToString()} for one in (long, usual)
    ]
    assert receive_in_app(keys, messages, 1, name)[0]["bytes"] == usual.SerializeToString()


def test_a_message_of_more_tables_than_a_page_has_is_ignored(keys: dict[str, str]) -> None:
    many, few = BackMsg(), BackMsg()
    for message, count in ((many, MAX_TABLES + 1), (few, MAX_TABLES)):
        for number in range(count):
            message.rerun_script.widget_states.widgets.add(id=str(number), string_value=" {")
    assert received(keys, [many.SerializeToString(), few.SerializeToString()], 1, "ben") == [few.SerializeToString()]


@pytest.mark.parametrize("value", ['{"added_rows": %s}', ' {"added\\u005frows": %s}'])
def test_a_table_with_many_added_rows_is_ignored(keys: dict[str, str], value: str) -> None:
    many, few = BackMsg(), BackMsg()
    for message, count in ((many, MAX_ADDED_ROWS + 1), (few, MAX_ADDED_ROWS)):
        rows = json.dumps([{"0": "a"}] * count)
        message.rerun_script.widget_states.widgets.add(id="table", string_value=value % rows)
    few.rerun_script.widget_states.widgets.add(id="text", string_value="{not JSON")
    messages: list[dict[str, Any]] = [
        {"type": "websocket.receive", "bytes": one.SerializeToString()} for one in (many, few)
    ]
    assert receive_in_app(keys, messages, 1)[0]["bytes"] == few.SerializeToString()


@pytest.mark.parametrize("value", ['{"added_rows": [], "a": [%s]}', '{"added\\u005frows": [%s]}'])
def test_a_table_with_very_many_values_is_ignored_before_it_is_parsed(
    keys: dict[str, str], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.ui.server.messages.json.loads", lambda table: pytest.fail("parsed"))
    message, usual = BackMsg(), BackMsg(stop_script=True)
    message.rerun_script.widget_states.widgets.add(id="a", string_value=value % ",".join(["[]"] * MAX_TABLE_ENTRIES))
    contents: list[bytes | None] = [message.SerializeToString(), usual.SerializeToString()]
    assert received(keys, contents, 1, "ben") == contents[1:]


@pytest.mark.parametrize(("name", "waits"), [("ada", False), ("ben", True)])
@pytest.mark.parametrize("size", [1, MAX_MESSAGE_BYTES - 100])
def test_messages_of_a_member_wait_if_they_are_many_or_large(
    keys: dict[str, str], name: str, waits: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    message = BackMsg()
    message.rerun_script.widget_states.widgets.add(id="a", bytes_value=bytes(size))
    content = message.SerializeToString()
    monkeypatch.setattr("pages.ui.server.messages.asyncio.sleep", sleep)
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: 0.0)
    count = int(MEMBER_RATE[1]) // (1 + len(content) // BLOCK_BYTES)
    received(keys, [content] * count, count, name)
    assert delays == []
    received(keys, [content] * (count + 10), count + 10, name)
    assert bool(delays) == waits


@pytest.mark.parametrize("change", ["removed", "new key", "other role"])
def test_the_connection_of_a_changed_user_ends_also_if_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    key = add_user(tmp_path, "eva", "owner")
    monkeypatch.setattr("pages.ui.server.messages.CHECK_SECONDS", 0.01)
    received: list[Any] = []

    async def receive() -> Any:
        if change == "removed":
            remove_user(tmp_path, "eva")
        elif change == "new key":
            add_user(tmp_path, "eva", "owner")
        else:
            path = tmp_path / USERS_FILE
            path.write_text(path.read_text(encoding="utf-8").replace('"owner"', '"student"'), encoding="utf-8")
        await asyncio.Event().wait()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.append(await receive())

    headers = [(b"cookie", f"{KEY_COOKIE}={key}".encode())]
    scope = {"type": "websocket", "path": "/_stcore/stream", "headers": headers, "query_string": b""}
    asyncio.run(SignIn(app, tmp_path)(scope, receive, None))  # type: ignore[arg-type]
    assert received == [{"type": "websocket.disconnect", "code": 1008}]


def test_a_removed_user_is_answered_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = add_user(tmp_path, "eva", "member")
    monkeypatch.setattr("pages.ui.server.messages.CHECK_SECONDS", 0.01)
    message = {"type": "websocket.receive", "bytes": BackMsg(stop_script=True).SerializeToString()}
    received: list[Any] = []

    async def receive() -> Any:
        remove_user(tmp_path, "eva")
        return message

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.extend([await receive(), await receive()])

    headers = [(b"cookie", f"{KEY_COOKIE}={key}".encode())]
    scope = {"type": "websocket", "path": "/_stcore/stream", "headers": headers, "query_string": b""}
    asyncio.run(SignIn(app, tmp_path)(scope, receive, None))  # type: ignore[arg-type]
    assert received == [message, {"type": "websocket.disconnect", "code": 1008}]


def receive_in_app(keys: dict[str, str], messages: list[dict[str, Any]], count: int, name: str = "class") -> list[Any]:
    """Return the first messages that reach Streamlit on the websocket of a user."""
    received: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.extend([await receive() for _ in range(count)])

    headers = [(b"cookie", f"{KEY_COOKIE}={keys[name]}".encode())]
    scope = {"type": "websocket", "path": "/_stcore/stream", "headers": headers, "query_string": b""}
    asyncio.run(SignIn(app, Path(keys["root"]))(scope, receive, None))  # type: ignore[arg-type]
    return received


def received(keys: dict[str, str], contents: list[bytes | None], count: int, name: str) -> list[Any]:
    messages = [{"type": "websocket.receive", "bytes": content, "text": "x"} for content in contents]
    return [message["bytes"] for message in receive_in_app(keys, messages, count, name)]


@pytest.mark.parametrize("value", ["x" * MAX_STUDENT_BYTES, json.dumps([{"": 0}] * MAX_STUDENT_ENTRIES)])
def test_large_values_of_students_are_ignored(keys: dict[str, str], value: str) -> None:
    large, usual = BackMsg(), BackMsg(stop_script=True)
    large.rerun_script.widget_states.widgets.add(id="lab", json_value=value)
    contents: list[bytes | None] = [large.SerializeToString(), usual.SerializeToString()]
    assert received(keys, contents, 1, "class") == contents[1:]
    assert received(keys, contents, 2, "ben") == contents


def test_messages_that_streamlit_cannot_parse_are_ignored(keys: dict[str, str]) -> None:
    usual = BackMsg(stop_script=True).SerializeToString()
    assert received(keys, [None, b"\xff\xff", b"", usual], 1, "class") == [usual]


def sent(protocol: type[asyncio.Protocol], *contents: bytes) -> tuple[Any, Mock]:
    """Send bytes to a connection whose messages nobody reads; return the connection and its transport."""

    async def send() -> tuple[Any, Mock]:
        config = uvicorn.Config(idle, ws_max_size=MAX_MESSAGE_BYTES, ws_per_message_deflate=True, lifespan="off")
        connection = protocol(config, ServerState(), {})  # type: ignore[call-arg]
        transport = Mock(get_extra_info=lambda name: None)
        connection.connection_made(transport)
        for content in contents:
            connection.data_received(content)
        return connection, transport

    async def idle(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    return asyncio.run(send())


@pytest.mark.parametrize(("behind", "reads_on"), [(1, True), (MAX_BEHIND, False)])
def test_a_request_that_waits_does_not_receive_many_others(behind: int, reads_on: bool) -> None:
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connection, transport = sent(LimitedHttp, request * (1 + behind // len(request) + 1))
    assert transport.pause_reading.called
    connection.flow.resume_reading()
    assert transport.resume_reading.called == reads_on


@pytest.mark.parametrize(
    ("random_bytes", "zeros", "count"),
    [(SLICE_BYTES, 0, MAX_WAITING_MESSAGES), (0, MAX_MESSAGE_BYTES, MAX_WAITING_BYTES // MAX_MESSAGE_BYTES)],
    ids=["many", "large"],
)
def test_a_client_that_sends_faster_than_it_is_read_is_disconnected(random_bytes: int, zeros: int, count: int) -> None:
    deflate = zlib.compressobj(wbits=-12)
    frames = []
    for _ in range(10 * count):
        content = (deflate.compress(os.urandom(random_bytes) + bytes(zeros)) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
        frames.append(b"\xc2\xfe" + len(content).to_bytes(2, "big") + bytes(4) + content)
    connection, transport = sent(LimitedWebSocket, HANDSHAKE, b"".join(frames))
    assert transport.abort.called
    assert count < connection.queue.qsize() <= 2 * count + 2


@pytest.mark.parametrize("frame", [b"\x00\x80", b"\x89\x80", b"\x8a\x80"], ids=["parts", "pings", "pongs"])
def test_a_client_that_sends_very_many_frames_is_disconnected(frame: bytes) -> None:
    frames = b"\x02\x80" + bytes(4) + (frame + bytes(4)) * 40_000
    assert sent(LimitedWebSocket, HANDSHAKE, frames)[1].abort.called
    few = b"\x02\x80" + bytes(4) + (frame + bytes(4)) * (MAX_FRAMES // 4)
    assert not sent(LimitedWebSocket, HANDSHAKE, few)[1].abort.called


@pytest.mark.parametrize(("count", "status"), [(MAX_HEADER_LINES - 10, b" 200 "), (10_000, b" 400 ")])
@pytest.mark.parametrize("earlier", [0, 1])
def test_a_request_with_many_headers_is_refused(server: AppServer, count: int, status: bytes, earlier: int) -> None:
    head = f"GET /_stcore/health HTTP/1.1\r\nHost: localhost:{server.port}\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall((head + b"\r\n") * earlier + head + b"a:\r\n" * count + b"Connection: close\r\n\r\n")
        answers = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(4096):
                answers += part
    statuses = re.findall(rb"HTTP/1.1( \d+ )", answers)
    assert statuses == [b" 200 "] * earlier + [status]


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        (b"Sec-WebSocket-Extensions: " + b"a," * 700, False),
        (b"Sec-WebSocket-Extensions: " + b"a," * 29_000, True),
        (b"Sec-WebSocket-Extensions: a\r\n" * 50 + b"Sec-WebSocket-Protocol: " + b"a," * 1_000, True),
        (b"Connection: " + b"a," * 29_000, True),
    ],
    ids=["few", "extensions", "in all", "connection"],
)
def test_a_websocket_with_long_lists_in_its_headers_is_refused_before_they_are_compared(
    line: bytes, is_refused: bool
) -> None:
    upgrade, rest = HANDSHAKE.split(b"\r\n", 1)
    _, transport = sent(LimitedHttp, b"\r\n".join((upgrade, line, rest)))
    assert any(b" 400 " in call.args[0] for call in transport.write.call_args_list) == is_refused
    assert transport.set_protocol.called != is_refused


def test_large_messages_are_sent_without_compressing_them() -> None:
    connection, _ = sent(LimitedWebSocket, HANDSHAKE)
    (extension,) = connection.conn.process_extensions(Headers({"Sec-WebSocket-Extensions": "permessage-deflate"}))[1]
    for size, is_compressed in ((MAX_COMPRESSED, True), (MAX_COMPRESSED + 1, False), (100, True)):
        frame = extension.encode(Frame(Opcode.BINARY, bytes(size)))
        assert (frame.rsv1, len(frame.data) < size) == (is_compressed, is_compressed)


def test_a_request_in_chunks_is_refused() -> None:
    head = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for rest in (b"", b"1\r\na\r\n" * 40_000, b"0\r\n" + b"a:\r\n" * 10_000):
        _, transport = sent(LimitedHttp, head + rest)
        assert any(b"400 Bad Request" in call.args[0] for call in transport.write.call_args_list)


@pytest.mark.parametrize(
    ("host", "other", "limited"),
    [
        ("203.0.113.7", "203.0.113.8", True),
        ("::ffff:203.0.113.7", "203.0.113.8", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", True),
        ("fd00:1::2", "fd00:1::3", True),  # two addresses of a local network
        ("fe80::2%eth0", "fe80::3%eth0", True),
        ("2001:db8:0:9::2", "2001:db8:0:9::3", True),  # of the network of this machine
        ("127.0.0.1", "203.0.113.8", False),
        ("::1", "203.0.113.8", False),
    ],
)
def test_the_connections_of_an_address_are_limited(
    host: str, other: str, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(rate_limits, "_own_networks", lambda: {ipaddress.IPv6Network("2001:db8:0:9::/64")})

    async def connect_all(*users: int) -> list[bool]:
        """Return which of the connections was ended; those with these numbers have a signed-in user."""
        config, state = uvicorn.Config(lambda: None, lifespan="off"), ServerState()
        transports = []
        for number, address in enumerate([host] * 6 + [other]):
            transport = Mock(get_extra_info=lambda name, address=address: (address, 1) if name == "peername" else None)
            transport.is_closing = lambda transport=transport: transport.abort.called
            connection = LimitedHttp(config, state, {})
            connection.connection_made(transport)
            if number in users:
                connection.scope = {connection_limits.USER: "ada"}  # type: ignore[typeddict-item]
            transports.append(transport)
            await asyncio.sleep(0.001)  # each connection has another time
        return [transport.abort.called for transport in transports]

    assert asyncio.run(connect_all()) == [limited, *[False] * 6]
    assert asyncio.run(connect_all(0, 1)) == [False, False, limited, *[False] * 4]  # four of visitors
    assert asyncio.run(connect_all(1, 2, 3, 4)) == [False, limited, *[False] * 5]  # four of a user


def test_many_connections_wait_until_they_are_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=ACCEPTED) as listener, ExitStack() as clients:
        startup._lengthen_queues()
        for _ in range(20 * ACCEPTED):
            clients.enter_context(socket.create_connection(listener.getsockname(), PATIENCE_SECONDS))


def test_a_connection_without_a_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "REQUEST_SECONDS", 0.01)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def send(content: bytes) -> bool:
        connection = LimitedHttp(uvicorn.Config(answer, lifespan="off"), ServerState(), {})
        transport = Mock(get_extra_info=lambda name: None, get_protocol=lambda: connection)
        transport.get_write_buffer_size.return_value = 0
        ended = asyncio.Event()
        transport.abort = ended.set
        connection.connection_made(transport)
        if content:
            connection.data_received(content)
        checks = [connection._check]
        while not ended.is_set() and len(checks) < 4:
            await asyncio.sleep(0.001)
            checks += [connection._check] if connection._check is not checks[-1] else []
        connection.connection_lost(None)
        return ended.is_set()

    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    form = head.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\n"
    ending = {"nothing": b"", "part of a request": head, "part of a form": form + b"key=abc"}
    answered = {"a request": head + b"\r\n", "a form": form + b"key=abcde"}
    aborted = {name: asyncio.run(send(content)) for name, content in (ending | answered).items()}
    assert aborted == dict.fromkeys(ending, True) | dict.fromkeys(answered, False)


def test_large_answers_to_a_link_of_students_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    async def send(message: Any) -> None:
        assert message["type"] == "http.response.start"

    async def answer(size: int) -> None:
        headers = [(b"content-length", str(size).encode())]
        await limited(send)({"type": "http.response.start", "status": 200, "headers": headers})

    limited = rate_limits.StudentRateLimits().limit_answers
    monkeypatch.setattr(rate_limits.asyncio, "sleep", sleep)
    for size in (2**20, 1000) * 8:
        asyncio.run(answer(size))
    assert len(delays) == 8
    assert delays[:5] == [0.0] * 5
    assert delays[5:] == pytest.approx([1.0, 2.0, 3.0], abs=0.5)


def test_a_link_of_students_has_a_limited_number_of_requests_at_a_time(tmp_path: Path) -> None:
    keys = {name: add_user(tmp_path, name, role) for name, role in (("class", "student"), ("ben", "member"))}

    async def request_all() -> list[int]:
        is_read = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await is_read.wait()
            await PlainTextResponse("a page")(scope, receive, send)

        async def respond(name: str) -> int:
            headers = [(b"cookie", f"{KEY_COOKIE}={keys[name]}".encode())]
            scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
            send = AsyncMock()
            await middleware(scope, AsyncMock(), send)
            return int(send.await_args_list[0].args[0]["status"])

        middleware = SignIn(app, tmp_path)
        waiting = [asyncio.ensure_future(respond("class")) for _ in range(rate_limits.MAX_UNANSWERED)]
        of_member = asyncio.ensure_future(respond("ben"))
        await asyncio.sleep(0)
        refused = await respond("class")
        is_read.set()
        return [refused, *set(await asyncio.gather(*waiting)), await of_member, await respond("class")]

    assert asyncio.run(request_all()) == [503, 200, 200, 200]


@pytest.mark.parametrize("reads", [True, False])
def test_an_answer_that_is_not_read_ends(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "REQUEST_SECONDS", 0.2)
    content, answered = bytes(32 * 2**20), []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for start in range(0, len(content), 2**16):
            await send({"type": "http.response.body", "body": content[start : start + 2**16], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        answered.append(scope["path"])

    async def request() -> int:
        config, state = uvicorn.Config(answer, lifespan="off"), ServerState()
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: LimitedHttp(config, state, {}), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET /file HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if not reads:
                while state.tasks or not answered:  # ends with the connection
                    await asyncio.sleep(0.01)
            received = 0
            with suppress(ConnectionError):
                while part := await reader.read(2**20):
                    received += len(part)
            writer.close()
            return received

    received = asyncio.run(asyncio.wait_for(request(), PATIENCE_SECONDS))
    assert (received > len(content)) == reads
    assert answered == ["/file"]


def test_a_closed_websocket_ends_although_its_client_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "CLOSE_SECONDS", 0.01)

    async def close() -> bool:
        transport, ended = Mock(), asyncio.Event()
        transport.abort = ended.set
        EndingTransport(transport, asyncio.get_running_loop()).close()
        assert transport.close.called
        assert not ended.is_set()
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
        return True

    assert asyncio.run(close())
    assert isinstance(sent(LimitedWebSocket, HANDSHAKE)[0].transport, EndingTransport)


def test_the_session_of_a_client_that_does_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StarletteSessionClient, "write_forward_msg", StarletteSessionClient.write_forward_msg)
    streamlit_patches._limit_waiting_messages()
    queue: asyncio.Queue[bytes] = asyncio.Queue(500)
    client = SimpleNamespace(_send_queue=queue, _closed=asyncio.Event())
    message = ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY)
    for size in (streamlit_patches.MAX_UNREAD_BYTES - 100, 200):
        StarletteSessionClient.write_forward_msg(client, message)  # type: ignore[arg-type]
        queue.put_nowait(bytes(size))
    with pytest.raises(SessionClientDisconnectedError):
        StarletteSessionClient.write_forward_msg(client, message)  # type: ignore[arg-type]
    assert client._closed.is_set()


def test_a_file_that_was_built_for_a_download_is_not_removed_when_others_use_the_app(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("mark_for_delete", "is_marked_for_delete"):
        monkeypatch.setattr(MediaFileMetadata, name, getattr(MediaFileMetadata, name))
    monkeypatch.setattr(memory_media_file_storage, "_calculate_file_id", None)  # replaced next
    streamlit_patches._keep_downloads()
    assert memory_media_file_storage._calculate_file_id is streamlit_patches._file_id
    now = [1000.0]
    monkeypatch.setattr(streamlit_patches, "time", SimpleNamespace(monotonic=lambda: now[0]))
    manager = MediaFileManager(MemoryMediaFileStorage("/media"))
    address = manager.add(b"a model", "application/zip", "", file_name="model.zip", is_for_static_download=True)
    manager.clear_session_refs()
    name = address.rpartition("/")[2]
    for _ in range(5):  # scripts that end
        manager.remove_orphaned_files()
    assert manager._storage.get_file(name).content == b"a model"  # type: ignore[attr-defined]
    now[0] += streamlit_patches.DOWNLOAD_SECONDS + 1
    manager.remove_orphaned_files()
    with pytest.raises(MediaFileStorageError):
        manager._storage.get_file(name)  # type: ignore[attr-defined]


def test_no_files_are_watched_for_a_session_that_reconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AppSession, "register_file_watchers", AppSession.register_file_watchers)  # restored afterwards
    streamlit_patches._watch_no_files()
    session = SimpleNamespace(_local_sources_watcher=None)
    AppSession.register_file_watchers(session)  # type: ignore[arg-type]
    assert session._local_sources_watcher is None


def test_large_downloads_that_differ_in_one_byte_are_different_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_media_file_storage, "_calculate_file_id", streamlit_patches._file_id)
    storage, files = MemoryMediaFileStorage("/media"), [bytearray(2**21), bytearray(2**21)]
    files[1][2**19] = 1  # outside the parts that Streamlit compares
    ids = [storage.load_and_get_id(bytes(file), "text/csv", MediaFileKind.DOWNLOADABLE, "a.csv") for file in files]
    assert [storage.get_file(f"{file_id}.csv").content for file_id in ids] == files
    monkeypatch.setattr(streamlit_patches, "_FILE_KEY", b"of another process")  # so that no address can be computed
    assert storage.load_and_get_id(bytes(files[0]), "text/csv", MediaFileKind.DOWNLOADABLE, "a.csv") not in ids


def hostile_names() -> Iterator[BackMsg]:
    """Messages with names that Streamlit writes to the log as they are, and requests of other kinds."""
    for text in ("\x1b]0;title\x07", "A" * 130_000, "\u202e"):
        for name in ("page_script_hash", "page_name", "fragment_id"):
            message = BackMsg()
            setattr(message.rerun_script, name, text)
            yield message
        message = BackMsg()
        message.backend_operation_request.deferred_file.file_id = text
        yield message
        message = BackMsg()
        message.backend_operation_request.request_id = text
        yield message
    message = BackMsg()
    message.backend_operation_request.install_skills.SetInParent()
    yield message


def test_hostile_names_in_messages_are_ignored(keys: dict[str, str]) -> None:
    usual = BackMsg()
    usual.backend_operation_request.deferred_file.file_id = "0" * 36
    contents = [message.SerializeToString() for message in (*hostile_names(), usual)]
    for name in ("class", "ben"):
        assert received(keys, list(contents), 1, name) == contents[-1:]


@pytest.mark.parametrize("key", ["valid", "wrong"])
def test_users_can_sign_in_when_the_disk_is_full(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    def full(*arguments: Any, **details: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pages.ui.server.sign_in.write_audit", full)
    form = urlencode({"key": keys["ada"] if key == "valid" else "x", "next": "/", "replaces": ""})
    client = TestClient(SignIn(lambda scope, receive, send: None, Path(keys["root"])), follow_redirects=False)  # type: ignore[arg-type, return-value]
    response = client.post("/sign-in", content=form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert response.status_code == (303 if key == "valid" else 401)


def test_messages_of_students_that_come_too_fast_are_delayed(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    message = BackMsg(stop_script=True).SerializeToString()
    _, burst = rate_limits.PAGE_RATE
    received(keys, [message] * int(burst), int(burst), "class")
    assert delays == []
    received(keys, [message] * 2 * int(burst), 2 * int(burst), "class")
    assert len(delays) == pytest.approx(burst, abs=5)
    assert delays == sorted(delays)
    delays.clear()
    received(keys, [None, *[message] * int(burst)], int(burst), "class")
    assert delays
    delays.clear()
    received(keys, [message] * 3 * int(burst), 3 * int(burst), "ben")
    assert delays == []


def test_a_page_that_sends_less_than_its_share_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    students = rate_limits.StudentRateLimits()
    with ExitStack() as pages:
        busy = [pages.enter_context(students.page()) for now[0] in map(float, range(100))]
        quiet = pages.enter_context(students.page())
        delays = []
        for now[0] in map(float, range(100, 160, 5)):
            for delay in busy * 5:
                delay()
            delays.append(quiet())
        assert max(busy[0]() for _ in range(2)) > 10
    assert delays == [0.0] * len(delays)


@pytest.mark.parametrize("path", ["/", "/_stcore/health", "/sign-in"])
def test_many_requests_without_a_key_wait(keys: dict[str, str], monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    rate, burst = rate_limits.VISITORS_RATE
    delays = waits(monkeypatch)
    app = SignIn(PlainTextResponse("a page"), Path(keys["root"]))
    client, other = TestClient(app), TestClient(app, client=("192.0.2.7", 5000))
    for _ in range(int(burst) + 2):
        client.get(path)
    assert delays == pytest.approx([1 / rate, 2 / rate])
    for name in ("ada", "class"):  # a user does not wait, also for the path that a page requests before it opens
        answer = client.get(path, headers={"Cookie": f"{KEY_COOKIE}={keys[name]}"})
        assert path == "/sign-in" or answer.text == "a page"
    other.get(path)
    assert len(delays) == (4 if path == "/sign-in" else 2)


@pytest.mark.parametrize(("path", "limit"), [("/auth/login", "VISITORS_RATE"), ("/oauth2callback", "PROVIDER_RATE")])
def test_many_requests_to_sign_in_with_a_provider_wait(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch, path: str, limit: str
) -> None:
    monkeypatch.setattr("pages.ui.server.sign_in.get_secrets_auth_section", lambda: {"redirect_uri": ""})
    rate, burst = getattr(rate_limits, limit)
    delays = waits(monkeypatch)
    client = TestClient(SignIn(PlainTextResponse("a page"), Path(keys["root"])))
    assert [client.get(path).text for _ in range(int(burst) + 2)] == ["a page"] * (int(burst) + 2)
    assert delays == pytest.approx([1 / rate, 2 / rate])


def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of delays of requests, which do not wait; the time does not pass."""
    delays: list[float] = []

    async def received(receive: Any, seconds: float) -> Any:
        delays.append(seconds)
        return receive

    monkeypatch.setattr(rate_limits, "_received", received)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    return delays


def waiting(limit: RateLimit, receive: Any, sent: list[Any]) -> Any:
    async def send(message: Any) -> None:
        sent.append(message)

    return limit.wait({"type": "http"}, receive, send)


def test_a_flood_delays_a_limit_only_shortly_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limit = RateLimit(50.0, 500.0, rate_limits.MAX_DELAY)
    assert max(limit.delay() for _ in range(100_000)) == rate_limits.MAX_DELAY
    now[0] += rate_limits.MAX_DELAY + 1
    assert limit.delay() == 0.0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}),
        ({"type": "websocket.connect"}, {"type": "websocket.disconnect"}),
        ({"type": "websocket.connect"}, {"type": "websocket.receive", "bytes": b"before it is open"}),
    ],
)
def test_a_request_that_waits_ends_when_its_client_leaves(first: dict[str, Any], second: dict[str, Any]) -> None:
    async def leave() -> list[Any]:
        messages = [first, second]
        sent: list[Any] = []
        limit = RateLimit(0.001, 0.0)

        async def receive() -> Any:
            return messages.pop(0)

        assert await waiting(limit, receive, sent) is None  # would wait 1,000 s
        assert limit._waiting == 0
        return sent

    assert asyncio.run(leave())[0]["status"] == 503


def test_a_request_that_waited_is_received_as_it_was_sent() -> None:
    async def wait() -> list[bytes]:
        parts = [{"type": "http.request", "body": bytes([number]), "more_body": number < 2} for number in range(3)]

        async def receive() -> Any:
            return parts.pop(0) if parts else await asyncio.Event().wait()

        received = await waiting(RateLimit(20.0, 0.0), receive, [])
        assert parts == []
        return [(await received())["body"] for _ in range(3)]

    assert asyncio.run(wait()) == [b"\0", b"\1", b"\2"]


def test_only_so_many_requests_wait_and_none_with_a_large_body() -> None:
    async def wait() -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        async def receive_much() -> Any:
            return {"type": "http.request", "body": bytes(2000), "more_body": True}

        sent: list[Any] = []
        limit = RateLimit(0.001, 0.0)
        others = [asyncio.ensure_future(waiting(limit, receive, [])) for _ in range(rate_limits.MAX_WAITING)]
        await asyncio.sleep(0)
        assert await waiting(limit, receive, sent) is None
        assert dict(sent[0]["headers"])[b"connection"] == b"close"
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        assert await waiting(limit, receive_much, sent) is None
        assert [message["status"] for message in sent[::2]] == [503, 503]

    asyncio.run(wait())


def test_many_pages_and_requests_of_a_link_wait_and_more_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    students, (rate, burst) = rate_limits.StudentRateLimits(), rate_limits.OPENING_RATE
    delays = [students.opening_delay() for _ in range(300)]
    free, waiting = int(burst), int(rate_limits.MAX_DELAY * rate)
    assert delays[:free] == [0.0] * free
    assert delays[free : free + waiting] == pytest.approx([number / rate for number in range(1, waiting + 1)])
    assert set(delays[free + waiting :]) == {None}
    requests = [students.requests.delay() for _ in range(int(rate_limits.REQUEST_RATE[1]) + 10)]
    assert requests[-11:-9] == [0.0, pytest.approx(1 / rate_limits.REQUEST_RATE[0])]


def test_a_rate_limit_allows_a_burst_and_then_a_rate() -> None:
    limit = RateLimit(rate=10.0, burst=5.0)
    assert [limit.delay() for _ in range(5)] == [0.0] * 5
    later = [limit.delay() for _ in range(10)]
    assert later == pytest.approx([number / 10 for number in range(1, 11)], abs=0.2)
