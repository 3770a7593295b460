"""Tampered run folders and checkpoints: each part has its stated outcome in limited memory, and no code is run."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.hostile.outcomes import ROOT, read_outcomes
from tests.hostile.test_files import MAX_BYTES, MAX_SECONDS
from tests.hostile.test_models import EXECUTED, RunsCode

READER = Path(__file__).with_name("read_runs.py")
SOURCE = ROOT / "tests" / "fixtures" / "previous_version" / "runs" / "20261101-100000-finished-0001"
CHECKPOINT = "checkpoints/step-000012"
AFTER, EPOCH, EPOCH_TEXTS = "embeddings_after.npy", "vectors/epoch-001.npy", "vectors/texts.npy"
GIGABYTES_100 = 100 * 10**9
LISTS_OF_FACTS = b'{"kind": "plan", "epoch": 1, "facts": {"a": []}}\n'

Change = Callable[[Path], object]


def write(name: str, data: bytes) -> Change:
    return lambda run: (run / name).write_bytes(data)


def replaced(name: str, create: Callable[[Path], object]) -> Change:
    """Remove a file and create something else in its place."""

    def change(run: Path) -> None:
        (run / name).unlink()
        create(run / name)

    return change


def link(name: str, target: str) -> Change:
    return replaced(name, lambda path: path.symlink_to(target))


def pipe(name: str) -> Change:
    return replaced(name, os.mkfifo)


def folder(name: str) -> Change:
    return replaced(name, Path.mkdir)


def endless(name: str) -> Change:
    """A sparse file: no bytes on the disk, 100 GB when it is read."""
    return replaced(name, lambda path: (path.touch(), os.truncate(path, GIGABYTES_100)))


def edit(name: str, **values: object) -> Change:
    def change(run: Path) -> None:
        content = json.loads((run / name).read_text(encoding="utf-8"))
        (run / name).write_text(json.dumps(content | values), encoding="utf-8")

    return change


def array(header: dict[str, Any]) -> Change:
    """An array of vectors whose header has other facts than its data."""

    def create(path: Path) -> None:
        with path.open("wb") as file:
            facts = {"descr": "<f4", "fortran_order": False, "shape": (1, 1)} | header
            np.lib.format.write_array_header_1_0(file, facts)
            file.write(bytes(8))

    return replaced("embeddings_after.npy", create)


def sparse(name: str, shape: tuple[int, ...]) -> Change:
    """An array of zeros of half-precision or short numbers that needs no space on the disk."""

    def create(path: Path) -> None:
        with path.open("wb") as file:
            kind = "<f2" if len(shape) == 2 else "<i2"
            np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
            file.truncate(file.tell() + 2 * math.prod(shape))

    return replaced(name, create)


def changed_array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda run: np.save(run / name, change(np.load(run / name)))


def objects(name: str) -> Change:
    """A pickle that runs code in an array, or in an archive of arrays."""

    def create(path: Path) -> None:
        code = np.array([RunsCode(path.parents[len(Path(name).parts)] / EXECUTED)], dtype=object)
        if path.suffix == ".npy":
            np.save(path, code, allow_pickle=True)
        else:
            np.savez(path, order=code, groups=code, keep_groups=code)

    return replaced(name, create)


def long_list(path: Path, size: int = 1_600_000_000) -> None:
    """A sparse archive whose list of entries has 1.6 GB."""
    with path.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(size + 4)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, size, 4, 0))


def zeros(path: Path) -> None:
    """A plan of 64 MB of zeros in 64 KB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("order.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (16_000_000,)})
        file.write(bytes(64_000_000))


def no_list_of_files(change: Change) -> Change:
    """Also remove the sizes and digests of the checkpoint's files, as in checkpoints of earlier versions."""

    def changed(run: Path) -> None:
        change(run)
        progress = json.loads((run / CHECKPOINT / "progress.json").read_text())
        progress.pop("files", None)
        (run / CHECKPOINT / "progress.json").write_text(json.dumps(progress))

    return changed


ZEROS = b"c__builtin__\nbytearray\nJ" + (2_000_000_000).to_bytes(4, "little") + b"\x85R"


def pickled_state(run: Path) -> None:
    (run / CHECKPOINT / "state.pt").write_bytes(pickle.dumps(RunsCode(run.parent / EXECUTED)))


def saved_code(run: Path) -> None:
    torch.save({"optimizer": RunsCode(run.parent / EXECUTED)}, run / CHECKPOINT / "state.pt")


def expanded_state(run: Path) -> None:
    """A state with a tensor that repeats one number."""
    torch.save({"memory": torch.zeros(1).expand(500_000_000)}, run / CHECKPOINT / "state.pt")


def state_of_zeros(run: Path) -> None:
    """A state with a constructor of 2.5 GB of zeros, which torch allows."""
    torch.save({"memory": None, "optimizer": "zeros"}, path := run / CHECKPOINT / "state.pt")
    with zipfile.ZipFile(path) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    name = next(name for name in content if name.endswith("data.pkl"))
    content[name] = pickle.dumps({"memory": None, "optimizer": 0}, protocol=2).replace(b"K\x00", ZEROS)
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in content.items():
            archive.writestr(entry, data)


def second_list(run: Path) -> None:
    """A state with two lists of entries: torch reads the first, of zeros, and `zipfile` the one before the end."""
    path = run / CHECKPOINT / "state.pt"
    torch.save({"memory": None}, path)
    usual = path.read_bytes()
    state_of_zeros(run)
    with zipfile.ZipFile(path) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    version = next(name for name in content if name.endswith("version"))
    content[version] += bytes(len(usual))  # so that no place in the second list becomes negative
    parts = [_archive(content)]
    with zipfile.ZipFile(io.BytesIO(usual)) as archive:
        parts.append(_archive({entry.filename: archive.read(entry) for entry in archive.infolist()}))
    (zeros, list_of_zeros), (data, entries) = parts
    assert len(entries) == len(list_of_zeros)
    moved, start = bytearray(entries), 0
    while start < len(entries):  # `zipfile` adds the distance of both lists to the place of each entry
        place = int.from_bytes(entries[start + 42 : start + 46], "little") + len(zeros) - len(data)
        moved[start + 42 : start + 46] = place.to_bytes(4, "little")
        start += 46 + sum(struct.unpack("<3H", entries[start + 28 : start + 34]))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, len(content), len(content), len(entries), len(zeros), 0)
    path.write_bytes(zeros + list_of_zeros + data + bytes(moved) + end)


