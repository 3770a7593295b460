"""Added pairs for natural language inference: what each entailed row is given, and under which class."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import NLIConfig
from bsc_core.data.nli import added_pairs, nli_rows
from bsc_core.data.pairs import PairDataset
from bsc_core.data.readers import read_pairs
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


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 2))
def test_each_entailed_row_gets_pairs_of_its_premise_first_and_then_of_others(seed, negatives):
    rows = random_rows(seed)
    dataset = dataset_of(rows)
    own, other = added_pairs(dataset, NLIConfig(augment=True, negatives=negatives, seed=seed))
    hypotheses = {name: {two for one, two, _ in rows if one == name} for name, _, _ in rows}
    for row, (premise, _, cls) in enumerate(rows):
        mine = [found for asked, found in zip(*own, strict=True) if asked == row]
        strange = [found for asked, found in zip(*other, strict=True) if asked == row]
        if cls:
            assert not mine
            assert not strange
            continue
        wanted = [place for place, (one, _, kind) in enumerate(rows) if one == premise and kind != 0]
        assert set(mine) <= set(wanted)
        assert len(mine) == len(set(mine)) == min(negatives, len(wanted))
        assert len(strange) == negatives - len(mine)
        assert all(rows[found][1] not in hypotheses[premise] for found in strange)
    pairs = [(rows[asked][0], rows[found][1]) for asked, found in zip(*other, strict=True)]
    assert len(pairs) == len(set(pairs))


def test_added_pairs_have_their_own_class_or_neutral_and_the_rows_stay_first():
    dataset = dataset_of(TINY)
    made, funnel = nli_rows(dataset, NLIConfig(augment=True, negatives=2))
    assert made.texts.take(made.query[: len(TINY)]) == [row[0] for row in TINY]
    assert made.classes[: len(TINY)].tolist() == [row[2] for row in TINY]
    known = {(one, two): cls for one, two, cls in TINY}
    for row in range(len(TINY), len(made)):
        pair = (made.texts[made.query[row]], made.texts[made.document[row]])
        assert made.classes[row] == known.get(pair, 1)
        assert made.label[row] == 0
    assert made.query_group[len(TINY) :].tolist() == [
        dict(zip("prs", range(3), strict=True))[made.texts[text]] for text in made.query[len(TINY) :]
    ]
    counts = {stage.name: stage.count for stage in funnel}
    assert counts == {
        "rows read": 7,
        "training rows": 7,
        "premises": 3,
        "anchors": 4,
        "added with a hypothesis of the premise": 4,
        "added with a hypothesis of another premise": 4,
        "rows with those added": 15,
    }


def test_hypotheses_of_a_premise_are_drawn_alike_often():
    rows = [("p", "e", 0), *(("p", f"n{number}", 1 + number % 2) for number in range(4))]
    tally = Counter(
        int(added_pairs(dataset_of(rows), NLIConfig(augment=True, seed=seed))[0][1][0]) for seed in range(2000)
    )
    assert set(tally) == {1, 2, 3, 4}
    assert all(abs(count - 500) < 100 for count in tally.values())


def test_the_same_seed_adds_the_same_pairs():
    dataset = dataset_of(random_rows(5))
    made = [nli_rows(dataset, NLIConfig(augment=True, negatives=2, seed=seed))[0] for seed in (1, 1, 2)]
    assert made[0].digest == made[1].digest != made[2].digest


def test_premises_with_one_text_are_one_premise_whatever_their_ids():
    dataset = PairDataset.from_pairs(
        ["p", "p", "q"], ["e", "c", "x"], classes=[0, 2, 1], query_ids=["first", "second", "third"]
    )
    own, other = added_pairs(dataset, NLIConfig(augment=True))
    assert (own[0].tolist(), own[1].tolist(), len(other[0])) == ([0], [1], 0)


def test_a_lone_premise_is_given_what_it_has():
    made, funnel = nli_rows(dataset_of([("p", "e", 0), ("p", "n", 1)]), NLIConfig(augment=True, negatives=3))
    assert len(made) == 3
    assert [stage.count for stage in funnel[-3:]] == [1, 0, 3]


def test_without_augmenting_the_rows_are_as_they_were_and_counted():
    dataset = dataset_of(TINY)
    made, funnel = nli_rows(dataset, NLIConfig())
    assert made is dataset
    assert [stage.sentence() for stage in funnel] == [
        "rows read: 7 (0 of the file's rows without a class were left out)",
        "training rows: 7 (entailment 4, neutral 2, contradiction 1)",
        "premises: 3 (2.3 rows each, at most 3)",
        "anchors: 4 (entailed rows, of 3 premises)",
    ]


@pytest.mark.parametrize("unlabelled", ["-", "-1", ""])
def test_rows_without_agreement_are_left_out_and_the_report_says_how_many(tmp_path, unlabelled):
    path = tmp_path / "nli.tsv"
    rows = ["premise\thypothesis\tgold_label", "p\te\tentailment", f"p\tx\t{unlabelled}", "q\tn\tneutral"]
    path.write_text("\n".join([*rows, f"q\ty\t{unlabelled}", "q\tz\tcontradiction"]) + "\n", encoding="utf-8")
    _, funnel = nli_rows(read_pairs(path), NLIConfig())
    assert funnel[0].sentence() == "rows read: 5 (2 of the file's rows without a class were left out)"
    assert funnel[1].count == 3


def test_rows_without_nli_classes_or_without_an_entailment_are_refused():
    with pytest.raises(DataError, match="needs the classes entailment, neutral, contradiction"):
        nli_rows(PairDataset.from_pairs(["p"], ["h"]), NLIConfig())
    with pytest.raises(DataError, match="needs the classes"):
        nli_rows(PairDataset.from_pairs(["p", "q"], ["h", "i"], classes=[0, 7]), NLIConfig())
    with pytest.raises(DataError, match="no row is an entailment"):
        nli_rows(PairDataset.from_pairs(["p"], ["h"], classes=[2]), NLIConfig())


def test_two_hypotheses_of_a_premise_do_not_always_get_the_same_one():
    rows = [("p", "e1", 0), ("p", "e2", 0), *(("p", f"n{number}", 1) for number in range(4))]
    drawn = [added_pairs(dataset_of(rows), NLIConfig(augment=True, seed=seed))[0][1].tolist() for seed in range(400)]
    assert 50 < sum(first == second for first, second in drawn) < 150
