"""Hostile model folders: each is refused with its stated reason, and none of its code runs."""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bsc_core.config import EncoderConfig, make_config, to_toml
from bsc_core.data.dataset import TextTable
from bsc_core.data.sample_data import sample_config
from bsc_core.encoders import load_encoder, pretrained, tokenize
from bsc_core.encoders.checks.folder import MODEL_TYPES, TOKENIZERS, _check_config, check_folder
from bsc_core.errors import ModelError
from bsc_core.preparation.second_opinion import second_scorer
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.hostile.outcomes import read_outcomes
from tests.hostile.test_files import MAX_BYTES, MAX_SECONDS

Change = Callable[[Path], object]
EXECUTED = "executed"
READER = Path(__file__).with_name("read_models.py")


class RunsCode:
    """An object whose pickle writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def write(name: str, data: bytes | str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())

    return change


def repeated_transformer(folder: Path) -> None:
    """A list of modules that names the transformer twice."""
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    (folder / "modules.json").write_text(json.dumps([modules[0], *modules]), encoding="utf-8")


def large_notes(folder):
    with (folder / "notes.txt").open("wb") as file:
        file.truncate(2**40)


def linked_vocabularies(folder: Path) -> None:
    """Twenty folders with a link to one vocabulary of 10 MB."""
    (folder / "merges.txt").write_text("a b\n" * 2_500_000)
    for number in range(20):
        (folder / f"part-{number}").mkdir()
        (folder / f"part-{number}" / "merges.txt").symlink_to("../merges.txt")


def edit_json(name: str, **values: object) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(content | values), encoding="utf-8")

    return change


def many_tokens(number: int) -> list[str]:
    return [f"<{one}>" for one in range(number)]


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


def special_tokens(**values: object) -> Change:
    """Special tokens that the library takes as further settings of the tokenizer, as its other files are missing."""

    def change(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', encoding="utf-8")
        (folder / "special_tokens_map.json").write_text(json.dumps(values), encoding="utf-8")

    return change


def vocabulary_by_path(folder: Path) -> None:
    """A tokenizer file with the path of a vocabulary, which the library opens."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"] = "/etc/passwd"
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def pipe(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


EMPTY_TENSOR = {"dtype": "I8", "shape": [0], "data_offsets": [0, 0]}
MANY_TOKENS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, **{f"t{i}": i for i in range(5, 10_000)}}


