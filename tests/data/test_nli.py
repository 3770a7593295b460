"""Added pairs for natural language inference: their premises, hypotheses and classes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import NLIConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.data.generation.nli import added_pairs, nli_rows
from bsc_core.data.io.read_pairs import read_pairs
from bsc_core.errors import DataError

TINY = [("p", "e1", 0), ("p", "n1", 1), ("p", "c1", 2), ("r", "e2", 0), ("s", "n2", 1), ("s", "e3", 0), ("s", "e4", 0)]


def dataset_of(rows):
    premises, hypotheses, classes = zip(*rows, strict=True)
    return PairDataset.from_pairs(premises, hypotheses, [float(one == 0) for one in classes], classes=classes)


def random_rows(seed, premises=8, rows=30):
    generator = np.random.default_rng(seed)
    return [
        (f"p{generator.integers(premises)}", f"h{generator.integers(3 * rows)}", int(generator.integers(3)))
        for _ in range(rows)
    ]


@settings(max_examples=150)
@given(st.integers(0, 10**6), st.integers(1, 2))
def test_each_entailed_row_gets_pairs_of_its_premise_first_and_then_of_others(seed, negatives):
    rows = random_rows(seed)
    dataset = dataset_of(rows)
    inside, across = added_pairs(dataset, NLIConfig(augment=True, negatives=negatives, seed=seed))
    hypotheses = {name: {two for one, two, _ in rows if one == name} for name, _, _ in rows}
    for row, (premise, _, cls) in enumerate(rows):
        within = [result for anchor, result in zip(*inside, strict=True) if anchor == row]
        others = [result for anchor, result in zip(*across, strict=True) if anchor == row]
        if cls:
            assert not within
            assert not others
            continue
        wanted = [index for index, (one, _, kind) in enumerate(rows) if one == premise and kind != 0]
        assert set(within) <= set(wanted)
        assert len(within) == len(set(within)) == min(negatives, len(wanted))
        assert len(others) == negatives - len(within)
        assert all(rows[result][1] not in hypotheses[premise] for result in others)
    pairs = [(rows[anchor][0], rows[result][1]) for anchor, result in zip(*across, strict=True)]
    assert len(pairs) == len(set(pairs))


def test_added_pairs_have_their_class_or_neutral_and_follow_the_rows():
    dataset = dataset_of(TINY)
    result, funnel = nli_rows(dataset, NLIConfig(augment=True, negatives=2))
    assert result.texts.take(result.query[: len(TINY)]) == [row[0] for row in TINY]
    assert result.classes[: len(TINY)].tolist() == [row[2] for row in TINY]
    known = {(one, two): cls for one, two, cls in TINY}
    for row in range(len(TINY), len(result)):
        pair = (result.texts[result.query[row]], result.texts[result.document[row]])
        assert result.classes[row] == known.get(pair, 1)
        assert result.label[row] == 0
    assert result.query_group[len(TINY) :].tolist() == [
        dict(zip("prs", range(3), strict=True))[result.texts[text]] for text in result.query[len(TINY) :]
    ]
    counts = {stage.name: stage.count for stage in funnel}
    assert counts == {
        "rows read": 7,
        "training rows": 7,
        "premises": 3,
        "anchors": 4,
        "added with a hypothesis of the premise": 4,
        "added with a hypothesis of another premise": 4,
        "rows with added pairs": 15,
    }


def test_hypotheses_of_a_premise_are_sampled_uniformly():
    rows = [("p", "e", 0), *(("p", f"n{number}", 1 + number % 2) for number in range(4))]
    counts = Counter(
        int(added_pairs(dataset_of(rows), NLIConfig(augment=True, seed=seed))[0][1][0]) for seed in range(2000)
    )
    assert set(counts) == {1, 2, 3, 4}
    assert all(abs(count - 500) < 100 for count in counts.values())


def test_the_same_seed_adds_the_same_pairs():
    dataset = dataset_of(random_rows(5))
    result = [nli_rows(dataset, NLIConfig(augment=True, negatives=2, seed=seed))[0] for seed in (1, 1, 2)]
    assert result[0].digest == result[1].digest != result[2].digest


def test_premises_with_one_text_are_one_premise_despite_different_ids():
    dataset = PairDataset.from_pairs(
        ["p", "p", "q"], ["e", "c", "x"], classes=[0, 2, 1], query_ids=["first", "second", "third"]
    )
    inside, across = added_pairs(dataset, NLIConfig(augment=True))
    assert (inside[0].tolist(), inside[1].tolist(), len(across[0])) == ([0], [1], 0)


def test_a_single_premise_gets_its_own_hypotheses():
    result, funnel = nli_rows(dataset_of([("p", "e", 0), ("p", "n", 1)]), NLIConfig(augment=True, negatives=3))
    assert len(result) == 3
    assert [stage.count for stage in funnel[-3:]] == [1, 0, 3]


def test_without_augmentation_the_rows_are_unchanged_and_counted():
    dataset = dataset_of(TINY)
    result, funnel = nli_rows(dataset, NLIConfig())
    assert result is dataset
    assert [stage.sentence() for stage in funnel] == [
        "rows read: 7 (0 of the file's rows have no class and were left out)",
        "training rows: 7 (entailment 4, neutral 2, contradiction 1)",
        "premises: 3 (2.3 rows each, at most 3)",
        "anchors: 4 (entailed rows, of 3 premises)",
    ]


@pytest.mark.parametrize("unlabeled", ["-", "-1", ""])
def test_rows_without_a_majority_label_are_rejected_and_counted(tmp_path, unlabeled):
    path = tmp_path / "nli.tsv"
    rows = ["premise\thypothesis\tgold_label", "p\te\tentailment", f"p\tx\t{unlabeled}", "q\tn\tneutral"]
    path.write_text("\n".join([*rows, f"q\ty\t{unlabeled}", "q\tz\tcontradiction"]) + "\n", encoding="utf-8")
    _, funnel = nli_rows(read_pairs(path), NLIConfig())
    assert funnel[0].sentence() == "rows read: 5 (2 of the file's rows have no class and were left out)"
    assert funnel[1].count == 3


def test_rows_without_nli_classes_or_without_an_entailment_are_refused():
    with pytest.raises(DataError, match="needs the classes entailment, neutral, contradiction"):
        nli_rows(PairDataset.from_pairs(["p"], ["h"]), NLIConfig())
    with pytest.raises(DataError, match="needs the classes"):
        nli_rows(PairDataset.from_pairs(["p", "q"], ["h", "i"], classes=[0, 7]), NLIConfig())
    with pytest.raises(DataError, match="no row is an entailment"):
        nli_rows(PairDataset.from_pairs(["p"], ["h"], classes=[2]), NLIConfig())


def test_two_hypotheses_of_a_premise_can_get_different_pairs():
    rows = [("p", "e1", 0), ("p", "e2", 0), *(("p", f"n{number}", 1) for number in range(4))]
    pairs_by_seed = [
        added_pairs(dataset_of(rows), NLIConfig(augment=True, seed=seed))[0][1].tolist() for seed in range(400)
    ]
    assert 50 < sum(first == second for first, second in pairs_by_seed) < 150
