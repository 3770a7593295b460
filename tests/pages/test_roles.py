"""Pages of a shared app: what owners, members and students see, change and launch."""

from __future__ import annotations

import copy
import gzip
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from bsc_core import background_task, jobs
from bsc_core.config import EncoderConfig, make_config, make_sweep
from bsc_core.data import load_data
from bsc_core.errors import InputError
from bsc_core.files import atomic_write
from bsc_core.jobs.scheduler import Scheduler
from bsc_core.paths import sample_data_folder
from bsc_core.runs import Run, RunStore
from bsc_core.users.access import (
    ACCESS,
    EVERYONE,
    Access,
    dataset_access,
    run_access,
    share_run,
    write_dataset_access,
    write_run_access,
)
from bsc_core.users.accounts import (
    AUDIT_FILE,
    SHARED,
    USER_HEADER,
    Quota,
    User,
    add_user,
    read_users,
    remove_user,
    write_audit,
)
from pages.ui.batches import decide, triage
from pages.ui.comparison import query_differences
from pages.ui.comparison import settings as comparison_settings
from pages.ui.comparison import view as comparison_view
from pages.ui.components import data_cache, run_data, sidebar_jobs, users
from pages.ui.data import uploads
from pages.ui.findings.table import CLAIM
from pages.ui.new_run import launch, preflight
from pages.ui.runs import actions as actions_of_runs
from pages.ui.runs import merge, queue, run_settings, sweep, table
from pages.ui.runs.actions import saved_dataset_key
from tests.helpers.pages import (
    PCA,
    click,
    config_file,
    open_app,
    open_page,
    open_page_in_app,
    open_tab,
    page_text,
    queued_configs,
)

ADA = User(name="ada", role="owner")
BEN = User(name="ben", role="member", hub=("owner/*",))
EVA = User(name="eva", role="member")
STUDENT = User(name="class", role="student")
DECISIONS = "query\tdocument\tdecision\n"
PAIRS = "query\tdocument\nhow to bake\tuse an oven\nhow to swim\tmove your arms\n" * 3

SignIn = Callable[[User], None]


