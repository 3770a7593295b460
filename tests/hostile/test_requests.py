"""Requests from other sites: an unknown host, another origin, a frame."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.requests import HTTPConnection
from uvicorn.server import ServerState

from bsc_core.users.accounts import SHARED
from pages.ui.server import connection_limits
from pages.ui.server.connection_limits import ALLOWED_HOSTS, LimitedHttp
from pages.ui.server.request_guard import MAX_PART, _remove_unusable_headers, _with_headers
from tests.browser.serving import AppServer
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    folder = tmp_path_factory.mktemp("app")
    (folder / ".streamlit").mkdir()  # settings of the working folder, which the app does not read
    (folder / ".streamlit" / "config.toml").write_text('[server]\nbaseUrlPath = "elsewhere"\n', encoding="utf-8")
    with AppServer(folder).running(BSC_ALLOWED_HOSTS="lab.example, other.example") as server:
        yield server


READ_SECRETS = """
import os
from streamlit.runtime.secrets import secrets_singleton
from pages.ui.server import streamlit_patches
streamlit_patches.apply()
print(secrets_singleton.load_if_toml_exists(), os.environ.get("PROBE"))
"""


@pytest.mark.parametrize(("shared", "expected"), [({}, "False None"), ({SHARED: "runs"}, "True None")])
def test_secrets_of_the_working_folder_set_no_environment_variables(
    tmp_path: Path, shared: dict[str, str], expected: str
) -> None:
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text('PROBE = "1"\n', encoding="utf-8")
    variables = {**os.environ, **shared, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", READ_SECRETS]
    ended = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == expected, ended.stderr


@pytest.mark.skipif(not connection_limits.CONNECTIONS[0].exists(), reason="needs the list of connections of Linux")
@pytest.mark.parametrize(("variable", "status"), [(None, 403), (SHARED, 200), (ALLOWED_HOSTS, 200)])
def test_other_system_users_cannot_open_an_app_that_is_not_shared(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, status: int
) -> None:
    for name in (SHARED, ALLOWED_HOSTS):
        monkeypatch.delenv(name, raising=False)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def request() -> int:
        config, state = uvicorn.Config(app, lifespan="off"), ServerState()
        config.load()
        server = await asyncio.get_running_loop().create_server(lambda: LimitedHttp(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = int((await reader.readline()).split()[1])
        writer.close()
        server.close()
        return status

    assert asyncio.run(request()) == 200
    user = os.getuid()
    monkeypatch.setattr(connection_limits.os, "getuid", lambda: user + 1)  # the app's; that of the client is listed
    monkeypatch.setattr(connection_limits, "SUPERUSER", user + 1)
    if variable is not None:
        monkeypatch.setenv(variable, "a")
    assert asyncio.run(request()) == status


def test_another_system_user_has_any_address_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SHARED, ALLOWED_HOSTS):
        monkeypatch.delenv(name, raising=False)
    table = tmp_path / "tcp"
    line = "   0: {client} 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 {user} 0 1 1 0 20 4 30 10 -1\n"
    table.write_text("sl local_address\n" + line.format(client="020200C0:1388", user=os.getuid() + 1))
    monkeypatch.setattr(connection_limits, "CONNECTIONS", (table,))
    assert connection_limits._is_of_another_user(("192.0.2.2", 5000), ("127.0.0.1", 8080))
    assert connection_limits._is_of_another_user(("::ffff:192.0.2.2", 5000), ("::ffff:127.0.0.1", 8080))
    assert not connection_limits._is_of_another_user(("192.0.2.2", 5001), ("127.0.0.1", 8080))  # not in the list
    assert not connection_limits._is_of_another_user(("192.0.2.3", 5000), ("127.0.0.1", 8080))  # with the same ports
    assert not connection_limits._is_of_another_user(("192.0.2.2", 5000), ("127.0.0.3", 8080))
    table.write_text("sl local_address\n" + line.format(client="020200C0:1388", user=os.getuid()))
    assert not connection_limits._is_of_another_user(("192.0.2.2", 5000), ("127.0.0.1", 8080))
    closed = line.replace("{user} 0 1 ", "{user} 0 0 ")
    table.write_text("sl local_address\n" + closed.format(client="020200C0:1388", user=connection_limits.SUPERUSER))
    assert connection_limits._is_of_another_user(("192.0.2.2", 5000), ("127.0.0.1", 8080))


@pytest.mark.skipif(not connection_limits.CONNECTIONS[0].exists(), reason="needs the list of connections of Linux")
@pytest.mark.parametrize("linger", [None, struct.pack("ii", 1, 0)], ids=["closed", "reset"])
def test_a_connection_that_its_client_has_closed_may_be_of_another_user(
    monkeypatch: pytest.MonkeyPatch, linger: bytes | None
) -> None:
    for name in (SHARED, ALLOWED_HOSTS):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, address = server.accept()
        with connection:
            assert not connection_limits._is_of_another_user(address, server.getsockname(), connection)
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            if linger is not None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.close()
            wait_until(
                lambda: connection_limits._is_of_another_user(address, server.getsockname(), connection),
                "the closed connection is admitted",
                factor=0.05,
            )


@pytest.mark.parametrize(
    ("client", "server", "listed"),
    [
        ("::1", "::1", "00000000000000000000000001000000"),
        ("::ffff:127.0.0.1", "127.0.0.1", "0000000000000000FFFF00000100007F"),
    ],
)
def test_connections_over_ipv6_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, server: str, listed: str
) -> None:
    for name in (SHARED, ALLOWED_HOSTS):
        monkeypatch.delenv(name, raising=False)
    table = tmp_path / "tcp6"
    line = f"   0: {listed}:1388 {listed}:1F90 01 00000000:00000000 00:00000000 00000000 {os.getuid() + 1} 0 1 1 0 20"
    table.write_text(f"sl local_address\n{line}\n")
    monkeypatch.setattr(connection_limits, "CONNECTIONS", (table,))
    assert connection_limits._is_of_another_user((client, 5000), (server, 8080))


def respond(server: AppServer, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    connection.close()
    return response


@pytest.mark.parametrize("path", ["/", "/batches", "/_stcore/health", "/_stcore/host-config"])
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:{port}", 200),
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
        ("LOCALHOST", 200),
        ("lab.example", 200),
        ("other.example:443", 200),
        ("evil.example:{port}", 403),
        ("localhost.evil.example:{port}", 403),
        ("evil.example:80@localhost", 403),
        ("[::1", 403),
        ("[::1]evil.example", 403),
        ("localhost#x", 403),
        ("localhost/x", 403),
        ("localhost?x", 403),
        ("localhost:{port}.evil.example", 403),
        ("localhost:evil", 403),
        ("", 403),
    ],
)
def test_only_allowed_hosts_are_served(server: AppServer, path: str, host: str, status: int) -> None:
    assert respond(server, path, {"Host": host.format(port=server.port)}).status == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:{port}", 101),
        (None, 101),  # not a browser
        ("http://localhost:1", 403),
        ("http://127.0.0.1:{port}", 403),
        ("http://evil.example", 403),
        ("http://localhost.evil.example:{port}", 403),
        ("null", 403),
        ("http://[", 403),
        ("//localhost:{port}", 403),
        ("", 403),
    ],
)
def test_a_websocket_is_opened_from_the_origin_of_the_app_only(
    server: AppServer, origin: str | None, status: int
) -> None:
    headers = {"Host": f"localhost:{server.port}", **WEBSOCKET}
    if origin is not None:
        headers["Origin"] = origin.format(port=server.port)
    assert respond(server, "/_stcore/stream", headers).status == status


@pytest.mark.parametrize(
    ("more", "status"), [({"Content-Length": "5"}, 400), ({"Cookie": f"a={'b' * 20_000}"}, 101), ({}, 101)]
)
def test_a_websocket_that_begins_with_an_invalid_request_is_answered_and_ends(
    server: AppServer, more: dict[str, str], status: int
) -> None:
    host = f"localhost:{server.port}"
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)) as connection:
        connection.request(
            "GET", "/_stcore/stream", headers={"Host": host, "Origin": f"http://{host}"} | WEBSOCKET | more
        )
        response = connection.getresponse()
        assert response.status == status
        if status == 400:
            assert connection.sock is None or connection.sock.recv(1) == b""


@pytest.mark.parametrize("path", ["/", "/_stcore/health", "/missing.js"])
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_no_other_site_can_frame_the_app_or_guess_types(server: AppServer, path: str, host: str) -> None:
    headers = respond(server, path, {"Host": host}).headers
    assert headers["Content-Security-Policy"].split("; ") == [
        *("connect-src 'self' blob: data:", "font-src 'self' data:", "img-src 'self' blob: data:"),
        "frame-ancestors 'self'",
    ]
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(
    "path",
    ["/?staticAppId=/evil.example/x", "/runs?run=a&staticAppId", "/?%73taticAppI%64=x", "/findings?a=+&static%41ppId"],
)
def test_a_link_does_not_replace_the_app_by_that_of_another_site(server: AppServer, path: str) -> None:
    response = respond(server, path, {"Host": f"localhost:{server.port}"})
    assert response.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("destination", "status"), [("document", 200), ("iframe", 403), ("image", 403), ("script", 403)]
)
def test_another_site_can_link_to_the_app_but_not_load_it(
    server: AppServer, site: str, destination: str, status: int
) -> None:
    headers = {"Host": f"localhost:{server.port}", "Sec-Fetch-Site": site, "Sec-Fetch-Dest": destination}
    assert respond(server, "/", headers).status == status
    assert respond(server, "/", {**headers, "Sec-Fetch-Site": "same-origin"}).status == 200


def test_cookies_with_escape_sequences_are_removed(server: AppServer) -> None:
    cookie = 'a="' + "\\\\" * 16_000 + '"; b=1'
    headers = {"Host": f"localhost:{server.port}", "Cookie": cookie}
    assert respond(server, "/_stcore/health", headers).status == 200
    scope: dict[str, Any] = {"type": "http", "path": "/", "headers": [(b"cookie", cookie.encode()), (b"x", b"\\")]}
    _remove_unusable_headers(scope)
    assert scope["headers"] == [(b"cookie", b" b=1"), (b"x", b"\\")]
    assert HTTPConnection(scope).cookies == {"b": "1"}


@pytest.mark.parametrize("values", [[b";" * 300], [b";" * 9] * 30, [b"a=" + b"x" * 40_000]])
def test_too_many_cookies_are_removed(values: list[bytes]) -> None:
    scope: dict[str, Any] = {"type": "http", "path": "/", "headers": [(b"cookie", value) for value in values]}
    _remove_unusable_headers(scope)
    assert scope["headers"] == []


@pytest.mark.parametrize(
    ("cookies", "usable"),
    [
        (b"bsc_key=one; bsc_key=two; a=1", b" a=1"),
        (b"bsc_key=one; a=1; bsc_key=one", b"bsc_key=one; a=1; bsc_key=one"),
        (b"a=1; bsc_key=one", b"a=1; bsc_key=one"),
        (b"bsc_key=one; bsc_key =two; a=1", b" a=1"),
        (b"bsc_key=one; bsc_key\xa0=two; \x85bsc_key=two", b"bsc_key=one"),
    ],
)
def test_two_different_keys_of_one_request_sign_nobody_in(cookies: bytes, usable: bytes) -> None:
    scope: dict[str, Any] = {"type": "http", "path": "/", "headers": [(b"cookie", cookies)]}
    _remove_unusable_headers(scope)
    assert scope["headers"] == [(b"cookie", usable)]


def test_ranges_are_ignored_since_a_copy_of_each_would_be_kept(server: AppServer) -> None:
    scope: dict[str, Any] = {"type": "http", "path": "/", "headers": [(b"range", b"bytes=1-"), (b"x", b"1")]}
    _remove_unusable_headers(scope)
    assert scope["headers"] == [(b"x", b"1")]
    media: dict[str, Any] = {"type": "http", "path": "/media/a.csv", "headers": [(b"accept-encoding", b"gzip")]}
    _remove_unusable_headers(media)
    assert media["headers"] == []
    for path in ("/favicon.png", "/"):
        response = respond(server, path, {"Host": f"localhost:{server.port}", "Range": "bytes=1-"})
        assert response.status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [("/a" * 1024, 200), ("/a" * 1024 + "/", 403), ("/%41" * 1536, 403), ("/a" * 20_000 + ".js", 400)],
)
def test_a_long_path_is_refused_before_files_are_searched(server: AppServer, path: str, status: int) -> None:
    headers = {"Host": f"localhost:{server.port}", "Accept-Encoding": "gzip"}
    assert respond(server, path, headers).status == status


@pytest.mark.parametrize("name", ["%00", "a" * 5000])
def test_an_invalid_name_of_a_script_is_no_error_of_the_server(server: AppServer, name: str) -> None:
    headers = {"Host": f"localhost:{server.port}", "Accept-Encoding": "gzip"}
    assert respond(server, f"/static/{name}.js", headers).status < 500
    assert "Traceback" not in server.log()


def test_a_large_answer_is_sent_in_parts() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def respond_twice() -> None:
        send_with_headers = _with_headers({"type": "http", "headers": []}, send)
        for size, more in ((2 * MAX_PART + 1, True), (MAX_PART, False)):
            await send_with_headers({"type": "http.response.body", "body": bytes(size), "more_body": more})

    asyncio.run(respond_twice())
    assert [len(message["body"]) for message in sent] == [MAX_PART, MAX_PART, 1, MAX_PART]
    assert [message["more_body"] for message in sent] == [True, True, True, False]
