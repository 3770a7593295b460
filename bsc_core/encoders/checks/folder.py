"""Check of a model folder before the libraries that build the model are imported.

Names of modules, settings of tokenizers and values of configs are compared with lists of what is allowed. Everything
else in these files could make a library read other files, run code or allocate memory without limit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import psutil

from bsc_core.encoders.checks.tokenizer import MAX_ADDED, MAX_ADDED_TOKENS, tokenizer_problem
from bsc_core.errors import ModelError
from bsc_core.files import MAX_LARGE_DOCUMENT_BYTES, check_regular, check_safetensors, error_reason, read_regular
from bsc_core.paths import check_path

Shapes = dict[str, tuple[int, ...]]
"""Shapes of the tensors of a folder by name, without those that have no entries."""

MODULES = ("Transformer", "StaticEmbedding", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout")
MODEL_TYPES = (  # transformers of text whose layers are described by the config itself
    *("albert", "bart", "bert", "big_bird", "bloom", "camembert", "convbert", "data2vec-text"),
    *("deberta", "deberta-v2", "distilbert", "electra", "ernie", "eurobert", "falcon", "fnet", "funnel"),
    *("gemma", "gemma2", "gemma3_text", "glm", "gpt2", "gpt_neo", "gpt_neox", "gptj", "granite", "gte", "ibert"),
    *("llama", "longformer", "longt5", "luke", "mbart", "megatron-bert", "mistral", "mobilebert", "modernbert"),
    *("modernbert-decoder", "mpnet", "mpt", "mt5", "nomic_bert", "nystromformer", "olmo", "olmo2", "openai-gpt", "opt"),
    *("phi", "phi3", "qwen2", "qwen3", "rembert", "roberta", "roberta-prelayernorm", "roformer", "smollm3", "splinter"),
    *("squeezebert", "starcoder2", "t5", "umt5", "xglm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod"),
    "yoso",
)
LAYER_COUNTS = (
    *("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layers", "n_layer", "num_hidden_groups"),
    *("encoder_layers", "decoder_layers", "inner_group_num", "num_feedforward_networks"),
)
MAX_LAYERS = 200
MAX_PARTS = 2000  # of layers
DIMENSIONS = (
    *("vocab_size", "hidden_size", "intermediate_size", "embedding_size", "type_vocab_size", "num_attention_heads"),
    *("dim", "hidden_dim", "n_heads", "d_model", "d_ff", "d_kv", "d_embed", "d_inner", "d_head"),
    *("n_embd", "n_inner", "n_head", "emb_dim", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "head_dim"),
    *("num_heads", "num_key_value_heads", "ffn_hidden_size", "word_embed_proj_dim", "input_embedding_size"),
    *("output_embedding_size", "entity_vocab_size", "entity_emb_size", "intra_bottleneck_size", "position_buckets"),
    *("relative_attention_num_buckets", "true_hidden_size"),
)
POSITIONS = ("max_position_embeddings", "n_positions", "max_position", "max_seq_len")
MAX_POSITIONS = 2**18  # rotary positions need no weights, so the weights do not limit their number
SNAPSHOTS = "snapshots"  # folder in the cache of the Hub whose files are links to those of the same model
MAX_DIMENSION = 2**40
MAX_SETTING, MAX_LENGTH, MAX_VALUES = 4096, 1000, 10_000
MAX_TOKEN_SETTINGS, MAX_SPECIAL_TOKENS = 100, 5_000
MAX_COMPARED_TOKENS = 2_000_000  # special tokens times all tokens, which transformers compares with each other
FEW_SPECIAL_TOKENS = 30  # with which the vocabulary is not read again
MAX_TENSORS, MAX_FILES = 20_000, 10_000
MAX_TOKENIZER_BYTES, MAX_TOKENIZER_LISTS = 40 * 2**20, 1_500_000  # 600,000 merges are as many lists
MAX_TOKENIZER_NAMES, MAX_TOKENIZER_TEXTS = 1_000_000, 2_000_000  # 260,000 pieces are as many names
SETTINGS = (".json", ".txt", ".model")  # endings of settings and vocabularies
MAX_CHECKED_BYTES = 128 * 2**20  # of all settings and vocabularies, with links to the same file
MAX_VOCABULARY_MIB, MAX_PIECES_MIB = 12, 20  # of text, which needs up to 55 times its size, and of SentencePiece
MAX_NOTE_MIB = 4  # of a model card or chat template
MAX_PROMPT, MAX_TOKEN = 2_000, 1_000  # characters
SMALL_NUMBERS = {  # of which memory and time are a multiple: windows of tokens, to which texts are padded, and counts
    **dict.fromkeys(("attention_window", "block_size", "num_labels"), 1024),
    **dict.fromkeys(("tpu_short_seq_length", "local_radius", "global_block_size"), 512),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_heads", "n_head", "num_key_value_heads"), 256),
    **{"block_sizes": 64, "block_repeats": 16, "conv_kernel_size": 65, "chunk_size_feed_forward": 0},
    **{"num_hash": 64, "hash_code_len": 16},
}
LARGE_NUMBERS = (
    (re.compile(r"theta|base$|train|step|epoch|sample|batch|seed"), 10**12),  # rotary positions, notes on the training
    (re.compile(r"position|seq|length|ctx|window|token|vocab|features|dimension|_ids?$"), MAX_POSITIONS),
)
HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head")
WIDTHS = ("hidden_size", "d_model", "dim", "n_embd")
MAX_SMALL_HEADS, MIN_HEAD_WIDTH = 32, 32  # each head needs memory for the square of the tokens, however small it is
IMPLEMENTATIONS = ("eager", "sdpa")
COMPUTED_POSITIONS = ("distilbert", "roformer")  # the library computes a table entry by entry
MAX_ENTRIES = 2**21  # of such a table
CONFIG_FILES = (  # settings of a config that name other files, other code, or other names of settings
    *("configuration_files", "transformers_weights", "gguf_file", "quantization_config", "compression_config"),
    *("attribute_map", "sub_configs", "processor_class", "use_tpu_fourier_optimizations"),
)
MODULE_SETTINGS = (
    *("max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "unpad_inputs"),
    *("model_args", "model_kwargs", "config_args", "config_kwargs", "tokenizer_args", "processor_kwargs"),
    "processing_kwargs",
)
TASKS = ("feature-extraction", "sequence-classification")
ARGUMENTS = MODULE_SETTINGS[6:]
HARMLESS = (  # arguments that name no file, device or package
    *("torch_dtype", "dtype", "add_pooling_layer", "model_max_length", "padding_side", "truncation_side"),
    *("do_lower_case", "add_prefix_space", "use_fast"),
)
ACTIVATION = re.compile(
    r"torch\.nn\.(modules\.activation\.|modules\.linear\.(?=Identity$))?"
    r"(CELU|ELU|GELU|Hardshrink|Hardsigmoid|Hardswish|Hardtanh|Identity|LeakyReLU|LogSigmoid|LogSoftmax|Mish|PReLU|RReLU"
    r"|ReLU|ReLU6|SELU|Sigmoid|SiLU|Softmax|Softmin|Softplus|Softshrink|Softsign|Tanh|Tanhshrink)"
)
DTYPE = re.compile(r"torch\.(bfloat16|float|half|float16|float32|float64)")
SURROGATE = re.compile("[\ud800-\udfff]")
TOKENIZERS = (  # that the library `tokenizers` executes; those in Python need time quadratic in the length of a word
    *("Albert", "Bart", "Barthez", "Bert", "BigBird", "Bloom", "Camembert", "CodeGen", "Cohere", "ConvBert"),
    *("DPRContextEncoder", "DPRQuestionEncoder", "DPRReader", "Deberta", "DebertaV2", "DistilBert", "Electra", "FNet"),
    *("Funnel", "GPT2", "GPTNeoX", "Gemma", "Herbert", "Llama", "Longformer", "Luke", "MBart", "MBart50", "MPNet"),
    *("MT5", "MobileBert", "Nllb", "OpenAIGPT", "Qwen2", "RemBert", "RoFormer", "Roberta", "Splinter", "SqueezeBert"),
    *("T5", "XGLM", "XLMRoberta", "XLNet"),
)
TOKENIZER_CLASS = re.compile(rf"({'|'.join(TOKENIZERS)})Tokenizer(Fast)?|PreTrainedTokenizerFast|TokenizersBackend")
TOKENIZER_TEXTS = (  # settings of a tokenizer with a text that is not the name of a file to open
    *("name_or_path", "special_tokens_map_file", "padding_side", "truncation_side", "truncation_strategy", "padding"),
    *("chat_template", "backend", "errors", "src_lang", "tgt_lang", "prepend_scheme", "strip_accents"),
    *("word_tokenizer_type", "subword_tokenizer_type", "tokenizer_class"),
)
TOKENIZER_LISTS = ("model_input_names", "never_split")  # settings with a list of texts
TOKENIZER_FILES = ("vocab", "merges", "init_inputs", "tokenizer_object", "auto_map", "processor_class")
SPECIAL_TOKENS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
TOKEN_PROPERTIES = ("content", "lstrip", "rstrip", "normalized", "single_word", "special", "id", "__type")
MAX_NUMBER = 1000  # such as the number of additional tokens of T5
LENGTHS = ("model_max_length", "max_length", "max_len")  # limits of texts, of any size
SAMPLING = ("enable_sampling", "nbest_size", "alpha")
ADAPTER = "adapter_config.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
WITH_WEIGHTS = ("StaticEmbedding", "Dense", "LayerNorm")  # modules that would else read a pickled file
MAX_MODULES = 10
TOKEN_NAME = re.compile(r"\w+_token")


def check_folder(folder: Path) -> None:
    """Raise ModelError, naming the file, if a folder is not a model that is safe to load.

    That is: no model files, only pickled weights, modules or architectures that are not in MODULES and MODEL_TYPES, a
    damaged tokenizer file, sizes that the weights do not have, an adapter of another model, or settings that may name
    other files or code.
    """
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise ModelError(f"{folder}: not a model folder (no modules.json and no config.json); give a saved encoder")
    for path in _files(folder):
        _check_file(path, folder)
    settings_files(folder)
    weight_files(folder)
    for pattern in PICKLED:
        for path in folder.rglob(pattern):
            if path.name != "training_args.bin" and not _has_safetensors(path):
                raise ModelError(
                    f"{path}: pickled weights can run code, so they are not loaded; save them as safetensors"
                )
    if adapter := next(folder.rglob(ADAPTER), None):
        raise ModelError(f"{adapter}: adapters of another model are not loaded; merge the adapter and save the model")
    for pattern, check in FILE_CHECKS.items():
        for path in folder.rglob(pattern):
            check(path)
    _check_token_counts(folder)
    largest = 0  # of the dimensions of the weights so far
    for kind, part in _modules(folder):
        if kind in WITH_WEIGHTS and not (part / WEIGHTS).is_file():
            raise ModelError(f"{part}: {WEIGHTS} is missing; save the encoder again")
        shapes = _weight_shapes(part)
        largest = max(largest, _largest(shapes))
        if kind == "Transformer":
            _check_transformer(part, shapes)
        elif kind == "StaticEmbedding":
            _check_static(part, shapes)
        elif kind == "Dense":
            _check_dense(part, shapes)
        elif kind == "LayerNorm":
            _check_shape(part, "dimension", shapes, "norm.weight", 0)
        elif kind == "Pooling":
            _check_pooling(part / "config.json", largest)


def settings_files(folder: Path) -> list[Path]:
    """Return the settings and vocabularies of a model folder.

    Raises:
        ModelError: They are too large, or the folder has too many files.
    """
    paths = [path for path in _files(folder) if path.suffix in SETTINGS and path.is_file()]
    if sum(path.stat().st_size for path in paths) > MAX_CHECKED_BYTES:
        limit = f"more than {MAX_CHECKED_BYTES // 2**20} MiB"
        raise ModelError(f"{folder}: its settings and vocabularies have {limit}; give the folder of a single model")
    return paths


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights that the modules of a model folder load.

    Raises:
        ModelError: A list of the modules or files is damaged, or names code or files outside of the folder; or the
            weights are larger than the memory of the machine.
    """
    paths = [path for _, part in _modules(folder) for path in _weight_files(part) if path.is_file()]
    size, memory = sum(path.stat().st_size for path in paths), psutil.virtual_memory().total
    if size > memory:
        sizes = f"{size / 2**30:,.1f} GiB, and this machine has {memory / 2**30:,.1f} GiB of memory"
        raise ModelError(f"{folder}: its weights have {sizes}; choose a smaller model")
    return paths


