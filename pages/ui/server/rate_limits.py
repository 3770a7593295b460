"""Rate limits of those who could delay everybody else: visitors without a key, and links of students."""

import asyncio
import functools
import ipaddress
import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import psutil
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.status import WS_1013_TRY_AGAIN_LATER
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STUDENTS_RATE, PAGE_RATE = (25.0, 150.0), (3.0, 20.0)  # messages of students per second, and at once
MEMBER_RATE = 50.0, 100.0  # messages of all pages of a member
OPENING_RATE = 5.0, 60.0  # pages of a link of students; they are refused if they would wait for more than MAX_DELAY
REQUEST_RATE = 100.0, 1000.0  # requests of a link of students; a first visit needs about 100
VISITORS_RATE = 50.0, 500.0  # requests of an address that are refused or need no key
PROVIDER_RATE = 5.0, 60.0  # answers of the provider that an address sends, each of which the provider has to confirm
REFUSED_RATE = 0.1, 0.0  # refused pages of a link of students: each waits, since its client tries again at once
LARGE_ANSWER, LARGE_RATE = 2**20, (1.0, 5.0)  # bytes; answers of this size to a link of students
MAX_DELAY = 10.0  # seconds that a request waits
MAX_WAITING = 100  # requests of a limit that wait at a time; the next ones are refused
MAX_UNANSWERED = 200  # requests and opening pages of a link of students at a time; fewer than MAX_CONNECTIONS
MAX_WAITING_BODY = 2**14  # bytes
LOCAL_NETWORK = ipaddress.IPv6Network("fc00::/7")
MAX_ADDRESSES = 1_000  # whose limits are stored


