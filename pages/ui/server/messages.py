"""Checks of the messages that a browser sends on a websocket: who sends them, how often, and what they contain.

Each check returns a function that receives messages in place of the given one.
"""

import asyncio
import json
import re
from collections.abc import Callable

from google.protobuf.message import DecodeError
from starlette.status import WS_1008_POLICY_VIOLATION, WS_1009_MESSAGE_TOO_BIG
from starlette.types import Message, Receive
from streamlit.proto.BackMsg_pb2 import BackMsg

from bsc_core.users.accounts import User

CHECK_SECONDS = 20.0  # between checks that the user of a connection is still signed in
MAX_MESSAGE_BYTES = 1 << 20  # of a client: values of widgets, such as a selection on a map
MAX_STUDENT_BYTES = 1 << 17  # of a message from a student; Streamlit keeps the values for minutes
MAX_STUDENT_ENTRIES = 10_000
BLOCK_BYTES = 1 << 16
USUAL_REQUESTS = (  # messages that a browser sends; others clear the caches of all users, for example
    "rerun_script",
    "stop_script",
    "file_urls_request",
    "app_heartbeat",
    "backend_operation_request",
)
MAX_FILE_NAMES = 100  # in a message that asks where to upload files
MAX_WIDGETS, MAX_WIDGETS_OF_STUDENT = 1_000, 200  # in a message, which has all controls of a page
MAX_QUERY, MAX_QUERY_OF_STUDENT = 2**17, 2**15  # characters of the parameters of a page
MAX_TABLES, MAX_ADDED_ROWS = 100, 100  # tables that users edit, and rows that they add to one
MAX_TABLE_ENTRIES = 10_000  # of the changes of a table, which are parsed on the thread that serves everybody
NAME = re.compile(r"[\x20-\x7e]{0,300}")
DOWNLOADS = ("deferred_file", "dataframe_chunk")


def while_signed_in(receive: Receive, is_signed_in: Callable[[], bool]) -> Receive:
    """End the connection of a user who was removed, or has another key or role, also if it sends nothing.

    One more message is received, so that the page can show that the user has no access.
    """
    pending: asyncio.Future[Message] | None = None
    is_last = False

    async def receive_checked() -> Message:
        nonlocal pending, is_last
        if is_last:
            await asyncio.sleep(CHECK_SECONDS)
            return {"type": "websocket.disconnect", "code": WS_1008_POLICY_VIOLATION}
        while True:
            pending = pending or asyncio.ensure_future(receive())
            try:
                done, _ = await asyncio.wait({pending}, timeout=CHECK_SECONDS)
            except asyncio.CancelledError:
                pending.cancel()
                raise
            is_last = not is_signed_in()
            if done:
                message, pending = pending.result(), None
                return message
            if is_last:
                pending.cancel()
                return {"type": "websocket.disconnect", "code": WS_1008_POLICY_VIOLATION}

    return receive_checked


def with_delays(receive: Receive, delay: Callable[[], float]) -> Receive:
    """Delay messages that come too fast: each is parsed on the thread that serves everybody, and most draw a page.

    A message of more than BLOCK_BYTES counts as several messages.
    """

    async def receive_later() -> Message:
        message = await receive()
        if message["type"] == "websocket.receive":
            blocks = 1 + len(message.get("bytes") or message.get("text") or "") // BLOCK_BYTES
            if seconds := max(delay() for _ in range(blocks)):
                await asyncio.sleep(seconds)
        return message

    return receive_later


def without_refused(receive: Receive, user: User) -> Receive:
    """Leave out the messages that no page sends, such as one that clears the caches of all users.

    Left out are also those of students that are large or ask where to upload files, and those with more files, controls
    or added rows of a table than a page has. A message above the limit ends the connection before it is parsed, which
    takes 40 times its size of memory.
    """

    async def receive_others() -> Message:
        message = await receive()
        while message["type"] != "websocket.receive" or len(message.get("bytes") or b"") <= MAX_MESSAGE_BYTES:
            if not _is_refused(message, user):
                return message
            message = await receive()
        return {"type": "websocket.disconnect", "code": WS_1009_MESSAGE_TOO_BIG}

    return receive_others


def _is_refused(message: Message, user: User) -> bool:
    if message["type"] != "websocket.receive":
        return False
    content = message.get("bytes")
    if content is None:  # text, which Streamlit does not expect
        return True
    if not user.may_launch and (len(content) > MAX_STUDENT_BYTES or _entries(content) > MAX_STUDENT_ENTRIES):
        return True
    parsed = BackMsg()
    try:
        parsed.ParseFromString(content)
    except DecodeError:
        return True
    kind, widgets = parsed.WhichOneof("type"), parsed.rerun_script.widget_states.widgets
    if kind == "file_urls_request" and not user.may_launch:
        return True
    most = (MAX_WIDGETS, MAX_QUERY) if user.may_launch else (MAX_WIDGETS_OF_STUDENT, MAX_QUERY_OF_STUDENT)
    has_usual_size = len(widgets) <= most[0] and len(parsed.rerun_script.query_string) <= most[1]
    has_usual_size &= len(parsed.file_urls_request.file_names) <= MAX_FILE_NAMES
    is_usual = kind in USUAL_REQUESTS and has_usual_size and _has_usual_names(parsed)
    tables = [widget.string_value for widget in widgets if widget.string_value.lstrip().startswith("{")]
    return not is_usual or len(tables) > MAX_TABLES or any(map(_adds_many_rows, tables))


def _has_usual_names(parsed: BackMsg) -> bool:
    """Whether the names in a message, which Streamlit writes to the log as they are, can be those of a page."""
    request, state = parsed.backend_operation_request, parsed.rerun_script
    if parsed.HasField("backend_operation_request") and request.WhichOneof("payload") not in DOWNLOADS:
        return False
    names = [request.request_id, request.session_id, request.deferred_file.file_id, request.dataframe_chunk.source_id]
    names += [state.page_script_hash, state.page_name, state.fragment_id]
    return all(map(NAME.fullmatch, names))


def _entries(content: bytes) -> int:
    """Return the most entries that JSON values in a message can have, each of which needs about 200 bytes of memory."""
    return sum(map(content.count, (b"[", b"{", b",")))


def _adds_many_rows(table: str) -> bool:
    """Whether the changes of an edited table have many added rows, which Streamlit adds one by one."""
    if "added_rows" not in table and "\\" not in table:  # the name may be written with escapes
        return False
    if _entries(table.encode()) > MAX_TABLE_ENTRIES:
        return True
    try:
        return len(json.loads(table).get("added_rows") or ()) > MAX_ADDED_ROWS
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False
