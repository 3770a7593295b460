"""Response times of a class: clients open a page by the websocket protocol of the app and act every 5 seconds.

    python benchmarks/class.py [--clients 30 100] [--seconds 180] [--page lessons] [--links each] [--train]

Each number of clients has a new server, started by `bsc app --host` with a link for each student, or one for all of
them (`--links one`), or by `bsc app` without users (`--links none`). A client opens the page at a random time within a
minute, fetches the files that Chromium requests on a first visit, and acts until the time is over. A response ends with
the last message of the script run. With --train, a run on the sample data trains at the same time; its speed is
compared with that before and after the class. Needs the test extras and Chromium (`python tests/browser/chromium.py`).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import psutil
from measure import ROOT, parser, print_header, print_row
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from bsc_core.config import make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.jobs import launch
from bsc_core.jobs.local.processes import find_process
from bsc_core.presets.catalog import recommended
from bsc_core.runs import Run
from bsc_core.users.accounts import add_user

if TYPE_CHECKING:
    from serving import AppServer

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]
KEY_COOKIE = "bsc_key"  # as in `pages.ui.server.sign_in`
OPENING_SECONDS = 60  # during which the clients open the page
ACTION_SECONDS = 5.0  # from a reaction to the next action
PATIENCE_SECONDS = 60  # after which a missing reaction is an error
SPEED_SECONDS = 60  # for which the run is timed before and after the class
VISITS = {  # what Chromium opens to list the files of a first visit
    "lessons": ("lessons", "lessons?lesson=temperature", "lessons?lesson=matryoshka"),
    "learn": ("learn?source=circle&watch=bsc",),
}
ACTIONS = {  # widgets that a client changes in turn: the last parts of their keys, of which the first enabled one
    "lessons": (("picture", "order", "0", "row", "guess", "cards"), ("guess", "cards"), ("Next lesson", "Previous")),
    "learn": (("lab",), ("preset",), ("lab",), ("watched",), ("watch",)),
}


class CountingConnection(ClientConnection):
    """A connection that counts the bytes that it receives."""

    received_bytes = 0

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        super().data_received(data)


class ServerFullError(Exception):
    """The server answered that it is full."""


@dataclass
class Client:
    """A student with one tab; all times are in seconds."""

    url: str
    page: str
    files: Sequence[str]
    headers: dict[str, str]
    random: random.Random
    first_page: float | None = None
    reactions: list[float] = field(default_factory=list)
    received_bytes: int = 0
    errors: list[str] = field(default_factory=list)
    refused: bool = False

    def __post_init__(self) -> None:
        self._widgets: dict[str, tuple[str, Any]] = {}  # kind and message of those of the last run, by id
        self._drawn: dict[str, tuple[str, Any]] = {}  # those since the last request
        self._states: dict[str, WidgetState] = {}
        self._cached: dict[str, ForwardMsg] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._page_hash = self._query = ""
        self._finished = asyncio.Event()

    async def visit(self, delay: float, end: float, executor: ThreadPoolExecutor) -> None:
        """Open the page after a delay and act until `end`, a time of `time.perf_counter`."""
        await asyncio.sleep(delay)
        started = time.perf_counter()
        try:
            await asyncio.get_running_loop().run_in_executor(executor, self._fetch_files)
            await self._act(started, end)
        except ServerFullError:
            self.refused = True
        except (OSError, http.client.HTTPException, WebSocketException) as error:  # TimeoutError is an OSError
            self.errors.append(f"{type(error).__name__}: {error}")

    def _fetch_files(self) -> None:
        """Fetch the page and the files that a browser then has in its cache."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE_SECONDS)
        for path, kinds in ((f"/{self.page}", "text/html"), *((path, "*/*") for path in self.files)):
            connection.request("GET", path, headers={"Accept-Encoding": "gzip", "Accept": kinds, **self.headers})
            response = connection.getresponse()
            self.received_bytes += len(response.read())
            if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise ServerFullError
            if response.status != http.HTTPStatus.OK:
                self.errors.append(f"{path}: status {response.status}")
        connection.close()

    async def _act(self, started: float, end: float) -> None:
        address = f"ws://{urlsplit(self.url).netloc}/_stcore/stream"
        options: dict[str, Any] = {"origin": self.url, "subprotocols": ["streamlit"], "max_size": None, "proxy": None}
        options["additional_headers"] = self.headers
        async with connect(address, create_connection=CountingConnection, **options) as connection:
            self._connection = connection
            reader = asyncio.create_task(self._read())
            try:
                await self._request()
                self.first_page = time.perf_counter() - started
                while time.perf_counter() + ACTION_SECONDS < end:
                    await asyncio.sleep(ACTION_SECONDS)
                    sent = time.perf_counter()
                    await self._request(self._change_widget(len(self.reactions)))
                    self.reactions.append(time.perf_counter() - sent)
            finally:
                reader.cancel()
                self._stop_refreshing()
                self.received_bytes += connection.received_bytes

    async def _request(self, click: WidgetState | None = None) -> None:
        """Request a run of the script with the states of the widgets, and wait until it has finished."""
        self._finished.clear()
        self._drawn = {}
        self._stop_refreshing()
        await self._send(click)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._finished.wait()
        self._widgets = self._drawn
        self._states = {key: state for key, state in self._states.items() if key in self._widgets}

    async def _send(self, click: WidgetState | None = None, **fields: Any) -> None:
        state = ClientState(query_string=self._query, page_script_hash=self._page_hash, **fields)
        state.page_name = "" if self._page_hash else self.page
        state.widget_states.widgets.extend([*self._states.values(), *([click] if click else [])])
        state.cached_message_hashes.extend(self._cached)
        await self._connection.send(BackMsg(rerun_script=state).SerializeToString())

    async def _read(self) -> None:
        with suppress(WebSocketException):
            async for data in self._connection:
                self._receive(ForwardMsg.FromString(data))

    def _receive(self, message: ForwardMsg) -> None:
        if message.WhichOneof("type") == "ref_hash":
            message = self._cached[message.ref_hash]
        elif message.metadata.cacheable:
            self._cached[message.hash] = message
        match message.WhichOneof("type"):
            case "new_session":
                self._page_hash = message.new_session.page_script_hash
            case "navigation":
                self._page_hash = message.navigation.page_script_hash
            case "page_info_changed":
                self._query = message.page_info_changed.query_string
            case "delta":
                self._draw(message)
            case "auto_rerun":
                self._refresh(message.auto_rerun.fragment_id, message.auto_rerun.interval)
            case "script_finished" if message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                self._finished.set()

    def _draw(self, message: ForwardMsg) -> None:
        kind = message.delta.new_element.WhichOneof("type")
        element = getattr(message.delta.new_element, kind) if kind else None
        if kind == "exception":
            self.errors.append(element.message)
        elif getattr(element, "id", ""):
            self._drawn[element.id] = kind, element

    def _refresh(self, fragment: str, interval: float) -> None:
        """Run a fragment again and again, as the browser does for `run_every`."""

        async def refresh() -> None:
            while True:
                await asyncio.sleep(interval)
                await self._send(fragment_id=fragment, is_auto_rerun=True)

        if fragment not in self._refreshing:
            self._refreshing[fragment] = asyncio.create_task(refresh())

    def _stop_refreshing(self) -> None:
        for task in self._refreshing.values():
            task.cancel()
        self._refreshing.clear()

    def _change_widget(self, number: int) -> WidgetState | None:
        """Change the state of the next widget; return that of a button instead, which is clicked."""
        names = ACTIONS[self.page][number % len(ACTIONS[self.page])]
        widgets = {
            key.rpartition(".")[2]: (key, kind, widget)
            for key, (kind, widget) in self._widgets.items()
            if kind != "bidi_component"
            or "frame" not in json.loads(widget.json or "{}")  # the frame of a figure has its key
        }
        found = [widgets[name] for name in names if name in widgets]
        key, kind, widget = next((one for one in found if not getattr(one[2], "disabled", False)), ("", "", None))
        state = WidgetState(id=key)
        match kind:
            case "button":
                state.trigger_value = True
                return state
            case "radio" | "selectbox":
                state.string_value = self.random.choice(widget.options)
            case "slider":
                state.string_array_value.data.append(self.random.choice(widget.options))
            case "button_group":
                state.string_array_value.data.append(self.random.choice(widget.options).content)
            case "bidi_component":
                state.json_value = json.dumps(self._move(json.loads(widget.json)))
            case _:
                self.errors.append(f"the page has no widget {' or '.join(names)} that can be changed")
                return None
        self._states[key] = state
        return None

    def _move(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a figure after its control was moved. data: what the server sent to it."""
        if data.get("margins"):
            return {"margin": self.random.choice(data["margins"])}
        if data.get("sizes"):
            return {"pairs": self.random.randint(data["sizes"]["min"], data["sizes"]["max"])}
        return {"settings": data["settings"] | {"temperature": self.random.uniform(0.02, 1)}}


@contextmanager
def app_server(*options: str, root: Path | None = None) -> Iterator[AppServer]:
    """Run the app with these options on a folder, by default a new one; end it and its runs."""
    from serving import AppServer

    with tempfile.TemporaryDirectory() as folder:
        server = AppServer(root or Path(folder))
        try:
            server.start(*options)
            yield server
        finally:
            server.stop_jobs()
            server.stop()


def first_visit(page: str) -> list[str]:
    """Return the paths that Chromium requests when it opens a page for the first time."""
    from chromium import executable
    from playwright.sync_api import sync_playwright

    paths: dict[str, None] = {}
    with app_server() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        window = browser.new_page()
        window.on(
            "response",
            lambda response: (
                paths.setdefault(urlsplit(response.url).path)
                if response.ok and response.url.startswith(server.url)  # no blob
                else None
            ),
        )
        for visit in VISITS[page]:
            window.goto(f"{server.url}/{visit}")
            window.locator("[data-testid='stApp'][data-test-script-state='notRunning']").wait_for(timeout=60_000)
            window.wait_for_load_state("networkidle")
        browser.close()
    return [path for path in paths if path != f"/{page}"]


@contextmanager
def class_server(links: str, number: int) -> Iterator[tuple[AppServer, list[dict[str, str]]]]:
    """Run the app for a number of students; yield it and the request headers of each. links: as `--links`."""
    if links == "none":
        with app_server() as server:
            yield server, [{}] * number
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        root.mkdir()
        add_user(root, "teacher", "owner")
        keys = [add_user(root, f"student{one}", "student") for one in range(number if links == "each" else 1)]
        with app_server("--host", "localhost", root=Path(folder)) as server:
            yield server, [{"Cookie": f"{KEY_COOKIE}={key}"} for key in islice(cycle(keys), number)]


def start_run(server: AppServer) -> Run:
    """Launch the recommended run with more epochs than the time allows, and wait until it trains."""
    config = recommended(sample_config()).model_dump(mode="json", exclude_none=True)
    run = launch(server.store, make_config({**config, "training": {**config["training"], "epochs": 1000}}))
    while steps(run) < 20:
        if run.status().is_finished:
            raise SystemExit(f"the run has ended: {run.log_tail()}")
        time.sleep(1)
    return run


def steps(run: Run) -> int:
    """Return the number of training steps that a run has logged."""
    return sum(line["kind"] == "step" for line in run.metrics()[0])


def cpu_seconds(server: psutil.Process, run: Run | None) -> np.ndarray:
    """Return wall time, and processor seconds of the server, the clients, the run and all processes of the machine."""
    process = find_process(run.status()) if run else None
    parts = [sum(one.cpu_times()[:4]) if one else 0.0 for one in (server, psutil.Process(), process)]
    times = psutil.cpu_times()
    return np.array([time.perf_counter(), *parts, times.user + times.nice + times.system])


@dataclass
class Class:
    """Result of a class. cores: processor cores used by the server, the clients, the run and other processes."""

    clients: list[Client]
    session_mib: float
    cores: np.ndarray
    steps_per_second: float | None


def run_class(
    server: AppServer, files: Sequence[str], headers: Sequence[dict[str, str]], run: Run | None, options: Any
) -> Class:
    """Let a client with each of these request headers visit the page."""
    process = psutil.Process(server.pid)
    before, steps_before, memory = cpu_seconds(process, run), steps(run) if run else 0, process.memory_info().rss
    numbers = random.Random(options.seed)
    clients = [Client(server.url, options.page, files, one, random.Random(numbers.random())) for one in headers]

    async def visit() -> None:
        end = time.perf_counter() + options.seconds
        with ThreadPoolExecutor(len(clients)) as executor:
            visits = (client.visit(numbers.uniform(0, OPENING_SECONDS), end, executor) for client in clients)
            await asyncio.gather(*visits)

    asyncio.run(visit())
    after = cpu_seconds(process, run)
    seconds, *cores = after - before
    cores[-1] -= sum(cores[:-1])
    return Class(
        clients,
        (process.memory_info().rss - memory) / 2**20 / len(clients),
        np.array(cores) / seconds,
        (steps(run) - steps_before) / seconds if run else None,
    )


def speed(run: Run) -> float:
    """Return the steps per second of a run without clients."""
    before, started = steps(run), time.perf_counter()
    time.sleep(SPEED_SECONDS)
    return (steps(run) - before) / (time.perf_counter() - started)


def quantiles(seconds: Sequence[float]) -> str:
    """Return median, 95th percentile and maximum."""
    return " / ".join(f"{value:.2f}" for value in np.quantile(seconds, (0.5, 0.95, 1))) if seconds else "-"


def report(result: Class, alone: Sequence[float], options: Any) -> None:
    """Print the rows of a class."""
    visitors = [client for client in result.clients if not client.refused]
    errors = [error for client in result.clients for error in client.errors]
    reactions = [seconds for client in visitors for seconds in client.reactions]
    ratio = "-" if result.steps_per_second is None else f"{result.steps_per_second / np.mean(alone):.0%}"
    print_row(
        options.page,
        len(result.clients),
        len(result.clients) - len(visitors),
        quantiles([client.first_page for client in visitors if client.first_page is not None]),
        f"{quantiles(reactions)} of {len(reactions)}",
        f"{max((client.received_bytes for client in visitors), default=0) / 1e6:.1f}",
        f"{result.session_mib:.1f}",
        len(errors),
        ratio,
        " ".join(f"{cores:.2f}" for cores in result.cores),
        f"{os.getloadavg()[0]:.1f}",
    )
    for error in dict.fromkeys(errors):
        print(f"{errors.count(error)} x {error}", file=sys.stderr)


def main() -> None:
    """Print a row for each number of clients."""
    arguments = parser(__doc__)
    arguments.add_argument("--clients", type=int, nargs="+", default=[30])
    arguments.add_argument("--seconds", type=float, default=180.0, help="from the first client to the last reaction")
    arguments.add_argument("--page", choices=VISITS, default="lessons")
    links = "for each student, one for all of them, or none: the app has no users"
    arguments.add_argument("--links", choices=("each", "one", "none"), default="each", help=f"sign-in links: {links}")
    arguments.add_argument("--train", action="store_true", help="train on the sample data at the same time")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    files = first_visit(options.page)
    print_header(
        "page",
        "clients",
        "refused",
        "first page, s (median / p95 / max)",
        "response, s (median / p95 / max)",
        "MB per session, max",
        "MiB per session",
        "errors",
        "speed of the run",
        "cores: server, clients, run, others",
        "load",
    )
    for number in options.clients:
        with class_server(options.links, number) as (server, headers):
            run = start_run(server) if options.train else None
            alone = [speed(run)] if run else []
            result = run_class(server, files, headers, run, options)
            alone += [speed(run)] if run else []
            report(result, alone, options)


if __name__ == "__main__":
    main()
