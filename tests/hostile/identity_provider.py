"""An OpenID Connect provider on loopback, which signs everyone in with the address that a test sets."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "bsc-lab"


class IdentityProvider:
    """The provider. `claims` are those of the next token, besides the required ones."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self._key = RSAKey.generate_key(2048, {"kid": "test"})
        self._nonces: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def secrets(self) -> str:
        """Return the section of Streamlit's secrets that selects this provider."""
        return f"""
[auth]
redirect_uri = "http://localhost:{{port}}/oauth2callback"
cookie_secret = "a long random secret of this test"
client_id = "{CLIENT}"
client_secret = "secret"
server_metadata_url = "{self.url}/.well-known/openid-configuration"
"""

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def _token(self, code: str) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 600, "nonce": self._nonces[code]}
        token = jwt.encode({"alg": "RS256", "kid": "test"}, claims | self.claims, self._key)
        return {"access_token": "x", "token_type": "Bearer", "expires_in": 600, "id_token": token}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                if url.path == "/authorize":
                    code = f"code{len(provider._nonces)}"
                    provider._nonces[code] = query.get("nonce", "")
                    answer = urlencode({"code": code, "state": query["state"]})
                    self.send_response(302)
                    self.send_header("Location", f"{query['redirect_uri']}?{answer}")
                    self.end_headers()
                elif url.path == "/keys":
                    self._send({"keys": [provider._key.as_dict(private=False)]})
                else:
                    self._send(provider._metadata())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._send(provider._token(form["code"][0]))

            def _send(self, value: dict[str, Any]) -> None:
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *values: object) -> None:
                pass

        return Handler
