"""Limits of a connection to the server: what its client sends is parsed on the thread that serves everybody.

Up to 256 KiB are received at a time, and parsed before anything else is done: 40,000 chunks of a request or frames of a
websocket, or compressed messages of a thousand times their size.
"""

import asyncio
import os
import re
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import http11
from websockets.frames import Frame

from bsc_core.users.accounts import SHARED
from pages.ui.server.rate_limits import network

ACCEPTED = 16  # connections that are accepted at a time, before anything else is done
BLANK_LINE = re.compile(rb"\n\r?\n")
MAX_HEADER_LINES = 100
MAX_PATH = 2_048  # characters of a path without parameters: looking for a file takes the square of its parts
UPGRADE_HEADERS = (b"connection", b"upgrade")  # and those of `sec-websocket`: lists, which are compared item by item
MAX_UPGRADE_BYTES = 2_048  # of these headers together; those of browsers have less than 600
MAX_COMPRESSED = 2**18  # bytes of a message of a websocket; larger ones, such as maps, are sent as they are
MAX_BEHIND = 2**14  # bytes received behind a request that is not answered yet; a browser waits for the answer
SLICE_BYTES = 1024  # of a websocket, parsed at a time
MAX_WAITING_MESSAGES, MAX_WAITING_BYTES = 16, 2 * 2**20
MAX_FRAMES = 300  # of a websocket, in a second
USER = "bsc.user"  # key of the scope of a request of a signed-in user
MAX_CONNECTIONS = 400  # of one address; those of this machine, such as a proxy, are not limited
REQUEST_SECONDS = 60  # in which a client has to send a request, or MIN_SENT bytes of one, and to read MIN_READ bytes
MIN_READ, MIN_SENT = 2**20, 2**16
ALLOWED_HOSTS = "BSC_ALLOWED_HOSTS"  # environment variable: additional host names, separated by commas
CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
SUPERUSER = 0
TCP_OPEN = 1  # state of a connection that both sides use
MAPPED = "0000000000000000FFFF0000"  # before an IPv4 address in the list of IPv6
OTHER_USER = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This app belongs to another user of this machine. It can be shared with `bsc app --host`.\n"
)
REFUSAL = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CLOSE_SECONDS = 10  # after which a websocket that is being closed ends, also if its client does not read


http11.MAX_LINE_LENGTH = 2**16  # of a header of a websocket, such as all cookies; h11 has the same limit


