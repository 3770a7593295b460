"""Tests of the diagnosis: every check names its fault in a run with made-up vectors, and a clean run has no alarm."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core.batching import build_plan
from bsc_core.cli import main
from bsc_core.config import make_config
from bsc_core.diagnosis import Diagnosis, diagnose
from bsc_core.diagnosis.diagnose import CHECKS
from bsc_core.evaluation import Evaluator
from bsc_core.preparation.experiment import load_experiment
from bsc_core.run_results import save_results
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import BEST_EPOCH, GENERAL
from bsc_core.training.data import select_training_rows

WIDTH, TRAIN, DEV = 32, 96, 60
PREVIOUS = Path(__file__).parents[1] / "fixtures" / "previous_version"
TOPICS = np.random.default_rng(0).standard_normal((400, WIDTH))
Row = tuple[str, str] | tuple[str, str, float]
Vectors = Callable[[Sequence[str]], np.ndarray]


def vectors(noise: float, seed: int = 0) -> Vectors:
    """Vectors that follow the number in each text, the less so the more noise there is."""

    def of(texts: Sequence[str]) -> np.ndarray:
        topics = TOPICS[[int(text.split()[1]) for text in texts]]
        own = [np.random.default_rng(zlib.crc32(text.encode()) + seed).standard_normal(WIDTH) for text in texts]
        return np.asarray(topics + noise * np.stack(own), dtype=np.float32)

    return of


def pairs(first: int, count: int) -> list[Row]:
    return [(f"query {number} of many", f"document {number} that answers it") for number in range(first, first + count)]


def labeled(rows: Sequence[Row]) -> list[Row]:
    """Each pair with label 1, and its query with the next document with label 0."""
    others = [(row[0], following[1], 0.0) for row, following in zip(rows, [*rows[1:], rows[0]], strict=True)]
    return [one for row, other in zip(rows, others, strict=True) for one in ((*row[:2], 1.0), other)]


TRAIN_ROWS, DEV_ROWS = pairs(0, TRAIN), pairs(200, DEV)
START, BETTER = vectors(0.9), vectors(0.6)
LABELED = {"train": labeled(TRAIN_ROWS), "dev": labeled(DEV_ROWS)}


@pytest.fixture
def diagnosed(tmp_path: Path) -> Callable[..., Diagnosis]:
    """Function that diagnoses a run as the pipeline leaves it; by default a clean one."""

    def make(
        *,
        train: Sequence[Row] = TRAIN_ROWS,
        dev: Sequence[Row] = DEV_ROWS,
        before: Vectors = START,
        after: Vectors = BETTER,
        losses: Sequence[float | None] = (2.0, 1.8, 1.5, 1.2),
        add: Callable[[Run], object] = lambda run: None,
        **sections: dict[str, Any],
    ) -> Diagnosis:
        files = {}
        for split, rows in {"train": train, "dev": dev}.items():
            files[split] = str(tmp_path / f"{split}.tsv")
            lines = [("query", "document", "label")[: len(rows[0])], *rows]
            Path(files[split]).write_text("".join("\t".join(map(str, line)) + "\n" for line in lines), encoding="utf-8")
        values: dict[str, dict[str, Any]] = {
            "data": files,
            "encoder": {"name": "static"},
            "batching": {"strategy": "random"},
            "loss": {"name": "mnrl", "temperature": 0.2},
            "training": {"batch_size": 16, "epochs": 2},
        }
        config = make_config({**values, **sections, "data": files | sections.pop("data", {})})
        run = RunStore(tmp_path / "runs").create(config, "run")
        data = load_experiment(config.data)
        run.write_json("texts", {"digest": data.texts.digest, "count": len(data.texts)})
        evaluator = Evaluator(data, config.evaluation)
        for when, encode in (("before", before), ("after", after)):
            run.write_embeddings(when, encode(data.texts.texts))
            run.write_evaluation(when, evaluator.evaluate(encode(data.texts.texts)))
        run.update_status(metric_name=evaluator.main_metric(run.evaluation("after"))[0], state="done", epoch=2, step=4)
        save_results(run, data)
        rows = select_training_rows(config, data.train)
        run.plans_folder.mkdir()
        build_plan(config.batching, rows, np.array(run.embeddings("before")), seed=0, epoch=0).save(run.plan_file(1))
        for step, loss in enumerate(losses, start=1):
            epoch = 1 + 2 * (step - 1) // len(losses)
            run.append_metrics({"kind": "step", "step": step, "epoch": epoch, "loss": loss, "temperature": 0.01})
        add(run)
        return diagnose(run)

    return make


def codes(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings]


def test_a_clean_run_has_no_finding(diagnosed: Callable[..., Diagnosis]) -> None:
    diagnosis = diagnosed()
    assert codes(diagnosis) == []
    assert diagnosis.state == "better"
    assert "The run got better: MRR on dev" in diagnosis.verdict
    assert list(diagnosis.skipped) == ["prompts", "forgetting"]


@pytest.mark.parametrize("loss", ["mse", "contrastive", "cosent"])
def test_a_clean_run_with_labels_has_no_alarm(diagnosed: Callable[..., Diagnosis], loss: str) -> None:
    assert diagnosed(**LABELED, loss={"name": loss}).alarms == ()


SHUFFLED = [(row[0], TRAIN_ROWS[(number * 7 + 1) % TRAIN][1]) for number, row in enumerate(TRAIN_ROWS)]
REVERSED = [(row[0], row[1], 1 - row[2]) for row in LABELED["train"]]
COPIES = [(f"query {number} in form {form}", row[1]) for number, row in enumerate(TRAIN_ROWS[:12]) for form in range(8)]
SWAPPED = [(f"{row[1]} in many more words than a query has", row[0]) for row in TRAIN_ROWS]
LONG_DEV = [(row[0], f"{row[1]} in many more words than a query has") for row in DEV_ROWS]
ONE_NEGATIVE = [row for row in LABELED["train"] if row[2] == 1] + LABELED["train"][1:2]


def far(encode: Vectors) -> Vectors:
    """Vectors of training texts that are far from those of dev."""

    def of(texts: Sequence[str]) -> np.ndarray:
        is_train = np.array([int(text.split()[1]) < TRAIN for text in texts])
        return np.asarray(encode(texts) + 10 * np.eye(WIDTH)[np.where(is_train, 0, 1)], dtype=np.float32)

    return of


def collapsed(texts: Sequence[str]) -> np.ndarray:
    return np.asarray(0.1 * START(texts) + 1, dtype=np.float32)


def long_vectors(texts: Sequence[str]) -> np.ndarray:
    return np.asarray(vectors(0.9, seed=1)(texts) * np.linspace(1, 3, len(texts))[:, None], dtype=np.float32)


FAULTS: dict[str, dict[str, Any]] = {
    "leak": {"train": [*TRAIN_ROWS, *DEV_ROWS]},
    "loss_data": {"train": [(*row, 1.0) for row in TRAIN_ROWS], "dev": LABELED["dev"], "loss": {"name": "mse"}},
    "class_imbalance": {**LABELED, "train": ONE_NEGATIVE, "loss": {"name": "contrastive"}},
    "label_direction": {**LABELED, "train": REVERSED, "loss": {"name": "mse"}},
    "labels_random": {"train": SHUFFLED},
    "swapped_columns": {"train": SWAPPED, "dev": LONG_DEV},
    "truncation": {"encoder": {"name": "static", "max_seq_length": 3}},
    "false_negatives": {"train": COPIES},
    "temperature_low": {"loss": {"name": "mnrl", "temperature": 1e-4}},
    "temperature_high": {"loss": {"name": "mnrl", "temperature": 5.0}},
    "temperature_bound": {"loss": {"name": "mnrl", "temperature": 0.2, "learn_temperature": True}},
    "batch_small": {"training": {"batch_size": 2}},
    "learning_rate_high": {"losses": [1.0, 1.1] * 10 + [2.0, 3.0] * 10, "after": collapsed},
    "learning_rate_low": {"after": START},
    "normalization": {"loss": {"name": "bsc", "normalization": "none", "temperature": 20.0}, "after": long_vectors},
    "other_distribution": {"before": far(START), "after": far(vectors(0.9, seed=1))},
    "repeated_rows": {"train": TRAIN_ROWS[:30] * 2, "loss": {"name": "mnrl", "temperature": 0.2, "mask": "self"}},
    "highest_metric": {"before": vectors(0.1), "after": vectors(0.15, seed=1)},
    "noise": {"after": vectors(0.9, seed=1)},
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_is_named_first(diagnosed: Callable[..., Diagnosis], code: str) -> None:
    diagnosis = diagnosed(**FAULTS[code])
    assert codes(diagnosis)[0] == code
    first = diagnosis.findings[0]
    assert first.evidence
    assert first.title.endswith(".")
    assert first.suggestion.endswith(".")
    assert json.dumps(diagnosis.as_report())


def near_misses(encode: Vectors) -> Vectors:
    """Vectors that are equal for a query and its hard negative."""
    return lambda texts: encode([text.replace("near", "query").replace("miss", "of many") for text in texts])


@pytest.mark.parametrize(("after", "severity"), [(BETTER, "info"), (vectors(2.0), "warning")])
def test_hard_negatives_are_not_taken_for_reversed_labels(
    diagnosed: Callable[..., Diagnosis], after: Vectors, severity: str
) -> None:
    rows = [row for pair in TRAIN_ROWS for row in ((*pair[:2], 1.0), (pair[0], f"near {pair[0].split()[1]} miss", 0.0))]
    diagnosis = diagnosed(train=rows, before=near_misses(START), after=near_misses(after), loss={"name": "bsc"})
    (finding,) = [one for one in diagnosis.findings if one.code == "label_direction"]
    assert finding.severity == severity
    assert "meant to be hard" in finding.title


def test_noise_is_no_alarm(diagnosed: Callable[..., Diagnosis]) -> None:
    diagnosis = diagnosed(**FAULTS["noise"])
    assert (diagnosis.state, diagnosis.alarms) == ("noise", ())
    assert "within the noise of 60 dev queries" in diagnosis.findings[0].title


def test_a_metric_at_its_maximum_is_not_called_noise(diagnosed: Callable[..., Diagnosis]) -> None:
    diagnosis = diagnosed(**FAULTS["highest_metric"])
    assert codes(diagnosis) == ["highest_metric"]
    assert diagnosis.findings[0].title == "MRR on dev is 1.000 before training: it cannot increase."


def test_forgetting_is_named(diagnosed: Callable[..., Diagnosis]) -> None:
    def add(run: Run, after: float) -> None:
        run.write_evaluation(GENERAL, {"before": {"general_score": 0.6}, "after": {"general_score": after}})

    assert codes(diagnosed(add=lambda run: add(run, 0.5))) == ["forgetting"]


def add_falling_dev(run: Run) -> None:
    for epoch, value in ((1, 0.8), (2, 0.5)):
        run.write_evaluation(f"epoch-{epoch:03d}", {"dev": {"mrr": value}})
    run.write_json(BEST_EPOCH, {"epoch": 1, "value": 0.8})


def test_overfitting_is_named_if_dev_falls_while_the_loss_falls(diagnosed: Callable[..., Diagnosis]) -> None:
    assert codes(diagnosed(add=add_falling_dev)) == ["overfitting"]


def test_a_run_whose_loss_does_not_fall_is_not_overfitted(diagnosed: Callable[..., Diagnosis]) -> None:
    assert diagnosed(add=add_falling_dev, losses=(1.0, 1.0, 1.0, 1.0)).alarms == ()


def test_unused_prompts_are_named_unless_the_run_got_better(diagnosed: Callable[..., Diagnosis]) -> None:
    def add(run: Run) -> None:
        run.model_folder.mkdir()
        settings = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": None}
        (run.model_folder / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")

    [finding] = diagnosed(add=add).findings
    assert (finding.code, finding.severity) == ("prompts", "info")
    assert "the prompts query," in finding.title


def test_many_prompts_of_a_model_are_shortened(diagnosed: Callable[..., Diagnosis]) -> None:
    def add(run: Run) -> None:
        run.model_folder.mkdir()
        settings = {"prompts": {f"prompt{number}": "a" for number in range(1_000)}}
        (run.model_folder / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")

    [finding] = diagnosed(add=add).findings
    assert finding.evidence[0].value == 1_000
    assert len(finding.title) < 250


@pytest.mark.parametrize(
    ("rows", "expected"), [(16.0, ["mask", "learning_rate_low", "noise"]), (1.0, ["learning_rate_low", "noise"])]
)
def test_a_mask_that_removes_all_negatives_is_named_before_the_learning_rate(
    diagnosed: Callable[..., Diagnosis], rows: float, expected: list[str]
) -> None:
    def log(run: Run) -> None:
        lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
        lines = [line | {"loss_rows_without_negatives": rows} for line in lines]
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    masked = {"name": "bsc", "temperature": 0.2, "mask": "self", "mask_margin": 2.0}
    diagnosis = diagnosed(after=START, losses=(0.0,) * 4, loss=masked, add=log)
    assert codes(diagnosis) == expected
    if "mask" in expected:
        assert diagnosis.findings[0].title.startswith("The mask excludes all negatives of 100% of the rows")


def test_a_loss_that_is_not_finite_is_a_high_learning_rate(diagnosed: Callable[..., Diagnosis]) -> None:
    diagnosis = diagnosed(losses=(1.0, None))
    assert codes(diagnosis) == ["learning_rate_high"]
    assert diagnosis.findings[0].change["training.learning_rate"] <= 1e-3


def test_a_run_without_evidence_is_inconclusive(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create(make_config({"data": {"train": str(tmp_path / "missing.tsv")}}), "empty")
    diagnosis = diagnose(run)
    assert (diagnosis.state, diagnosis.findings) == ("unknown", ())
    assert set(diagnosis.skipped) <= set(CHECKS)
    assert "missing.tsv" in diagnosis.skipped["leaks"]


def test_a_damaged_file_skips_the_checks_that_need_it(diagnosed: Callable[..., Diagnosis]) -> None:
    diagnosis = diagnosed(add=lambda run: run.metrics_file.write_bytes(b"{\n"))
    assert "metrics.jsonl is damaged" in diagnosis.skipped["high learning rate"]
    assert diagnosis.state == "better"


def test_batches_without_negatives_skip_the_checks_of_negatives(diagnosed: Callable[..., Diagnosis]) -> None:
    diagnosis = diagnosed(train=[(f"query {number}", "document 1") for number in range(40)])
    assert diagnosis.skipped["temperature"] == "no query of the first batches has a negative"


@pytest.mark.parametrize("run_id", ["20261101-100000-finished-0001", "20261101-120000-stopped-bert-0003"])
def test_a_run_of_an_earlier_version_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    shutil.copytree(PREVIOUS, tmp_path / "previous")
    monkeypatch.chdir(tmp_path / "previous")
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path))
    diagnosis = diagnose(RunStore("runs").get(run_id))
    assert diagnosis.verdict
    assert "leaks" not in diagnosis.skipped


def test_the_command_reports_findings_in_order(
    diagnosed: Callable[..., Diagnosis], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosed(**FAULTS["leak"])
    assert main(["diagnose", "run", "--runs", str(tmp_path / "runs"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [finding["code"] for finding in report["findings"]] == ["leak"]
    assert report["findings"][0]["change"] == {"data.filters": ["drop_leaks"]}
    assert main(["diagnose", str(tmp_path / "runs" / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("The run got better: MRR on dev")
    assert lines[1].startswith("1. error: 100% of the positive dev pairs are also training rows")
    assert lines[-1].startswith("not checked: forgetting: ")


def test_the_command_refuses_an_unknown_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "missing", "--runs", str(tmp_path)]) == 2
    assert "missing" in capsys.readouterr().err
