"""What is trained and how: the encoder, optimiser, schedule, length, precision and memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from bsc_core.config.section import Section


class LoRAConfig(Section):
    """Low-rank adaptation (Hu et al. 2021): W + (alpha / rank) B A, where only A and B are trained."""

    rank: int = Field(8, ge=1, le=1024, title="Rank", description="Rows of A and columns of B.")
    alpha: float = Field(16.0, gt=0, title="Alpha", description="Scale of the added matrices, over the rank.")
    dropout: float = Field(0.0, ge=0, lt=1, title="LoRA dropout", description="On what the added matrices read.")
    targets: tuple[str, ...] = Field(
        (), title="Target modules", description="Names of linear layers; empty: those usual for the architecture."
    )


class EncoderConfig(Section):
    """The sentence encoder that training starts from."""

    name: str = Field(
        "bundled",
        min_length=1,
        title="Encoder",
        description="bundled (all-MiniLM-L6-v2), bundled_raw (the same, its vectors not of length 1), static (fast, "
        "for lessons), a folder, a hub id, or run:RUN, the model that another run left.",
    )
    max_length: int = Field(
        90, ge=2, le=8192, title="Longest text", description="Tokens kept of a text; the BSC paper keeps 90."
    )
    lora: LoRAConfig | None = Field(
        None, title="LoRA", description="Trains small added matrices instead of all weights; merged when saved."
    )


Schedule = Literal["linear", "ends_early", "restarts"]


class TrainingConfig(Section):
    """Optimiser, schedule, length of training and precision."""

    epochs: int = Field(3, ge=1, title="Epochs", description="Passes over the training pairs.")
    steps: int | None = Field(None, ge=1, title="Steps", description="A fixed number of steps instead of epochs.")
    batch_size: int = Field(30, title="Batch size", description="Pairs in a batch: each has batch size - 1 negatives.")
    learning_rate: float = Field(2e-5, gt=0, lt=10, title="Learning rate", description="Peak of the linear schedule.")
    temperature_learning_rate: float = Field(
        1e-2, gt=0, lt=10, title="Temperature learning rate", description="For log tau, when it is learned."
    )
    warmup: float = Field(0.1, ge=0, lt=1, title="Warm-up", description="Share of the steps with a rising rate.")
    schedule: Schedule = Field(
        "linear",
        title="Schedule",
        description="linear: falls to 0 at the end. Lessons: ends_early, the SBERT article's rate is 0 for the last "
        "steps, as many as it warmed up; restarts, the margins paper's rises over 10,000 steps, anew in each epoch.",
    )
    head_learning_rate: float | None = Field(
        None, gt=0, lt=10, title="Head learning rate", description="For a classifier's head; None: the learning rate."
    )
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        title="Layer-wise rate",
        description="Each layer takes this share of the rate of the layer above it; 1: all the same.",
    )
    bias_correction: bool = Field(
        True,
        title="Bias correction",
        description="Adam's correction of its first steps; False: as in the BSC paper's code.",
    )
    weight_decay: float = Field(0.01, ge=0, title="Weight decay", description="Not on biases, norms and temperature.")
    max_grad_norm: float = Field(1.0, gt=0, title="Gradient clipping", description="Largest norm of the gradient.")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        title="Precision",
        description="auto: bf16 only where the processor gains from it. fp16 scales the loss and is for GPUs.",
    )
    gradient_cache: Literal["auto", "always", "never"] = Field(
        "auto",
        title="Gradient caching",
        description="always: two passes, in memory that does not grow with the batch. never: one pass. auto: "
        "keeps what fits into the memory below and computes the rest twice. The result is the same.",
    )
    activation_memory: int | None = Field(
        None, ge=16, title="Memory for activations", description="In MiB; None: what suits the device."
    )
    accumulation: int = Field(
        1,
        ge=1,
        title="Gradient accumulation",
        description="Batches whose gradients are averaged for one step; negatives stay within each batch.",
    )
    compile: bool = Field(
        False, title="Compile", description="torch.compile the encoder: slow first steps, then perhaps faster ones."
    )
    micro_tokens: int | None = Field(
        None,
        ge=64,
        title="Tokens at once",
        description="Padded tokens of one forward pass; None: what suits the device.",
    )
    seed: int = Field(0, ge=0, lt=2**31, title="Seed", description="Same seed, same run, bit for bit on CPU.")
    seeds: tuple[int, ...] = Field(
        (),
        title="Seeds",
        description="One run for each of these seeds, reported together: mean, deviation and best. Empty: one run.",
    )
    early_stopping: int | None = Field(
        None, ge=1, title="Early stopping", description="Epochs without a better dev metric after which training ends."
    )
    keep_checkpoints: int = Field(2, ge=1, title="Checkpoints kept", description="The newest ones; at least 1.")
    report_to: tuple[Literal["trackio", "mlflow", "tensorboard", "wandb"], ...] = Field(
        (), title="Report to", description="Trackers that are told every step and evaluation, where installed."
    )
    checkpoint_steps: int | None = Field(
        None, ge=1, title="Checkpoint every", description="Steps between checkpoints besides the end of each epoch."
    )
    threads: int | None = Field(None, ge=1, title="Threads", description="Processor threads; None: all cores.")

    @field_validator("batch_size")
    @classmethod
    def _at_least_two(cls, value: int) -> int:
        if value < 2:
            raise ValueError(
                f"batch_size is {value}; it must be >= 2, since the other pairs of a batch are its negatives"
            )
        return value

    @field_validator("seeds")
    @classmethod
    def _different_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value) or any(not 0 <= seed < 2**31 for seed in value):
            raise ValueError(f"seeds is {list(value)}; its numbers must differ and lie between 0 and 2**31 - 1")
        return value
