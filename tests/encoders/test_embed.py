"""Disk cache of vectors: computed once, and safe with concurrent processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bsc_core.config import EncoderConfig
from bsc_core.data.dataset import TextTable
from bsc_core.encoders import cached_vectors, embed, encode, load_encoder, save_model, tokenize
from bsc_core.encoders.embedding_cache import folder_digest
from bsc_core.errors import ModelError
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.helpers.warm_processes import WarmProcess


@pytest.fixture
def cache(own_cache):
    return own_cache / "embeddings"


@pytest.fixture
def table(texts):
    return TextTable.from_texts(texts)[0]


@pytest.fixture
def config(tiny_encoder):
    return EncoderConfig(name=str(tiny_encoder), max_seq_length=16)


def never(*_, **__):
    raise AssertionError("the model was loaded again")


def test_vectors_equal_those_of_the_encoder(cache, config, table):
    model = load_encoder(config)
    np.testing.assert_array_equal(embed(config, table), encode(model, tokenize(model, table.texts, 16)))


def test_cached_vectors_need_no_model(cache, config, table, monkeypatch):
    first = embed(config, table)
    monkeypatch.setattr("bsc_core.encoders.embedding_cache.load_folder", never)
    np.testing.assert_array_equal(embed(config, table), first)
    assert len(list(cache.iterdir())) == 1


def test_other_texts_lengths_and_weights_have_other_cache_files(cache, config, table, tiny_model, tmp_path):
    embed(config, table)
    embed(config, TextTable(("cat",)))
    embed(config.model_copy(update={"max_seq_length": 4}), table)
    tiny_model[0].model.embeddings.word_embeddings.weight.data += 0.1
    embed(EncoderConfig(name=str(save_model(tiny_model, tmp_path / "other", "")), max_seq_length=16), table)
    assert len(list(cache.iterdir())) == 4


def test_the_digest_ignores_the_model_card(tiny_model, tmp_path):
    folder = save_model(tiny_model, tmp_path / "model", "one card")
    before = folder_digest(folder)
    save_model(tiny_model, folder, "another card")
    assert folder_digest(folder) == before


def test_the_digest_reads_only_what_is_loaded(tiny_model, tmp_path):
    folder = save_model(tiny_model, tmp_path / "model", "")
    before = folder_digest(folder)
    with (folder / "other.safetensors").open("wb") as file:
        file.truncate(2**40)  # without disk space; reading it takes 20 minutes
    assert folder_digest(folder) == before
    os.truncate(folder / "model.safetensors", 2**40)
    with pytest.raises(ModelError, match=r"its weights have 1,024\.0 GiB, and this machine has"):
        folder_digest(folder)
    (folder / "notes.txt").write_bytes(b"")
    os.truncate(folder / "notes.txt", 2**40)
    with pytest.raises(ModelError, match="more than 128 MiB"):
        folder_digest(folder)


def test_the_digest_opens_no_file_outside_of_the_folder(tiny_model, tmp_path):
    folder = save_model(tiny_model, tmp_path / "model", "")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}))
    before = folder_digest(folder)
    (folder / "part.safetensors").write_bytes(b"other weights")
    assert folder_digest(folder) != before
    index.write_text(json.dumps({"weight_map": {"a": "/dev/zero"}}))
    with pytest.raises(ModelError, match="outside of its folder"):
        folder_digest(folder)


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: b"no array", lambda content: content[:-8]])
def test_a_damaged_file_is_computed_again(cache, config, table, damage):
    first = embed(config, table)
    path = next(cache.iterdir())
    path.write_bytes(damage(path.read_bytes()))
    np.testing.assert_array_equal(embed(config, table), first)
    np.testing.assert_array_equal(np.load(path), first)


def test_the_least_recently_used_arrays_are_removed(cache, config, table, monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.embedding_cache.MAX_ARRAYS", 2)
    for text in ("cat", "tea", "soup", "rain"):
        embed(config, TextTable((text,)))
    assert len(list(cache.iterdir())) == 2


def test_concurrent_processes_get_equal_vectors(cache, config, tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from bsc_core.config import EncoderConfig\n"
        "from bsc_core.data.dataset import TextTable\n"
        "from bsc_core.encoders import embed\n"
        "vectors = embed(EncoderConfig(name=sys.argv[1], max_seq_length=16), TextTable(('cat', 'new soup')))\n"
        "np.save(sys.argv[2], vectors)\n"
    )
    outputs = [tmp_path / f"{number}.npy" for number in range(2)]
    children = [WarmProcess(code, config.name, output, output=output) for output in outputs]
    assert [child.wait(PATIENCE_SECONDS) for child in children] == [0, 0], children[0].stderr + children[1].stderr
    np.testing.assert_array_equal(np.load(outputs[0]), np.load(outputs[1]))
    assert [path.suffix for path in cache.iterdir()] == [".npy"]


def test_importing_the_package_imports_no_torch():
    code = (
        "import sys\nimport bsc_core.encoders, bsc_core.encoders.embedding_cache, bsc_core.evaluation\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'sklearn', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_SECONDS)


def test_cached_vectors_are_none_before_encoding(cache, config, table):
    assert cached_vectors(config, table) is None
    vectors = embed(config, table)
    actual = cached_vectors(config, table)
    np.testing.assert_array_equal(actual, vectors)
    assert not actual.flags.writeable
