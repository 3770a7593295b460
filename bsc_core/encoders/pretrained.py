"""Model folders of sentence-transformers: download, check, load and save, with the model card.

A hub id is downloaded to a folder first, so one check covers all encoders (`checks.folder`): weights are safetensors,
modules come from the library, and no code from a model's folder is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bsc_core.data.io.hub_repository import open_repository
from bsc_core.encoders.checks.folder import ADAPTER, check_folder, transformers_of
from bsc_core.errors import ConfigError, InputError, ModelError
from bsc_core.files import atomic_folder
from bsc_core.formatting import without_markup
from bsc_core.types import MAX_DIMENSIONS

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from tokenizers import Tokenizer

    from bsc_core.types import Vectors

MODEL_FILES = (
    *("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json", "config.json"),
    *("sentence_*_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.txt", "vocab.json", "merges.txt", "bpe.codes", "spiece.model", "spm.model"),
    *("sentencepiece.model", "sentencepiece.bpe.model", "tokenizer.model", ADAPTER),
)
HUB_FILES = [  # also in the folder of a module, such as 0_StaticEmbedding or 2_Dense
    *("modules.json", "config_sentence_transformers.json", "README.md"),
    *(f"{folder}{name}" for folder in ("", "[0-9]*_*/") for name in MODEL_FILES),
]
Model = TypeVar("Model", "SentenceTransformer", "CrossEncoder")
RARE_TEXT = "a \u2603 \u9f98 zq"
MAX_GROWTH = 4
SMALL = 2**24  # parameters of a transformer that is loaded whatever its weights are
USAGE = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/of/this/folder")
vectors = model.encode(["first text", "second text"])
print(model.similarity(vectors, vectors))"""


def fetch(hub_id: str) -> Path:
    """Return the folder of a hub model in the local hub cache, downloading it if needed and possible.

    Raises:
        ModelError: The hub has no such model or cannot be reached.
        InputError: The files are larger than the limit of a download.
    """
    try:
        repository = open_repository(hub_id, "model")
        return repository.download(
            path for path in repository.sizes if any(fnmatchcase(path, pattern) for pattern in HUB_FILES)
        )
    except InputError:
        raise
    except Exception as error:  # whatever the network and the Hub raise
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no details'}"
        raise ModelError(
            f"{hub_id}: no such folder, and no such model on the hub ({reason}); "
            "give the path of a sentence-transformers folder, bundled or static"
        ) from error


def load_folder(folder: Path, max_seq_length: int) -> SentenceTransformer:
    """Load a sentence-transformers folder on the best available device, in evaluation mode.

    Raises:
        ModelError: The folder is not such a model, is not safe to load, or cuts its vectors.
        ConfigError: The model cannot read texts of that length.
    """
    check_folder(folder)  # before the imports, which take seconds
    from sentence_transformers import SentenceTransformer

    model = _load(SentenceTransformer, folder)
    if model.truncate_dim is not None:
        raise ModelError(
            f"{folder}: the model cuts its vectors after {model.truncate_dim} dimensions (truncate_dim), which is not "
            "supported; save it with truncate_dim = None"
        )
    dimensions = model.get_embedding_dimension() or 0
    if dimensions > MAX_DIMENSIONS:
        raise ModelError(
            f"{folder}: its vectors have {dimensions:,} dimensions, more than {MAX_DIMENSIONS:,}; choose another model"
        )
    limit_length(model, max_seq_length)
    return model.eval()


def load_cross_encoder(folder: Path) -> CrossEncoder:
    """Load the folder of a cross-encoder with a single score, on the best available device.

    Raises:
        ModelError: The folder is not such a model, or is not safe to load.
    """
    check_folder(folder)
    from sentence_transformers import CrossEncoder

    model: CrossEncoder = _load(CrossEncoder, folder)
    if model.num_labels != 1:
        raise ModelError(f"{folder}: the cross-encoder has {model.num_labels} labels; give one with a single score")
    return model


