"""Vectors kept on disk: made once, and safe to ask for at the same time."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from bsc_core.config import EncoderConfig
from bsc_core.data.texts import TextTable
from bsc_core.encoders import embed, encode, known_vectors, load_encoder, save_model, tokenise
from bsc_core.encoders.cache import folder_digest


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


@pytest.fixture
def table(texts):
    return TextTable.from_texts(texts)[0]


@pytest.fixture
def config(tiny_encoder):
    return EncoderConfig(name=str(tiny_encoder), max_length=16)


def never(*_, **__):
    raise AssertionError("the model was loaded again")


def test_vectors_are_those_of_the_encoder(own_cache, config, table):
    model = load_encoder(config)
    np.testing.assert_array_equal(embed(config, table), encode(model, tokenise(model, table.texts, 16)))


def test_the_second_time_no_model_is_loaded(own_cache, config, table, monkeypatch):
    first = embed(config, table)
    monkeypatch.setattr("bsc_core.encoders.cache.load_folder", never)
    np.testing.assert_array_equal(embed(config, table), first)
    assert len(list(own_cache.iterdir())) == 1


def test_other_texts_lengths_and_weights_are_other_vectors(own_cache, config, table, tiny_model, tmp_path):
    embed(config, table)
    embed(config, TextTable(("cat",)))
    embed(config.model_copy(update={"max_length": 4}), table)
    tiny_model[0].model.embeddings.word_embeddings.weight.data += 0.1
    embed(EncoderConfig(name=str(save_model(tiny_model, tmp_path / "other", "")), max_length=16), table)
    assert len(list(own_cache.iterdir())) == 4


def test_a_new_card_does_not_make_a_new_encoder(tiny_model, tmp_path):
    folder = save_model(tiny_model, tmp_path / "model", "one card")
    before = folder_digest(folder)
    save_model(tiny_model, folder, "another card")
    assert folder_digest(folder) == before


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"no array"])
def test_a_damaged_file_is_made_anew(own_cache, config, table, damage):
    first = embed(config, table)
    next(own_cache.iterdir()).write_bytes(damage)
    np.testing.assert_array_equal(embed(config, table), first)
    np.testing.assert_array_equal(np.load(next(own_cache.iterdir())), first)


def test_a_truncated_file_is_made_anew(own_cache, config, table):
    first = embed(config, table)
    path = next(own_cache.iterdir())
    path.write_bytes(path.read_bytes()[:-8])
    np.testing.assert_array_equal(embed(config, table), first)


def test_the_least_recently_used_arrays_are_forgotten(own_cache, config, table, monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.cache.ARRAYS_KEPT", 2)
    for text in ("cat", "tea", "soup", "rain"):
        embed(config, TextTable((text,)))
    assert len(list(own_cache.iterdir())) == 2


def test_processes_that_ask_at_once_get_equal_vectors(own_cache, config, tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from bsc_core.config import EncoderConfig\n"
        "from bsc_core.data.texts import TextTable\n"
        "from bsc_core.encoders import embed\n"
        "vectors = embed(EncoderConfig(name=sys.argv[1], max_length=16), TextTable(('cat', 'new soup')))\n"
        "np.save(sys.argv[2], vectors)\n"
    )
    outputs = [tmp_path / f"{number}.npy" for number in range(2)]
    children = [subprocess.Popen([sys.executable, "-c", code, config.name, str(output)]) for output in outputs]
    assert [child.wait(120) for child in children] == [0, 0]
    np.testing.assert_array_equal(np.load(outputs[0]), np.load(outputs[1]))
    assert [path.suffix for path in own_cache.iterdir()] == [".npy"]


def test_importing_the_encoders_imports_nothing_heavy():
    code = (
        "import sys\nimport bsc_core.encoders, bsc_core.encoders.cache, bsc_core.evaluation\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'sklearn', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_known_vectors_are_those_on_disk_and_nothing_before(own_cache, config, table):
    assert known_vectors(config, table) is None
    vectors = embed(config, table)
    found = known_vectors(config, table)
    np.testing.assert_array_equal(found, vectors)
    assert not found.flags.writeable
