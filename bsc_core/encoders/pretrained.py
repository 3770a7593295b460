"""Model folders of sentence-transformers: download, check, load and save, with the model card.

A hub id is downloaded to a folder first, so one check covers all encoders: weights are safetensors, modules come from
the library, and no code from a model's folder is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from bsc_core.errors import ConfigError, ModelError
from bsc_core.files import atomic_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    from bsc_core.types import Vectors

HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "README.md"]
USAGE = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/of/this/folder")
vectors = model.encode(["first text", "second text"])
print(model.similarity(vectors, vectors))"""
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "num_hidden_groups")
DIMENSIONS = (
    *("vocab_size", "hidden_size", "intermediate_size", "embedding_size", "type_vocab_size", "num_attention_heads"),
    *("dim", "hidden_dim", "n_heads", "d_model", "d_ff", "num_labels"),
)
ARGUMENTS = ("model_args", "model_kwargs", "config_args", "config_kwargs", "tokenizer_args", "processor_kwargs")
HARMLESS = (  # arguments that name no file, device or package
    *("torch_dtype", "dtype", "add_pooling_layer", "model_max_length", "padding_side", "truncation_side"),
    *("do_lower_case", "add_prefix_space", "use_fast"),
)
VOCABULARY = ("vocab", "merges", "init_inputs")  # settings of a tokenizer that its class may open as files
ADAPTER = "adapter_config.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def fetch(hub_id: str) -> Path:
    """Return the folder of a hub model in the local hub cache, downloading it if needed and possible.

    Raises:
        ModelError: The hub has no such model or cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no details'}"
        raise ModelError(
            f"{hub_id}: no such folder, and no such model on the hub ({reason}); "
            "give the path of a sentence-transformers folder, bundled or static"
        ) from error


def load_folder(folder: Path, max_seq_length: int) -> SentenceTransformer:
    """Load a sentence-transformers folder on the best available device, in evaluation mode.

    Raises:
        ModelError: The folder is not such a model, or is not safe to load.
        ConfigError: The model cannot read texts of that length.
    """
    check_folder(folder)  # before the imports, which take seconds
    from sentence_transformers import SentenceTransformer

    try:
        with _no_progress_bars():
            model = SentenceTransformer(
                str(folder), trust_remote_code=False, local_files_only=True, model_kwargs={"use_safetensors": True}
            )
    except MemoryError:
        raise
    except Exception as error:  # tokenizers raises Exception itself
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"{folder}: cannot be loaded as a sentence-transformers model ({reason}); save the model again"
        ) from error
    check_tokenizer(model, folder)
    limit_length(model, max_seq_length)
    return model.eval()


def check_folder(folder: Path) -> None:
    """Raise ModelError, naming the file, if a folder is not a model that is safe to load.

    That is: no model files, only pickled weights, modules from outside the library, a damaged tokenizer file, sizes in
    the config that the weights do not have, an adapter of another model, or settings that may name other files.
    """
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise ModelError(f"{folder}: not a model folder (no modules.json and no config.json); give a saved encoder")
    for pattern in PICKLED:
        for path in folder.rglob(pattern):
            if path.name != "training_args.bin" and not _has_safetensors(path):
                raise ModelError(
                    f"{path}: pickled weights can run code, so they are not loaded; save them as safetensors"
                )
    if adapter := next(folder.rglob(ADAPTER), None):
        raise ModelError(f"{adapter}: adapters of another model are not loaded; merge the adapter and save the model")
    for path in folder.rglob("sentence_*_config.json"):
        _check_arguments(path)
    for path in folder.rglob("tokenizer_config.json"):
        _check_vocabulary(path)
    for path in folder.rglob("*.index.json"):
        _check_shards(path)
    for path in folder.rglob("config.json"):
        _check_kernels(path)
    for module in _modules(folder):
        kind = str(module.get("type", "")) if isinstance(module, dict) else ""
        if not kind.startswith("sentence_transformers."):
            raise ModelError(
                f"{folder}: modules.json names {kind or module!r}, code from outside sentence-transformers; choose "
                "another model"
            )
        part = (folder / str(module.get("path", ""))).resolve()
        if not part.is_relative_to(folder.resolve()):
            raise ModelError(f"{folder}: modules.json points to {part}, outside the model's folder; correct the path")
        _check_tokenizer_file(part / "tokenizer.json", is_needed=kind.endswith(".StaticEmbedding"))
        if kind.endswith(".Transformer"):
            _check_sizes(part)


def _has_safetensors(pickled: Path) -> bool:
    """Return whether the same weights are also there as safetensors, which are then loaded instead."""
    names = ("model.safetensors", "model.safetensors.index.json", f"{pickled.stem}.safetensors")
    return any((pickled.parent / name).is_file() for name in names)


def _check_tokenizer_file(path: Path, *, is_needed: bool) -> None:
    """Check a tokenizer file; `is_needed` unless the module can read files of other names, as a transformer can."""
    if path.is_file():
        _json_of(path)
    elif is_needed:
        raise ModelError(f"{path.parent}: the tokenizer {path.name} is missing; save the encoder again with it")


def _check_arguments(path: Path) -> None:
    """Check that the settings of a transformer module name no file, device or package outside of the model's folder."""
    settings = _object_of(path)
    named = [name for name in ("tokenizer_name_or_path", "cache_dir", "backend") if settings.get(name)]
    for section in ARGUMENTS:
        values = settings.get(section) or {}
        names = set(values) - set(HARMLESS) if isinstance(values, dict) else {section}
        named += [f"{section}.{name}" for name in sorted(names)]
    if named:
        raise ModelError(f"{path}: {named[0]} may name files or code outside of the model's folder; remove it")