def large_header(folder: Path) -> None:
    """Weights of which the list of tensors alone has 10 MB."""
    header = json.dumps({str(number): EMPTY_TENSOR for number in range(180_000)}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def repeated_shards(folder: Path) -> None:
    """An index of weights that names the same file many times."""
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    for number in range(20):
        (folder / f"part-{number}.safetensors").symlink_to("part.safetensors")
    names = {f"w{number}": f"part-{number}.safetensors" for number in range(20)}
    write("model.safetensors.index.json", json.dumps({"weight_map": names}))(folder)


def many_tensors(folder: Path) -> None:
    save_file({str(number): np.zeros(0, np.float32) for number in range(30_000)}, folder / "model.safetensors")


def added_token(content: str) -> Change:
    def change(folder: Path) -> None:
        tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer["added_tokens"][-1]["content"] = content
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")

    return change


def decoder(pattern: dict[str, str]) -> Change:
    def change(folder: Path) -> None:
        tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer["decoder"] = {
            "type": "Sequence",
            "decoders": [{"type": "Replace", "pattern": pattern, "content": ""}],
        }
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")

    return change


def damaged_map(folder: Path) -> None:
    """A map of characters that points outside of itself."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    charsmap = base64.b64encode(b"\x04\0\0\0\0\xff\xff\xff\xffb\0").decode()
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def other_vocabulary(name: str) -> Change:
    """A folder whose only vocabulary is a file that a library searches by a part of its name."""

    def change(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder / name).write_text("{}", encoding="utf-8")

    return change


def edit_tokenizer(**values: object) -> Change:
    """Change the vocabulary of tokenizer.json."""

    def change(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        content["model"] |= values
        (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")

    return change


def weights_without_entries(folder: Path) -> None:
    """Sizes that only a tensor without data has."""
    save_file(load_file(folder / "model.safetensors") | {"x": np.zeros((10**9, 0))}, folder / "model.safetensors")
    edit_json("config.json", vocab_size=10**9)(folder)


def large_transformer(folder: Path) -> None:
    """Sizes that the weights have, but not in one tensor."""
    save_file({"x": np.zeros(6000, np.float32)}, folder / "model.safetensors")
    edit_json("config.json", hidden_size=6000, intermediate_size=6000, vocab_size=6000)(folder)


def other_names(folder: Path) -> None:
    """Layers whose weights the library would replace by random ones."""
    weights = load_file(folder / "model.safetensors")
    renamed = {name.replace("encoder.layer", "extra.layer"): one for name, one in weights.items()}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})


def weight_that_is_not_a_number(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][-1, 0] = np.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


NORM = {"norm.weight": np.ones(32, np.float32)}
DENSE = {"in_features": 32, "out_features": 8, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}


def added_module(kind: str, config: dict[str, object], **tensors: Any) -> Change:
    """Append a module of sentence-transformers."""

    def change(folder: Path) -> None:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        modules.append({"idx": 2, "name": "2", "path": f"2_{kind}", "type": f"sentence_transformers.models.{kind}"})
        (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
        (folder / f"2_{kind}").mkdir()
        (folder / f"2_{kind}" / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if tensors:
            save_file(tensors, folder / f"2_{kind}" / "model.safetensors")

    return change


def dense(**values: object) -> Change:
    """Append a dense layer with weights for 8 dimensions."""
    return added_module("Dense", DENSE | values, **{"linear.weight": np.eye(8, 32, dtype=np.float32)})


def pickled_dense(folder: Path) -> None:
    """Weights of a dense layer that the library reads, beside others that it does not read."""
    dense()(folder)
    part = folder / "2_Dense"
    (part / "model.safetensors").rename(part / "pytorch_model.safetensors")
    (part / "pytorch_model.bin").write_bytes(pickle.dumps(RunsCode(folder.parent / EXECUTED)))


def many_modules(folder: Path) -> None:
    dense()(folder)
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    (folder / "modules.json").write_text(json.dumps(modules[:2] + modules[2:] * 100), encoding="utf-8")


def pooling(**values: object) -> Change:
    return edit_json("1_Pooling/config.json", **values)


def static(**tensors: Any) -> Change:
    """Vectors of tokens instead of a transformer."""

    def change(folder: Path) -> None:
        kind = "sentence_transformers.models.StaticEmbedding"
        write("modules.json", json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))(folder)
        save_file({"embeddings": np.ones((1, 32), np.float32)} | tensors, folder / "model.safetensors")

    return change


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
    "other architecture": (edit_json("config.json", model_type="unknown"), "model_type is unknown, not a supported"),
    "architecture of parts": (edit_json("config.json", model_type="rag"), "model_type is rag, not a supported"),
    "no architecture": (edit_json("config.json", model_type=None), "model_type is None, not a supported"),
    "custom code": (custom_code, "model_type is custom, not a supported"),
    "foreign module": (module(type="os.system"), "code from outside sentence-transformers"),
    "module of the folder": (module(type="custom.Module"), "code from outside sentence-transformers"),
    "absolute path": (module(path="/etc"), "outside the model's folder"),
    "path upwards": (module(path="../other"), "outside the model's folder"),
    "pickled weights": (pickled_weights("pytorch_model.bin"), "pickled weights can run code"),
    "pickled pt": (pickled_weights("weights.pt"), "pickled weights can run code"),
    "pickled ckpt": (pickled_weights("model.ckpt"), "pickled weights can run code"),
    "no weights": (remove("model.safetensors"), "no weights"),
    "transformer without its weights": (large_transformer, "describes a transformer of"),
    "sizes without data": (weights_without_entries, "vocab_size is 1000000000"),
    "empty weights": (write("model.safetensors", b""), "damaged weights"),
    "long header": (write("model.safetensors", b"\xff" * 8 + b"{}"), "damaged weights"),
    "pickle as weights": (write("model.safetensors", pickle.dumps(1)), "damaged weights"),
    "large vocab.txt": (write("vocab.txt", b"a\n" * 7_000_000), "larger than 12 MiB"),
    "large merges": (write("merges.txt", b"a b\n" * 4_000_000), "larger than 12 MiB"),
    "large model card": (write("README.md", b"a" * 5 * 2**20), "README.md: larger than 4 MiB"),
    "large chat template": (write("additional_chat_templates/x.jinja", b"a" * 5 * 2**20), "x.jinja: larger than 4 MiB"),
    "vocabulary of another library": (
        other_vocabulary("tekken.json"),
        "tekken.json: the vocabulary of another library",
    ),
    "vocabulary of any name": (other_vocabulary("a.tokenizer_file"), "the vocabulary of another library"),
    "wide vectors": (
        added_module("Dense", DENSE | {"out_features": 8200}, **{"linear.weight": np.ones((8200, 32), np.float32)}),
        "its vectors have 8,200 dimensions, more than 8,192",
    ),
    "step as a list": (edit_json("tokenizer.json", normalizer=[{"Regex": "."}, "a " * 1000]), "a step of an unknown"),
    "step as a list in a sequence": (
        edit_json("tokenizer.json", normalizer={"type": "Sequence", "normalizers": [[{"Regex": "."}, "a " * 1000]]}),
        "a step of an unknown type",
    ),
    "large pieces": (write("spiece.model", bytes(21 * 2**20)), "larger than 20 MiB"),
    "broken tokenizer": (write("tokenizer.json", "{"), "not JSON"),
    "tokenizer of another form": (write("tokenizer.json", '{"model": 1}'), "contains no vocabulary"),
    "vocabulary by path": (vocabulary_by_path, "contains no vocabulary"),
    "adapter of another model": (adapter, "adapters of another model are not loaded"),
    "weights written elsewhere": (offloaded, "model_kwargs.device_map may name files or code"),
    "tokenizer elsewhere": (foreign_tokenizer, "tokenizer_name_or_path may name files or code"),
    "vocabulary elsewhere": (edit_json("tokenizer_config.json", vocab="/etc/passwd"), "vocab may name files outside"),
    "vocabulary among special tokens": (special_tokens(vocab="/etc/passwd"), "vocab is not a special token"),
    "vocabulary file among special tokens": (special_tokens(vocab_file="/x"), "vocab_file is not a special token"),
    "special tokens with files": (special_tokens(pad_token=["/x"]), "pad_token is not a special token"),
    "special tokens of objects": (special_tokens(pad_token={"content": {}}), "pad_token is not a special token"),
    "special tokens list": (write("special_tokens_map.json", "[]"), "not a JSON object"),
    "added tokens": (
        write("added_tokens.json", '{"a": "/x"}'),
        "not an object of at most 30,000 tokens and their numbers",
    ),
    "many additional tokens": (
        edit_json("tokenizer_config.json", tokenizer_class="T5Tokenizer", extra_ids=1_000_000),
        "extra_ids may name files outside of the model's folder, or is not of the usual form",
    ),
    "long list of special tokens": (
        edit_json("tokenizer_config.json", extra_special_tokens=many_tokens(1_500)),
        "added tokens take too long to load",
    ),
    "many special and added tokens": (
        edit_json(
            "tokenizer_config.json",
            additional_special_tokens=many_tokens(200),
            added_tokens_decoder=dict(enumerate(many_tokens(10_000))),
        ),
        "205 special tokens and 10,005 added tokens take too long",
    ),
    "number of a token": (
        edit_json("tokenizer_config.json", added_tokens_decoder={"2000000000": "a"}),
        "added_tokens_decoder may name files outside of the model's folder, or is not of the usual form",
    ),
    "many added tokens": (
        edit_json("tokenizer.json", added_tokens=[{"content": one} for one in many_tokens(31_000)]),
        "31,000 added tokens, more than 30,000",
    ),
    "spm file": (edit_json("tokenizer_config.json", spm_file="/x"), "spm_file may name files outside"),
    "gguf file": (edit_json("tokenizer_config.json", gguf_file="/x"), "gguf_file may name files outside"),
    "file descriptor": (edit_json("tokenizer_config.json", vocab=3), "vocab may name files outside"),
    "tokenizer of a version": (
        edit_json("tokenizer_config.json", fast_tokenizer_files=["/x/tokenizer.4.0.json"]),
        "fast_tokenizer_files may name files outside",
    ),
    "code of the tokenizer": (edit_json("tokenizer_config.json", auto_map={"AutoTokenizer": "a.B"}), "auto_map may"),
    "class of the tokenizer": (edit_json("tokenizer_config.json", tokenizer_class="a.B"), "class is a.B, not"),
    "tokenizer in Python": (
        edit_json("tokenizer_config.json", tokenizer_class="CTRLTokenizer"),
        "tokenizer_class is CTRLTokenizer, not one that",
    ),
    "tokenizer of the config": (edit_json("config.json", tokenizer_class="CTRLTokenizer"), "tokenizer_class is CTRL"),
    "tokenizer list": (edit_json("tokenizer_config.json", tokenizer_class=["BertTokenizer"]), "tokenizer_class is ["),
    "settings of tokens": (
        edit_json("tokenizer_config.json", **{f"x{number}_token": "a" for number in range(101)}),
        "settings of special tokens, and at most 100",
    ),
    "map of many tokens": (
        write("special_tokens_map.json", json.dumps({f"x{number}_token": "a" for number in range(101)})),
        "has 101 settings of special tokens",
    ),
    "sentencepiece file": (edit_json("tokenizer_config.json", sp_model_kwargs={"model_file": "/x"}), "sp_model_kwargs"),
    "million tokens": (edit_json("tokenizer_config.json", extra_ids=10**9), "extra_ids may name files outside"),
    "vocabulary by position": (edit_json("tokenizer_config.json", init_inputs=["/x"]), "init_inputs may name files"),
    "shards elsewhere": (shards("../other/model.safetensors"), "names the weights ../other/model.safetensors, outside"),
    "shards by path": (shards("/etc/model.safetensors"), "names the weights /etc/model.safetensors, outside"),
    "index list": (write("model.safetensors.index.json", "[]"), "not an index of weights"),
    "arguments list": (write("sentence_bert_config.json", '{"model_args": [1]}'), "model_args may name files or code"),
    "settings list": (write("sentence_bert_config.json", "[]"), "not a JSON object"),
    "kernel of the hub": (edit_json("config.json", attn_implementation="evil/kernel"), "not eager or sdpa"),
    "kernel of a part": (
        edit_json("config.json", text_config={"_attn_implementation": "evil/kernel"}),
        "not eager or sdpa",
    ),
    "kernel of an internal setting": (
        edit_json("config.json", _attn_implementation_internal="evil/kernel"),
        "not eager or sdpa",
    ),
    "config of a version": (
        edit_json("config.json", configuration_files=["config.4.0.0.json"]),
        "configuration_files is not supported",
    ),
    "weights by name": (edit_json("config.json", transformers_weights="../x"), "transformers_weights is not supported"),
    "other names of settings": (edit_json("config.json", attribute_map={"a": "b"}), "attribute_map is not supported"),
    "quantized": (edit_json("config.json", quantization_config={"quant_method": "x"}), "quantization_config is not"),
    "million positions": (edit_json("config.json", max_position_embeddings=10**9), "max_position_embeddings is 1000"),
    "pipe as settings": (pipe("tokenizer_config.json"), "not a regular file"),
    "pipe as card": (pipe("README.md"), "not a regular file"),
    "device as added tokens": (
        lambda folder: (folder / "added_tokens.json").symlink_to("/dev/zero"),
        "not a regular file",
    ),
    "long windows": (
        edit_json("config.json", attention_window=[100_000_000]),
        "attention_window is 100000000",
    ),
    "repeated attention types": (
        edit_json("config.json", attention_types=[[["global"], 300_000_000]]),
        "attention_types is 300000000",
    ),
    "long radius": (edit_json("config.json", local_radius=9000), "local_radius is 9000, and at most 512"),
    "compiled attention": (edit_json("config.json", _attn_implementation="flex_attention"), "not eager or sdpa"),
    "Fourier matrices": (edit_json("config.json", use_tpu_fourier_optimizations=True), "is not supported"),
    "repeated transformer": (repeated_transformer, "twice"),
    "linked vocabularies": (linked_vocabularies, "more than 128 MiB"),
    "large notes without disk space": (large_notes, "more than 128 MiB"),
    "long list": (edit_json("config.json", layer_types=["full_attention"] * 10_000), "layer_types has 10,000 entries"),
    "large kernel": (edit_json("config.json", conv_kernel_size=60_001), "conv_kernel_size is 60001"),
    "blocks of layers": (edit_json("config.json", block_sizes=[60] * 40), "describes 2,400 parts of layers"),
    "groups of layers": (
        edit_json("config.json", num_hidden_groups=200, inner_group_num=200),
        "describes 40,000 parts",
    ),
    "layers of languages": (
        edit_json("config.json", languages=["a"] * 999, num_hidden_layers=200),
        "describes 199,800",
    ),
    "layers of networks": (
        edit_json("config.json", num_feedforward_networks=200, num_hidden_layers=200),
        "40,000 parts",
    ),
    "many small heads": (
        edit_json("config.json", num_attention_heads=256, hidden_size=256),
        "256 attention heads of 1 dimensions need too much memory",
    ),
    "attention weights": (edit_json("config.json", output_attentions=True), "output_attentions keeps the attention"),
    "many heads": (edit_json("config.json", num_attention_heads=1024, head_dim=64), "num_attention_heads is 1024"),
    "many tensors": (many_tensors, "there are more than 20,000 tensors"),
    "large header": (large_header, "its header has more than 8 MiB"),
    "repeated shards": (repeated_shards, "has a tensor of another file"),
    "nested number": (edit_json("config.json", rope_scaling={"factor": 10**6}), "factor is 1000000"),
    "thousand layers": (edit_json("config.json", num_hidden_layers=1000), "num_hidden_layers is 1000"),
    "random tokens": (edit_tokenizer(dropout=0.5), "a text has other vectors each time"),
    "long prefix of words": (
        edit_tokenizer(continuing_subword_prefix="x" * 10**6),
        "a long prefix or suffix of the parts of words",
    ),
    "unknown tokens": (edit_tokenizer(vocab=MANY_TOKENS), "the tokenizer has a token of number 9,999"),
    "large table of positions": (
        edit_json("config.json", model_type="distilbert", max_position_embeddings=20_000),
        "max_position_embeddings is 20000",
    ),
    "processor": (write("preprocessor_config.json", "{}"), "a model of images, sound or video"),
    "method of the model": (
        edit_json("sentence_bert_config.json", modality_config={"text": {"method": "save_pretrained"}}),
        "modality_config is not that of a model of text",
    ),
    "other task": (edit_json("sentence_bert_config.json", transformer_task="any-to-any"), "transformer_task is not"),
    "settings of the processor": (
        edit_json("sentence_bert_config.json", processing_kwargs={"text": {"max_length": 10**9}}),
        "processing_kwargs.text.max_length may name files or code",
    ),
    "function as activation": (
        edit_json("config.json", sentence_transformers={"activation_fn": "torch._C._abort"}),
        "torch._C._abort is not an activation of torch.nn",
    ),
    "function as activation of the model": (
        edit_json("config_sentence_transformers.json", activation_fn="torch.hub._get_torch_home"),
        "torch.hub._get_torch_home is not an activation of torch.nn",
    ),
    "prompt that is no text": (
        write("config_sentence_transformers.json", '{"prompts": {"query": "\\ud800"}}'),
        "prompts is not",
    ),
    "chunks": (edit_json("config.json", chunk_size_feed_forward=7), "chunk_size_feed_forward is 7, and at most 0"),
    "many labels by name": (
        edit_json("config.json", id2label={str(i): "x" for i in range(9_999)}),
        "has 9,999 entries",
    ),
    "long token": (added_token("x" * 2_000), "tokens of more than 1000 characters"),
    "expression of the decoder": (decoder({"Regex": "(?<a>x)(?<b>\\g<a>\\g<a>)"}), "a regular expression that no"),
    "long prompt": (
        edit_json("config_sentence_transformers.json", prompts={"query": "a b " * 10**6}),
        "prompts is not",
    ),
    "panic of the tokenizer": (damaged_map, "cannot be loaded"),
    "prompts of other types": (edit_json("config_sentence_transformers.json", prompts={"query": 1}), "prompts is not"),
    "router": (module(type="sentence_transformers.models.Router"), "only these modules are supported"),
    "unused module": (added_module("LSTM", {}), "only these modules are supported"),
    "large dense layer": (dense(in_features=20_000, out_features=20_000), "out_features is 20000, and linear.weight"),
    "dense layer without weights": (added_module("Dense", DENSE), "model.safetensors is missing"),
    "dense layer with other weights": (added_module("Dense", DENSE, other=np.eye(2)), "there are no weights linear"),
    "pickled weights of a dense layer": (pickled_dense, "so they are not loaded"),
    "hundred modules": (many_modules, "has 102 modules, and at most 10 are loaded"),
    "attribute among special tokens": (
        edit_json("tokenizer_config.json", extra_special_tokens={"vocab_file": "/etc/passwd"}),
        "extra_special_tokens may name files",
    ),
    "function in a dense layer": (dense(activation_function="torch._C._abort"), "torch._C._abort is not an activation"),
    "class in a dense layer": (dense(activation_function="os.Tanh"), "activation_function is os.Tanh, not an"),
    "large layer normalization": (added_module("LayerNorm", {"dimension": 10**9}, **NORM), "dimension is 1000000000"),
    "large pooling": (pooling(embedding_dimension=10**9), "embedding_dimension is 1000000000"),
    "many poolings": (pooling(pooling_mode=["mean"] * 100), "pooling_mode is not a list of different modes"),
    "tokens mapped to vectors": (static(mapping=np.zeros(10**5, np.uint8)), "maps 100,000 tokens"),
    "million labels": (edit_json("config.json", num_labels=10**6), "num_labels is 1000000"),
    "lists of a config": (
        edit_json("config.json", attention_types=[[[["global"], 4096]] * 900] * 9),
        "has more than 10,000 values",
    ),
    "large document": (
        lambda folder: os.truncate(folder / "config_sentence_transformers.json", 20 * 2**20),
        "more than 16 MiB",
    ),
    "lists of a tokenizer": (
        write("tokenizer.json", '{"a": [' + "[]," * 2_000_000 + "[]]}"),
        "too many lists and objects",
    ),
    "pieces of a tokenizer": (write("tokenizer.json", '{"a": {' + '"a":1,' * 4_000_000 + '"b":1}}'), "too many names"),
    "type of a tokenizer that is given twice": (
        write("tokenizer.json", '{"type": 1, "type": 2}'),
        "a name occurs twice",
    ),
    "merges of a tokenizer": (write("tokenizer.json", '{"a": [' + '"a b",' * 4_000_000 + '"b"]}'), "too many names"),
    "many special tokens": (
        edit_json("tokenizer_config.json", extra_special_tokens=[f"<{number}>" for number in range(60_000)]),
        "extra_special_tokens may name files",
    ),
    "weights of other names": (other_names, "its weights lack"),
    "weight that is not a number": (weight_that_is_not_a_number, "a weight is not a finite number"),
    "no model": (remove("modules.json", "config.json"), "not a model folder"),
}


@pytest.fixture(scope="module")
def report(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of every case and of the unchanged model, loaded in one separate process."""
    root = tmp_path_factory.mktemp("models")
    for name in ["unchanged", *CASES]:
        shutil.copytree(tiny_encoder, root / name / "model")
        if name in CASES:
            CASES[name][0](root / name / "model")
    return read_outcomes(READER, root) | {"executed": list(root.rglob(EXECUTED))}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_model_folder_is_refused(report: dict[str, Any], name: str) -> None:
    outcome = report["outcomes"][name]
    assert CASES[name][1] in outcome
    assert "Traceback" not in outcome
    assert "\n" not in outcome


def test_no_model_needs_a_gibibyte_or_ten_seconds_or_executes_code(report: dict[str, Any]) -> None:
    assert report["bytes"] < MAX_BYTES, report["log"]
    assert max(report["seconds"].values()) < MAX_SECONDS, report["seconds"]
    assert report["executed"] == []
    assert report["outcomes"]["unchanged"] == "32 dimensions"


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


def test_commands_refuse_a_hostile_model_folder_before_the_libraries_are_imported(
    tiny_encoder: Path, tmp_path: Path
) -> None:
    change, reason = CASES["pickled weights"]
    shutil.copytree(tiny_encoder, tmp_path / "model")
    change(tmp_path / "model")
    config = make_config({"data": sample_config().model_dump(), "encoder": {"name": str(tmp_path / "model")}})
    (tmp_path / "run.toml").write_text(to_toml(config), encoding="utf-8")
    code = """
import sys
sys.modules |= {"sentence_transformers": None, "transformers": None}  # importing them fails
from bsc_core.cli import main
sys.exit(main(sys.argv[1:]))
"""
    for command in ("train", "check"):
        arguments = [command, str(tmp_path / "run.toml"), "--runs", str(tmp_path / "runs")]
        process = [sys.executable, "-c", code, *arguments]
        ended = subprocess.run(process, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        assert ended.returncode == 2
        assert re.search(reason, ended.stderr)
    assert not list(tmp_path.glob("runs/*/config.json"))


def test_the_sizes_of_a_good_model_are_accepted(tiny_encoder: Path) -> None:
    assert load_encoder(EncoderConfig(name=str(tiny_encoder), max_seq_length=16)).get_embedding_dimension() > 0


@pytest.mark.parametrize(
    "values",
    [
        {"sentence_transformers": {"activation_fn": "torch._C._abort"}},
        {"sbert_ce_default_activation_function": "torch._C._abort"},
        {"attribute_map": {"sentence_transformers": "other"}, "other": {"activation_fn": "torch._C._abort"}},
        {"num_hidden_layers": 10**6},
    ],
)
def test_a_hostile_cross_encoder_is_refused(tiny_encoder: Path, tmp_path: Path, values: dict[str, object]) -> None:
    shutil.copytree(tiny_encoder, tmp_path / "model")
    edit_json("config.json", architectures=["BertForSequenceClassification"], **values)(tmp_path / "model")
    with pytest.raises(ModelError, match=r"config\.json"):
        second_scorer(str(tmp_path / "model"), TextTable(["a", "b"]))


def test_a_model_that_lacks_a_pooler_that_it_uses_is_refused(tiny_encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoder, folder)
    weights = load_file(folder / "model.safetensors")
    weights = {name: one for name, one in weights.items() if "pooler" not in name}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert load_encoder(EncoderConfig(name=str(folder), max_seq_length=16)).get_embedding_dimension() > 0
    head = {"classifier.weight": np.zeros((1, 32), np.float32), "classifier.bias": np.zeros(1, np.float32)}
    save_file(
        {f"bert.{name}": one for name, one in weights.items()} | head, folder / "model.safetensors", {"format": "pt"}
    )
    edit_json("config.json", architectures=["BertForSequenceClassification"], num_labels=1)(folder)
    with pytest.raises(ModelError, match=r"its weights lack bert\.pooler"):
        pretrained.load_cross_encoder(folder)


def test_a_damaged_cross_encoder_is_refused_in_one_sentence(tiny_encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_encoder, tmp_path / "model")
    edit_json("config.json", architectures=["BertForSequenceClassification"], hidden_size=31)(tmp_path / "model")
    with pytest.raises(ModelError, match="cannot be loaded") as error:
        second_scorer(str(tmp_path / "model"), TextTable(["a", "b"]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        dense(),
        dense(activation_function="torch.nn.modules.activation.Tanh"),
        added_module(
            "LayerNorm",
            {"dimension": 32},
            **{"norm.weight": np.ones(32, np.float32), "norm.bias": np.zeros(32, np.float32)},
        ),
        added_module("Dropout", {"dropout": 0.1}),
        added_module("Normalize", {}),
        pooling(pooling_mode=["mean", "max"]),
    ],
    ids=["dense", "dense with tanh", "layer normalization", "dropout", "normalize", "two poolings"],
)
def test_the_supported_modules_are_loaded(tiny_encoder: Path, tmp_path: Path, change: Change) -> None:
    shutil.copytree(tiny_encoder, tmp_path / "model")
    change(tmp_path / "model")
    assert load_encoder(EncoderConfig(name=str(tmp_path / "model"), max_seq_length=16)).get_embedding_dimension() > 0


def token(content: str, **values: bool) -> dict[str, object]:
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": content, **plain, **values}


BERT_TOKENS = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
ROBERTA_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
}
ROBERTA_TOKENS |= {"pad_token": "<pad>", "mask_token": token("<mask>", lstrip=True)}  # type: ignore[dict-item]
T5_TOKENS = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
EXTRA_IDS = [f"<extra_id_{number}>" for number in range(100)]
BERT = {"model_type": "bert", "hidden_size": 4, "num_hidden_layers": 1, "vocab_size": 9, "hidden_act": "gelu"}
USUAL: dict[str, tuple[dict[str, object], dict[str, object], dict[str, object]]] = {
    "all-MiniLM-L6-v2": (
        BERT | {"_name_or_path": "nreimers/MiniLM-L6-H384-uncased", "position_embedding_type": "absolute"},
        BERT_TOKENS
        | {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None, "never_split": None}
        | {"name_or_path": "nreimers/MiniLM-L6-H384-uncased", "do_basic_tokenize": True, "model_max_length": 512}
        | {"tokenizer_class": "BertTokenizer"},
        dict(BERT_TOKENS),
    ),
    "all-mpnet-base-v2": (
        {"model_type": "mpnet", "hidden_size": 4, "relative_attention_num_buckets": 9, "max_position_embeddings": 514},
        {name: {"__type": "AddedToken", **token("<s>", normalized=True)} for name in ROBERTA_TOKENS}
        | {"tokenizer_class": "MPNetTokenizer", "special_tokens_map_file": None, "model_max_length": 512}
        | {"max_length": 128, "pad_to_multiple_of": None, "pad_token_type_id": 0, "padding_side": "right", "stride": 0},
        dict(ROBERTA_TOKENS),
    ),
    "bge-small-en-v1.5": (
        BERT | {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "torch_dtype": "float32"},
        BERT_TOKENS
        | {"added_tokens_decoder": {"0": token("[PAD]", special=True)}, "clean_up_tokenization_spaces": True}
        | {"tokenizer_class": "BertTokenizer", "model_max_length": 512},
        {name: token(text) for name, text in BERT_TOKENS.items()},
    ),
    "e5-base-v2": (
        BERT | {"classifier_dropout": None},
        BERT_TOKENS
        | {"tokenizer_class": "BertTokenizer", "special_tokens_map_file": "/home/author/special_tokens_map.json"},
        dict(BERT_TOKENS),
    ),
    "gte-base": (BERT, BERT_TOKENS | {"model_max_length": 1000000000000000019884624838656}, dict(BERT_TOKENS)),
    "multilingual-e5-small": (
        BERT | {"tokenizer_class": "XLMRobertaTokenizer"},
        ROBERTA_TOKENS
        | {"additional_special_tokens": [], "sp_model_kwargs": {}, "tokenizer_class": "XLMRobertaTokenizer"},
        dict(ROBERTA_TOKENS),
    ),
    "all-distilroberta-v1": (
        {"model_type": "roberta", "hidden_size": 4, "max_position_embeddings": 514, "type_vocab_size": 1},
        ROBERTA_TOKENS | {"add_prefix_space": False, "trim_offsets": True, "errors": "replace"},
        dict(ROBERTA_TOKENS),
    ),
    "sentence-t5-base": (
        {"model_type": "t5", "d_model": 4, "d_kv": 4, "d_ff": 9, "num_layers": 1, "num_heads": 2, "n_positions": 512}
        | {"relative_attention_num_buckets": 9, "task_specific_params": {"summarization": {"max_length": 200}}},
        T5_TOKENS | {"extra_ids": 100, "additional_special_tokens": EXTRA_IDS, "sp_model_kwargs": {}, "legacy": True},
        T5_TOKENS | {"additional_special_tokens": EXTRA_IDS},
    ),
    "ms-marco-MiniLM-L6-v2": (
        BERT
        | {"architectures": ["BertForSequenceClassification"]}
        | {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}}
        | {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
        BERT_TOKENS | {"tokenizer_class": "BertTokenizer", "do_basic_tokenize": True, "extra_special_tokens": {}},
        dict(BERT_TOKENS),
    ),
    "Qwen3-Embedding": (
        {
            "model_type": "qwen3",
            "hidden_size": 4,
            "head_dim": 4,
            "max_position_embeddings": 32768,
            "rope_theta": 1000000,
        }
        | {"sliding_window": None, "num_key_value_heads": 8, "intermediate_size": 9, "layer_types": ["full_attention"]},
        {"chat_template": "{{ messages }}", "split_special_tokens": False, "add_bos_token": False, "bos_token": None}
        | {"additional_special_tokens": ["<|im_start|>"], "tokenizer_class": "Qwen2Tokenizer", "errors": "replace"},
        {"eos_token": token("<|im_end|>"), "additional_special_tokens": ["<|im_start|>"]},
    ),
}


@pytest.mark.parametrize("name", USUAL)
def test_the_usual_settings_of_known_models_are_accepted(tmp_path: Path, name: str) -> None:
    config, settings, special = USUAL[name]
    for file, content in (("config", config), ("tokenizer_config", settings), ("special_tokens_map", special)):
        (tmp_path / f"{file}.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "added_tokens.json").write_text('{"<mask>": 8}', encoding="utf-8")
    save_file({"embeddings.weight": np.ones((9, 4), np.float32)}, tmp_path / "model.safetensors")
    check_folder(tmp_path)


def test_the_known_tokenizers_are_not_executed_in_python() -> None:
    from transformers import TokenizersBackend
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

    names = [f"{name}Tokenizer{suffix}" for name in TOKENIZERS for suffix in ("", "Fast")]
    found = [tokenizer_class_from_name(name) for name in (*names, "PreTrainedTokenizerFast")]
    known = [one for one in found if one is not None]  # for others, the library takes TokenizersBackend
    assert len(known) > len(TOKENIZERS)
    assert all(issubclass(one, TokenizersBackend) for one in known)


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
ZERO_WIDTH = {"type": "Replace", "pattern": {"Regex": "(?=.)"}, "content": "b"}
CHARACTER_MAP = base64.b64encode(b"\4\0\0\0" + bytes(4) + b"b" * 1000 + b"\0").decode()


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": [REPLACE] * 40}, "make texts much longer"),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [ZERO_WIDTH] * 4},
            "much longer|a regular expr",
        ),
        ("normalizer", {"type": "Sequence", "normalizers": [REPLACE] * 3}, "make texts much longer"),
        ("normalizer", {**REPLACE, "content": "a" * 1000}, "make texts much longer"),
        ("normalizer", {**REPLACE, "type": "Replace2"}, "a step of an unknown type"),
        ("normalizer", {"type": "Sequence", "normalizers": [{**REPLACE, "type": None}]}, "a step of an unknown type"),
        ("decoder", {"type": "Replaced", "pattern": {"String": "a"}}, "a step of an unknown type"),
        ("model", {"type": "Unigram", "vocab": [["a" * 60, 0.0]] * 50_000}, "or 2,500,000 together"),
        ("normalizer", {"type": "Prepend", "prepend": "a" * 1000}, "a long prefix"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a"}] * 20}, "a long pref"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": CHARACTER_MAP}, "replaced by long texts"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFKD"}] * 60}, "steps, more than 50"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 3}, "3 steps ByteLevel"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "Metaspace"}] * 3}, "3 steps Metaspace"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Precompiled"}] * 2}, "2 steps Precompiled"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}] * 2}, "2 steps BertNorm"),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(?:.|.|.){14}[^.]"}}, "a regular expression"),
        ("post_processor", {"type": "Sequence", "processors": [{"type": "BertProcessing"}] * 2}, "2 steps BertProcess"),
        ("post_processor", {"type": "TemplateProcessing", "single": [{"Sequence": {}}] * 9}, "a template that makes"),
        ("normalizer", {"type": "Sequence", "normalizers": 3}, "steps of an unknown form"),
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "a" * 1000}, "a long prefix"),
        ("post_processor", {"type": "TemplateProcessing", "special_tokens": {"[CLS]": {"ids": [1] * 9}}}, "many ids"),
        ("model", {"type": "Unigram", "vocab": [["a" * 65, 0.0]]}, "pieces of more than 64 characters"),
        ("model", {"max_input_chars_per_word": 10**9}, "words of more than 100 characters"),
    ],
)
def test_a_tokenizer_that_needs_much_memory_is_refused(
    tiny_encoder: Path, tmp_path: Path, part: str, values: dict[str, Any], words: str
) -> None:
    shutil.copytree(tiny_encoder, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(tokenizer | {part: (tokenizer[part] or {}) | values}), encoding="utf-8")
    with pytest.raises(ModelError, match=words):
        check_folder(tmp_path / "model")


