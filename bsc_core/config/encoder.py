"""Config of the encoder."""

from typing import ClassVar

from pydantic import Field

from bsc_core.config.section import Section


class LoRAConfig(Section):
    """Low-rank adaptation (Hu et al. 2021): W + (alpha / rank) B A, with trainable A and B only."""

    rank: int = Field(8, ge=1, le=1024)
    """Rank of the update B A."""
    alpha: float = Field(16.0, gt=0)
    """Scale of the update; divided by the rank."""
    dropout: float = Field(0.0, ge=0, lt=1, title="LoRA dropout")
    """Dropout on the input of the adapters."""
    targets: tuple[str, ...] = Field((), title="Target modules", max_length=100)
    """Names of linear layers to adapt; empty: the default of the architecture."""


class EncoderConfig(Section):
    """Sentence encoder to start from."""

    aliases: ClassVar = {"max_length": "max_seq_length"}

    name: str = Field("bundled", min_length=1, title="Encoder")
    """bundled (all-MiniLM-L6-v2), bundled_raw (the same without normalization), static (fast, for lessons), a folder, a
    hub id, or run:RUN for the model of another run."""
    max_seq_length: int = Field(90, ge=2, le=8192, title="Maximum sequence length")
    """Tokens per text; longer texts are truncated. The BSC paper uses 90."""
    query_prompt: str | None = Field(None, max_length=2000)
    """Text that is prepended to each query, such as "query: ", or the name of one of the model's prompts, such as
    query; none: the model's default prompt."""
    document_prompt: str | None = Field(None, max_length=2000)
    """Text that is prepended to each document, or the name of a prompt; none: the model's default prompt."""
    lora: LoRAConfig | None = Field(None, title="LoRA")
    """Train low-rank adapters instead of all weights; merged when saved."""
    reinit_layers: int = Field(0, ge=0, le=1000, title="Re-initialized layers")
    """Number of upper transformer layers that start, like the pooler, from random weights sampled with training.seed
    (Zhang et al. 2021); 0: none. The metrics before training are those of the encoder with these weights."""
    freeze_layers: int = Field(0, ge=0, le=1000, title="Frozen layers")
    """Number of lower transformer layers that, like the embedding layer, are not trained; 0: all layers are trained. A
    step takes less time and memory, and the model stays closer to the initial encoder."""
    unpadded: bool = Field(False, title="No padding")
    """Padding-free attention on a GPU; its speed has not been measured yet."""

    @property
    def has_prompts(self) -> bool:
        """Whether queries and documents have prompts of their own."""
        return self.query_prompt is not None or self.document_prompt is not None
