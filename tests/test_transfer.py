"""What an encoder is worth beyond its own task, from files that these tests write."""

import csv
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core import transfer
from bsc_core.cli import main
from bsc_core.config import EncoderConfig
from bsc_core.data import TextTable
from bsc_core.errors import ColumnError, DataError, PathError
from bsc_core.evaluation import combine, polarity_task, probe, read_probe_task, read_sts, sts_result

ENCODERS = (EncoderConfig(name="trained"), EncoderConfig(name="static"))
DIMENSIONS = 6


def write(path: Path, header: list[str], rows: list[tuple[object, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([header, *rows])
    return path


def vectors_of(name: str, texts: TextTable) -> np.ndarray:
    """The trained model tells the word `good` from `bad`, the untrained one hardly."""
    gain = 3.0 if name == "trained" else 0.3
    rows = [np.random.default_rng(sum(map(ord, text))).normal(size=DIMENSIONS) for text in texts.texts]
    found = np.asarray(rows, dtype=np.float32)
    found[:, 0] += [gain if "good" in text else -gain for text in texts.texts]
    return found


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "embed", lambda encoder, texts: vectors_of(encoder.name, texts))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    words = [(f"a {'good' if place % 2 else 'bad'} film, number {place}", place % 2) for place in range(80)]
    parts = [("train" if place < 40 else "test") for place in range(80)]
    rows = [(*row, part) for row, part in zip(words, parts, strict=True)]
    write(tmp_path / "senteval_cr" / "sentences.tsv.gz", ["text", "label", "split"], [(*row, "all") for row in words])
    write(tmp_path / "senteval_trec" / "sentences.tsv.gz", ["text", "label", "split"], rows)
    write(tmp_path / "classes.tsv.gz", ["text", "label", "split"], rows)
    pairs = [
        (words[place][0], words[other][0], 5.0 * (words[place][1] == words[other][1]), parts[place])
        for place, other in ((one, (one * 7 + 3 + one % 2) % 80) for one in range(80))
    ]
    write(tmp_path / "stsb" / "pairs.tsv.gz", ["sentence1", "sentence2", "score", "split"], pairs)
    return tmp_path


def test_probes_are_those_of_both_encoders_with_the_difference_tested(folder: Path) -> None:
    found = transfer.probe_report(ENCODERS, folder)
    assert list(found["tasks"]) == ["CR", "TREC"]
    for name, told in found["tasks"].items():
        task = read_probe_task(name, folder)
        after, before = (probe(task, vectors_of(one.name, task.texts), seed=transfer.SEED) for one in ENCODERS)
        assert (told["value"], told["untrained"]) == (after.accuracy, before.accuracy)
        assert told["interval"][0] <= told["value"] <= told["interval"][1]
        assert float(told["difference"].split()[0]) == pytest.approx(after.accuracy - before.accuracy, abs=1e-3)
    assert found["average"]["of"] == "CR, TREC"
    assert found["average"]["value"] == pytest.approx(np.mean([one["value"] for one in found["tasks"].values()]))
    assert found["average"]["value"] > found["average"]["untrained"] + 0.1


def test_similarity_is_measured_on_test_rows_and_tells_which_neighbours_were_kept(folder: Path) -> None:
    found = transfer.sts_report(ENCODERS, folder)["tasks"]["stsb"]
    task = read_sts(folder / "stsb", split="test")
    units = [vectors_of(one.name, task.texts) for one in ENCODERS]
    units = [own / np.linalg.norm(own, axis=1, keepdims=True) for own in units]
    expected = [sts_result((own[task.left] * own[task.right]).sum(axis=1), task).weighted for own in units]
    assert (found["value"], found["untrained"]) == pytest.approx(tuple(expected), abs=1e-6)
    assert found["pairs"] == 40
    assert found["difference"].endswith("better")
    assert 0 < found["space"]["neighbours_kept"] < 1
    assert found["space"]["anisotropy"] != found["space"]["anisotropy_untrained"]


def test_polarity_and_semantics_have_the_untrained_encoder_as_their_reference(folder: Path) -> None:
    found = transfer.polarity_report(ENCODERS, folder / "classes.tsv.gz", k=4)
    assert (found["queries"], found["queries_from"], found["pool"]) == (40, "test", 40)
    texts = TextTable(tuple(f"a {'good' if place % 2 else 'bad'} film, number {place}" for place in range(80)))
    after, before = (vectors_of(one.name, texts) for one in ENCODERS)
    labels = np.arange(80) % 2
    for weights in ("uniform", "linear"):
        task = polarity_task((before[40:], before[:40]), (labels[40:], labels[:40]), k=4, weights=weights)
        scores = task.measure(after[40:], after[:40])
        told = found[weights]
        assert told["polarity"]["value"] == pytest.approx(scores.polarity.mean())
        assert told["semantic"]["untrained"] == pytest.approx(scores.reference_semantic.mean())
        assert told["balance"]["value"] == pytest.approx(combine(scores).balance)
    assert found["uniform"]["polarity"]["difference"].endswith("better")


def has_interval(told: dict[str, Any]) -> None:
    """Its value lies in its interval, and its difference is said with an interval and p."""
    low, high = told["interval"]
    assert low <= told["value"] <= high
    words = re.fullmatch(
        r"([+-]0\.\d{3}) \(95% interval \S+ to \S+, p [=<] [\d.]+, ([\d,]+) \w+\): .+", told["difference"]
    )
    assert words is not None
    assert float(words[1]) == pytest.approx(told["value"] - told["untrained"], abs=1e-3)


def test_averages_have_an_interval_and_their_difference_a_test(folder: Path) -> None:
    shutil.copytree(folder / "stsb", folder / "sts12")
    for found in (transfer.probe_report(ENCODERS, folder), transfer.sts_report(ENCODERS, folder)):
        average = found["average"]
        has_interval(average)
        widths = [one["interval"][1] - one["interval"][0] for one in found["tasks"].values()]
        assert average["interval"][1] - average["interval"][0] < max(widths)
        assert average["difference"].endswith("better")
        assert found["tasks"].keys() == set(average["of"].split(", "))


def test_data_sets_of_an_average_are_drawn_apart(folder: Path) -> None:
    """Two copies of one data set: drawn alike, their average would move as far as each of them."""
    shutil.copytree(folder / "stsb", folder / "sts12")
    found = transfer.sts_report(ENCODERS, folder)
    (one, two), together = (task["interval"] for task in found["tasks"].values()), found["average"]["interval"]
    assert one != two
    assert together[1] - together[0] < 0.85 * (one[1] - one[0])


def test_the_shape_of_the_space_has_intervals_and_tests(folder: Path) -> None:
    space = transfer.sts_report(ENCODERS, folder)["tasks"]["stsb"]["space"]
    for name in ("uniformity", "anisotropy"):
        has_interval(
            {key: space[f"{name}_{key}"] for key in ("interval", "untrained", "difference")} | {"value": space[name]}
        )
    assert space["uniformity_difference"].endswith(("more even", "less even", "cannot be told from chance"))


def test_the_balance_is_told_from_that_of_the_untrained_encoder(folder: Path) -> None:
    found = transfer.polarity_report(ENCODERS, folder / "classes.tsv.gz", k=4)
    for weights in ("uniform", "linear"):
        has_interval(found[weights]["balance"])
    same = transfer.polarity_report((ENCODERS[0], ENCODERS[0]), folder / "classes.tsv.gz", k=4)
    assert same["uniform"]["balance"]["difference"].endswith("no test, 40 queries): cannot be told from chance")


def test_a_balance_that_is_not_defined_says_why(folder: Path) -> None:
    rows = [(f"a good film, number {place}", 1, "train" if place < 20 else "test") for place in range(30)]
    file = write(folder / "one.tsv.gz", ["text", "label", "split"], rows)
    told = transfer.polarity_report(ENCODERS, file, k=4)["uniform"]["balance"]
    assert told["value"] is None
    assert told["difference"].startswith("not defined: the pool is of one class")


def test_what_is_not_there_is_refused_in_a_sentence(folder: Path) -> None:
    with pytest.raises(PathError, match="name the folder that holds senteval_mr"):
        transfer.probe_report(ENCODERS, folder / "stsb")
    with pytest.raises(PathError, match="name the folder that holds senteval_mpqa"):
        transfer.probe_report(ENCODERS, folder, tasks=["CR", "MPQA"])
    with pytest.raises(DataError, match="SST5 is no task; choose some of MR"):
        transfer.probe_report(ENCODERS, folder, tasks=["SST5"])
    with pytest.raises(ColumnError, match="there is no column text, label"):
        transfer.polarity_report(ENCODERS, folder / "stsb" / "pairs.tsv.gz")
    with pytest.raises(DataError, match="split must name sentences of train"):
        transfer.polarity_report(ENCODERS, folder / "senteval_cr" / "sentences.tsv.gz")


def test_the_command_sets_the_named_encoder_beside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "bundled", "--sts", str(folder), "--runs", str(folder / "runs")]
    assert main([*words, "--beside", "static", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["model"], told["untrained"], told["average"]["of"]) == ("bundled", "static", "stsb")
    assert main(["evaluate", "static", "--probes", str(folder), "--tasks", "CR", "--runs", str(folder / "runs")]) == 0
    shown = capsys.readouterr().out
    assert "untrained: bundled" in shown
    assert "tasks.CR.difference: " in shown
    assert "average.of: CR\n" in shown
