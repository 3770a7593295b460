"""Limits of a connection to the server: what its client sends is parsed on the thread that serves everybody.

Up to 256 KiB are received at a time, and parsed before anything else is done: 40,000 chunks of a request or frames of a
websocket, or compressed messages of a thousand times their size.
"""

import asyncio
import ipaddress
import re
import time
from functools import lru_cache
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

BLANK_LINE = re.compile(rb"\n\r?\n")
MAX_HEADER_LINES = 100
SLICE_BYTES = 1024  # of a websocket, parsed at a time
MAX_WAITING_MESSAGES, MAX_WAITING_BYTES = 16, 2 * 2**20
MAX_FRAMES = 300  # of a websocket, in a second
MAX_CONNECTIONS = 400  # of one address; those of this machine, such as a proxy, are not limited
REQUEST_SECONDS = 60  # in which a connection has to receive a request, and its client to read MIN_READ bytes of answers
MIN_READ = 2**20
CLOSE_SECONDS = 10  # after which a websocket that is being closed ends, also if its client does not read


class Pace:
    """Limit of how often something may happen: `burst` times at once, and then `rate` times per second."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._left, self._last = burst, time.monotonic()

    def delay(self) -> float:
        """Count an event; return for how many seconds it has to wait."""
        self._left = self._available() - 1
        return max(0.0, -self._left / self.rate)

    def backlog(self) -> float:
        """Return for how many seconds the next event would have to wait."""
        self._left = self._available()
        return max(0.0, (1 - self._left) / self.rate)

    def admits(self) -> bool:
        """Return whether an event may happen now; only such events are counted."""
        self._left = self._available()
        is_admitted = self._left >= 1
        self._left -= is_admitted
        return is_admitted

    def _available(self) -> float:
        now = time.monotonic()
        passed, self._last = now - self._last, now
        return min(self.burst, self._left + passed * self.rate)


class LimitedHttp(H11Protocol):
    """Connection that ends if its client sends no request, one with many headers, or one in chunks.

    No browser sends chunks. It also ends if its address has MAX_CONNECTIONS others, and if its client hardly reads an
    answer, which the server keeps until it is read.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._requests = 0
        self._check: asyncio.TimerHandle | None = None
        next_event = self.conn.next_event

        def next_limited_event() -> Any:
            if self.conn.their_state is h11.IDLE and _header_lines(self.conn.trailing_data[0]) > MAX_HEADER_LINES:
                raise h11.RemoteProtocolError("the request has too many headers")
            event = next_event()
            if isinstance(event, h11.Request):
                self._requests += 1
                if any(name == b"transfer-encoding" for name, _ in event.headers):
                    raise h11.RemoteProtocolError("the request is in chunks; send its length")
            return event

        self.conn.next_event = next_limited_event  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connections of the address."""
        super().connection_made(CountingTransport(transport))  # type: ignore[arg-type]
        network = _network(self.client[0]) if self.client else None
        others = [one.client for one in self.connections if one.client]
        if network is not None and sum(_network(host) == network for host, _ in others) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._check = self.loop.call_later(REQUEST_SECONDS, self._end_if_unused, 0, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the checks."""
        super().connection_lost(exc)
        if self._check is not None:
            self._check.cancel()

    def _end_if_unused(self, known: int, earlier: int | None) -> None:
        """Close the connection if no request followed the `known` ones, or an answer is hardly read.

        `earlier`: how much the client had read at the last check, if an answer was waiting to be read then.
        """
        if self.transport.get_protocol() is not self:  # a websocket by now
            return
        unread = self.transport.get_write_buffer_size()
        read = self.transport.written - unread  # type: ignore[attr-defined]
        is_answering = self.cycle is not None and not self.cycle.response_complete
        is_slow = unread > 0 and earlier is not None and read - earlier < MIN_READ
        if is_slow or (self._requests == known and not is_answering):
            self.transport.abort()
        else:
            waiting = read if unread else None
            self._check = self.loop.call_later(REQUEST_SECONDS, self._end_if_unused, self._requests, waiting)


@lru_cache(maxsize=4096)
def _network(host: str) -> str | None:
    """Return the address that is counted, of IPv6 its /64 network; None for an address of this machine."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif not address.is_loopback:
            return str(ipaddress.ip_network((address, 64), strict=False))
    return None if address.is_loopback else str(address)


def _header_lines(received: bytes) -> int:
    """Return the number of lines before the first empty line."""
    return BLANK_LINE.split(received, 1)[0].count(b"\n")


class CountingTransport:
    """A transport with the number of bytes that were `written` to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.written = transport, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

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

    It also ends soon after it is closed, if its client does not read.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
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
            waiting = [len(one.get("bytes") or one.get("text") or "") for one in self.queue._queue]  # type: ignore[attr-defined]
            is_behind = len(waiting) > MAX_WAITING_MESSAGES or sum(waiting) > MAX_WAITING_BYTES
            if is_behind or max(len(self.frames), self._frames_of_second) > MAX_FRAMES:
                self.transport.abort()
                return
