"""Hostile model folders: each is refused with its stated reason, and none of its code runs."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from bsc_core.config import EncoderConfig
from bsc_core.encoders import load_encoder
from bsc_core.errors import ModelError

Change = Callable[[Path], object]
EXECUTED = "executed"


class RunsCode:
    """An object whose pickle writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def write(name: str, data: bytes | str) -> Change:
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def edit_json(name: str, **values: object) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(content | values), encoding="utf-8")

    return change


def module(**values: object) -> Change:
    """Change the first module in modules.json."""

    def change(folder: Path) -> None:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        modules[0] |= values
        (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")

    return change


def pickled_weights(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / name).write_bytes(pickle.dumps(RunsCode(folder.parent / EXECUTED)))

    return change


def custom_code(folder: Path) -> None:
    """A configuration whose classes are in a file of the folder, as with `trust_remote_code`."""
    (folder / "custom.py").write_text(f"from pathlib import Path\nPath({str(folder.parent / EXECUTED)!r}).touch()\n")
    names = {"AutoConfig": "custom.Config", "AutoModel": "custom.Model", "AutoTokenizer": "custom.Tokenizer"}
    edit_json("config.json", auto_map=names, model_type="custom")(folder)


def adapter(folder: Path) -> None:
    """An adapter whose weights are added to those of a model in another folder."""
    shutil.copytree(folder, folder.parent / "base")
    (folder / "model.safetensors").unlink()
    values = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["query"]}
    values["base_model_name_or_path"] = str(folder.parent / "base")
    (folder / "adapter_config.json").write_text(json.dumps(values), encoding="utf-8")
    save_file({}, folder / "adapter_model.safetensors")


def offloaded(folder: Path) -> None:
    """Settings of the library that write the weights to a folder elsewhere."""
    values = {"device_map": {"": "disk"}, "offload_folder": str(folder.parent / EXECUTED)}
    write("sentence_bert_config.json", json.dumps({"model_kwargs": values}))(folder)


def foreign_tokenizer(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "other")
    write("sentence_bert_config.json", json.dumps({"tokenizer_name_or_path": str(folder.parent / "other")}))(folder)


def shards(file: str) -> Change:
    return write("model.safetensors.index.json", json.dumps({"weight_map": {"embeddings.weight": file}}))


def remove(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]


NESTED = "[" * 100_000 + "]" * 100_000
CASES: dict[str, tuple[Change, str]] = {
    "nested config": (write("config.json", NESTED), "nested too deeply"),
    "nested modules": (write("modules.json", NESTED), "nested too deeply"),
    "nested tokenizer": (write("tokenizer.json", NESTED), "nested too deeply"),
    "config list": (write("config.json", "[]"), "not a JSON object"),
    "config not UTF-8": (write("config.json", b"\xff\xfe{}"), "not JSON"),
    "modules object": (write("modules.json", "{}"), "not a list of modules"),
    "modules of scalars": (write("modules.json", "[1, null]"), "code from outside sentence-transformers"),
    "million layers": (edit_json("config.json", num_hidden_layers=10**6), "num_hidden_layers is 1000000"),
    "text for layers": (edit_json("config.json", num_hidden_layers="many"), "num_hidden_layers is many"),
    "negative layers": (edit_json("config.json", num_hidden_layers=-1), "num_hidden_layers is -1"),
    "huge vocabulary": (edit_json("config.json", vocab_size=10**12), "vocab_size is 1000000000000"),
    "huge vectors": (edit_json("config.json", hidden_size=10**9), "hidden_size is 1000000000"),
    "other architecture": (edit_json("config.json", model_type="unknown"), "cannot be loaded"),
    "custom code": (custom_code, "cannot be loaded"),
    "foreign module": (module(type="os.system"), "code from outside sentence-transformers"),
    "module of the folder": (module(type="custom.Module"), "code from outside sentence-transformers"),
    "absolute path": (module(path="/etc"), "outside the model's folder"),
    "path upwards": (module(path="../other"), "outside the model's folder"),
    "pickled weights": (pickled_weights("pytorch_model.bin"), "pickled weights can run code"),
    "pickled pt": (pickled_weights("weights.pt"), "pickled weights can run code"),
    "pickled ckpt": (pickled_weights("model.ckpt"), "pickled weights can run code"),
    "no weights": (remove("model.safetensors"), "cannot be loaded"),
    "empty weights": (write("model.safetensors", b""), "damaged weights"),
    "long header": (write("model.safetensors", b"\xff" * 8 + b"{}"), "damaged weights"),
    "pickle as weights": (write("model.safetensors", pickle.dumps(1)), "damaged weights"),
    "broken tokenizer": (write("tokenizer.json", "{"), "not JSON"),
    "tokenizer of another form": (write("tokenizer.json", '{"model": 1}'), "cannot be loaded"),
    "adapter of another model": (adapter, "adapters of another model are not loaded"),
    "weights written elsewhere": (offloaded, "model_kwargs.device_map may name files or code"),
    "tokenizer elsewhere": (foreign_tokenizer, "tokenizer_name_or_path may name files or code"),
    "vocabulary elsewhere": (edit_json("tokenizer_config.json", vocab="/etc/passwd"), "vocab may name files outside"),
    "vocabulary by position": (edit_json("tokenizer_config.json", init_inputs=["/x"]), "init_inputs may name files"),
    "shards elsewhere": (shards("../other/model.safetensors"), "names the weights ../other/model.safetensors, outside"),
    "shards by path": (shards("/etc/model.safetensors"), "names the weights /etc/model.safetensors, outside"),
    "index list": (write("model.safetensors.index.json", "[]"), "not an index of weights"),
    "arguments list": (write("sentence_bert_config.json", '{"model_args": [1]}'), "model_args may name files or code"),
    "settings list": (write("sentence_bert_config.json", "[]"), "not a JSON object"),
    "kernel of the hub": (edit_json("config.json", attn_implementation="evil/kernel"), "code from outside the library"),
    "kernel of a part": (
        edit_json("config.json", text_config={"_attn_implementation": "evil/kernel"}),
        "code from outside the library",
    ),
    "kernel of an internal setting": (
        edit_json("config.json", _attn_implementation_internal="evil/kernel"),
        "code from outside the library",
    ),
    "million labels": (edit_json("config.json", num_labels=10**6), "num_labels is 1000000"),
    "no model": (remove("modules.json", "config.json"), "not a model folder"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_model_folder_is_refused_and_runs_no_code(tiny_encoder: Path, tmp_path: Path, name: str) -> None:
    change, reason = CASES[name]
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoder, folder)
    change(folder)
    with pytest.raises(ModelError) as error:
        load_encoder(EncoderConfig(name=str(folder), max_seq_length=16))
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / EXECUTED).exists()


@pytest.mark.parametrize("name", ["pickled weights", "million layers", "foreign module"])
def test_a_hostile_model_folder_is_refused_before_the_libraries_are_imported(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, reason = CASES[name]
    shutil.copytree(tiny_encoder, tmp_path / "model")
    change(tmp_path / "model")
    for library in ("sentence_transformers", "transformers"):
        monkeypatch.setitem(sys.modules, library, None)  # importing it fails
    with pytest.raises(ModelError, match=reason):
        load_encoder(EncoderConfig(name=str(tmp_path / "model"), max_seq_length=16))


def test_the_sizes_of_a_good_model_are_accepted(tiny_encoder: Path) -> None:
    assert load_encoder(EncoderConfig(name=str(tiny_encoder), max_seq_length=16)).get_embedding_dimension() > 0
