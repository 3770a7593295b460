"""Requests of timers: they do not change the values of controls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests

from pages.ui.server import streamlit_patches


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> ScriptRequests:
    monkeypatch.setattr(ScriptRequests, "request_rerun", ScriptRequests.request_rerun)  # restored after the test
    streamlit_patches._ignore_controls_of_timers()
    return ScriptRequests()


def states(value: int) -> WidgetStates:
    return WidgetStates(widgets=[WidgetState(id="slots", int_value=value)])


def next_states(requests: ScriptRequests) -> WidgetStates | None:
    return requests.on_scriptrunner_ready().rerun_data.widget_states


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[RerunData], list[RerunData]]:
    """Function that gives a request to a script of the page "new"; it returns those that are executed."""
    executed: list[RerunData] = []
    monkeypatch.setattr(ScriptRequests, "request_rerun", ScriptRequests.request_rerun)
    monkeypatch.setattr(ScriptRunner, "_run_script", lambda runner, data: executed.append(data))
    streamlit_patches._ignore_timers_of_other_pages()
    runner = SimpleNamespace(_pages_manager=SimpleNamespace(current_page_script_hash="new"))

    def execute(data: RerunData) -> list[RerunData]:
        ScriptRunner._run_script(runner, data)  # type: ignore[arg-type]
        return executed

    return execute


def test_a_part_of_the_previous_page_is_not_drawn(run: Callable[[RerunData], list[RerunData]]) -> None:
    part = RerunData(fragment_id_queue=["sidebar"], page_script_hash="old", is_auto_rerun=True)
    assert run(part) == []
    same = replace(part, page_script_hash="new")
    page = RerunData(page_script_hash="old")  # back to the previous page
    assert run(same) == [same]
    assert run(page) == [same, page]


def test_a_timer_does_not_take_back_the_page_that_the_user_opens(
    run: Callable[[RerunData], list[RerunData]], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = ScriptRequests()
    requests.request_rerun(RerunData(page_script_hash="new"))
    assert requests.request_rerun(RerunData(fragment_id="sidebar", page_script_hash="old", is_auto_rerun=True))
    data = requests.on_scriptrunner_ready().rerun_data
    assert (data.page_script_hash, data.fragment_id_queue) == ("new", [])


def test_values_sent_by_a_timer_are_not_used(requests: ScriptRequests) -> None:
    requests.request_rerun(RerunData(fragment_id="table", widget_states=states(1), is_auto_rerun=True))
    assert next_states(requests) is None


@pytest.mark.parametrize("timer_first", [True, False])
def test_a_change_by_the_user_is_used_if_a_timer_sends_a_request_as_well(
    requests: ScriptRequests, timer_first: bool
) -> None:
    sent = [
        RerunData(fragment_id="table", widget_states=states(1), is_auto_rerun=True),
        RerunData(fragment_id="queue", widget_states=states(2)),
    ]
    for data in sent if timer_first else reversed(sent):
        requests.request_rerun(data)
    assert next_states(requests) == states(2)
