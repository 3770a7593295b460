"""Users of a shared app: roles, keys, quotas, and who sees which run."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from filelock import FileLock, Timeout

from bsc_core.cli import main
from bsc_core.data.sample_data import sample_config
from bsc_core.errors import BscError, ConfigError, InputError, RunNotFoundError
from bsc_core.jobs import trash
from bsc_core.presets.catalog import recommended
from bsc_core.runs import Run, RunStore
from bsc_core.users.access import (
    ACCESS,
    EVERYONE,
    Access,
    UserRuns,
    dataset_access,
    run_access,
    share_run,
    write_dataset_access,
)
from bsc_core.users.accounts import (
    AUDIT_FILE,
    USERS_FILE,
    Quota,
    User,
    add_user,
    read_users,
    remove_user,
    signed_in_user,
    user_with_email,
    user_with_key,
    write_audit,
)
from bsc_core.users.quotas import check_disk, check_quota, processor_hours, quota_lock_of

CONFIG = recommended(sample_config())
ADA = User(name="ada", role="owner")
BEN = User(name="ben", role="member")
EVA = User(name="eva", role="member")
STUDENT = User(name="class", role="student")


def create(root: Path, user: User, **status: object) -> Run:
    run = UserRuns(user, root).create(CONFIG)
    if status:
        run.update_status(**status)
    return run


def test_addresses_are_compared_in_any_case_of_ascii_letters_only(tmp_path: Path) -> None:
    add_user(tmp_path, "kim", "member", email="kim@strasse.de")
    users = list(read_users(tmp_path).values())
    assert user_with_email(users, "Kim@Strasse.DE") == users[0]
    for other in ("kim@stra\u00dfe.de", "\u212aim@strasse.de", "k\u0131m@strasse.de"):
        assert user_with_email(users, other) is None
    with pytest.raises(InputError, match="is the address of another user"):
        add_user(tmp_path, "eve", "member", email="KIM@strasse.de")


def test_a_key_is_shown_once_and_stored_as_its_hash(tmp_path: Path) -> None:
    key = add_user(tmp_path, "ben", "member")
    assert key is not None
    assert key not in (tmp_path / USERS_FILE).read_text()
    assert (tmp_path / USERS_FILE).stat().st_mode & 0o077 == 0
    users = read_users(tmp_path).values()
    assert user_with_key(users, key) == read_users(tmp_path)["ben"]
    for wrong in ("", key[:-1], key + "x", key.swapcase()):
        assert user_with_key(users, wrong) is None


def test_a_new_key_replaces_the_old_one_and_keeps_the_quota(tmp_path: Path) -> None:
    first = add_user(tmp_path, "ben", "member")
    before = read_users(tmp_path)["ben"].signed_in_as
    file = tmp_path / USERS_FILE
    file.write_text(file.read_text() + "\n[users.ben.quota]\nactive_runs = 1\n")
    second = add_user(tmp_path, "ben", "student")
    users = read_users(tmp_path)
    assert first is not None
    assert second is not None
    assert user_with_key(users.values(), first) is None
    assert signed_in_user(users, before) is None  # open pages of the old key stop working
    assert signed_in_user(users, users["ben"].signed_in_as) == users["ben"]
    assert first not in before
    for header in ("", "ben", "ben:", "eva:x"):
        assert signed_in_user(users, header) is None
    assert users["ben"].role == "student"
    assert users["ben"].quota == Quota(active_runs=1)
    remove_user(tmp_path, "ben")
    assert user_with_key(read_users(tmp_path).values(), second) is None
    with pytest.raises(InputError, match="no user ben"):
        remove_user(tmp_path, "ben")


def test_an_email_address_belongs_to_one_user(tmp_path: Path) -> None:
    assert add_user(tmp_path, "ada", "owner", "Ada@example.org") is None
    user = user_with_email(read_users(tmp_path).values(), "ada@EXAMPLE.org")
    assert user is not None
    assert user.name == "ada"
    with pytest.raises(InputError, match="another user"):
        add_user(tmp_path, "ben", "member", "Ada@example.org")
    for name in ("sample.json", "sample.tsv"):
        with pytest.raises(ConfigError, match="the ending of a file"):
            add_user(tmp_path, name, "member")
    assert user_with_key(read_users(tmp_path).values(), "") is None  # a user without a key has no empty one


@pytest.mark.parametrize(
    "text",
    [
        "users = 3",
        "[users]\nada = 3",
        "[users.ada]\nrole = 'king'",
        "[users.Ada]\nrole = 'owner'",
        "[users.'../x']\nrole = 'owner'",
        "[users.ada]\nrole = 'owner'\npassword = 'x'",
        "[users.ada]\nrole = 'member'\nquota = {disk_gb = -1}",
        "[quota]\nruns = 1",
        "[users.ada",
        "x" + ".a" * 100_000 + " = 1",
        "\x00",
    ],
)
def test_a_damaged_file_of_users_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / USERS_FILE).write_text(text)
    with pytest.raises(ConfigError, match=r"users\.toml"):
        read_users(tmp_path)


def test_users_see_their_own_runs_and_shared_ones(tmp_path: Path) -> None:
    own, other = create(tmp_path, BEN), create(tmp_path, EVA)
    owners = RunStore(tmp_path).create(CONFIG)  # of the command line
    seen = {user.name: {run.id for run in UserRuns(user, tmp_path).list()} for user in (ADA, BEN, EVA, STUDENT)}
    assert seen == {"ada": {own.id, other.id, owners.id}, "ben": {own.id}, "eva": {other.id}, "class": set()}
    assert run_access(owners) == Access()
    with pytest.raises(RunNotFoundError) as hidden:
        UserRuns(BEN, tmp_path).get(other.id)
    with pytest.raises(RunNotFoundError) as missing:
        UserRuns(BEN, tmp_path).get("missing")
    assert str(hidden.value).replace(other.id, "missing") == str(missing.value)  # does not reveal that it exists
    share_run(other, ["ben"])
    assert UserRuns(BEN, tmp_path).get(other.id) == other
    assert not run_access(other).may_change(BEN)
    assert run_access(other).may_change(EVA)
    assert run_access(other).may_change(ADA)


def test_students_see_finished_runs_that_are_shared_with_everyone(tmp_path: Path) -> None:
    run = create(tmp_path, BEN)
    share_run(run, [EVERYONE])
    assert UserRuns(STUDENT, tmp_path).list() == []
    run.update_status(state="done")
    assert UserRuns(STUDENT, tmp_path).list() == [run]
    student = Access(owner="class")  # a member of this name became a student
    assert not student.may_change(STUDENT)


def test_the_id_of_another_users_run_cannot_be_used_again(tmp_path: Path) -> None:
    run = create(tmp_path, EVA)
    with pytest.raises(RunNotFoundError):
        UserRuns(BEN, tmp_path).create(CONFIG, run.id)
    assert run_access(run).owner == "eva"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"owner": 3}', b"\xff", b'{"owner": "ben"'])
def test_a_run_with_a_damaged_access_document_belongs_to_the_owner_of_the_app(tmp_path: Path, content: bytes) -> None:
    run = create(tmp_path, BEN)
    (run.folder / f"{ACCESS}.json").write_bytes(content)
    assert UserRuns(BEN, tmp_path).list() == []
    assert UserRuns(ADA, tmp_path).list() == [run]


def test_the_lock_of_quotas_excludes_other_threads_and_processes_and_is_reentrant(tmp_path: Path) -> None:
    with quota_lock_of(tmp_path), quota_lock_of(tmp_path):
        with pytest.raises(Timeout), FileLock(tmp_path / ".quota.lock", timeout=0):
            pass
        with ThreadPoolExecutor() as pool, pytest.raises(Timeout):
            pool.submit(lambda: quota_lock_of(tmp_path).acquire(timeout=0)).result()
    with FileLock(tmp_path / ".quota.lock", timeout=0):
        pass


def test_the_quota_counts_active_runs_processor_time_and_disk(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    member = BEN.model_copy(update={"quota": Quota(active_runs=2, processor_hours=3, disk_gb=1e-4)})
    check_quota(store, member, 2, threads=2)
    with pytest.raises(InputError, match="0 active runs and may have 2"):
        check_quota(store, member, 3, threads=2)
    now = time.time()
    run = create(tmp_path, member, state="running", started=now - 3600)
    other = create(tmp_path, EVA, state="running", started=now - 3600)
    assert processor_hours([run], threads=2) == pytest.approx(2, abs=0.1)
    with pytest.raises(InputError, match="1 active runs and may have 2"):
        check_quota(store, member, 2, threads=2)
    check_quota(store, member, 1, threads=2)
    run.update_status(state="done", started=now - 7200, finished=now)
    with pytest.raises(InputError, match=r"4\.0 of 3 processor hours"):
        check_quota(store, member, 1, threads=2)
    trash(store, run)  # a deleted run still counts
    with pytest.raises(InputError, match=r"4\.0 of 3 processor hours"):
        check_quota(store, member, 1, threads=2)
    few = member.model_copy(update={"quota": Quota(runs=2)})
    check_quota(store, few, 1, threads=2)
    with pytest.raises(InputError, match=r"0 runs and 1 deleted runs, and may have 2"):
        check_quota(store, few, 2, threads=2)
    check_disk(store, member)
    with pytest.raises(InputError, match=r"of 0.0001 GB"):
        check_disk(store, member, additional_bytes=200_000)
    decisions = store.false_negatives_file(f"{member.name}/dataset-of-another-user")
    decisions.parent.mkdir(parents=True)
    decisions.write_bytes(bytes(200_000))
    with pytest.raises(InputError, match=r"of 0.0001 GB"):
        check_disk(store, member)
    check_quota(store, ADA, 1000, threads=2)
    with pytest.raises(InputError, match="students cannot launch"):
        check_quota(store, STUDENT, 1, threads=2)
    assert other.exists


def test_the_owner_of_a_run_is_read_again_after_a_change_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(tmp_path, BEN)
    read = Mock(side_effect=Run.read_signed, autospec=True)
    monkeypatch.setattr(Run, "read_signed", lambda run, name: read(run, name))
    assert [run_access(run).owner for _ in range(3)] == ["ben"] * 3
    assert read.call_count <= 1
    share_run(run, ["eva"])
    assert run_access(run).shared_with == ("eva",)


def test_a_run_has_its_owner_again_after_the_key_could_not_be_read(tmp_path: Path) -> None:
    run, dataset = create(tmp_path, BEN), tmp_path / "uploads" / "pairs"
    dataset.mkdir(parents=True)
    write_dataset_access(dataset, Access(owner="ben"))
    share_run(run, [])  # not read yet
    key, moved = tmp_path / ".key", tmp_path / "moved"
    key.rename(moved)
    assert run_access(run) == dataset_access(dataset) == Access()
    moved.rename(key)
    assert run_access(run) == dataset_access(dataset) == Access(owner="ben")


def test_runs_of_last_month_do_not_count(tmp_path: Path) -> None:
    now = time.time()
    run = create(tmp_path, BEN, state="done", started=now - 31 * 86400, finished=now - 30 * 86400)
    assert processor_hours([run], threads=2) == 0


def test_the_audit_log_has_one_line_per_event(tmp_path: Path) -> None:
    write_audit(tmp_path, "ben", "launch", "a\nb\x1b[31m", runs=2)
    write_audit(tmp_path, "eva", "sign in")
    lines = [json.loads(line) for line in (tmp_path / AUDIT_FILE).read_text().splitlines()]
    assert [(line["user"], line["action"], line["subject"]) for line in lines] == [
        ("ben", "launch", "a\nb\x1b[31m"),
        ("eva", "sign in", ""),
    ]
    assert (tmp_path / AUDIT_FILE).stat().st_mode & 0o077 == 0


def test_the_command_adds_lists_and_removes_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--runs", str(tmp_path), "--json"]
    assert main(["users", "add", "ben", "--role", "member", "--url", "https://lab.example/", *words]) == 0
    link = json.loads(capsys.readouterr().out)["link"]
    address, _, key = link.partition("#")
    assert address == "https://lab.example/sign-in"
    assert user_with_key(read_users(tmp_path).values(), key) is not None
    assert main(["users", *words]) == 0
    assert json.loads(capsys.readouterr().out) == {"users": {"ben": {"role": "member", "email": None}}}
    for wrong in (
        ["users", "add"],
        ["users", "add", "eva"],
        ["users", "remove"],
        ["users", "add", "../x", "--role", "owner"],
    ):
        assert main([*wrong, *words]) == 2
        capsys.readouterr()
    assert main(["users", "remove", "ben", *words]) == 0
    assert read_users(tmp_path) == {}


def test_errors_are_those_of_bsc_core(tmp_path: Path) -> None:
    with pytest.raises(BscError):
        UserRuns(BEN, tmp_path).get("../x")