def transformers_of(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folder of each transformer of a model folder, and the number of entries of its weights."""
    for kind, part in _modules(folder):
        if kind == "Transformer":
            yield part, sum(map(math.prod, _weight_shapes(part).values()))


def has_architecture(folder: Path, ending: str) -> bool:
    """Return whether config.json names an architecture with that ending; False if there is no readable config."""
    try:
        names = object_of(folder / "config.json").get("architectures")
    except ModelError:
        return False
    return isinstance(names, list) and any(str(name).endswith(ending) for name in names)


def _files(folder: Path) -> Iterator[Path]:
    """Yield what a model folder contains, except folders and broken links."""
    for number, path in enumerate(folder.rglob("*")):
        if number >= MAX_FILES:
            raise ModelError(f"{folder}: has more than {MAX_FILES:,} files; give the folder of a single model")
        if path.exists() and not path.is_dir():
            yield path


def _has_safetensors(pickled: Path) -> bool:
    """Return whether the same weights are also there as safetensors, which are then loaded instead."""
    return any((pickled.parent / name).is_file() for name in (WEIGHTS, WEIGHTS_INDEX))


def _modules(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the class and folder of each module of modules.json; a folder without it is a single transformer."""
    path = folder / "modules.json"
    modules = _json_of(path) if path.is_file() else [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    if not isinstance(modules, list):
        raise ModelError(f"{path}: not a list of modules; save the encoder again")
    if len(modules) > MAX_MODULES:
        raise ModelError(
            f"{path}: has {len(modules)} modules, and at most {MAX_MODULES} are loaded; choose another model"
        )
    parts: set[Path] = set()
    for module in modules:
        kind = str(module.get("type", "")) if isinstance(module, dict) else ""
        package, _, name = kind.rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise ModelError(
                f"{folder}: modules.json names {kind or module!r}, code from outside sentence-transformers; choose "
                "another model"
            )
        if name not in MODULES:
            raise ModelError(
                f"{folder}: modules.json names {kind}, and only these modules are supported: {', '.join(MODULES)}; "
                "choose another model"
            )
        part = (folder / str(module.get("path", ""))).resolve()
        if not part.is_relative_to(folder.resolve()):
            raise ModelError(f"{folder}: modules.json points to {part}, outside the model's folder; correct the path")
        if part in parts and name in (*WITH_WEIGHTS, "Transformer"):
            raise ModelError(
                f"{folder}: modules.json names {part} twice, which would be loaded twice; correct the path"
            )
        parts.add(part)
        yield name, part


def _check_tokenizer_file(path: Path) -> None:
    """Check that a tokenizer file contains its vocabulary, as a text would be opened as a file, and its steps."""
    tokenizer = object_of(path)
    model = tokenizer.get("model")
    vocabulary = model.get("vocab", {}) if isinstance(model, dict) else None
    merges = model.get("merges", []) if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict | list) or not isinstance(merges, list):
        raise ModelError(f"{path}: contains no vocabulary; save the encoder again with its tokenizer")
    try:
        problem = tokenizer_problem(tokenizer)
    except (ValueError, TypeError, LookupError, AttributeError):
        problem = "steps of an unknown form"
    if problem is not None:
        raise ModelError(f"{path}: has {problem}; choose another model")


def _check_tokenizer_settings(path: Path) -> None:
    """Check that the settings of a tokenizer are known not to name files or code."""
    settings = object_of(path)
    _check_tokenizer_class(settings.get("tokenizer_class"), path)
    _check_tokens(settings, path)
    for name, value in settings.items():
        if not _is_tokenizer_setting(name, value):
            raise ModelError(
                f"{path}: {name} may name files outside of the model's folder, or is not of the usual form; remove it"
            )


def _is_tokenizer_setting(name: str, value: Any) -> bool:
    """Return whether a setting has one of the known forms; a null names no file."""
    if value is None or _is_special_token(name, value):
        return True
    if name in TOKENIZER_TEXTS and isinstance(value, str):
        return True
    if name in TOKENIZER_FILES or re.search(r"_(file|path|dir)s?$", name):
        return False
    if name == "added_tokens_decoder":
        are_numbers = isinstance(value, dict) and all(re.fullmatch(r"\d{1,7}", number) for number in value)
        return are_numbers and _are_few(value.values()) and all(map(_is_token, value.values()))
    if name == "chat_template":  # several, with names
        return isinstance(value, list) and all(isinstance(part, dict) and _are_texts(part.values()) for part in value)
    if name == "sp_model_kwargs":
        return isinstance(value, dict) and all(
            key in SAMPLING and isinstance(number, int | float) for key, number in value.items()
        )
    if name in TOKENIZER_LISTS:
        return isinstance(value, list) and _are_texts(value)
    return isinstance(value, bool | float) or (isinstance(value, int) and (value <= MAX_NUMBER or name in LENGTHS))


def _check_special_tokens(path: Path) -> None:
    """Check that a map of special tokens contains only tokens, since the library takes it as further settings."""
    settings = object_of(path)
    _check_tokens(settings, path)
    for name, value in settings.items():
        if value is not None and not _is_special_token(name, value):
            raise ModelError(f"{path}: {name} is not a special token, and may name files; remove it")


def _check_tokens(settings: dict[str, Any], path: Path) -> None:
    """Check that the settings with one special token each are not too many."""
    number = sum(TOKEN_NAME.fullmatch(name) is not None for name in settings)
    if number > MAX_TOKEN_SETTINGS:
        raise ModelError(
            f"{path}: has {number:,} settings of special tokens, and at most {MAX_TOKEN_SETTINGS} are supported"
        )


def _check_token_counts(folder: Path) -> None:
    """Check that a folder has not many special tokens together with many added tokens, which need long to load."""
    names = ("tokenizer_config.json", "special_tokens_map.json")
    settings = [object_of(path) for name in names for path in folder.rglob(name)]
    special = sum(len(one.get(name) or ()) for one in settings for name in SPECIAL_TOKENS)
    special += sum(TOKEN_NAME.fullmatch(name) is not None for one in settings for name in one)
    if special <= FEW_SPECIAL_TOKENS:
        return
    added = sum(len(one.get("added_tokens_decoder") or ()) for one in settings)
    added += sum(len(object_of(path)) for path in folder.rglob("added_tokens.json"))
    added += sum(len(object_of(path).get("added_tokens") or ()) for path in folder.rglob("tokenizer.json"))
    if special * (special + added) > MAX_COMPARED_TOKENS:
        raise ModelError(
            f"{folder}: {special:,} special tokens and {added:,} added tokens take too long to load; remove some"
        )


def _check_tokenizer_class(name: Any, path: Path) -> None:
    if name is not None and not (isinstance(name, str) and TOKENIZER_CLASS.fullmatch(name)):
        raise ModelError(
            f"{path}: tokenizer_class is {str(name)[:40]}, not one that the library `tokenizers` executes; "
            "choose another model"
        )


def _is_special_token(name: str, value: Any) -> bool:
    """Return whether a setting is a special token, or lists or names several."""
    if name in SPECIAL_TOKENS:
        tokens = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [None]
        names = value if isinstance(value, dict) else ()  # the library makes attributes of them
        is_short = len(tokens) <= MAX_SPECIAL_TOKENS and _are_few(tokens)
        return is_short and all(map(_is_token, tokens)) and all(map(TOKEN_NAME.fullmatch, names))
    return TOKEN_NAME.fullmatch(name) is not None and _is_token(value)


def _is_token(value: Any) -> bool:
    """Return whether a value is a token: its text, or an object of plain properties."""
    if isinstance(value, dict):
        return all(
            key in TOKEN_PROPERTIES and isinstance(part, str | bool | int) and len(str(part)) <= MAX_TOKEN
            for key, part in value.items()
        )
    return isinstance(value, str) and len(value) <= MAX_TOKEN


def _are_few(tokens: Collection[Any]) -> bool:
    """Return whether there are not too many tokens, or characters of all of them."""
    texts = [token.get("content") if isinstance(token, dict) else token for token in tokens]
    return len(texts) <= MAX_ADDED_TOKENS and sum(len(str(text)) for text in texts) <= MAX_ADDED


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _check_added_tokens(path: Path) -> None:
    """Check that added tokens are texts with their numbers."""
    tokens = object_of(path)
    if not _are_few(tokens) or not all(isinstance(number, int) for number in tokens.values()):
        raise ModelError(
            f"{path}: not an object of at most {MAX_ADDED_TOKENS:,} tokens and their numbers; save the encoder again"
        )


def _check_module_settings(path: Path) -> None:
    """Check that the settings of a transformer module name no file, device or code, and only its forward method."""
    settings = object_of(path)
    named = [name for name, value in settings.items() if value is not None and name not in MODULE_SETTINGS]
    for section in ARGUMENTS:
        values = settings.get(section) or {}
        if section == "processing_kwargs" and isinstance(values, dict):
            names = {f"{part}.{key}" for part, keys in values.items() for key in keys or ()}
        else:
            names = set(values) - set(HARMLESS) if isinstance(values, dict) else {section}
        named += [f"{section}.{name}" for name in sorted(names)]
    if named:
        raise ModelError(f"{path}: {named[0]} may name files or code outside of the model's folder; remove it")
    modalities = settings.get("modality_config")
    if modalities is not None and not (
        isinstance(modalities, dict) and all(key == "text" and _is_forward(value) for key, value in modalities.items())
    ):
        raise ModelError(f"{path}: modality_config is not that of a model of text; choose another model")
    if settings.get("transformer_task", TASKS[0]) not in TASKS:
        raise ModelError(f"{path}: transformer_task is not {' or '.join(TASKS)}; choose another model")


def _is_forward(value: Any) -> bool:
    """Return whether the values of a modality are the output of the model's forward method."""
    return isinstance(value, dict) and value.get("method") == "forward"


def _shards(path: Path) -> list[str]:
    """Return the names of the files that an index of weights lists, which must be next to it."""
    index = _json_of(path)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict):
        raise ModelError(f"{path}: not an index of weights; save the encoder again")
    names = sorted(set(map(str, shards.values())))
    for name in names:
        if PureWindowsPath(name).name != name:  # also with the separator of POSIX
            raise ModelError(f"{path}: names the weights {name[:80]}, outside of its folder; save the encoder again")
    return names