@pytest.fixture
def sign_in(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> SignIn:
    """Return a function that signs a user in; the name in the request is what the server writes."""
    for user in (ADA, BEN, EVA, STUDENT):
        add_user(runs.root, user.name, user.role)
    monkeypatch.setenv(SHARED, str(runs.root))

    def enter(user: User) -> None:
        monkeypatch.setattr(users, "current_user", lambda: user)

    return enter


def own(run: Run, user: User, *shared_with: str) -> None:
    write_run_access(run, Access(owner=user.name, shared_with=shared_with))


def buttons(app: AppTest) -> set[str]:
    return {button.label for button in app.button}


def actions(runs: RunStore) -> list[str]:
    path = runs.root / AUDIT_FILE
    return [json.loads(line)["action"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("page", ["data", "batches", "train"])
def test_students_cannot_open_pages_that_change_something(sign_in: SignIn, page: str) -> None:
    sign_in(STUDENT)
    with pytest.raises(ValueError, match="Could not find a navigation page"):
        open_app().switch_page(f"pages/{page}.py").run()


@pytest.mark.parametrize("page", users.STUDENT_PAGES)
def test_students_see_no_button_that_changes_something(sign_in: SignIn, finished: Run, page: str) -> None:
    own(finished, BEN, EVERYONE)
    sign_in(STUDENT)
    app = open_page_in_app(page, run=finished.id, dataset="sample", **PCA)
    assert not app.exception
    for label in buttons(app) - {"Train 100 steps"}:  # of the toy example
        for word in ("Launch", "Train", "Stop", "Resume", "Delete", "Duplicate", "Import", "Inspect", "Use in", "Run"):
            assert not label.startswith(word), label
    assert not app.get("file_uploader")
    assert str(finished.folder) not in page_text(app)


def test_students_cannot_decide_about_the_documents_of_a_search(sign_in: SignIn, finished: Run, tmp_path: Path) -> None:
    own(finished, BEN, EVERYONE)
    data = run_data.load_splits(finished)
    query = data.texts[int(data.dev.query[0])]
    path = tmp_path / "decisions.tsv"
    for user, may_decide in ((BEN, True), (STUDENT, False)):
        sign_in(user)
        app = open_page("retrieval", run=finished.id, **{"retrieval.query": query})
        assert not app.exception
        assert ("retrieval.judged" in {box.key for box in app.selectbox}) == may_decide
    path.write_text(f"{DECISIONS}a\tb\tdrop\n")
    for kind in (None, "positive"):
        decide.save(path, ("a", "b"), kind, print)
    assert path.read_text() == f"{DECISIONS}a\tb\tdrop\n"


def test_students_see_no_paths_among_the_differences_of_configs(
    sign_in: SignIn, trained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trained.config()
    changes = {
        "data": config.data.model_copy(update={"train": "/srv/private.tsv"}),
        "encoder": config.encoder.model_copy(update={"name": "/srv/models/large"}),
    }
    settings = [
        SimpleNamespace(name=name, runs=[SimpleNamespace(config=lambda one=one: one)])
        for name, one in (("one", config), ("other", config.model_copy(update=changes)))
    ]
    tables: list[list[dict[str, str]]] = []
    monkeypatch.setattr(comparison_view.st, "dataframe", lambda rows, **options: tables.append(rows))
    for user in (BEN, STUDENT):
        sign_in(user)
        comparison_view._draw_differences(SimpleNamespace(settings=settings))
    member, student = ([(row["Key"], row["other"]) for row in rows] for rows in tables)
    assert member == [("data.train", "/srv/private.tsv"), ("encoder.name", "/srv/models/large")]
    assert student == [("encoder.name", "large")]


def test_students_see_no_folders_in_a_comparison_of_runs_whose_data_cannot_be_read(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, texts = InputError("/srv/private/pairs.tsv: outside the folders that may be read"), []
    monkeypatch.setattr(run_data, "load_splits", Mock(side_effect=error))
    for module, name in ((comparison_settings, "query_changes"), (comparison_settings, "eval_results")):
        monkeypatch.setattr(module, name, Mock(side_effect=error))
    monkeypatch.setattr(st, "caption", texts.append)
    monkeypatch.setattr(query_differences, "_select_other", lambda view: None)
    first, second = (SimpleNamespace(key=key, runs=[None]) for key in "ab")
    for user in (BEN, STUDENT):
        sign_in(user)
        texts.clear()
        query_differences.draw(Mock(metric="mrr", others=[second]))
        query_differences._data(first)
        texts.append(comparison_settings.compare_settings(first, second, "dev", "mrr"))
        assert len(texts) == 3
        assert all(("/srv/private/pairs.tsv: outside" in text) == (user is BEN) for text in texts)


def test_students_see_no_paths_among_the_settings_of_runs(sign_in: SignIn, runs: RunStore, finished: Run) -> None:
    config = finished.config()
    encoder, loss = Path(config.encoder.name), config.loss.model_copy(update={"mask_guide": "/srv/models/guide"})
    finished.write_json("config", config.model_copy(update={"loss": loss}).model_dump(mode="json"))
    sign_in(BEN)
    for user, names in ((BEN, (str(encoder), "/srv/models/guide")), (STUDENT, (encoder.name, "guide"))):
        sign_in(user)
        settings = run_settings.load_settings([finished])[finished.id]
        assert (settings["Encoder"], settings["Guide model"]) == names
        assert ("/" in settings["Dataset"]) == user.may_launch


def test_students_see_no_paths_among_the_settings_of_a_sweep(
    sign_in: SignIn, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [{"setting": {"encoder.name": "/srv/secret/m0", "loss.temperature": 0.1}}]
    monkeypatch.setattr("bsc_core.jobs.group_summary", lambda runs: {"settings": copy.deepcopy(cells)})
    sign_in(STUDENT)
    assert sweep._summary([finished])["settings"][0]["setting"] == {"encoder.name": "m0", "loss.temperature": 0.1}
    sign_in(BEN)
    assert sweep._summary([finished])["settings"] == cells


def test_students_see_no_paths_in_the_error_of_a_run(sign_in: SignIn, finished: Run) -> None:
    own(finished, BEN, "class")
    finished.update_status(state="failed", error="/srv/data/secret/pairs.tsv: line 3 (of 4/5) is not UTF-8")
    for user, shown in ((STUDENT, "pairs.tsv: line 3 (of 4/5)"), (BEN, "/srv/data/secret/pairs.tsv: line 3")):
        sign_in(user)
        text = page_text(open_page("runs", run=finished.id)).replace("\\", "")
        assert shown in text
        assert ("/srv/data" in text) == (user is BEN)


def test_queue_buttons_of_an_earlier_owner_have_no_effect(sign_in: SignIn) -> None:
    calls: list[str] = []
    move, remove = (
        queue._callback(lambda: calls.append("move")),
        queue._callback(lambda: calls.append("remove"), owner_only=False),
    )
    for user in (ADA, BEN):
        sign_in(user)
        move()
        remove()
    assert calls == ["move", "remove", "remove"]


def test_students_see_shared_finished_runs_only(sign_in: SignIn, finished: Run) -> None:
    sign_in(STUDENT)
    app = open_page("runs")
    assert users.NO_SHARED_RUN in page_text(app)
    share_run(finished, [EVERYONE])
    app = open_page("runs", run=finished.id)
    assert not app.exception
    assert {tab.label for tab in app.tabs} == {"Overview", "Curves", "First batch"}


def test_users_do_not_see_the_active_runs_that_others_have_read(
    sign_in: SignIn, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidebar_jobs, "MAX_AGE", 3600.0)
    own(finished, BEN)
    finished.update_status(state="queued")
    sign_in(BEN)
    assert "No run is active." not in page_text(open_page("lessons"))
    sign_in(EVA)
    assert "No run is active." in page_text(open_page("lessons"))


def test_members_read_a_shared_run_and_change_their_own(
    sign_in: SignIn, runs: RunStore, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(finished, EVA)
    sign_in(BEN)
    assert "was not found" in page_text(open_page("runs", run=finished.id))
    own(finished, EVA, "ben")
    app = open_page("runs", run=finished.id)
    assert not app.exception
    assert {"Duplicate"} <= buttons(app)
    assert not {"Stop", "Resume", "Delete"} & buttons(app)
    assert not app.multiselect
    sign_in(EVA)
    app = open_page("runs", run=finished.id)
    assert {"Duplicate", "Delete"} <= buttons(app)
    [share] = app.multiselect
    assert share.value == ["ben"]
    share.set_value([EVERYONE]).run()
    assert run_access(finished) == Access(owner="eva", shared_with=(EVERYONE,))
    assert actions(runs) == ["share"]


def test_a_launched_run_belongs_to_its_user_and_counts_against_the_quota(sign_in: SignIn, runs: RunStore) -> None:
    member = BEN.model_copy(update={"quota": Quota(active_runs=1)})
    sign_in(member)
    app = open_page("start")
    click(app, "start.launch")
    [run] = RunStore(runs.root).list()
    assert run_access(run) == Access(owner="ben")
    assert actions(runs) == ["launch"]
    click(open_page("start"), "start.launch")
    assert len(RunStore(runs.root).list()) == 1
    sign_in(EVA)
    assert data_cache.run_store().list() == []
    app = open_page("runs")
    assert run.id not in page_text(app)


def test_launches_at_the_same_time_do_not_exceed_the_quota(sign_in: SignIn, runs: RunStore, trained: Run) -> None:
    sign_in(BEN.model_copy(update={"quota": Quota(active_runs=1)}))
    barrier, refused = threading.Barrier(4), []

    def launch(number: int) -> None:
        barrier.wait()
        try:
            with users.admit_launch(f"run-{number}", 1, 1):
                jobs.launch(data_cache.run_store(), trained.config(), f"run-{number}", start=lambda store: None)
        except InputError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queued_configs(runs)) == 1
    assert len(refused) == 3


def test_a_run_is_shared_with_users_of_the_list_only(sign_in: SignIn, runs: RunStore, finished: Run) -> None:
    own(finished, EVA)
    sign_in(EVA)
    app = open_page("runs", run=finished.id)
    [share] = app.multiselect
    share._value = ["ben", "\x9b31m", "ada"]  # as a client other than a browser can send
    share.run()
    assert run_access(finished).shared_with == ("ben",)
    write_audit(runs.root, "ben", "upload", "\x9b31m\u202e")
    assert (runs.root / AUDIT_FILE).read_bytes().isascii()


def test_a_name_that_a_client_sends_several_times_is_stored_once(
    sign_in: SignIn, runs: RunStore, finished: Run
) -> None:
    own(finished, BEN)
    sign_in(BEN)
    app = open_page("runs", run=finished.id)
    app.multiselect(key=f"users.share.{finished.id}").set_value(["eva", "eva", "nobody", "eva"])
    app.run()
    assert run_access(finished).shared_with == ("eva",)


def test_an_open_page_stops_to_show_a_run_that_is_no_longer_shared(
    sign_in: SignIn, runs: RunStore, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(finished, EVA, "ben")
    sign_in(BEN)
    run = data_cache.run_store().get(finished.id)
    monkeypatch.setattr(table.st, "fragment", lambda update, run_every: update)
    monkeypatch.setattr(table.st, "rerun", lambda scope: pytest.fail(f"rerun of the {scope}"))
    drawn: list[str] = []
    table.draw_live(lambda: drawn.append(run.id), [run])
    own(finished, EVA)
    with pytest.raises(pytest.fail.Exception, match="rerun of the app"):
        table.draw_live(lambda: drawn.append(run.id), [run])
    assert drawn == [run.id]


def test_an_open_page_starts_no_task_of_a_run_that_is_no_longer_shared(
    sign_in: SignIn, finished: Run, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_task, "start", lambda *args, **options: pytest.fail("a task was started"))
    values = finished.config().model_dump(mode="json")
    finished.write_json("config", values | {"encoder": {"name": "bundled"}})
    own(finished, EVA, "ben")
    sign_in(BEN)
    app = open_tab(open_page("runs", run=finished.id), "Model")
    key = f"runs.merge.{merge.task_folder(finished).name}"
    assert "merge" not in actions(RunStore(finished.folder.parent))
    own(finished, EVA)
    click(app, key)
    assert "was not found" in page_text(app)
    assert "merge" not in actions(RunStore(finished.folder.parent))


def test_a_model_is_not_merged_with_the_model_of_a_run_that_is_no_longer_shared(
    sign_in: SignIn, runs: RunStore, finished: Run, own_cache: Path
) -> None:
    start = runs.create(finished.config(), "start")
    own(finished, BEN)
    values = finished.config().model_dump(mode="json")
    finished.write_json("config", values | {"encoder": {"name": "run:start"}})
    sign_in(BEN)
    for is_shared in (True, False):
        own(start, EVA, *["ben"] * is_shared)
        app = open_tab(open_page("runs", run=finished.id), "Model")
        assert ("Evaluate merged models" in buttons(app)) == is_shared
    assert "cannot be merged with its start" in page_text(app)


def test_an_open_page_starts_no_preflight_on_data_that_is_no_longer_shared(
    sign_in: SignIn, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setattr(
        background_task, "start", lambda _folder, _module, request, *_args, **_options: requests.append(str(request))
    )
    sign_in(EVA)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    key = uploads.register(path.parent, "pairs", uploads.validate({"train": str(path), "dev_size": 0.3}))
    write_dataset_access(path.parent, Access(owner="eva", shared_with=("ben",)))
    sign_in(BEN)
    app = open_page("train", dataset=key)
    write_dataset_access(path.parent, Access(owner="eva"))
    click(app, "train.preflight.begin")
    assert not any(str(path) in request for request in requests)


def test_two_users_have_separate_preflights_of_a_config(sign_in: SignIn, runs: RunStore, trained: Run) -> None:
    folders = set()
    for user in (BEN, EVA):
        sign_in(user)
        folders.add(preflight.preflight_folder(trained.config()))
    assert len(folders) == 2


def test_the_metrics_of_an_encoder_depend_on_the_labels(sign_in: SignIn, runs: RunStore, tiny_encoder: Path) -> None:
    sign_in(ADA)
    stamps = set()
    for label in ("0\n", "1\n"):
        rows = "".join(f"how to bake {n}\tuse an oven {n}\t{n % 2 if n else label}\n" for n in range(20))
        path = uploads.save_file("pairs.tsv", f"query\tdocument\tlabel\n{rows}".replace("\n\n", "\n").encode())
        key = uploads.register(path.parent, "pairs", uploads.validate({"train": str(path), "dev_size": 0.3}))
        model = run_data.EncoderModel(key, str(tiny_encoder), "encoder")
        stamps.add(model.results_stamp)
        assert model.results_stamp[0] == model.stamp
    assert len(stamps) == 2


def test_the_command_line_gives_no_run_an_owner(runs: RunStore, finished: Run) -> None:
    assert run_access(finished) == Access()
    assert not (finished.folder / f"{ACCESS}.json").exists()


@pytest.mark.parametrize("user", [BEN, STUDENT])
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "sample_data", "~/x.tsv", "hf://tests/data", "hf://..//etc", "hf:///etc"]
)
def test_only_the_owner_opens_paths(
    sign_in: SignIn, user: User, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    sign_in(user)
    with pytest.raises(InputError, match="only the owner"):
        uploads.check_source(path)


@pytest.mark.parametrize(
    "name",
    [
        "/etc",
        "./model",
        "../model",
        "~/model",
        "tests/data",
        "C:\\model",
        "a/../../b",
        "x?/../model",
        "x?y",
        "runs/x/model",
    ],
)
def test_only_the_owner_loads_models_from_folders(
    sign_in: SignIn, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    sign_in(BEN)
    with pytest.raises(InputError, match="only the owner"):
        data_cache.encoder_config(name)
    sign_in(STUDENT)
    for forbidden in (name, "owner/model"):
        with pytest.raises(InputError, match="only the owner"):
            data_cache.encoder_config(forbidden)


def test_members_use_models_of_the_hub_and_of_runs_that_they_see(sign_in: SignIn, finished: Run) -> None:
    sign_in(BEN)
    assert data_cache.encoder_config("Owner/model").name == "Owner/model"
    with pytest.raises(InputError, match="not shared with you"):
        data_cache.encoder_config(f"run:{finished.id}")
    share_run(finished, ["ben"])
    assert data_cache.encoder_config(f"run:{finished.id}").name == str(finished.model_folder)


def test_members_open_only_the_models_and_datasets_of_the_hub_that_the_owner_allows(sign_in: SignIn) -> None:
    for user in (EVA, BEN.model_copy(update={"hub": ("owner/other", "*/model-2")})):
        sign_in(user)
        for name in ("owner/model", "model"):
            with pytest.raises(InputError, match="ask the owner of this app to add it"):
                data_cache.encoder_config(name)
        for name in ("hf://owner/name", "hf://owner/name/config", "hf://owner/name?split=train"):
            with pytest.raises(InputError, match="owner/name: not among the models and datasets of the Hub"):
                uploads.check_source(name)
    assert data_cache.encoder_config("someone/model-2").name == "someone/model-2"
    uploads.check_source("hf://owner/other/config?split=train")


@pytest.mark.parametrize("setting", ["encoder.name", "loss.mask_guide", "data.negatives.encoder"])
def test_a_link_cannot_name_a_folder_as_an_encoder(sign_in: SignIn, setting: str) -> None:
    sign_in(BEN)
    app = open_page("train", dataset="sample", **{setting: "/etc"})
    assert not app.exception
    assert app.button(key="train.launch").disabled or setting.startswith("data")
    assert ("only the owner" in page_text(app)) or setting.startswith("data")


@pytest.mark.parametrize("key", ["train", "dev", "test", "corpus", "mix", "false_negatives"])
def test_a_sweep_cannot_name_files_of_the_server(sign_in: SignIn, tmp_path: Path, key: str) -> None:
    sign_in(BEN)
    file = str(tmp_path / "pairs.tsv")
    config = make_config({"data": data_cache.data_config("sample").model_dump()})
    sweep = make_sweep({"over": {f"data.{key}": [[file] if key == "mix" else file]}})
    with pytest.raises(InputError, match=r"pairs\.tsv is not shared with you"):
        launch.launch(config, sweep, "group")


@pytest.mark.parametrize("key", ["data.train", "data.negatives.encoder", "data", "x.y", "loss", "training.steps"])
def test_a_link_cannot_sweep_over_keys_without_a_field(sign_in: SignIn, tmp_path: Path, key: str) -> None:
    sign_in(BEN)
    app = open_page("train", dataset="sample", **{f"sweep.{key}": json.dumps([str(tmp_path)])})
    assert f"{key} is not a setting of this form" in page_text(app)
    assert str(tmp_path) not in str(config_file(app))


def test_files_of_the_hub_and_of_parent_folders_are_checked(sign_in: SignIn) -> None:
    sign_in(BEN)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    config = uploads.validate({"train": str(path), "mix": ("hf://owner/name",)})
    uploads.check_files(config)
    for other in ("hf://../name", f"{path.parent}/.."):
        with pytest.raises(InputError, match=r"only the owner|is not shared with you"):
            uploads.check_files(config.model_copy(update={"mix": (other,)}))


def test_a_sweep_above_the_quota_is_refused_before_its_configs_are_built(
    sign_in: SignIn, trained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(BEN)
    monkeypatch.setattr(launch, "run_configs", lambda *_: pytest.fail("built the configs"))
    sweep = make_sweep({"over": {"training.seed": list(range(1000)), "training.epochs": list(range(1, 1001))}})
    with pytest.raises(InputError, match="may have 8"):
        launch.launch(trained.config(), sweep, "group")
    with pytest.raises(InputError, match="may have 8"):
        launch._new_id(trained.config(), sweep)


def test_a_page_checks_one_of_many_seeds(trained: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    config = trained.config()
    config = config.model_copy(update={"training": config.training.model_copy(update={"seeds": tuple(range(10**4))})})
    checked: list[object] = []
    monkeypatch.setattr(launch.encoder_picker, "check", checked.append)
    launch.check(config, None, load_data(config.data))
    assert len(checked) == 1


def test_no_setting_names_a_run_that_is_not_shared(sign_in: SignIn, finished: Run) -> None:
    config = finished.config()
    config = config.model_copy(update={"encoder": config.encoder.model_copy(update={"name": "bundled"})})
    for section in ("encoder", "mask_guide"):
        part = {"encoder": config.encoder.model_copy(update={"name": f"run:{finished.id}"})}
        if section == "mask_guide":
            part = {"loss": config.loss.model_copy(update={"mask_guide": f"run:{finished.id}"})}
        changed = config.model_copy(update=part)
        sign_in(BEN)
        with pytest.raises(InputError, match="not shared with you"):
            users.check_encoders(changed)
        share_run(finished, ["ben"])
        users.check_encoders(changed)
        share_run(finished, [])


def test_decisions_about_another_users_run_do_not_change_its_file(
    sign_in: SignIn, runs: RunStore, finished: Run
) -> None:
    marked = runs.false_negatives_file("eva/sample")
    atomic_write(marked, DECISIONS)
    config = finished.config()
    values = config.model_copy(update={"data": config.data.model_copy(update={"false_negatives": str(marked)})})
    finished.write_json("config", values.model_dump(mode="json"))
    own(finished, EVA, "ben")
    for user, expected in ((EVA, marked), (BEN, None)):
        sign_in(user)
        assert decide.run_file(finished, "sample") == expected
    own(finished, BEN)  # a run on a dataset of eva
    assert decide.run_file(finished, "sample") is None


def test_a_duplicated_run_has_the_decisions_that_the_run_applied(
    sign_in: SignIn, runs: RunStore, finished: Run
) -> None:
    row = "a\tb\tpositive\n"
    marked = runs.false_negatives_file("eva/sample")
    atomic_write(marked, DECISIONS + row + "later\tprivate\tpositive\n")
    config = finished.config()
    data = config.data.model_copy(
        update={"false_negatives": str(marked), "train": str(sample_data_folder() / "pairs.tsv"), "dev_size": 0.4}
    )
    atomic_write(finished.false_negatives_file(str(marked)), DECISIONS + row)
    own(finished, EVA, "ben")
    sign_in(BEN)
    for run, expected in ((finished, DECISIONS + row), (None, None)):
        key = saved_dataset_key(data.model_copy(update={"dev_size": 0.4 if run else 0.45}), run)
        copy = Path(str(data_cache.datasets()[key].data.false_negatives))
        assert (copy.read_text(encoding="utf-8") if copy.exists() else None) == expected


def test_a_file_with_the_folder_name_of_another_users_upload_is_refused(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_digest", lambda _: "0" * uploads.DIGITS)  # as with a collision
    sign_in(EVA)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    assert uploads.save_file("pairs.tsv", PAIRS.encode()) == path
    sign_in(BEN)
    with pytest.raises(InputError, match="belongs to another user"):
        uploads.save_file("pairs.tsv", PAIRS.encode())


def test_no_content_of_the_owner_has_the_folder_of_a_members_upload(sign_in: SignIn) -> None:
    sign_in(BEN)
    of_member = uploads.save_file("pairs.tsv", PAIRS.encode())
    sign_in(ADA)
    for end in ("ben", "\nben", "\0ben"):
        path = uploads.save_file("pairs.tsv", PAIRS.encode() + end.encode())
        assert path != of_member
        assert path.read_text(encoding="utf-8") == PAIRS + end


def test_a_run_on_a_dataset_that_is_no_longer_shared_is_not_resumed(
    sign_in: SignIn, runs: RunStore, finished: Run
) -> None:
    sign_in(EVA)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    data = uploads.validate({"train": str(path)})
    uploads.register(path.parent, "pairs", data)
    write_dataset_access(path.parent, Access(owner="eva", shared_with=("ben",)))
    own(finished, BEN)
    finished.write_json("config", finished.config().model_copy(update={"data": data}).model_dump(mode="json"))
    sign_in(BEN)
    uploads.check_files(finished.config().data)
    write_dataset_access(path.parent, Access(owner="eva"))
    with pytest.raises(InputError, match="is not shared with you"):
        actions_of_runs._resume(finished)


@pytest.mark.parametrize("change", ["none", "dataset", "user", "role", "model", "decisions"])
def test_a_waiting_run_does_not_start_if_what_it_reads_is_no_longer_shared(
    sign_in: SignIn, runs: RunStore, finished: Run, change: str
) -> None:
    sign_in(EVA)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    marked = str(runs.false_negatives_file(path.parent.name))
    data = uploads.validate({"train": str(path)}).model_copy(update={"false_negatives": marked})
    uploads.register(path.parent, "pairs", data)
    own(finished, EVA, "ben")
    write_dataset_access(path.parent, Access(owner="eva", shared_with=("ben",)))
    encoder = EncoderConfig(name=f"run:{finished.id}")
    config = finished.config().model_copy(update={"data": data, "encoder": encoder})
    run = jobs.launch(runs, config, "waiting", start=lambda store: None)
    own(run, BEN)
    if change == "dataset":
        write_dataset_access(path.parent, Access(owner="eva"))
    elif change == "decisions":
        uploads.register(path.parent, "pairs", data.model_copy(update={"false_negatives": None}))
    elif change == "model":
        own(finished, EVA)
    elif change in ("user", "role"):
        remove_user(runs.root, "ben")
        if change == "role":
            add_user(runs.root, "ben", "student")
    started = []
    backend = Mock(takes_slot=True, start=lambda run, environment: started.append(run.id))
    Scheduler(runs, 1, {"local": backend}).tick()
    status = run.status()
    if change == "none":
        assert (started, status.state) == ([run.id], "starting")
        return
    assert (started, status.state) == ([], "failed")
    reasons = {
        "dataset": "pairs.tsv is no longer shared with ben",
        "decisions": "are no longer shared with ben",
        "model": "it is not shared with you",
    }
    assert reasons.get(change, "ben may no longer launch runs") in status.error


def test_a_shared_run_gives_no_access_to_the_files_of_its_dataset(
    sign_in: SignIn, runs: RunStore, finished: Run
) -> None:
    sign_in(EVA)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    marked = runs.false_negatives_file(path.parent.name)
    atomic_write(marked, DECISIONS)
    data = uploads.validate({"train": str(path), "false_negatives": str(marked)})
    assert uploads.register(path.parent, "pairs", data) == path.parent.name
    own(finished, EVA, "ben")
    sign_in(BEN)
    with pytest.raises(InputError, match=r"pairs\.tsv is not shared with you"):
        uploads.register(uploads.folder_for(path), "copy", data)
    write_dataset_access(path.parent, Access(owner="eva", shared_with=("ben",)))
    key = uploads.register(uploads.folder_for(path), "copy", data)
    copy = data_cache.false_negatives_file(key)
    assert copy != marked
    assert copy.read_text() == DECISIONS
    for other in ("/etc/passwd", str(path.parent / ".." / "x" / "pairs.tsv"), str(runs.root / "users.toml")):
        with pytest.raises(InputError, match="is not shared with you"):
            uploads.register(uploads.folder_for(other), "other", uploads.validate({"train": other}))


@pytest.mark.parametrize("owner", [ADA, EVA])
def test_copies_of_a_dataset_are_not_read_after_its_files_are_no_longer_shared(
    sign_in: SignIn, runs: RunStore, tmp_path: Path, owner: User
) -> None:
    sign_in(owner)
    path = tmp_path / "customers.tsv"  # a file of the server
    path.write_text(PAIRS, encoding="utf-8")
    path = uploads.save_file("pairs.tsv", PAIRS.encode()) if owner is EVA else path
    data = uploads.validate({"train": str(path)})
    folder = runs.uploads_folder / uploads.register(uploads.folder_for(path, "shared"), "pairs", data)
    write_dataset_access(folder, dataset_access(folder).model_copy(update={"shared_with": ("ben",)}))
    sign_in(BEN)
    changed = data.model_copy(update={"dev_size": 0.4})
    copy = saved_dataset_key(changed)
    write_dataset_access(runs.uploads_folder / copy, Access(owner="ben", shared_with=(EVERYONE,)))
    assert data_cache.data_config(copy) == changed
    sign_in(STUDENT)
    with pytest.raises(InputError, match="does not exist"):
        data_cache.data_config(copy)
    write_dataset_access(folder, dataset_access(folder).model_copy(update={"shared_with": ()}))
    sign_in(BEN)
    assert set(data_cache.datasets()) == set(data_cache.SAMPLES)
    with pytest.raises(InputError, match="is not shared with you"):
        uploads.check_files(data)
    with pytest.raises(InputError, match="is not shared with you"):
        uploads.register(uploads.folder_for(path), "again", data)
    sign_in(owner)
    assert folder.name in data_cache.datasets()


def test_a_generated_dataset_is_shared_without_the_upload_that_it_is_from(sign_in: SignIn, runs: RunStore) -> None:
    sign_in(EVA)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    upload = uploads.register(path.parent, "pairs", uploads.validate({"train": str(path)}))
    generated = uploads.register(uploads.folder_for(path, "x"), "generated", uploads.validate({"train": str(path)}))
    write_dataset_access(runs.uploads_folder / generated, Access(owner="eva", shared_with=("ben",)))
    sign_in(BEN)
    assert generated in data_cache.datasets()
    assert upload not in data_cache.datasets()


def test_columns_of_a_data_file_are_no_colors_for_users_who_may_not_read_it(
    sign_in: SignIn, runs: RunStore, finished: Run
) -> None:
    own(finished, BEN, EVERYONE)
    offered = {}
    for user in (ADA, STUDENT):
        sign_in(user)
        app = open_page("embeddings", run=finished.id, **PCA)
        offered[user.name] = app.selectbox(key="embeddings.color").options
    assert set(offered[ADA.name]) - set(offered[STUDENT.name]) == {"Topic"}
    assert "Side" in offered[STUDENT.name]


def test_a_dataset_belongs_to_the_user_who_imported_it(sign_in: SignIn, runs: RunStore) -> None:
    keys = {}
    for user in (BEN, EVA):
        sign_in(user)
        path = uploads.save_file("pairs.tsv", PAIRS.encode())
        keys[user.name] = uploads.register(path.parent, "pairs", uploads.validate({"train": str(path)}))
        assert set(data_cache.datasets()) == {*data_cache.SAMPLES, keys[user.name]}
    assert keys["ben"] != keys["eva"]
    folder = runs.uploads_folder / keys["ben"]
    assert dataset_access(folder) == Access(owner="ben")
    with pytest.raises(InputError, match="does not exist"):
        data_cache.data_config(keys["ben"])
    write_dataset_access(folder, Access(owner="ben", shared_with=("eva",)))
    assert not data_cache.datasets()[keys["ben"]].may_change
    with pytest.raises(InputError, match="only the owner of this dataset"):
        uploads.save_filters(keys["ben"], ("short",))
    with pytest.raises(InputError, match="belongs to another user"):
        uploads.register(folder, "mine now", uploads.validate({"train": str(folder / "pairs.tsv")}))
    sign_in(ADA)
    assert set(keys.values()) <= set(data_cache.datasets())
    assert actions(runs) == ["upload", "upload"]


def test_a_member_launches_runs_with_their_own_decisions(sign_in: SignIn, runs: RunStore) -> None:
    sign_in(EVA)
    path = uploads.save_file("pairs.tsv", (PAIRS * 5).encode())
    key = uploads.register(path.parent, "pairs", uploads.validate({"train": str(path)}))
    write_dataset_access(path.parent, Access(owner="eva", shared_with=("ben",)))
    for user in (EVA, BEN):
        sign_in(user)
        for dataset in ("sample", key):
            atomic_write(data_cache.false_negatives_file(dataset), DECISIONS)
            data = data_cache.data_config(dataset)
            assert data.false_negatives
            uploads.check_decisions(data.false_negatives)
        other = runs.false_negatives_file(f"{'ben' if user is EVA else 'eva'}/sample")
        with pytest.raises(InputError, match=r"sample\.tsv is not shared with you"):
            uploads.check_decisions(str(other))


def test_each_user_has_separate_marks_and_filters_of_sample_data(sign_in: SignIn) -> None:
    files = {}
    for user in (ADA, BEN, EVA):
        sign_in(user)
        files[user.name] = (data_cache.false_negatives_file("sample"), data_cache.settings_file("sample"))
    assert len({path for pair in files.values() for path in pair}) == 6


@pytest.mark.parametrize("text", ["{", "[1]", '{"filters": 3}', "[" * 100_000])
def test_damaged_filters_of_sample_data_have_no_effect(sign_in: SignIn, text: str) -> None:
    sign_in(BEN)
    before = data_cache.data_config("sample")
    atomic_write(data_cache.settings_file("sample"), text)
    assert data_cache.data_config("sample") == before


def test_an_upload_with_too_many_cells_is_refused_and_removed(sign_in: SignIn, runs: RunStore) -> None:
    sign_in(BEN.model_copy(update={"quota": Quota(upload_cells=20)}))
    assert uploads.save_file("pairs.tsv", PAIRS.encode()).is_file()  # 6 rows of 2 columns
    with pytest.raises(InputError, match="more than 20 cells"):
        uploads.save_file("pairs.tsv.gz", gzip.compress(PAIRS.encode() + b"a\tb\n" * 100_000))
    assert [path.name for path in runs.uploads_folder.glob("*/pairs*")] == ["pairs.tsv"]


def test_columns_of_later_json_lines_count_as_cells(
    sign_in: SignIn, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "CELL_CHECK_ROWS", 100)
    sign_in(BEN.model_copy(update={"quota": BEN.quota.model_copy(update={"upload_cells": 50_000})}))
    rows = [{"query": "a", "document": "b"}] * 1_000
    assert uploads.save_file("pairs.jsonl", "\n".join(map(json.dumps, rows)).encode())
    rows.append({f"c{number}": "a" for number in range(900)})
    with pytest.raises(InputError, match="more than 50,000 cells"):
        uploads.save_file("more.jsonl", "\n".join(map(json.dumps, rows)).encode())


def test_a_file_uploaded_twice_at_the_same_time_is_stored_and_logged_once(
    sign_in: SignIn, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(BEN)
    barrier, paths, check = threading.Barrier(2), set(), uploads.check_content

    def check_both(name: str, content: bytes) -> None:
        check(name, content)
        barrier.wait()

    monkeypatch.setattr(uploads, "check_content", check_both)
    threads = [
        threading.Thread(target=lambda: paths.add(uploads.save_file("pairs.tsv", PAIRS.encode()))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_text(encoding="utf-8") for path in paths] == [PAIRS]
    assert actions(runs) == ["upload"]


def test_the_number_of_datasets_of_a_member_is_limited(sign_in: SignIn) -> None:
    sign_in(BEN.model_copy(update={"quota": Quota(datasets=2)}))
    paths = [uploads.save_file(f"{name}.tsv", PAIRS.encode()) for name in ("a", "b")]
    with pytest.raises(InputError, match="you have 2 datasets"):
        uploads.save_file("c.tsv", PAIRS.encode())
    uploads.register(paths[0].parent, "again", uploads.validate({"train": str(paths[0])}))


def test_a_dataset_is_read_again_only_after_it_changes(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(BEN)
    path = uploads.save_file("pairs.tsv", PAIRS.encode())
    key = uploads.register(path.parent, "first", uploads.validate({"train": str(path)}))
    assert data_cache.datasets()[key].label == "first"
    read = data_cache.read_regular

    def read_others(path: Path) -> bytes:
        assert path.name != "dataset.json", "read again"
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(data_cache, "read_regular", read_others)
        assert data_cache.datasets()[key].label == "first"
    uploads.register(path.parent, "second", uploads.validate({"train": str(path)}))
    assert data_cache.datasets()[key].label == "second"
    write_dataset_access(path.parent, Access(owner="eva"))
    assert key not in data_cache.datasets()


def test_an_upload_beyond_the_quota_is_refused(sign_in: SignIn, runs: RunStore) -> None:
    sign_in(BEN.model_copy(update={"quota": Quota(upload_mb=1e-5)}))
    with pytest.raises(InputError, match="you may upload 1e-05 MB"):
        uploads.save_file("pairs.tsv", PAIRS.encode())
    assert not runs.uploads_folder.exists() or not list(runs.uploads_folder.iterdir())
    sign_in(STUDENT)
    with pytest.raises(InputError, match="students cannot upload"):
        uploads.save_file("pairs.tsv", PAIRS.encode())


def test_a_preflight_has_at_most_as_many_threads_as_cores(
    sign_in: SignIn, runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users.os, "cpu_count", lambda: 4)
    for user, is_refused in ((BEN, True), (ADA, False)):
        sign_in(user)
        app = open_page("train", dataset="sample", **{"training.threads": "5"})
        assert ("machine has 4 processor cores" in page_text(app)) == is_refused
        assert any(label.startswith("Run a preflight") for label in buttons(app)) != is_refused


def test_a_run_without_a_number_of_threads_counts_with_all_cores(
    sign_in: SignIn, runs: RunStore, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users.os, "cpu_count", lambda: 4)
    own(finished, BEN)
    values = finished.config().model_dump(mode="json")
    finished.write_json("config", values | {"training": values["training"] | {"threads": None}})
    now = time.time()
    finished.update_status(started=now - 3600, finished=now)
    sign_in(BEN.model_copy(update={"quota": Quota(processor_hours=2)}))
    with pytest.raises(InputError, match=r"used 4\.0 of 2 processor hours"), users.admit_launch("other", 1, 1):
        pass
    sign_in(EVA)
    with (
        pytest.raises(InputError, match="machine has 4 processor cores"),
        users.admit_launch("other", 1, 5),
    ):
        pass


def test_the_owners_upload_never_gets_the_folder_of_other_content(sign_in: SignIn, runs: RunStore) -> None:
    content = {BEN: b"query\tdocument\nevil\t18529154\n", ADA: b"query\tdocument\npublic\tfile\n"}
    paths = []
    for user, text in content.items():  # the digests of these folders have the same first 6 digits
        sign_in(user)
        paths.append(uploads.save_file("pairs.tsv", text))
        assert paths[-1].read_bytes() == text
    assert paths[0].parent != paths[1].parent


def test_removing_a_run_from_the_queue_is_in_the_audit_log(sign_in: SignIn, runs: RunStore, trained: Run) -> None:
    run = jobs.launch(RunStore(runs.root), trained.config(), "run-of-eva", start=lambda store: None)
    own(run, EVA)
    sign_in(EVA)
    click(open_page("runs"), f"runs.queue.take-out.{run.id}")
    assert run.status().state == "stopped"
    assert actions(runs) == ["stop"]


def test_a_removed_user_saves_no_decisions_in_an_open_page(
    runs: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "current_user", lambda: pytest.fail("removed"))
    monkeypatch.setattr(triage.st, "session_state", {"key": {"decisions": {"0": "drop"}}})
    with pytest.raises(pytest.fail.Exception):
        triage._save("key", tmp_path / "decisions.tsv", [{"query": "a", "document": "b"}])
    assert not list(tmp_path.glob("*.tsv"))


def test_students_see_no_folders_in_errors(sign_in: SignIn, runs: RunStore) -> None:
    for user, path in ((BEN, "/srv/data/big.tsv"), (STUDENT, "big.tsv")):
        sign_in(user)
        app = AppTest.from_function(_draw_error)
        assert f"{path}: outside" in page_text(app.run())
        assert ("/srv" in page_text(app)) == (user is BEN)


def _draw_error() -> None:
    from pages.ui.components import display

    display.error_box("/srv/data/big.tsv: outside the folders that may be read")


def test_decisions_beyond_the_disk_quota_are_not_saved(
    sign_in: SignIn, runs: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"key": {"decisions": {"0": "drop"}}}
    monkeypatch.setattr(triage.st, "session_state", state)
    pairs = [{"query": "a", "document": "b" * 2_000}]
    sign_in(BEN.model_copy(update={"quota": Quota(disk_gb=1e-6)}))
    triage._save("key", tmp_path / "decisions.tsv", pairs)
    assert "of 1e-06 GB" in state[triage.ERROR]
    assert not list(tmp_path.glob("*.tsv"))
    sign_in(BEN)
    triage._save("key", tmp_path / "decisions.tsv", pairs)
    assert "\tdrop\t" in (tmp_path / "decisions.tsv").read_text()


def test_a_file_of_decisions_beyond_the_quota_is_refused(sign_in: SignIn, runs: RunStore) -> None:
    sign_in(BEN.model_copy(update={"quota": Quota(upload_mb=1)}))
    with pytest.raises(InputError, match="you may upload 1 MB"):
        triage._uploaded(SimpleNamespace(name="decisions.tsv", getvalue=lambda: bytes(2_000_000)))
    sign_in(BEN.model_copy(update={"quota": Quota(upload_cells=100)}))
    rows = b"query\tdocument\tdecision\n" + b"a\tb\tdrop\n" * 40
    with pytest.raises(InputError, match="more than 100 cells"):
        triage._uploaded(SimpleNamespace(name="decisions.tsv", getvalue=lambda: rows))


def test_only_the_owner_controls_the_queue(sign_in: SignIn, runs: RunStore, trained: Run) -> None:
    run = jobs.launch(RunStore(runs.root), trained.config(), "run-of-eva", start=lambda store: None)
    own(run, EVA)
    remove, up = f"runs.queue.take-out.{run.id}", f"runs.queue.up.{run.id}"
    for user, expected in ((ADA, {remove, up, "runs.queue.pause"}), (EVA, {remove}), (BEN, set())):
        sign_in(user)
        keys = {str(button.key) for button in open_page("runs").button}
        assert {remove, up, "runs.queue.pause"} & keys == expected
    assert len(queued_configs(runs)) == 1


def test_only_the_owner_reruns_findings(sign_in: SignIn) -> None:
    for user in (ADA, BEN):
        sign_in(user)
        app = open_page("findings", **{CLAIM: "margins"})
        assert any(str(button.key).startswith("findings.again") for button in app.button) == user.is_owner


def test_a_removed_user_sees_nothing(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, str(runs.root))
    app = open_page("runs")
    assert "no longer a user" in "".join(one.value for one in app.error)
    assert not app.dataframe
    assert not app.button


def test_a_very_long_encoder_name_is_refused(sign_in: SignIn) -> None:
    sign_in(BEN)
    with pytest.raises(InputError, match="only the owner"):
        users.check_encoder("a" * 300)


def test_an_open_page_is_not_continued_by_another_user(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ben", "eva"):
        add_user(runs.root, name, "member")
    monkeypatch.setenv(SHARED, str(runs.root))
    known = read_users(runs.root)
    headers = {USER_HEADER: known["ben"].signed_in_as}
    monkeypatch.setattr(type(st.context), "headers", property(lambda self: headers))
    app = open_page("runs")
    assert not app.error
    headers[USER_HEADER] = known["eva"].signed_in_as
    app.run()
    assert "no longer a user" in "".join(one.value for one in app.error)


def test_decisions_are_not_written_to_a_path_that_only_the_config_of_a_run_names(
    sign_in: SignIn, finished: Run, tmp_path: Path
) -> None:
    sign_in(ADA)
    path = tmp_path / "new" / "authorized_keys"
    data = finished.config().data.model_copy(update={"false_negatives": str(path)})
    finished.write_json("config", finished.config().model_copy(update={"data": data}).model_dump(mode="json"))
    assert decide.run_file(finished, "sample") is None
    atomic_write(path, DECISIONS)
    assert decide.run_file(finished, "sample") == path
