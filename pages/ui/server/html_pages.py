"""Pages that the server sends without Streamlit: those to sign in, and the message that the server is full."""

import base64
import hashlib
from html import escape

from starlette.responses import HTMLResponse, Response
from streamlit.auth_util import encode_provider_token, get_secrets_auth_section

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"  # paths of the forms and links
PAGE_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { max-width: 26rem; margin: 15vh auto; padding: 0 1rem; line-height: 1.5; }
h1 { font-size: 1.5rem; }
form { display: grid; gap: 0.5rem; margin: 1.5rem 0; }
input, button, a.button { font: inherit; padding: 0.5rem 0.75rem; border-radius: 8px; border: 1px solid #8A8F98; }
button, a.button { background: #0072B2; color: #FFFFFF; border-color: #0072B2; text-decoration: none; }
a.button { display: inline-block; }
"""
KEY_SCRIPT = """
const key = document.querySelector("input[name=key]");
if (location.hash.length > 1) {
  key.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  key.form.submit();
}
"""
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in · BSC Lab</title>
<style>{style}</style></head>
<body><main><h1>BSC Lab</h1>{content}</main></body>
</html>
"""
REPLACE_FORM = """<p>You are signed in as {current}.</p>
<form method="post" action="{action}"><input type="hidden" name="next" value="{next}">
<input type="hidden" name="key" value="{key}"><input type="hidden" name="replaces" value="{current}">
<button>Sign in as {name}</button></form>
<p><a href="/">Stay signed in as {current}</a></p>"""
KEY_FORM = """<form method="post" action="{action}"><input type="hidden" name="next" value="{next}">
<label for="key">Key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required>
<button>Sign in</button></form><script>{script}</script>"""
FULL_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="{seconds}">
<title>Server full · BSC Lab</title>
<style>{style}</style>
<h1>The server is full</h1>
<p>{sessions} pages are open, the most that this server allows. Try again in a minute; this page reloads itself.</p>
<p>Runs are not affected.</p>
</html>
"""


def full_page(sessions: int, retry_seconds: int) -> Response:
    """Return the message that `sessions` pages are open; the browser requests the page again after `retry_seconds`."""
    page = FULL_PAGE.format(style=PAGE_STYLE, seconds=retry_seconds, sessions=sessions)
    headers = {"Retry-After": str(retry_seconds), "Cache-Control": "no-store"}
    return HTMLResponse(page, status_code=503, headers=headers)


def sign_in_page(target: str, *, email: str | None = None, error: str = "", status: int = 401) -> Response:
    """Return the page on which a user signs in.

    Args:
        target: Path to open afterwards.
        email: Address that the provider confirmed but that belongs to no user.
        error: Why signing in failed.
        status: Status of the response.
    """
    parts = [f"<p role='alert'><strong>{escape(error)}</strong></p>"] if error else []
    if email:
        parts.append(f"<p>{escape(email)} is not a user of this app. Ask its owner to add the address.</p>")
        parts.append(f"<p><a href='{SIGN_OUT}'>Sign out</a></p>")
    elif get_secrets_auth_section():
        token = escape(encode_provider_token("default"))
        parts.append(f"<p><a class='button' href='/auth/login?provider={token}'>Sign in with your account</a></p>")
    parts.append("<p>Open the link that the owner of this app gave you, or enter its key.</p>")
    parts.append(KEY_FORM.format(action=SIGN_IN, next=escape(target), script=KEY_SCRIPT))
    return _page("\n".join(parts), status)


def change_user_page(current: str, name: str, key: str, target: str) -> Response:
    """Return the page that asks whether to sign in as another user.

    Args:
        current: The user who is signed in.
        name: The other user.
        key: Key of the other user.
        target: Path to open afterwards.
    """
    texts = {"current": current, "name": name, "key": key, "next": target}
    return _page(REPLACE_FORM.format(action=SIGN_IN, **{name: escape(text) for name, text in texts.items()}), 200)


def _page(content: str, status: int) -> Response:
    policy = (
        f"default-src 'none'; style-src {_source(PAGE_STYLE)}; script-src {_source(KEY_SCRIPT)}; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    )
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
    return HTMLResponse(PAGE.format(style=PAGE_STYLE, content=content), status_code=status, headers=headers)


def _source(text: str) -> str:
    """Return the source expression of a content security policy that allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
