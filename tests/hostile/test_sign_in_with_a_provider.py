"""Signing in to a shared app with an OpenID Connect provider."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from html import unescape
from http.client import HTTPConnection
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value
from streamlit.web.server.starlette.starlette_server_config import TOKENS_COOKIE_NAME, USER_COOKIE_NAME

from bsc_core.users.accounts import AUDIT_FILE, add_user, remove_user
from pages.ui.server import sign_in
from pages.ui.server.sign_in import KEY_COOKIE
from tests.browser.serving import AppServer
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.hostile.identity_provider import IdentityProvider


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    provider = IdentityProvider()
    yield provider
    provider.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[AppServer]:
    folder = tmp_path_factory.mktemp("with-provider")
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "secrets.toml").write_text(provider.secrets())
    add_user(folder / "runs", "ada", "owner", "ada@example.org")
    with AppServer(folder).running("--host", "localhost") as server:
        yield server


class Client:
    """A browser without scripts: it keeps cookies and follows redirects."""

    def __init__(self, server: AppServer) -> None:
        self.server = server
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"{self.server.url}{path}", headers=headers)
        try:
            with self._opener.open(request, timeout=PATIENCE_SECONDS) as response:
                return response.status, response.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")

    def sign_in(self) -> tuple[int, str]:
        status, page = self.get("/")
        assert status == 401
        return self.get(link_to_the_provider(page))


def link_to_the_provider(page: str) -> str:
    [link] = re.findall(r"href='(/auth/login[^']*)'", page)
    return unescape(link)


def test_a_user_whose_address_is_confirmed_is_admitted_until_removed(
    server: AppServer, provider: IdentityProvider
) -> None:
    provider.claims = {"email": "Ada@Example.org", "email_verified": True}
    client = Client(server)
    assert client.sign_in()[0] == 200
    assert client.get("/runs")[0] == 200
    root = Path(server.store.root)
    events = [json.loads(line) for line in (root / AUDIT_FILE).read_text().splitlines()]
    assert [(event["user"], event["action"]) for event in events] == [("ada", "sign in")]  # one line for two requests
    remove_user(root, "ada")
    status, page = client.get("/runs")
    assert status == 401
    assert "Ada@Example.org is not a user of this app" in page
    add_user(root, "ada", "owner", "ada@example.org")
    assert client.get("/runs")[0] == 200
    add_user(root, "ada", "owner", "other@example.org")
    add_user(root, "eva", "member", "ada@example.org")
    assert client.get("/runs")[0] == 200
    events = [json.loads(line) for line in (root / AUDIT_FILE).read_text().splitlines()]
    signed_in = [event["user"] for event in events if event["action"] == "sign in"]
    assert signed_in == ["ada", "eva"]  # the address belongs to another user now
    remove_user(root, "eva")
    add_user(root, "ada", "owner", "ada@example.org")
    client.get("/sign-out", Referer=f"{server.url}/runs")
    assert client.get("/runs")[0] == 401


def test_cookies_are_sent_over_tls_only_behind_a_proxy_with_tls(server: AppServer) -> None:
    def flags(**headers: str) -> list[bool]:
        connection = HTTPConnection("localhost", server.port, timeout=PATIENCE_SECONDS)
        connection.request("GET", link_to_the_provider(Client(server).get("/")[1]), headers=headers)
        cookies = connection.getresponse().headers.get_all("Set-Cookie")
        connection.close()
        return ["; Secure" in cookie for cookie in cookies]

    assert set(flags()) == {False}
    assert set(flags(**{"X-Forwarded-Proto": "https"})) == {True}


def test_only_the_needed_values_of_a_user_are_stored(server: AppServer, provider: IdentityProvider) -> None:
    add_user(Path(server.store.root), "ada", "owner", "ada@example.org")
    provider.claims = {"name": "x" * 5_000, "email": "ada@example.org", "groups": ["y" * 100] * 100}
    client = Client(server)
    assert client.sign_in()[0] == 200
    names = {cookie.name for cookie in client.cookies}
    assert USER_COOKIE_NAME in names
    assert f"{USER_COOKIE_NAME}_1" not in names
    (tokens,) = [cookie.value.strip('"') for cookie in client.cookies if cookie.name == TOKENS_COOKIE_NAME]
    content = tokens.partition(".")[0]  # before the time and the signature
    assert json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))) == "{}"


def test_parts_of_a_divided_cookie_name_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def signed(**values: str) -> dict[str, str]:
        return {name: create_signed_value("secret", name, value).decode() for name, value in values.items()}

    monkeypatch.setattr(sign_in, "get_secrets_auth_section", lambda: True)
    monkeypatch.setattr(sign_in, "get_cookie_secret", lambda: "secret")
    monkeypatch.setattr(sign_in, "get_origin_from_redirect_uri", lambda: "http://localhost")
    user = json.dumps({"email": "ada@example.org", "is_logged_in": True, "origin": "http://localhost"})
    assert sign_in.confirmed_email(signed(**{USER_COOKIE_NAME: user})) == "ada@example.org"
    parts = {f"{USER_COOKIE_NAME}_{number}": part for number, part in enumerate((user[:20], user[20:]), 1)}
    assert sign_in.confirmed_email(signed(**{USER_COOKIE_NAME: "chunks-2"}, **parts)) is None
    assert sign_in.confirmed_email(signed(**{USER_COOKIE_NAME: "2"}, **parts)) is None


def test_a_key_that_is_no_longer_valid_does_not_prevent_the_sign_in_with_a_provider(
    server: AppServer, provider: IdentityProvider
) -> None:
    add_user(Path(server.store.root), "ada", "owner", "ada@example.org")
    provider.claims = {"email": "ada@example.org"}
    client = Client(server)
    assert client.sign_in()[0] == 200
    cookies = [f"{cookie.name}={cookie.value}" for cookie in client.cookies]
    headers = {"Cookie": "; ".join([*cookies, f"{KEY_COOKIE}=no-longer-valid"])}
    request = urllib.request.Request(f"http://localhost:{server.port}/runs", headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "eva@example.org"},
        {"email": "ada@example.org", "email_verified": False},
        {"email": "ada@example.org", "email_verified": "false"},
        {"email": "ada@example.org.evil.example"},
        {"email": ""},
        {"name": "ada"},
        {"email": "ada@example.org", "aud": "another-app"},
        {"email": "ada@example.org", "iss": "http://evil.example"},
        {"email": "ada@example.org", "exp": 1},
        {"email": "ada@example.org", "nonce": "another"},
    ],
)
def test_another_address_or_an_invalid_token_is_refused(
    server: AppServer, provider: IdentityProvider, claims: dict[str, object]
) -> None:
    provider.claims = claims
    client = Client(server)
    assert client.sign_in()[0] == 401
    assert client.get("/runs")[0] == 401


def test_a_changed_cookie_is_refused(server: AppServer, provider: IdentityProvider) -> None:
    provider.claims = {"email": "ada@example.org"}
    client = Client(server)
    assert client.sign_in()[0] == 200
    for cookie in client.cookies:
        if cookie.name.startswith("_streamlit_user") and cookie.value:
            cookie.value = cookie.value[:-3] + "AAA"
    assert client.get("/runs")[0] == 401


def test_an_answer_without_a_request_signs_nobody_in(server: AppServer) -> None:
    client = Client(server)
    assert client.get("/oauth2callback?code=code0&state=x")[0] == 401
    assert client.get("/auth/login?provider=x")[0] == 401
