"""Requests of timers: they do not change the values of controls."""

from __future__ import annotations

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests

from pages.ui import server


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> ScriptRequests:
    monkeypatch.setattr(ScriptRequests, "request_rerun", ScriptRequests.request_rerun)  # restored after the test
    server._ignore_controls_of_timers()
    return ScriptRequests()


def states(value: int) -> WidgetStates:
    return WidgetStates(widgets=[WidgetState(id="slots", int_value=value)])


def next_states(requests: ScriptRequests) -> WidgetStates | None:
    return requests.on_scriptrunner_ready().rerun_data.widget_states


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