def _check_config(path: Path) -> None:
    """Check that a config names no other files, and in no part a kernel of the Hub or a function of torch."""
    config = _json_of(path)
    if isinstance(config, dict) and (named := next((name for name in CONFIG_FILES if config.get(name)), None)):
        raise ModelError(f"{path}: {named} is not supported, since it may name other files or code; remove it")
    parts: list[tuple[str, Any]] = [("", config)]
    count = 0
    while parts:
        key, part = parts.pop()
        count += 1
        if count > MAX_VALUES:
            raise ModelError(f"{path}: has more than {MAX_VALUES:,} values; correct it")
        if type(part) is int and abs(part) > (limit := _limit(key)):
            raise ModelError(f"{path}: {key} is {str(part)[:20]}, and at most {limit:,} is supported; correct it")
        if key == "tokenizer_class":
            _check_tokenizer_class(part, path)
        if isinstance(part, str) and part.startswith("torch.") and not (_is_activation(part) or DTYPE.fullmatch(part)):
            raise ModelError(f"{path}: {part[:40]} is not an activation of torch.nn, so it is not called; correct it")
        if "_implementation" in key and part not in (None, True, False, *IMPLEMENTATIONS):
            raise ModelError(f"{path}: {key} is {str(part)[:40]}, not {' or '.join(IMPLEMENTATIONS)}; remove it")
        if isinstance(part, dict | list) and len(part) > MAX_LENGTH:
            raise ModelError(f"{path}: {key} has {len(part):,} entries; correct it")
        if key == "output_attentions" and part:
            raise ModelError(f"{path}: output_attentions keeps the attention weights of all layers; set it to false")
        if isinstance(part, dict):
            _check_heads(part, path)
            parts += [(str(name), value) for name, value in part.items()]
        elif isinstance(part, list):
            parts += [(key, value) for value in part]