def _check_vocabulary(path: Path) -> None:
    """Check that the settings of a tokenizer do not give its vocabulary, which the library reads from any path."""
    settings = _object_of(path)
    if named := next((name for name in VOCABULARY if settings.get(name)), None):
        raise ModelError(f"{path}: {named} may name files outside of the model's folder; remove it")


def _check_shards(path: Path) -> None:
    """Check that an index of weights names files next to it only."""
    index = _json_of(path)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict):
        raise ModelError(f"{path}: not an index of weights; save the encoder again")
    for shard in set(map(str, shards.values())):
        if PureWindowsPath(shard).name != shard:  # also with the separator of POSIX
            raise ModelError(f"{path}: names the weights {shard[:80]}, outside of its folder; save the encoder again")


def _check_kernels(path: Path) -> None:
    """Check that a config, or a part of it, names no attention or other kernel of the Hub, which is code."""
    parts = [_json_of(path)]
    while parts:
        part = parts.pop()
        for name, value in part.items() if isinstance(part, dict) else ():
            if "_implementation" in name and "/" in str(value):
                raise ModelError(f"{path}: {name} is {str(value)[:40]}, code from outside the library; remove it")
            parts.append(value)


def _check_sizes(part: Path) -> None:
    """Compare the sizes in the config of a transformer with its weights, before a model of these sizes is built."""
    config_file = part / "config.json"
    config = _object_of(config_file) if config_file.is_file() else {}
    tensors, longest = _weight_sizes(part)
    if not tensors:
        return
    for name, value in config.items():
        limit = max(100, tensors) if name in LAYER_COUNTS else longest if name in DIMENSIONS else None
        if limit is not None and not (isinstance(value, int) and 0 <= value <= limit):
            raise ModelError(
                f"{config_file}: {name} is {str(value)[:20]}, and the weights have {tensors} tensors of at most "
                f"{longest:,} entries in a dimension; save the encoder again"
            )


def _weight_sizes(part: Path) -> tuple[int, int]:
    """Return the number of tensors of the safetensors files of a folder and their longest dimension."""
    from safetensors import SafetensorError, safe_open

    shapes: list[Sequence[int]] = []
    for path in part.glob("*.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                shapes += [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: damaged weights ({error}); save the encoder again") from error
    return len(shapes), max((size for shape in shapes for size in shape), default=0)