def _load(kind: type[Model], folder: Path) -> Model:
    """Load a folder that has been checked, as a model of this class."""
    _note_missing_weights()
    try:
        for part, entries in transformers_of(folder):
            _check_size(part, entries)
        with _quiet():
            model: Model = kind(
                str(folder), trust_remote_code=False, local_files_only=True, model_kwargs={"use_safetensors": True}
            )
        check_tokenizer(model, folder)
        missing = _missing_weights(model)
        if kind.__name__ == "SentenceTransformer" and "pooler" not in str(getattr(model[0], "modality_config", "")):
            missing = [name for name in missing if "pooler" not in name]  # its output is not used
        if missing:
            raise ModelError(f"{folder}: its weights lack {missing[0][:80]}; save the model again")
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            raise ModelError(f"{folder}: a weight is not a finite number; choose another checkpoint of the model")
        _encode_text(model)
    except (MemoryError, ModelError):
        raise
    except BaseException as error:  # tokenizers raises Exception itself, and its part in Rust a PanicException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"{folder}: cannot be loaded as a sentence-transformers model ({reason}); save the model again"
        ) from error
    return model


@contextmanager
def tokenizer_errors() -> Iterator[None]:
    """Raise ModelError if a tokenizer fails: `tokenizers` raises Exception itself, and its Rust part PanicException."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ not in ("PanicException", "Exception"):
            raise
        raise ModelError(f"the tokenizer of this model fails ({error}); choose another model") from None


@cache
def _note_missing_weights() -> None:
    """Let the library note in a model which weights it lacks, which are random; it only writes that to its log."""
    from transformers import modeling_utils

    report = modeling_utils.log_state_dict_report

    def note(model: Any, *arguments: Any, loading_info: Any, **options: Any) -> None:
        model.missing_weights = sorted(loading_info.missing_keys)
        report(model, *arguments, loading_info=loading_info, **options)

    modeling_utils.log_state_dict_report = note


def _missing_weights(model: SentenceTransformer | CrossEncoder) -> list[str]:
    return getattr(model.transformers_model, "missing_weights", [])


def _encode_text(model: SentenceTransformer | CrossEncoder) -> None:
    """Encode a text with rare characters, so that settings that do not fit each other are reported now."""
    from sentence_transformers import SentenceTransformer

    if isinstance(model, SentenceTransformer):
        model.encode([RARE_TEXT], show_progress_bar=False)
    else:
        model.predict([(RARE_TEXT, "b")], show_progress_bar=False)


def _check_size(part: Path, entries: int) -> None:
    """Raise ModelError if the transformer of a config is much larger than its weights, without allocating it.

    The library initializes the parameters that the weights lack, such as a pooler. The folder of a T5 encoder lacks the
    decoder, which is not built, but counts here; MAX_GROWTH allows for it.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(str(part), trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        model = AutoModel.from_config(config, trust_remote_code=False)
    tensors = [*model.parameters(), *model.buffers()]
    size = sum(tensor.numel() for tensor in tensors)
    if size > MAX_GROWTH * entries + SMALL:
        raise ModelError(
            f"{part / 'config.json'}: describes a transformer of {size:,} parameters, and the weights have "
            f"{entries:,}; save the encoder again"
        )


def check_tokenizer(model: SentenceTransformer | CrossEncoder, folder: Path) -> None:
    """Raise ModelError if the tokenizer has special tokens only: the library builds that if its files are missing."""
    special = getattr(model.tokenizer, "all_special_tokens", None)
    if special is not None and len(model.tokenizer) <= len(special):
        raise ModelError(f"{folder}: the tokenizer (such as tokenizer.json) is missing; save the encoder again with it")
    rows = _vocabulary_size(model)
    largest = max(model.tokenizer.get_vocab().values(), default=0)
    if rows is not None and largest >= rows:
        raise ModelError(
            f"{folder}: the tokenizer has a token of number {largest:,}, and the weights have {rows:,} tokens; save "
            "the encoder again with its tokenizer"
        )


def _vocabulary_size(model: SentenceTransformer | CrossEncoder) -> int | None:
    """Return the number of tokens that the weights have vectors for; None if unknown."""
    transformer = model.transformers_model
    table = model[0].embedding if transformer is None else transformer.get_input_embeddings()
    return getattr(table, "num_embeddings", None)


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
    config = getattr(transformer, "config", None)
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
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
        with _quiet(), merged(model):
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
        f"A sentence encoder fine-tuned from {_cell(base)} with BSC Lab.",
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
    return without_markup(str(value))


def static_model(tokenizer: Tokenizer, vectors: Vectors) -> SentenceTransformer:
    """Return a model that averages token vectors, shape (V, D), row v for token id v."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)]).eval()


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging

    was_enabled, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # its report contains the names of tensors as they are
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if was_enabled:
            logging.enable_progress_bar()
