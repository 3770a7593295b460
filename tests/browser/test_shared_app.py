"""A shared app in the browser: secret links, the menu of each role, sharing a run, signing out, and removed users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from serving import AppServer
from test_every_page import AXE

from bsc_core.config import make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.users.access import EVERYONE, UserRuns, run_access
from bsc_core.users.accounts import add_user, read_users, remove_user

NEW_RUN = "New run"
RUNS = "Runs with state, metric on dev, settings that differ, progress, group and age"


@pytest.fixture
def shared_server(tmp_path: Path, static_encoder: None) -> Iterator[AppServer]:
    server = AppServer(tmp_path)
    server.keys = {name: add_user(server.store.root, name, role) for name, role in ROLES.items()}  # type: ignore[attr-defined]
    with server.running("--host", "localhost"):
        yield server


ROLES = {"ada": "owner", "ben": "member", "class": "student"}


def enter(visitor, server, name):
    """Sign in with the secret link of a user."""
    visit = visitor(server)
    visit.page.goto(f"{server.url}/sign-in#{server.keys[name]}")
    visit.wait("Contrastive training")
    expect(visit.page.get_by_text(f"{name} ({ROLES[name]})")).to_be_visible()
    assert server.keys[name] not in visit.page.url
    return visit


def test_users_open_their_links_and_a_member_shares_a_run_with_the_class(shared_server, visitor) -> None:
    server = shared_server
    config = make_config({"data": sample_config().model_dump(mode="json"), "encoder": {"name": "static"}})
    ben = read_users(server.store.root)["ben"]
    run = UserRuns(ben, server.store.root).create(config, "20260101-000000-of-ben-0001")
    run.update_status(state="done")

    visit = enter(visitor, server, "class")
    menu = visit.page.get_by_test_id("stSidebarNav")
    expect(menu.get_by_text("Lessons")).to_be_visible()
    expect(menu.get_by_text(NEW_RUN)).to_have_count(0)
    visit.open("train")
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("Contrastive training")
    visit.open("runs")
    expect(visit.page.get_by_text("No finished run is shared with you yet.")).to_be_visible()

    member = enter(visitor, server, "ben")
    expect(member.page.get_by_test_id("stSidebarNav").get_by_text(NEW_RUN)).to_be_visible()
    member.open("runs", run=run.id)
    member.click_button("Share")
    member.page.get_by_role("combobox", name="Shared with").click()
    member.page.get_by_role("option", name="Everyone").click()
    expect(member.page.get_by_test_id("stMultiSelect")).to_contain_text("Everyone")
    member.page.keyboard.press("Escape")  # the list
    member.page.keyboard.press("Escape")  # the box
    member.wait()
    assert run_access(run).shared_with == (EVERYONE,)

    visit.open("runs")
    assert len(visit.rows(RUNS, containing="of-ben-0001")) == 1

    member.page.get_by_role("link", name="Sign out").click()
    expect(member.page.get_by_role("button", name="Sign in")).to_be_visible()
    member.page.goto(f"{server.url}/runs?run={run.id}")
    expect(member.page.get_by_role("button", name="Sign in")).to_be_visible()
    member.page.get_by_label("Key").fill("wrong")
    member.page.get_by_role("button", name="Sign in").click()
    expect(member.page.get_by_role("alert")).to_contain_text("This key is not valid")
    member.page.get_by_label("Key").fill(server.keys["ben"])
    member.page.get_by_role("button", name="Sign in").click()
    member.wait("How is training going")
    assert f"run={run.id}" in member.page.url  # the page that was asked for
    for one in (visit, member):  # Chromium reports the sign-in page, and Streamlit the page that students cannot open
        one.faults[:] = [fault for fault in one.faults if "401" not in fault and "does not seem to exist" not in fault]

    remove_user(server.store.root, "class")
    visit.page.get_by_test_id("stSidebarNav").get_by_text("Lessons").click()
    expect(visit.page.get_by_text("You are no longer a user of this app")).to_be_visible()


def test_the_sign_in_page_is_accessible_in_both_themes(chrome, shared_server) -> None:
    for scheme in ("light", "dark"):
        page = chrome.new_context(color_scheme=scheme, bypass_csp=True).new_page()
        page.goto(f"{shared_server.url}/sign-in")
        page.add_script_tag(path=AXE)
        result = page.evaluate("axe.run()")
        assert [violation["id"] for violation in result["violations"]] == []
        page.context.close()
