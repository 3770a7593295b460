"""A server with its maximum number of open pages answers new pages with a message; the open ones go on working."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import streamlit
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from bsc_core.users.accounts import USER_HEADER
from pages.ui.server.session_limit import PAGES_OF_USER, STREAM, SessionLimit
from tests.browser.serving import AppServer
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}  # as a browser that opens a page


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    with AppServer(tmp_path_factory.mktemp("app")).running(BSC_MAX_SESSIONS="2") as server:
        yield server


def get(server: AppServer, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    with closing(http.client.HTTPConnection("localhost", server.port, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def open_session(server: AppServer, *protocols: Any) -> ClientConnection:
    address, names = f"ws://localhost:{server.port}/_stcore/stream", ["streamlit", *protocols]
    return connect(address, origin=server.url, subprotocols=names, open_timeout=PATIENCE_SECONDS, proxy=None)  # type: ignore[arg-type]


def test_new_pages_get_a_message_until_one_is_closed(server: AppServer) -> None:
    response, body = get(server, "/lessons", **PAGE)
    assert response.status == 200
    assert b"The server is full" not in body
    with open_session(server), open_session(server):
        for path in ("/", "/lessons", "/runs?run=1"):
            response, body = get(server, path, **PAGE)
            assert response.status == 503
            assert response.headers["Retry-After"] == "60"
            assert response.headers["Cache-Control"] == "no-store"
            assert response.headers["X-Frame-Options"] == "SAMEORIGIN"
            assert b"The server is full" in body
            assert b"2 pages are open" in body
        assert get(server, "/_stcore/health")[0].status == 200
        with pytest.raises(InvalidStatus), open_session(server):
            pass
        with open_session(server, "token", "session-of-an-open-page"):  # its connection was interrupted
            pass
        with ExitStack() as others:
            for number in range(2):
                others.enter_context(open_session(server, "token", f"invented-{number}"))
            with pytest.raises(InvalidStatus), open_session(server, "token", "invented"):
                pass
    wait_until(lambda: get(server, "/lessons", **PAGE)[0].status == 200, "no page is free")


def test_only_pages_count() -> None:
    client = TestClient(SessionLimit(PlainTextResponse("a page"), sessions=1))
    for path in ("/_stcore/health", "/_stcore/host-config", "/auth/login", "/oauth2callback"):
        assert client.get(path, headers=PAGE).status_code == 200
    assert [client.get("/", headers=PAGE).status_code for _ in range(2)] == [200, 503]
    assert client.get("/_stcore/health", headers=PAGE).status_code == 200


def test_a_user_of_a_shared_app_cannot_keep_the_others_out() -> None:
    client = TestClient(SessionLimit(PlainTextResponse("a page"), sessions=4))
    opened = [[client.get("/", headers={**PAGE, USER_HEADER: user}).status_code for _ in range(5)] for user in "abcde"]
    few = [200] * PAGES_OF_USER + [503] * 2
    assert opened == [[200] * 4 + [503], few, few, [200] * 2 + [503] * 3, [503] * 5]  # three times as many in all


def test_a_user_with_many_pages_leaves_half_as_many_to_a_class_that_shares_a_link() -> None:
    client = TestClient(SessionLimit(PlainTextResponse("a page"), sessions=60))
    opened = [
        [client.get("/", headers={**PAGE, USER_HEADER: user}).status_code for _ in range(61)]
        for user in ("other", "class", "ada")
    ]
    half = [200] * 30 + [503] * 31
    assert opened == [[200] * 60 + [503], half, half]


def test_the_server_is_full_for_everybody_if_no_user_has_many_pages() -> None:
    client = TestClient(SessionLimit(PlainTextResponse("a page"), sessions=4))
    opened = [
        client.get("/", headers={**PAGE, USER_HEADER: user}).status_code for user in ("a", "a", "b", "c", "d", "a")
    ]
    assert opened == [200] * 4 + [503] * 2


def test_a_user_of_a_shared_app_cannot_keep_the_others_out_with_websockets() -> None:
    async def accept(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    client = TestClient(SessionLimit(accept, sessions=4))
    names = ["streamlit", "token", "invented"]  # a session whose connection was interrupted, as the client says
    with ExitStack() as pages:
        for user in ("a", "b"):
            page = partial(client.websocket_connect, STREAM, names, headers={USER_HEADER: user})
            for _ in range(4):
                pages.enter_context(page())
            with pytest.raises(WebSocketDisconnect), page():
                pass
        with client.websocket_connect(STREAM, headers={USER_HEADER: "c"}):  # a user with no other page
            pass
    with client.websocket_connect(STREAM, headers={USER_HEADER: "c"}):  # all pages are closed
        pass


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_that_another_site_requests_do_not_fill_the_server(site: str) -> None:
    client = TestClient(SessionLimit(PlainTextResponse("a page"), sessions=1))
    for _ in range(5):
        assert client.get("/", headers={**PAGE, "Sec-Fetch-Site": site}).status_code == 200
    assert client.get("/", headers={**PAGE, "Sec-Fetch-Site": "none"}).status_code == 200
    assert client.get("/", headers={**PAGE, "Sec-Fetch-Site": site}).status_code == 503


def test_a_page_that_was_sent_can_open_its_session(server: AppServer) -> None:
    wait_until(lambda: get(server, "/", **PAGE)[0].status == 503, "the pages that were sent do not count")
    with open_session(server), open_session(server):
        assert get(server, "/", **PAGE)[0].status == 503


def test_scripts_are_sent_compressed_to_browsers_that_accept_it(server: AppServer) -> None:
    folder = Path(streamlit.__file__).parent / "static"
    script = next((folder / "static" / "js").glob("index.*.js"))
    path = f"/{script.relative_to(folder).as_posix()}"
    response, body = get(server, path, **{"Accept-Encoding": "gzip, br"})
    assert (response.status, response.headers["Content-Encoding"]) == (200, "gzip")
    assert response.headers["Content-Type"].startswith("text/javascript")
    assert "immutable" in response.headers["Cache-Control"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert gzip.decompress(body) == script.read_bytes()
    response, body = get(server, path)
    assert (response.status, response.headers["Content-Encoding"]) == (200, None)
    assert body == script.read_bytes()
    for other in (f"/.{path}", f"/%2e{path}", "/"):  # would be compressed again for each request
        response, body = get(server, other, **{"Accept-Encoding": "gzip"})
        assert (response.status, response.headers["Content-Encoding"]) == (200, None)


@pytest.mark.parametrize("path", ["/static/../../config.py", "/static/js/missing.js", "/../static/x.js", "/app.js"])
def test_no_other_file_is_sent_compressed(server: AppServer, path: str) -> None:
    response, body = get(server, path, **{"Accept-Encoding": "gzip"})
    assert b"import" not in body
    assert "immutable" not in response.headers.get("Cache-Control", "")