class LimitedHttp(H11Protocol):
    """Connection that ends if its client sends no request, one with many headers, or one in chunks.

    No browser sends chunks. It also ends if its client hardly reads an answer, which the server keeps until it is read.
    It receives nothing while more than MAX_BEHIND bytes wait. If its address has MAX_CONNECTIONS others, the oldest of
    the user with the most of them ends, so that nobody keeps out the others of an address. Visitors count as one user.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._requests = self._received = 0  # requests, and bytes of what they contain
        self._check: asyncio.TimerHandle | None = None
        next_event = self.conn.next_event

        def next_limited_event() -> Any:
            if self.conn.their_state is h11.IDLE and _header_lines(self.conn.trailing_data[0]) > MAX_HEADER_LINES:
                raise h11.RemoteProtocolError("the request has too many headers")
            event = next_event()
            if isinstance(event, h11.Data):
                self._received += len(event.data)
            if isinstance(event, h11.Request):
                self._requests += 1
                _check_request(event)
            return event

        self.conn.next_event = next_limited_event  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connections of the address."""
        super().connection_made(CountingTransport(transport, self._may_receive))  # type: ignore[arg-type]
        self.made = self.loop.time()
        self._check = self.loop.call_later(REQUEST_SECONDS, self._end_if_unused, 0, 0, None)
        connection = transport.get_extra_info("socket")
        is_inet = bool(self.client and self.server)
        self._is_foreign = is_inet and _is_of_another_user(self.client, self.server, connection)
        own = network(self.client[0]) if self.client else None
        if own is not None:
            same = [one for one in self.connections if one.client and network(one.client[0]) == own]
            still_open = [one for one in same if not one.transport.is_closing()]
            if len(still_open) > MAX_CONNECTIONS:
                by_user = defaultdict(list)
                for one in still_open:
                    if isinstance(one, LimitedHttp):  # not a websocket
                        by_user[(one.scope or {}).get(USER)].append(one)
                most = max(by_user.values(), key=len)
                min(most, key=lambda one: one.made).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Receive data; another system user gets an answer after their first bytes, else they would not read it."""
        if self._is_foreign:
            self.transport.write(OTHER_USER)
            self.transport.close()
        else:
            super().data_received(data)

    def _may_receive(self) -> bool:
        return len(self.conn.trailing_data[0]) <= MAX_BEHIND

    def connection_lost(self, exc: Exception | None) -> None:
        """End the checks."""
        super().connection_lost(exc)
        if self._check is not None:
            self._check.cancel()

    def _end_if_unused(self, known: int, received: int, earlier: int | None) -> None:
        """Close the connection if no request follows the `known` ones, one is hardly sent, or an answer hardly read.

        Args:
            known: Requests at the last check.
            received: Bytes that they contained then.
            earlier: How much the client had read then, if an answer was waiting to be read.
        """
        if self.transport.get_protocol() is not self:  # a websocket by now
            return
        unread = self.transport.get_write_buffer_size()
        read = self.transport.written - unread  # type: ignore[attr-defined]
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and self.cycle.more_body and self._received - received < MIN_SENT:
            is_answering = False
        is_slow = unread > 0 and earlier is not None and read - earlier < MIN_READ
        if is_slow or (self._requests == known and not is_answering):
            self.transport.abort()
        else:
            waiting = read if unread else None
            state = (self._requests, self._received, waiting)
            self._check = self.loop.call_later(REQUEST_SECONDS, self._end_if_unused, *state)


def _is_of_another_user(
    client: tuple[str, int], server: tuple[str, int], connection: socket.socket | None = None
) -> bool:
    """Whether another system user of this machine has connected to an app that is not shared, other than root.

    Linux lists the connections of the machine with their users; one that its client has closed has the number of root,
    or is not listed, and counts as that of another user. With additional host names, a proxy of another user may be in
    front of the app.
    """
    if SHARED in os.environ or ALLOWED_HOSTS in os.environ:
        return False
    users: set[int | None] = set()
    for path in CONNECTIONS:
        with suppress(OSError, ValueError):
            listed, ends = path.read_text(encoding="ascii"), (_written(client), _written(server))
            for prefix in ("", MAPPED):
                start = listed.find(f": {prefix}{ends[0]} {prefix}{ends[1]} ")
                if start >= 0:
                    fields = listed[start:].split(maxsplit=10)
                    is_closed = fields[9] == "0"  # the number of its file
                    users.add(None if is_closed else int(fields[7]))
    return not users <= {os.getuid(), SUPERUSER} or _is_closed_by_client(connection)


def _is_closed_by_client(connection: socket.socket | None) -> bool:
    """Whether the client of a connection sends no more, where the system tells."""
    with suppress(OSError, AttributeError):
        return connection is not None and connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_OPEN
    return False


def _written(address: tuple[str, int]) -> str:
    """Return an address and port as Linux lists them: each four bytes of the address in reverse order."""
    host = ip_address(address[0].partition("%")[0])
    packed = (getattr(host, "ipv4_mapped", None) or host).packed
    words = (packed[start : start + 4][::-1].hex().upper() for start in range(0, len(packed), 4))
    return f"{''.join(words)}:{address[1]:04X}"


def _check_request(request: h11.Request) -> None:
    """Raise RemoteProtocolError for what would take long before the request is known to be one of a user."""
    if any(name == b"transfer-encoding" for name, _ in request.headers):
        raise h11.RemoteProtocolError("the request is in chunks; send its length")
    if len(request.target.partition(b"?")[0]) > 3 * MAX_PATH:  # each character may be escaped as three
        raise h11.RemoteProtocolError("the path is too long")
    upgrade = (value for name, value in request.headers if name in UPGRADE_HEADERS or name.startswith(b"sec-websocket"))
    if sum(map(len, upgrade)) > MAX_UPGRADE_BYTES:
        raise h11.RemoteProtocolError("the headers of a websocket are too long")


def _header_lines(received: bytes) -> int:
    """Return the number of lines before the first empty line."""
    return BLANK_LINE.split(received, 1)[0].count(b"\n")


class CountingTransport:
    """A transport with the number of bytes that were `written` to it, which reads on only if `may_read` allows it."""

    def __init__(self, transport: asyncio.Transport, may_read: Callable[[], bool] = lambda: True) -> None:
        self._transport, self._may_read, self.written = transport, may_read, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def resume_reading(self) -> None:
        """Read on, if that is allowed."""
        if self._may_read():
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Write and count bytes."""
        self.written += len(data)
        self._transport.write(data)


class EndingTransport(CountingTransport):
    """A transport that ends CLOSE_SECONDS after it is closed: one whose client does not read would wait forever."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop

    def close(self) -> None:
        """Close the transport after what it has to send, or end it after CLOSE_SECONDS."""
        self._transport.close()
        self._loop.call_later(CLOSE_SECONDS, self._transport.abort)


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """Websocket connection that ends if its client sends faster than its messages are read, or very many frames.

    It also ends soon after it is closed, if its client does not read, and if it begins with an invalid request. Large
    messages to the client are not compressed, since that would keep all others waiting.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        process_extensions = self.conn.process_extensions

        def process_limited_extensions(headers: Any) -> Any:
            response, extensions = process_extensions(headers)
            for one in extensions:
                one.encode = partial(_encode_if_small, one.encode)  # type: ignore[method-assign]
            return response, extensions

        self.conn.process_extensions = process_limited_extensions  # type: ignore[method-assign]
        self._second, self._frames_of_second = 0, 0
        events_received = self.conn.events_received

        def counted_events() -> list[Any]:
            events = events_received()
            second = int(time.monotonic())
            earlier = self._frames_of_second if second == self._second else 0
            self._second, self._frames_of_second = second, earlier + len(events)
            return events

        self.conn.events_received = counted_events  # type: ignore[method-assign, assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Use a transport that ends after it is closed."""
        super().connection_made(EndingTransport(transport, self.loop))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Parse what was received in slices, until a limit is exceeded."""
        for start in range(0, len(data), SLICE_BYTES):
            super().data_received(data[start : start + SLICE_BYTES])
            if self.conn.handshake_exc is not None and not self.transport.written:  # type: ignore[attr-defined]
                self.transport.write(REFUSAL)  # uvicorn answers and closes only later errors
                self.transport.close()
                return
            waiting = [len(one.get("bytes") or one.get("text") or "") for one in self.queue._queue]  # type: ignore[attr-defined]
            is_behind = len(waiting) > MAX_WAITING_MESSAGES or sum(waiting) > MAX_WAITING_BYTES
            if is_behind or max(len(self.frames), self._frames_of_second) > MAX_FRAMES:
                self.transport.abort()
                return


def _encode_if_small(encode: Callable[[Frame], Frame], frame: Frame) -> Frame:
    return encode(frame) if len(frame.data) <= MAX_COMPRESSED else frame