def _check_heads(config: dict[str, Any], path: Path) -> None:
    """Raise ModelError for many attention heads of few dimensions, whose memory does not grow with the weights."""
    heads = max((config[name] for name in HEADS if type(config.get(name)) is int), default=0)
    width = config.get("d_kv") or config.get("head_dim")
    if type(width) is not int:
        width = max((config[name] for name in WIDTHS if type(config.get(name)) is int), default=0) // max(heads, 1)
    if heads > MAX_SMALL_HEADS and width < MIN_HEAD_WIDTH:
        raise ModelError(
            f"{path}: {heads} attention heads of {width} dimensions need too much memory; at most "
            f"{MAX_SMALL_HEADS} may have fewer than {MIN_HEAD_WIDTH}"
        )


def _limit(key: str) -> int:
    """Return the largest whole number that a setting may have; sizes are compared with the weights later."""
    if key in SMALL_NUMBERS:
        return SMALL_NUMBERS[key]
    if key in (*DIMENSIONS, *POSITIONS, *LAYER_COUNTS):
        return MAX_DIMENSION
    return next((limit for words, limit in LARGE_NUMBERS if words.search(key)), MAX_SETTING)


def _is_activation(name: str) -> bool:
    return ACTIVATION.fullmatch(name) is not None


def _check_prompts(path: Path) -> None:
    """Check the settings of a whole model, whose prompts are texts."""
    _check_config(path)
    prompts = object_of(path).get("prompts") or {}
    if not isinstance(prompts, dict) or not all(text is None or _is_text(text) for text in prompts.values()):
        raise ModelError(f"{path}: prompts is not an object of texts; save the encoder again")