def _modules(folder: Path) -> list[Any]:
    """Read modules.json; a folder without it is a single transformer."""
    path = folder / "modules.json"
    if not path.is_file():
        return [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    modules = _json_of(path)
    if not isinstance(modules, list):
        raise ModelError(f"{path}: not a list of modules; save the encoder again")
    return modules


def _object_of(path: Path) -> dict[str, Any]:
    values = _json_of(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path}: not a JSON object; save the encoder again")
    return values


def _json_of(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ModelError(f"{path}: not JSON ({reason}); save the encoder again") from None


def check_tokenizer(model: SentenceTransformer, folder: Path) -> None:
    """Raise ModelError if the tokenizer has special tokens only: the library builds that if its files are missing."""
    special = getattr(model.tokenizer, "all_special_tokens", None)
    if special is not None and len(model.tokenizer) <= len(special):
        raise ModelError(f"{folder}: the tokenizer (such as tokenizer.json) is missing; save the encoder again with it")


def limit_length(model: SentenceTransformer, max_seq_length: int) -> None:
    """Truncate texts to `max_seq_length` tokens; raise ConfigError if the model has fewer positions."""
    tokenizer = model.tokenizer
    if hasattr(tokenizer, "enable_truncation"):  # StaticEmbedding: a bare tokenizer, without a limit of positions
        tokenizer.enable_truncation(max_seq_length)
        return
    positions = _positions(model.transformers_model)
    if positions is not None and positions < max_seq_length:
        raise ConfigError(f"encoder.max_seq_length is {max_seq_length}; this encoder reads at most {positions} tokens")
    model.max_seq_length = max_seq_length


def _positions(transformer: Any) -> int | None:
    """Return the number of tokens that a transformer has positions for; None if unlimited.

    RoBERTa numbers positions from the padding token's id + 1, so the first ones are unused.
    """
    positions = getattr(getattr(transformer, "config", None), "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    unused = getattr(table, "padding_idx", None)
    return positions if unused is None else positions - unused - 1


def save_model(model: SentenceTransformer, folder: Path | str, card: str) -> Path:
    """Save the model as a sentence-transformers folder, atomically: safetensors, tokenizer, `card` as README.md.

    LoRA matrices are merged into the weights. An existing folder is replaced. Returns the folder.
    """
    from bsc_core.encoders.lora import merged

    folder = Path(folder)
    with atomic_folder(folder) as draft:
        with _no_progress_bars(), merged(model):
            model.save_pretrained(str(draft), create_model_card=False, safe_serialization=True)
        (draft / "README.md").write_text(card, encoding="utf-8")
    return folder


def model_card(
    name: str,
    *,
    base: str,
    settings: Mapping[str, object],
    before: Mapping[str, Mapping[str, float | None]],
    after: Mapping[str, Mapping[str, float | None]],
) -> str:
    """Return the model card of a fine-tuned encoder as Markdown.

    Args:
        name: Title of the card.
        base: The encoder that training started from.
        settings: Training settings, in display order.
        before: Metrics by split before training, such as {"dev": {"mrr": 0.61}}.
        after: The same after training.
    """
    sections = [
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
        "tags: [sentence-transformers, feature-extraction, sentence-similarity]\n---",
        f"# {_cell(name)}",
        f"A sentence encoder fine-tuned from `{_cell(base)}` with BSC Lab.",
        f"```python\n{USAGE}\n```",
    ]
    if settings:
        sections.append("## Training\n\n" + _table(["setting", "value"], settings.items()))
    if after:
        rows = [
            (split, metric, _number(before.get(split, {}).get(metric)), _number(value))
            for split, metrics in after.items()
            for metric, value in metrics.items()
        ]
        sections.append("## Metrics\n\n" + _table(["split", "metric", "before", "after"], rows))
    return "\n\n".join(sections) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").replace("`", "'").split())


def static_model(tokenizer: Tokenizer, vectors: Vectors) -> SentenceTransformer:
    """Return a model that averages token vectors, shape (V, D), row v for token id v."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)]).eval()


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