class RateLimit:
    """Limit of how often something may happen: `burst` times at once, and then `rate` times per second.

    Nothing waits for more than `most` seconds, so a limit is free again `most` seconds after its last event.
    """

    def __init__(self, rate: float, burst: float, most: float = math.inf) -> None:
        self.rate, self.burst, self.most = rate, burst, most
        self._left, self._last = burst, time.monotonic()
        self._waiting = 0

    def delay(self) -> float:
        """Count an event; return for how many seconds it has to wait."""
        self._left = max(self._available() - 1, -self.most * self.rate)
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

    async def wait(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Count a request and wait for its turn, or refuse it.

        It is refused if MAX_WAITING others wait, its client leaves or its body has more than MAX_WAITING_BODY bytes,
        since the server keeps each request that waits.

        Returns:
            The function that receives the request; None if it was refused.
        """
        if not (seconds := self.delay()):
            return receive
        received = None
        if self._waiting < MAX_WAITING:
            self._waiting += 1
            try:
                received = await _received(receive, seconds)
            finally:
                self._waiting -= 1
        if received is not None:
            return received
        await _refuse(scope, receive, send)
        return None

    def _available(self) -> float:
        now = time.monotonic()
        passed, self._last = now - self._last, now
        return min(self.burst, self._left + passed * self.rate)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        reason = "Too many requests."
        return await send({"type": "websocket.close", "code": WS_1013_TRY_AGAIN_LATER, "reason": reason})
    headers = {"Retry-After": str(round(MAX_DELAY)), "Connection": "close"}
    await PlainTextResponse("Too many requests.", 503, headers)(scope, receive, send)


async def _received(receive: Receive, seconds: float) -> Receive | None:
    """Wait while the client is connected; return the function that repeats what was received meanwhile."""
    end, size = time.monotonic() + seconds, 0
    messages: list[Message] = []

    async def receive_again() -> Message:
        return messages.pop(0) if messages else await receive()

    while True:
        pending = asyncio.ensure_future(receive())
        try:
            done, _ = await asyncio.wait({pending}, timeout=max(0.0, end - time.monotonic()))
        finally:
            pending.cancel()
        if not done:
            return receive_again
        messages.append(pending.result())
        size += len(messages[-1].get("body") or b"")
        if messages[-1]["type"] not in ("http.request", "websocket.connect") or size > MAX_WAITING_BODY:
            return None  # the client left, or sends to a websocket that is not open yet


class AddressRateLimits:
    """A rate limit for each address, so that nobody waits for requests from another one."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._limits: dict[str, RateLimit] = {}

    def of_request(self, scope: Scope) -> RateLimit:
        """Return the limit of the client of a request."""
        host = scope["client"][0] if scope.get("client") else ""
        address = network(host) or host
        if address not in self._limits and len(self._limits) >= MAX_ADDRESSES:
            self._limits.pop(next(iter(self._limits)))
        return self._limits.setdefault(address, RateLimit(self._rate, self._burst, MAX_DELAY))


@lru_cache(maxsize=4096)
def network(host: str) -> str | None:
    """Return the address that is counted, of IPv6 its /64 network; None for an address of this machine.

    A household or a server has a /64 network. In one that this machine belongs to, or in a local one, each address
    counts, since everybody who uses the app may be in it.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif not address.is_loopback:
            whole = ipaddress.IPv6Network((address, 64), strict=False)
            is_near = address.is_link_local or address in LOCAL_NETWORK or whole in _own_networks()
            return str(address if is_near else whole)
    return None if address.is_loopback else str(address)


@functools.cache
def _own_networks() -> frozenset[ipaddress.IPv6Network]:
    """Return the /64 networks of the IPv6 addresses of this machine."""
    known = [one for interface in psutil.net_if_addrs().values() for one in interface if one.family == socket.AF_INET6]
    addresses = (ipaddress.IPv6Address(one.address.partition("%")[0]) for one in known)
    return frozenset(ipaddress.IPv6Network((address, 64), strict=False) for address in addresses)


class StudentRateLimits:
    """Rate limits of a student, or of a class that shares a link.

    A page waits only for its own limit while it sends no more than its share, so that others cannot delay it.
    """

    def __init__(self) -> None:
        self.requests = RateLimit(*REQUEST_RATE, MAX_DELAY)
        self.refused = RateLimit(*REFUSED_RATE, MAX_DELAY)
        self._all, self._large = RateLimit(*STUDENTS_RATE), RateLimit(*LARGE_RATE)
        self._openings = RateLimit(*OPENING_RATE)
        self._waiting_large = self._unanswered = self._pages = 0

    def opening_delay(self) -> float | None:
        """Count a page that opens; return for how many seconds it has to wait, None if it is refused."""
        return self._openings.delay() if self._openings.backlog() <= MAX_DELAY else None

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or serve a page; refuse it while MAX_UNANSWERED others wait or are not read."""
        if self._unanswered >= MAX_UNANSWERED:
            return await _refuse(scope, receive, send)
        self._unanswered += 1
        try:
            await app(scope, receive, self.limit_answers(send))
        finally:
            self._unanswered -= 1

    def limit_answers(self, send: Send) -> Send:
        """Return a function that sends an answer, of LARGE_ANSWER or more bytes when few others were sent before."""

        is_refused = False

        async def send_in_turn(message: Message) -> None:
            nonlocal is_refused
            is_start = message["type"] == "http.response.start"
            if is_start and int(Headers(raw=message["headers"]).get("content-length", "0")) >= LARGE_ANSWER:
                is_refused = self._waiting_large >= MAX_WAITING
                if is_refused:
                    message = {**message, "status": 503, "headers": [(b"content-length", b"0")]}
                else:
                    self._waiting_large += 1
                    try:
                        await asyncio.sleep(self._large.delay())
                    finally:
                        self._waiting_large -= 1
            elif is_refused:
                message = {**message, "body": b""}
            await send(message)

        return send_in_turn

    @contextmanager
    def page(self) -> Iterator[Callable[[], float]]:
        """Count an open page; yield the function that returns for how many seconds its next message has to wait."""
        own, share = RateLimit(*PAGE_RATE), RateLimit(STUDENTS_RATE[0], 1.0)

        def delay() -> float:
            share.rate = STUDENTS_RATE[0] / self._pages
            return max(own.delay(), 0.0 if share.admits() else self._all.delay())

        self._pages += 1
        self._unanswered -= 1  # open pages have another limit
        try:
            yield delay
        finally:
            self._unanswered += 1
            self._pages -= 1
