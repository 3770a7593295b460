"""The configuration of nginx in docs/hosting.md, with TLS in front of a shared app."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest

from bsc_core.users.accounts import add_user
from pages.ui.server.sign_in import KEY_COOKIE
from tests.browser.serving import AppServer
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.hostile import nginx
from tests.hostile.test_requests import WEBSOCKET

DOCUMENT = Path(__file__).parents[2] / "docs" / "hosting.md"
HOST = "lab.example"
BURST = 420  # requests at once, more than the connections that the configuration allows
CONNECTIONS = re.findall(r"`worker_connections` in\s`nginx.conf` to (\d+)", DOCUMENT.read_text(encoding="utf-8"))[0]

pytestmark = pytest.mark.skipif(not (nginx.executable() and shutil.which("openssl")), reason="needs nginx and openssl")


class Proxy:
    """nginx with the configuration of the document, on a free port and with a certificate of this test."""

    def __init__(self, folder: Path, app_port: int) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={HOST}"),
                *("-addext", f"subjectAltName=DNS:{HOST}", "-keyout", str(key), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
        [server] = re.findall(r"```nginx\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
        changes = {
            "listen 443 ssl": f"listen 127.0.0.1:{self.port} ssl",
            "/etc/ssl/lab.example.crt": str(certificate),
            "/etc/ssl/lab.example.key": str(key),
            "127.0.0.1:8501": f"127.0.0.1:{app_port}",
            "burst=4000": f"burst={BURST}",
            "rate=100r/s": "rate=1r/m",  # so that the burst is used up on a slow machine, too
        }
        for text, replacement in changes.items():
            assert text in server
            server = server.replace(text, replacement)
        paths = "".join(
            f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
            f"events {{ worker_connections {CONNECTIONS}; }}\n"
            f"http {{\naccess_log {folder}/access.log;\n{paths}{server}}}\n"
        )
        self.context = ssl.create_default_context(cafile=str(certificate))
        self._process = subprocess.Popen(
            [str(nginx.executable()), "-p", str(folder), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
        )
        wait_until(self._responds, f"nginx does not respond: {self.errors()}")

    def errors(self) -> str:
        path = self.folder / "error.log"
        return path.read_text() if path.exists() else ""

    def _responds(self) -> bool:
        try:
            return self.respond("GET", "/_stcore/health").status == 200
        except OSError:
            return False

    def respond(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: str | None = None,
        host: str = HOST,
        source: str = "127.0.0.1",
    ) -> HTTPResponse:
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS, context=self.context)
        connection.sock = self.context.wrap_socket(
            socket.create_connection(("127.0.0.1", self.port), source_address=(source, 0)), server_hostname=HOST
        )
        connection.request(method, path, body, {"Host": host, **(headers or {})})
        response = connection.getresponse()
        if response.status != 101:
            response.read()
        connection.close()
        return response

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def key_and_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Proxy]]:
    folder = tmp_path_factory.mktemp("proxy")
    key = add_user(folder / "runs", "ada", "owner") or ""
    with AppServer(folder).running("--host", "127.0.0.1", BSC_ALLOWED_HOSTS=HOST) as server:
        proxy = Proxy(folder, server.port)
        yield key, proxy
        proxy.stop()


def test_slow_requests_of_visitors_do_not_keep_the_users_of_their_address_out(
    key_and_proxy: tuple[str, Proxy],
) -> None:
    key, proxy = key_and_proxy
    addresses, sign_ins = (
        int(re.findall(rf"limit_conn {zone} (\d+);", DOCUMENT.read_text(encoding="utf-8"))[0])
        for zone in ("addresses", "sign_ins")
    )
    slow = []

    def send(path: str) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", proxy.port), source_address=("127.0.0.2", 0))
        slow.append(proxy.context.wrap_socket(raw, server_hostname=HOST))
        slow[-1].sendall(f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 8000\r\n\r\nk".encode())
        return slow[-1]

    try:
        for _ in range(sign_ins):
            send("/sign-in")
        assert b" 503 " in send("/sign-in").recv(100)
        for path, status in (("/", b" 413 "), ("/_stcore/upload_file/a/b", b" 401 ")):
            for _ in range(addresses // 8):
                assert status in send(path).recv(100)
        cookie = {"Cookie": f"{KEY_COOKIE}={key}"}
        assert proxy.respond("GET", "/runs", cookie, source="127.0.0.2").status == 200
        assert proxy.respond("POST", "/sign-in", body="key=guess").status == 401  # from another address
    finally:
        for connection in slow:
            connection.close()


def test_many_requests_of_one_address_are_refused(key_and_proxy: tuple[str, Proxy]) -> None:
    _, proxy = key_and_proxy
    raw = socket.create_connection(("127.0.0.1", proxy.port), source_address=("127.0.0.3", 0))
    with proxy.context.wrap_socket(raw, server_hostname=HOST) as connection:
        connection.sendall(f"HEAD /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode() * (BURST + 60))
        answers = b""
        while b" 503 " not in answers:
            part = connection.recv(2**16)
            assert part, answers[-300:]
            answers += part
    assert answers.count(b" 401 ") >= BURST
    assert proxy.respond("GET", "/").status == 401


def test_a_user_signs_in_over_tls_and_opens_a_websocket(key_and_proxy: tuple[str, Proxy]) -> None:
    key, proxy = key_and_proxy
    assert proxy.respond("GET", "/").status == 401
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"https://{HOST}"}
    response = proxy.respond("POST", "/sign-in", headers, urlencode({"key": key, "next": "/runs"}))
    assert response.status == 303
    assert response.headers["Location"] == "/runs"
    assert "; Secure" in response.headers["Set-Cookie"]
    assert "max-age" in response.headers["Strict-Transport-Security"]
    cookie = {"Cookie": f"{KEY_COOKIE}={key}"}
    assert proxy.respond("GET", "/runs", cookie).status == 200
    stream = {**cookie, **WEBSOCKET, "Origin": f"https://{HOST}"}
    assert proxy.respond("GET", "/_stcore/stream", stream).status == 101
    assert proxy.respond("GET", "/_stcore/stream", {**stream, "Origin": "https://evil.example"}).status == 403
    assert proxy.respond("GET", "/", cookie, host="evil.example").status == 403
    assert key not in (proxy.folder / "access.log").read_text()