def _archive(content: dict[str, bytes]) -> tuple[bytes, bytes]:
    """Return the data and the list of entries of an archive."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return file.getvalue()[: archive.start_dir], file.getvalue()[archive.start_dir : -22]


def zeros_before_the_archive(run: Path) -> None:
    """Two gigabytes of zeros in the earlier format of torch, which is read if the file does not begin as an archive."""
    path = run / CHECKPOINT / "state.pt"
    path.write_bytes(b"\x80\x02" + ZEROS + b"." + path.read_bytes())


def zeros_under_another_name(run: Path) -> None:
    """A state whose part with the structure has a name in capitals, which torch accepts."""
    state_of_zeros(run)
    path = run / CHECKPOINT / "state.pt"
    path.write_bytes(path.read_bytes().replace(b"data.pkl", b"Data.pkl"))


def state_in_itself(run: Path) -> None:
    """A state with a list that contains itself."""
    endless: list[object] = []
    endless.append(endless)
    torch.save({"memory": endless}, run / CHECKPOINT / "state.pt")


def changed_plan(**texts: str) -> Change:
    def change(run: Path) -> None:
        path = run / "plans" / "epoch-001.npz"
        with np.load(path) as arrays:
            stored = dict(arrays)
        np.savez(path, **stored | {name: np.array(text) for name, text in texts.items()})

    return change


def second_structure(run: Path) -> None:
    """A state with a second data.pkl in another folder."""
    path = run / CHECKPOINT / "state.pt"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", pickle.dumps({}, protocol=2))


def many_tensors(run: Path) -> None:
    """A state of 100,000 tensors with the same number."""
    number = torch.zeros(1)
    torch.save({"memory": [number[:] for _ in range(100_000)]}, run / CHECKPOINT / "state.pt")


def deflated_state(run: Path) -> None:
    """A state of 512 MB of zeros in half a megabyte."""
    path = run / CHECKPOINT / "state.pt"
    torch.save({"memory": torch.zeros(128_000_000)}, path)
    with zipfile.ZipFile(path) as stored, zipfile.ZipFile(run / "small", "w", zipfile.ZIP_DEFLATED) as small:
        for entry in stored.infolist():
            small.writestr(entry.filename, stored.read(entry))
    (run / "small").rename(path)


NESTED = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
MANY_VALUES = b'{"kind": "step", "step": 1' + b"".join(b', "%d": 1' % number for number in range(85_000)) + b"}\n"
UNREADABLE = "none of its 1 checkpoint(s) can be read"
CASES: dict[str, tuple[Change, str, str]] = {
    # what is changed, the part that is read, and its outcome
    "unchanged": (lambda run: None, "status", "read: done"),
    "unchanged-plan": (lambda run: None, "plan", "read: 49"),
    "unchanged-checkpoint": (lambda run: None, "checkpoint", "read: 12"),
    "status-pipe": (pipe("status.json"), "status", "not a regular file"),
    "status-folder": (folder("status.json"), "status", "not a regular file"),
    "status-device": (link("status.json", "/dev/zero"), "status", "not a regular file"),
    "status-loop": (link("status.json", "status.json"), "status", "cannot be read"),
    "texts-loop": (link("texts.json", "texts.json"), "vectors", "a path outside its folder"),
    "status-outside": (link("status.json", "/etc/passwd"), "status", "cannot be read"),
    "status-endless": (endless("status.json"), "status", "more than 1 MiB"),
    "status-nested": (write("status.json", NESTED), "status", "cannot be read"),
    "status-brackets": (write("status.json", b"[[" + b"[]," * 10_000_000 + b"1]]"), "status", "more than 1 MiB"),
    "status-state": (edit("status.json", state="finished"), "status", "cannot be read"),
    "status-number": (edit("status.json", created="now"), "status", "cannot be read"),
    "status-markup": (edit("status.json", message="<script>alert(1)</script>"), "status", "read: done"),
    "config-pipe": (pipe("config.json"), "listed", "False"),
    "config-device": (link("config.json", "/dev/zero"), "listed", "False"),
    "config-outside": (link("config.json", "/etc/passwd"), "config", "a path outside its folder"),
    "config-endless": (endless("config.json"), "config", "more than 1 MiB"),
    "config-nested": (write("config.json", NESTED), "config", "is damaged"),
    "config-key": (edit("config.json", code="import os"), "config", "code"),
    "config-utf16": (write("config.json", '{"data": {}}'.encode("utf-16")), "config", "is damaged"),
    "metrics-pipe": (pipe("metrics.jsonl"), "metrics", "not a regular file"),
    "metrics-device": (link("metrics.jsonl", "/dev/zero"), "metrics", "metrics.jsonl is a link"),
    "metrics-endless": (endless("metrics.jsonl"), "metrics", "more than 512 MiB"),
    "metrics-zeros": (write("metrics.jsonl", bytes(1000) + b"\n"), "metrics", "is damaged"),
    "metrics-kind": (write("metrics.jsonl", b'{"kind": "step"}\n'), "metrics", "has no step"),
    "metrics-negative": (write("metrics.jsonl", b'{"kind": "step", "step": -1}\n'), "metrics", "is damaged"),
    "metrics-empty-lines": (
        write("metrics.jsonl", b"{}\n" * 3_000_000),
        "metrics",
        "more than a run writes",
    ),
    "metrics-many-values": (write("metrics.jsonl", MANY_VALUES * 100), "metrics", "more than a run writes"),
    "metrics-long-line": (write("metrics.jsonl", b'"' + bytes(3_000_000)), "metrics", "more than a run writes"),
    "metrics-large-lines": (
        write("metrics.jsonl", (b'{"kind": "epoch", "text": "' + b"x" * 990_000 + b'"}\n') * 70),
        "metrics",
        "more than a run writes",
    ),
    "metrics-long-names": (
        write("metrics.jsonl", ('{"kind": "step", "step": 1, "\U0001f600' + "x" * 900_000 + '": 1}\n').encode() * 80),
        "metrics",
        "more than a run writes",
    ),
    "metrics-many-values-of-plans": (
        write("metrics.jsonl", MANY_VALUES.replace(b"step", b"plan", 1).replace(b"}", b', "epoch": 1}') * 7),
        "metrics",
        "more than a run writes",
    ),
    "metrics-many-names": (
        write("metrics.jsonl", b"".join(b'{"kind": "step", "step": 1, "%d": 1}\n' % number for number in range(300))),
        "metrics",
        "metrics.jsonl is damaged",
    ),
    "log-pipe": (lambda run: os.mkfifo(run / "log.txt"), "log", "read: 0 lines"),
    "log-device": (lambda run: (run / "log.txt").symlink_to("/dev/zero"), "log", "read: 0 lines"),
    "log-binary": (write("log.txt", bytes(range(256)) * 100), "log", "read: 50 lines"),
    "result-pipe": (pipe("result.json"), "result", "not a regular file"),
    "result-list": (write("result.json", b"[1]"), "result", "is damaged"),
    "after-device": (link("evaluation/after.json", "/dev/urandom"), "after", "a path outside its folder"),
    "after-many-metrics": (
        edit("evaluation/after.json", dev={f"ndcg@{number}": 1.0 for number in range(501)}),
        "after",
        "is damaged",
    ),
    "group-many-settings": (
        write("group.json", json.dumps({"setting": {f"loss.a{number}": 0 for number in range(101)}}).encode()),
        "group",
        "is damaged",
    ),
    "group-huge-number": (
        write("group.json", json.dumps({"setting": {"data.columns": [{"weight": 10**400}]}}).encode()),
        "group",
        "is damaged",
    ),
    "group-long-setting": (
        write("group.json", json.dumps({"setting": {"loss.name": "x" * 20_000}}).encode()),
        "group",
        "is damaged",
    ),
    "after-texts": (write("evaluation/after.json", b'{"dev": {"mrr": "high"}}'), "after", "is damaged"),
    "vectors-pipe": (pipe("embeddings_after.npy"), "vectors", "is damaged"),
    "vectors-device": (link("embeddings_after.npy", "/dev/zero"), "vectors", "a path outside its folder"),
    "vectors-code": (objects("embeddings_after.npy"), "vectors", "is damaged"),
    "vectors-huge": (array({"shape": (10**12, 384)}), "vectors", "is damaged"),
    "vectors-negative": (array({"shape": (-1, 4)}), "vectors", "is damaged"),
    "vectors-type": (array({"descr": "|O"}), "vectors", "is damaged"),
    "vectors-expression": (
        write("embeddings_after.npy", b"\x93NUMPY\x01\x00\x20\x00__import__('os').getcwd() ######\n"),
        "vectors",
        "is damaged",
    ),
    "vectors-of-fewer-texts": (changed_array(AFTER, lambda vectors: vectors[:9]), "vectors", "is damaged"),
    "vectors-in-one-row": (changed_array(AFTER, np.ravel), "vectors", "is damaged"),
    "vectors-of-integers": (changed_array(AFTER, lambda vectors: vectors.astype(int)), "vectors", "is damaged"),
    "vectors-of-wide-numbers": (changed_array(AFTER, lambda v: v.astype(np.longdouble)), "vectors", "is damaged"),
    "vectors-in-another-byte-order": (changed_array(AFTER, lambda v: v.astype(">f4")), "vectors", "is damaged"),
    "vectors-without-numbers": (changed_array(AFTER, lambda vectors: vectors * np.nan), "vectors", "is not finite"),
    "vectors-of-no-dimension": (changed_array(AFTER, lambda vectors: vectors[:, :0]), "vectors", "is damaged"),
    "vectors-of-a-huge-dimension": (sparse(AFTER, (1, 20 * 10**9)), "vectors", "is damaged"),
    "epoch-texts-huge": (sparse(EPOCH_TEXTS, (5 * 10**9,)), "epochs", "is damaged"),
    "config-errors": (edit("config.json", batching={"stop_words": [1] * 500_000}), "config", "more than 1 MiB"),
    "epoch-of-fewer-texts": (changed_array(EPOCH, lambda vectors: vectors[:1]), "epochs", "is damaged"),
    "epoch-texts-twice": (changed_array(EPOCH_TEXTS, np.zeros_like), "epochs", "is damaged"),
    "epoch-texts-unknown": (changed_array(EPOCH_TEXTS, lambda ids: ids + 200), "epochs", "is damaged"),
    "vectors-cut": (write("embeddings_after.npy", b"\x93NUMPY"), "vectors", "is damaged"),
    "vectors-archive": (replaced(AFTER, long_list), "vectors", "is damaged"),
    "plan-archive": (replaced("plans/epoch-001.npz", long_list), "plan", "too many entries"),
    "checkpoint-archive": (
        no_list_of_files(replaced(f"{CHECKPOINT}/state.pt", partial(long_list, size=400_000_000))),
        "checkpoint",
        UNREADABLE,
    ),
    "plan-pipe": (pipe("plans/epoch-001.npz"), "plan", "no such batch plan"),
    "plan-code": (objects("plans/epoch-001.npz"), "plan", "not a batch plan"),
    "plan-zeros": (replaced("plans/epoch-001.npz", zeros), "plan", "more than 50 times its size"),
    "plan-text": (write("plans/epoch-001.npz", b"order"), "plan", "not a batch plan"),
    "plan-other": (
        replaced("plans/epoch-001.npz", lambda path: np.savez(path, order=np.zeros((2, 2)))),
        "plan",
        "not a batch plan",
    ),
    "access-pipe": (lambda run: os.mkfifo(run / "access.json"), "access", "read: owner=None shared_with=()"),
    "access-everyone": (
        write("access.json", b'{"owner": ["ben"], "shared_with": "*"}'),
        "access",
        "read: owner=None shared_with=()",
    ),
    "access-outside": (
        lambda run: (run / "access.json").symlink_to("/etc/passwd"),
        "access",
        "read: owner=None shared_with=()",
    ),
    "checkpoint-code": (pickled_state, "checkpoint", UNREADABLE),
    "checkpoint-unlisted-code": (no_list_of_files(pickled_state), "checkpoint", UNREADABLE),
    "checkpoint-saved-code": (no_list_of_files(saved_code), "checkpoint", UNREADABLE),
    "checkpoint-expanded": (no_list_of_files(expanded_state), "checkpoint", UNREADABLE),
    "checkpoint-of-zeros": (no_list_of_files(state_of_zeros), "checkpoint", UNREADABLE),
    "checkpoint-in-itself": (no_list_of_files(state_in_itself), "checkpoint", UNREADABLE),
    "plan-order-text": (changed_plan(batch_order="[" + "[]," * 400_000 + "[]]"), "plan", "not a batch plan"),
    "metrics-facts": (
        write("metrics.jsonl", b'{"kind": "plan", "epoch": 1, "facts": {"a": []}}\n'),
        "metrics",
        "damaged",
    ),
    "checkpoint-step-text": (edit(f"{CHECKPOINT}/progress.json", step="7"), "checkpoint", UNREADABLE),
    "resuming-epoch-text": (edit(f"{CHECKPOINT}/progress.json", epoch="x"), "resuming", "none of its checkpoints"),
    "plan-facts": (changed_plan(facts='{"a": [1]}'), "plan", "not a batch plan"),
    "plan-huge-fact": (changed_plan(facts='{"a": 1' + "0" * 400 + "}"), "plan", "not a batch plan"),
    "checkpoint-zeros": (no_list_of_files(deflated_state), "checkpoint", UNREADABLE),
    "checkpoint-two-lists": (no_list_of_files(second_list), "checkpoint", UNREADABLE),
    "checkpoint-two-formats": (no_list_of_files(zeros_before_the_archive), "checkpoint", UNREADABLE),
    "checkpoint-capitals": (no_list_of_files(zeros_under_another_name), "checkpoint", UNREADABLE),
    "checkpoint-structures": (no_list_of_files(second_structure), "checkpoint", UNREADABLE),
    "checkpoint-many-tensors": (no_list_of_files(many_tensors), "checkpoint", UNREADABLE),
    "after-many-splits": (
        write("evaluation/after.json", json.dumps({f"s{number}": {"mrr": 0.5} for number in range(600)}).encode()),
        "after",
        "is damaged",
    ),
    "checkpoint-pipe": (pipe(f"{CHECKPOINT}/state.pt"), "checkpoint", UNREADABLE),
    "checkpoint-unlisted-pipe": (no_list_of_files(pipe(f"{CHECKPOINT}/state.pt")), "checkpoint", UNREADABLE),
    "checkpoint-device": (link(f"{CHECKPOINT}/state.pt", "/dev/zero"), "checkpoint", UNREADABLE),
    "checkpoint-weights": (write(f"{CHECKPOINT}/model/model.safetensors", bytes(100)), "checkpoint", UNREADABLE),
    "checkpoint-nested": (write(f"{CHECKPOINT}/progress.json", NESTED), "checkpoint", UNREADABLE),
    "checkpoint-list": (write(f"{CHECKPOINT}/progress.json", b"[]"), "checkpoint", UNREADABLE),
    "checkpoint-endless": (endless(f"{CHECKPOINT}/progress.json"), "checkpoint", UNREADABLE),
    "checkpoint-outside": (
        edit(f"{CHECKPOINT}/progress.json", files={"../../../../etc/passwd": {"bytes": 1, "sha256": ""}}),
        "checkpoint",
        UNREADABLE,
    ),
    "resuming-nested": (write(f"{CHECKPOINT}/progress.json", NESTED), "resuming", "none of its checkpoints"),
    "resuming-endless": (endless(f"{CHECKPOINT}/progress.json"), "resuming", "none of its checkpoints"),
    "negatives-pipe": (lambda run: os.mkfifo(run / "plans/negatives-001.npy"), "negatives", "is damaged"),
    "negatives-text": (write("plans/negatives-001.npy", b"text"), "negatives", "is damaged"),
    "negatives-square": (
        lambda run: np.save(run / "plans/negatives-001.npy", np.zeros((2, 2), dtype=np.int32)),
        "negatives",
        "is damaged",
    ),
    "negatives-name": (write("plans/negatives-x.npy", b"text"), "negatives", "read: None"),
    "checkpoint-progress-pipe": (pipe(f"{CHECKPOINT}/progress.json"), "checkpoint", "read: None"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of every case, read in one separate process."""
    root = tmp_path_factory.mktemp("runs")
    for name, (change, _, _) in CASES.items():
        shutil.copytree(SOURCE, root / name)
        change(root / name)
    return read_outcomes(READER, root) | {"executed": list(root.rglob(EXECUTED))}


@pytest.mark.parametrize("name", CASES)
def test_a_tampered_run_has_its_stated_outcome(report: dict[str, Any], name: str) -> None:
    _, part, expected = CASES[name]
    outcomes = report["outcomes"][name]
    assert outcomes[part] == expected if expected.startswith("read: ") else expected in outcomes[part]
    for outcome in outcomes.values():  # the other parts are read or refused in a sentence
        assert "Traceback" not in outcome
        assert "\n" not in outcome


def test_no_run_needs_a_gibibyte_or_ten_seconds_or_executes_code(report: dict[str, Any]) -> None:
    assert report["bytes"] < MAX_BYTES, report["log"]
    assert max(report["seconds"].values()) < MAX_SECONDS, report["seconds"]
    assert report["executed"] == []
