"""What the hardness of a batch counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.training.hardness import MOST_ROWS, batch_hardness


def slow(queries, documents, query_ids, document_ids, positive) -> float | None:
    """The definition, cell by cell."""
    gaps = []
    for i in range(len(queries)):
        if not positive[i]:
            continue
        cosine = [float(torch.cosine_similarity(queries[i], other, dim=0)) for other in documents]
        wrong = [
            cosine[j]
            for j in range(len(documents))
            if document_ids[j] != document_ids[i]
            and not (j < len(queries) and query_ids[j] == query_ids[i] and positive[j])
        ]
        if wrong:
            gaps.append(max(wrong) - cosine[i])
    return sum(gaps) / len(gaps) if gaps else None


@given(seed=st.integers(0, 10**6), pairs=st.integers(1, 8), extra=st.integers(0, 4), texts=st.integers(1, 6))
def test_hardness_is_the_gap_to_the_nearest_wrong_document(seed, pairs, extra, texts):
    chooser = np.random.default_rng(seed)
    vectors = torch.from_numpy(chooser.normal(size=(2 * texts, 5))).float()
    query_ids = torch.from_numpy(chooser.integers(0, texts, pairs))
    document_ids = torch.from_numpy(chooser.integers(texts, 2 * texts, pairs + extra))
    positive = torch.from_numpy(chooser.random(pairs) < 0.7)
    given_batch = (vectors[query_ids], vectors[document_ids], query_ids, document_ids, positive)
    expected, found = slow(*given_batch), batch_hardness(*given_batch)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-5))


def test_a_batch_whose_documents_are_all_one_text_has_no_hardness():
    ids = torch.zeros(4, dtype=torch.long)
    assert batch_hardness(torch.randn(4, 3), torch.ones(4, 3), torch.arange(4), ids) is None


def test_a_large_batch_is_judged_by_rows_from_all_of_it():
    size = 3 * MOST_ROWS
    queries = torch.eye(2)[torch.arange(size) % 2]
    documents = torch.eye(2)[torch.arange(size) % 2]
    documents[size // 2 :] = documents[size // 2 :].flip(1)  # the second half points the wrong way
    found = batch_hardness(queries, documents, torch.arange(size), torch.arange(size))
    assert found == pytest.approx(0.5, abs=0.02)  # 0 in the easy half, where another row is as near, and 1 in the other