def test_the_steps_of_usual_tokenizers_are_allowed(tiny_encoder: Path, tmp_path: Path) -> None:
    usual = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"},
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\4\0\0\0" + bytes(4) + b"fi\0").decode()},
    ]
    shutil.copytree(tiny_encoder, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": usual}
    words = r"'s|'t|'re|'ve|'m|'ll|'d"
    rest = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            for pattern in (
                rf"{words}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
                rf"(?i:{words})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{rest}",
                rf"(?i:{words})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{rest}",
            )
        ],
    }
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    check_folder(tmp_path / "model")


def test_an_error_of_the_tokenizer_library_is_reported(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As `tokenizers` raises, which is written in Rust."""

    def fail(*arguments: object, **options: object) -> None:
        raise PanicException("retry-limit-in-match over")

    model = load_encoder(EncoderConfig(name=str(tiny_encoder), max_seq_length=16))
    monkeypatch.setattr(type(model.tokenizer), "__call__", fail)
    with pytest.raises(ModelError, match=r"fails \(retry-limit-in-match over"):
        tokenize(model, ["a text"], 16)


@pytest.mark.parametrize("name", sorted(MODEL_TYPES))
def test_the_size_of_each_architecture_is_known_before_it_is_built(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoConfig

    monkeypatch.setattr(pretrained, "SMALL", 0)
    layers = {"gpt_neo": {}, "funnel": {"architectures": ["FunnelModel"]}}  # these two have a list of layers
    AutoConfig.for_model(name, **layers.get(name, {"num_hidden_layers": 1})).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="describes a transformer of"):
        pretrained._check_size(tmp_path, 1)


def test_a_vocabulary_without_a_tokenizer_file_is_loaded(tiny_encoder: Path, tmp_path: Path) -> None:
    content = json.loads((tiny_encoder / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    shutil.copytree(tiny_encoder, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    write("special_tokens_map.json", json.dumps(BERT_TOKENS))(tmp_path / "model")
    model = load_encoder(EncoderConfig(name=str(tmp_path / "model"), max_seq_length=16))
    assert model.tokenizer.get_vocab() == content["model"]["vocab"]


def test_a_vocabulary_with_merges_is_loaded(tiny_encoder: Path, tmp_path: Path) -> None:
    from transformers import RobertaConfig, RobertaModel

    shutil.copytree(tiny_encoder, tmp_path / "model")
    remove("tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors")(tmp_path / "model")
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    RobertaModel(RobertaConfig(vocab_size=9, max_position_embeddings=34, **size)).save_pretrained(tmp_path / "model")
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "c", "ab"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    write("vocab.json", json.dumps(vocabulary))(tmp_path / "model")
    write("merges.txt", "#version: 0.2\na b\n")(tmp_path / "model")
    write("special_tokens_map.json", json.dumps(ROBERTA_TOKENS))(tmp_path / "model")
    write("tokenizer_config.json", '{"tokenizer_class": "RobertaTokenizer"}')(tmp_path / "model")
    model = load_encoder(EncoderConfig(name=str(tmp_path / "model"), max_seq_length=16))
    assert model.tokenizer("abc")["input_ids"] == [0, 8, 7, 2]


@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_the_settings_of_usual_models_are_allowed(tmp_path: Path, kind: str) -> None:
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        pytest.fail(f"{kind} is not an architecture of this version of transformers")
    values = {
        "max_position_embeddings": 131_072,
        "rope_theta": 10_000_000,
        "eos_token_id": 151_645,
        "train_steps": 10**6,
    }
    values |= {"_attn_implementation_autoset": True, "_attn_implementation": "sdpa"}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG_MAPPING[kind]().to_diff_dict() | values), encoding="utf-8")
    _check_config(tmp_path / "config.json")