def _is_text(value: Any) -> bool:
    """Return whether a value is a text of a prompt; half of a surrogate pair cannot be encoded."""
    return isinstance(value, str) and SURROGATE.search(value) is None and len(value) <= MAX_PROMPT


def _refuse_processor(path: Path) -> None:
    raise ModelError(f"{path}: a model of images, sound or video; remove the file if the model reads text only")


def _check_transformer(part: Path, shapes: Shapes) -> None:
    """Check the architecture of a transformer, and compare its sizes with the weights before it is built."""
    path = part / "config.json"
    config = object_of(path)
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise ModelError(f"{path}: model_type is {str(kind)[:40]}, not a supported transformer; choose another model")
    if not shapes:
        raise ModelError(f"{part}: no weights (model.safetensors); save the encoder again, or choose another model")
    largest = _largest(shapes)
    limits = dict.fromkeys(LAYER_COUNTS, MAX_LAYERS) | dict.fromkeys(DIMENSIONS, largest)
    limits |= dict.fromkeys(POSITIONS, MAX_POSITIONS)
    if kind in COMPUTED_POSITIONS:
        sizes = [config.get(name) for name in ("dim", "emb_dim", "hidden_size", "embedding_size")]
        dimension = max(768, *(size for size in sizes if isinstance(size, int)))  # 768 by default
        limits |= dict.fromkeys(POSITIONS, max(1, MAX_ENTRIES // dimension))
    for name, limit in limits.items():
        value = config.get(name)
        lowest = -1 if name in POSITIONS or name == "position_buckets" else 0  # -1: no limit
        if value is not None and not (isinstance(value, int) and lowest <= value <= limit):
            raise ModelError(
                f"{path}: {name} is {str(value)[:20]}, and the weights have {len(shapes)} tensors of at most "
                f"{largest:,} entries in a dimension; save the encoder again"
            )
    if (parts := _number_of_parts(config)) > MAX_PARTS:
        raise ModelError(f"{path}: describes {parts:,} parts of layers, and at most {MAX_PARTS:,} are supported")


def _number_of_parts(config: dict[str, Any]) -> int:
    """Return the number of layers of a transformer, or of their parts where these have a number, too."""

    def number(name: str) -> int:
        value = config.get(name)
        return value if isinstance(value, int) else 1

    def numbers(name: str) -> list[int]:
        value = config.get(name)
        return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []

    languages = config.get("languages")
    return max(
        number("num_hidden_layers") * number("num_feedforward_networks"),  # MobileBERT
        number("num_hidden_layers") * (len(languages) if isinstance(languages, list) else 1),  # X-MOD
        number("num_hidden_groups") * number("inner_group_num"),  # ALBERT
        sum(numbers("block_sizes")) * max(numbers("block_repeats"), default=1),  # Funnel
    )


def _check_static(part: Path, shapes: Shapes) -> None:
    """Check that the vectors of the tokens, if they are given by a mapping, are not more than the tokens."""
    path = part / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{part}: the tokenizer {path.name} is missing; save the encoder again with it")
    if not shapes:
        raise ModelError(f"{part}: no weights (model.safetensors); save the encoder again, or choose another model")
    tokenizer = object_of(path)
    tokens = len(tokenizer["model"].get("vocab", {})) + len(tokenizer.get("added_tokens") or ())
    rows = math.prod(shapes.get("mapping", ()))
    if "mapping" in shapes and rows > tokens:
        raise ModelError(f"{part}: maps {rows:,} tokens, and the tokenizer has {tokens:,}; save the encoder again")


def _check_dense(part: Path, shapes: Shapes) -> None:
    """Check the sizes and the activation of a dense layer."""
    path = part / "config.json"
    activation = object_of(path).get("activation_function", "torch.nn.Tanh")
    if not isinstance(activation, str) or not _is_activation(activation):
        raise ModelError(
            f"{path}: activation_function is {str(activation)[:40]}, not an activation of torch.nn; correct it"
        )
    _check_shape(part, "out_features", shapes, "linear.weight", 0)
    _check_shape(part, "in_features", shapes, "linear.weight", 1)


def _check_shape(part: Path, name: str, shapes: Shapes, tensor: str, axis: int) -> None:
    """Check that a setting of a module is the size of its weights."""
    value = object_of(part / "config.json").get(name)
    shape = shapes.get(tensor, ())
    if not isinstance(value, int) or axis >= len(shape) or value != shape[axis]:
        size = f"{tensor} has the shape {shape}" if shape else f"there are no weights {tensor}"
        raise ModelError(f"{part / 'config.json'}: {name} is {str(value)[:20]}, and {size}; save the encoder again")


def _check_pooling(path: Path, largest: int) -> None:
    """Check the size of the vectors that are pooled, which have a dimension of the weights of a module before."""
    config = object_of(path)
    for name in ("embedding_dimension", "word_embedding_dimension"):
        value = config.get(name)
        if value is not None and not (isinstance(value, int) and 0 < value <= largest):
            raise ModelError(
                f"{path}: {name} is {str(value)[:20]}, and the weights have at most {largest:,} entries in a "
                "dimension; save the encoder again"
            )
    modes = config.get("pooling_mode", "mean")
    is_list = isinstance(modes, list) and _are_texts(modes) and len(set(modes)) == len(modes)
    if not isinstance(modes, str) and not is_list:
        raise ModelError(f"{path}: pooling_mode is not a list of different modes; save the encoder again")


def _weight_shapes(part: Path) -> Shapes:
    """Return the shapes of the tensors in the safetensors files of a folder that are loaded.

    A tensor without entries is left out: its other dimensions can be of any size although it has no data.
    """
    from safetensors import SafetensorError, safe_open

    shapes: Shapes = {}
    for path in _weight_files(part):
        try:
            check_safetensors(path)
            with safe_open(path, framework="np") as file:
                names = list(file.keys())
                if not shapes.keys().isdisjoint(names):
                    raise ModelError(f"{path}: has a tensor of another file; save the encoder again")
                if len(shapes) + len(names) > MAX_TENSORS:
                    raise ModelError(f"{path}: there are more than {MAX_TENSORS:,} tensors, which is not supported")
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
        except (SafetensorError, OSError, ValueError) as error:
            raise ModelError(f"{path}: damaged weights ({error}); save the encoder again") from error
    return {name: shape for name, shape in shapes.items() if math.prod(shape)}


def _weight_files(part: Path) -> list[Path]:
    """Return the safetensors files of the folder of a module that are loaded."""
    if (part / WEIGHTS).is_file():
        return [part / WEIGHTS]
    index = part / WEIGHTS_INDEX
    return [part / name for name in _shards(index)] if index.is_file() else []


def _largest(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the longest dimension of the tensors."""
    return max((size for shape in shapes.values() for size in shape), default=0)


def object_of(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model folder.

    Raises:
        ModelError: The file is missing, or not a JSON object.
    """
    values = _json_of(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: not a JSON object; save the encoder again")
    return values


def _check_file(path: Path, folder: Path) -> None:
    """Check that a file is a regular one, and that a link leads to a file of the model or one that may be read."""
    parts = [folder.resolve(), *([folder.resolve().parents[1]] if folder.resolve().parent.name == SNAPSHOTS else [])]
    if path.is_symlink() and not any(path.resolve().is_relative_to(part) for part in parts):
        check_path(path)
    try:
        check_regular(path, path.stat().st_size)  # weights may be larger than a document
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path}: cannot be read ({error_reason(error)}); remove it, or save the encoder again"
        ) from None


def _json_of(path: Path) -> Any:
    try:
        is_tokenizer = path.name == "tokenizer.json"
        content = read_regular(path, MAX_TOKENIZER_BYTES if is_tokenizer else MAX_LARGE_DOCUMENT_BYTES)
        if is_tokenizer:
            _check_counts(content)
        return json.loads(content.decode("utf-8"), object_pairs_hook=_distinct if is_tokenizer else None)
    except (ValueError, RecursionError, OSError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ModelError(f"{path}: not JSON ({reason}); save the encoder again") from None


def _check_counts(content: bytes) -> None:
    """Raise ValueError if the JSON text of a tokenizer has values whose objects would need much memory."""
    if content.count(b"[") + content.count(b"{") > MAX_TOKENIZER_LISTS:
        raise ValueError("it has too many lists and objects")
    if content.count(b":") > MAX_TOKENIZER_NAMES or content.count(b'"') // 2 > MAX_TOKENIZER_TEXTS:
        raise ValueError("it has too many names and texts")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):  # libraries differ in which one they read
        raise ValueError("a name occurs twice")
    return values


def _check_vocabulary(path: Path) -> None:
    """Check the size of a file that the library reads if there is no tokenizer.json."""
    limit = MAX_PIECES_MIB if path.suffix == ".model" else MAX_VOCABULARY_MIB
    if path.stat().st_size > limit * 2**20:
        raise ModelError(f"{path}: larger than {limit} MiB; save the encoder with a tokenizer.json instead")


def _refuse_vocabulary(path: Path) -> None:
    """Refuse the vocabulary of another library, which is read if there is no tokenizer.json."""
    if not (path.parent / "tokenizer.json").is_file():
        raise ModelError(f"{path}: the vocabulary of another library; save the encoder with a tokenizer.json instead")


def _check_note(path: Path) -> None:
    """Check the size of a text that libraries read and do not use."""
    if path.stat().st_size > MAX_NOTE_MIB * 2**20:
        raise ModelError(f"{path}: larger than {MAX_NOTE_MIB} MiB; remove the file")


FILE_CHECKS: dict[str, Callable[[Path], object]] = {
    "sentence_*_config.json": _check_module_settings,
    "tokenizer_config.json": _check_tokenizer_settings,
    "special_tokens_map.json": _check_special_tokens,
    "added_tokens.json": _check_added_tokens,
    "tokenizer.json": _check_tokenizer_file,
    "*.index.json": _shards,
    "config.json": _check_config,
    "config_sentence_transformers.json": _check_prompts,
    "*processor_config.json": _refuse_processor,
    **dict.fromkeys(("*vocab*", "merges.txt", "bpe.codes", "*.model"), _check_vocabulary),
    **dict.fromkeys(("*tekken.json*", "*tiktoken*", "*tokenizer_file*", "*tokenizer.model.*"), _refuse_vocabulary),
    **dict.fromkeys(("README.md", "*.jinja"), _check_note),
}
