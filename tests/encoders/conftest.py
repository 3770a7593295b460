"""Encoders for tests: a tiny BERT, and a static model with the same vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

TEXTS = (
    "how do i fix my bike",
    "soup",
    "why can the cat sleep on the new guitar when rain is loud",
    "",
    "grow tea",
    "soup with bread",
)


@pytest.fixture(scope="session")
def texts():
    return list(TEXTS)


@pytest.fixture
def tiny_model(tiny_encoder):
    from bsc_core.encoders.pretrained import load_folder

    return load_folder(tiny_encoder, 16)


@pytest.fixture
def model(tiny_encoder):
    """The tiny BERT for texts of up to 64 tokens."""
    from bsc_core.encoders.pretrained import load_folder

    return load_folder(tiny_encoder, 64)


@pytest.fixture
def tiny_static(tiny_encoder):
    from tokenizers import Tokenizer

    from bsc_core.encoders.pretrained import limit_length, static_model

    tokenizer = Tokenizer.from_file(str(tiny_encoder / "tokenizer.json"))
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    model = static_model(tokenizer, vectors)
    limit_length(model, 16)
    return model


@pytest.fixture(params=["transformer", "static"])
def either_model(request):
    return request.getfixturevalue("tiny_model" if request.param == "transformer" else "tiny_static")
