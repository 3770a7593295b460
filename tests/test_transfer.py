"""Tests of the transfer evaluation of an encoder against its untrained baseline."""

import csv
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core.cli import main
from bsc_core.config import EncoderConfig, make_config
from bsc_core.data import TextTable
from bsc_core.encoders import embedding_cache, encode, tokenize
from bsc_core.encoders.layers import load_initial_encoder
from bsc_core.errors import ColumnError, DataError, PathError
from bsc_core.evaluation import combine, polarity_task, probe, read_probe_task, read_sts, sts_result, transfer
from bsc_core.neighbors import paired_cosines
from bsc_core.runs import RunStore

ENCODERS = (EncoderConfig(name="trained"), EncoderConfig(name="static"))
DIMENSIONS = 6


def write(path: Path, header: list[str], rows: list[tuple[object, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([header, *rows])
    return path


def vectors_of(name: str, texts: TextTable) -> np.ndarray:
    """Return vectors that separate `good` from `bad` strongly for the trained model, weakly for the other."""
    gain = 3.0 if name == "trained" else 0.3
    rows = [np.random.default_rng(sum(map(ord, text))).normal(size=DIMENSIONS) for text in texts.texts]
    result = np.asarray(rows, dtype=np.float32)
    result[:, 0] += [gain if "good" in text else -gain for text in texts.texts]
    return result


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transfer, embedding_cache):  # `embed_initial` calls the latter, except for random layers
        monkeypatch.setattr(module, "embed", lambda encoder, texts: vectors_of(encoder.name, texts))


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


def test_probes_of_both_encoders_are_reported_with_their_difference(folder: Path) -> None:
    result = transfer.probe_report(ENCODERS, folder)
    assert list(result["tasks"]) == ["CR", "TREC"]
    for name, reported in result["tasks"].items():
        task = read_probe_task(name, folder)
        after, before = (probe(task, vectors_of(one.name, task.texts), seed=transfer.SEED) for one in ENCODERS)
        assert (reported["value"], reported["untrained"]) == (after.accuracy, before.accuracy)
        assert reported["interval"][0] <= reported["value"] <= reported["interval"][1]
        assert float(reported["difference"].split()[0]) == pytest.approx(after.accuracy - before.accuracy, abs=1e-3)
    assert result["average"]["of"] == "CR, TREC"
    assert result["average"]["value"] == pytest.approx(np.mean([one["value"] for one in result["tasks"].values()]))
    assert result["average"]["value"] > result["average"]["untrained"] + 0.1


def test_similarity_is_evaluated_on_test_rows_with_neighbor_overlap(folder: Path) -> None:
    result = transfer.sts_report(ENCODERS, folder)["tasks"]["stsb"]
    task = read_sts(folder / "stsb", split="test")
    units = [vectors_of(one.name, task.texts) for one in ENCODERS]
    units = [own / np.linalg.norm(own, axis=1, keepdims=True) for own in units]
    expected = [sts_result((own[task.left] * own[task.right]).sum(axis=1), task).weighted for own in units]
    assert (result["value"], result["untrained"]) == pytest.approx(tuple(expected), abs=1e-6)
    assert result["pairs"] == 40
    assert result["difference"].endswith("better")
    assert 0 < result["space"]["neighbors_kept"] < 1
    assert result["space"]["anisotropy"] != result["space"]["anisotropy_untrained"]


def test_polarity_and_semantics_have_the_untrained_encoder_as_their_reference(folder: Path) -> None:
    result = transfer.polarity_report(ENCODERS, folder / "classes.tsv.gz", k=4)
    assert (result["queries"], result["queries_from"], result["pool"]) == (40, "test", 40)
    texts = TextTable(tuple(f"a {'good' if place % 2 else 'bad'} film, number {place}" for place in range(80)))
    after, before = (vectors_of(one.name, texts) for one in ENCODERS)
    labels = np.arange(80) % 2
    for weights in ("uniform", "linear"):
        task = polarity_task((before[40:], before[:40]), (labels[40:], labels[:40]), k=4, weights=weights)
        scores = task.evaluate(after[40:], after[:40])
        reported = result[weights]
        assert reported["polarity"]["value"] == pytest.approx(scores.polarity.mean())
        assert reported["semantic"]["untrained"] == pytest.approx(scores.reference_semantic.mean())
        assert reported["balance"]["value"] == pytest.approx(combine(scores).balance)
    assert result["uniform"]["polarity"]["difference"].endswith("better")


def test_classes_are_compared_without_spaces_and_sentences_without_one_are_left_out(
    folder: Path, tmp_path: Path
) -> None:
    rows = gzip.decompress((folder / "classes.tsv.gz").read_bytes()).decode().splitlines()
    spaced = [line.replace("\t1\t", "\t 1 \t") if number % 2 else line for number, line in enumerate(rows)]
    (tmp_path / "spaced.tsv").write_text("\n".join([*spaced, "a film\t\ttest", " \t1\ttest "]))
    expected = transfer.polarity_report(ENCODERS, folder / "classes.tsv.gz", k=4)
    assert transfer.polarity_report(ENCODERS, tmp_path / "spaced.tsv", k=4) == expected | {"left_out": 2}
    (tmp_path / "damaged.tsv").write_text("\n".join([*rows, "a film\t1"]))
    with pytest.raises(DataError, match="correct this row"):
        transfer.polarity_report(ENCODERS, tmp_path / "damaged.tsv", k=4)


def has_interval(report: dict[str, Any]) -> None:
    """Check that the value is in its interval and the difference has an interval and p."""
    low, high = report["interval"]
    assert low <= report["value"] <= high
    words = re.fullmatch(
        r"([+-]0\.\d{3}) \(95% interval \S+ to \S+, p [=<] [\d.]+, ([\d,]+) \w+\): .+", report["difference"]
    )
    assert words is not None
    assert float(words[1]) == pytest.approx(report["value"] - report["untrained"], abs=1e-3)


def test_averages_have_an_interval_and_their_difference_a_test(folder: Path) -> None:
    shutil.copytree(folder / "stsb", folder / "sts12")
    for result in (transfer.probe_report(ENCODERS, folder), transfer.sts_report(ENCODERS, folder)):
        average = result["average"]
        has_interval(average)
        widths = [one["interval"][1] - one["interval"][0] for one in result["tasks"].values()]
        width = average["interval"][1] - average["interval"][0]
        assert width < max(widths) or width == max(widths) == 0  # every row is right
        assert average["difference"].endswith("better")
        assert result["tasks"].keys() == set(average["of"].split(", "))


def test_data_sets_of_an_average_are_resampled_independently(folder: Path) -> None:
    """With equal resamples of two copies, their average would have the interval of each."""
    shutil.copytree(folder / "stsb", folder / "sts12")
    result = transfer.sts_report(ENCODERS, folder)
    (one, two), together = (task["interval"] for task in result["tasks"].values()), result["average"]["interval"]
    assert one != two
    assert together[1] - together[0] < 0.85 * (one[1] - one[0])


def test_the_shape_of_the_space_has_intervals_and_tests(folder: Path) -> None:
    space = transfer.sts_report(ENCODERS, folder)["tasks"]["stsb"]["space"]
    for name in ("uniformity", "anisotropy"):
        has_interval(
            {key: space[f"{name}_{key}"] for key in ("interval", "untrained", "difference")} | {"value": space[name]}
        )
    assert space["uniformity_difference"].endswith(("more even", "less even", "inconclusive"))


def test_the_balance_is_compared_with_that_of_the_untrained_encoder(folder: Path) -> None:
    result = transfer.polarity_report(ENCODERS, folder / "classes.tsv.gz", k=4)
    for weights in ("uniform", "linear"):
        has_interval(result[weights]["balance"])
    same = transfer.polarity_report((ENCODERS[0], ENCODERS[0]), folder / "classes.tsv.gz", k=4)
    assert same["uniform"]["balance"]["difference"].endswith("no test, 40 queries): inconclusive")


def test_an_undefined_balance_is_explained(folder: Path) -> None:
    rows = [(f"a good film, number {place}", 1, "train" if place < 20 else "test") for place in range(30)]
    file = write(folder / "one.tsv.gz", ["text", "label", "split"], rows)
    reported = transfer.polarity_report(ENCODERS, file, k=4)["uniform"]["balance"]
    assert reported["value"] is None
    assert reported["difference"].startswith("not defined: the pool is of one class")


def test_missing_files_and_unknown_tasks_are_refused(folder: Path) -> None:
    with pytest.raises(PathError, match="name the folder that contains senteval_mr"):
        transfer.probe_report(ENCODERS, folder / "stsb")
    with pytest.raises(PathError, match="name the folder that contains senteval_mpqa"):
        transfer.probe_report(ENCODERS, folder, tasks=["CR", "MPQA"])
    with pytest.raises(DataError, match="SST5 is not a task; choose some of MR"):
        transfer.probe_report(ENCODERS, folder, tasks=["SST5"])
    with pytest.raises(ColumnError, match="there is no column text, label"):
        transfer.polarity_report(ENCODERS, folder / "stsb" / "pairs.tsv.gz")
    with pytest.raises(DataError, match="column split has no rows of train, or none of test or dev; label"):
        transfer.polarity_report(ENCODERS, folder / "senteval_cr" / "sentences.tsv.gz")


def test_the_command_compares_with_the_given_baseline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "bundled", "--sts", str(folder), "--runs", str(folder / "runs")]
    assert main([*words, "--baseline", "static", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["model"], reported["untrained"], reported["average"]["of"]) == ("bundled", "static", "stsb")
    assert main(["evaluate", "static", "--probes", str(folder), "--tasks", "CR", "--runs", str(folder / "runs")]) == 0
    shown = capsys.readouterr().out
    assert "untrained: bundled" in shown
    assert "tasks.CR.difference: " in shown
    assert "average.of: CR\n" in shown


def test_the_baseline_of_a_run_has_the_random_layers_that_the_run_started_with(
    folder: Path, tiny_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"data": {"train": "pairs.tsv"}, "encoder": {"name": str(tiny_encoder), "reinit_layers": 1}}
    run = RunStore(tmp_path / "runs").create(make_config(values | {"training": {"seed": 3}}), "start")
    shutil.copytree(tiny_encoder, run.model_folder)
    run.update_status(state="done")
    assert main(["evaluate", "start", "--sts", str(folder), "--runs", str(tmp_path / "runs"), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["untrained"] == f"{tiny_encoder}, upper 1 layer re-initialized"

    task, start = read_sts(folder / "stsb" / "pairs.tsv.gz", split="test"), run.config().encoder
    model = load_initial_encoder(start, 3)
    expected = encode(model, tokenize(model, task.texts, start.max_seq_length))
    cosines = paired_cosines(expected[task.left], expected[task.right])
    assert reported["tasks"]["stsb"]["untrained"] == pytest.approx(sts_result(cosines, task).weighted, abs=1e-4)
