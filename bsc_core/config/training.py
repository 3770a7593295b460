"""Config of training: optimizer, schedule, duration, precision and memory."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from bsc_core.config.section import Section

Schedule = Literal["linear", "ends_early", "restarts"]


class TrainingConfig(Section):
    """Optimizer, schedule, duration, precision and memory of training."""

    aliases: ClassVar = {
        "steps": "max_steps",
        "warmup": "warmup_ratio",
        "accumulation": "gradient_accumulation_steps",
        "early_stopping": "early_stopping_patience",
        "keep_checkpoints": "save_total_limit",
        "checkpoint_steps": "save_steps",
    }

    epochs: int = Field(3, ge=1, le=1_000_000)
    """Number of passes over the training pairs."""
    max_steps: int | None = Field(None, ge=1, title="Maximum steps")
    """Maximum number of optimizer steps; overrides epochs."""
    batch_size: int = 30
    """Number of pairs per batch. With an in-batch loss, the documents of the other pairs are negatives of a query:
    up to batch_size - 1, in addition to those of a negative column."""
    learning_rate: float = Field(2e-5, gt=0, lt=10)
    """Peak learning rate."""
    temperature_learning_rate: float = Field(0.01, gt=0, lt=10)
    """Learning rate of a learned temperature."""
    warmup_ratio: float = Field(0.1, ge=0, lt=1)
    """Fraction of the steps with a linearly increasing learning rate."""
    schedule: Schedule = "linear"
    """linear: decays to 0. The others reproduce released code. ends_early (SBERT article): reaches 0 too early, by the
    number of warmup steps. restarts (margins paper): warms up over 10,000 steps in each epoch."""
    head_learning_rate: float | None = Field(None, gt=0, lt=10)
    """Learning rate of the classifier head; none: learning_rate."""
    layer_decay: float = Field(1.0, gt=0, le=1, title="Layer-wise decay")
    """Ratio of a layer's learning rate to that of the layer above it; 1: equal rates."""
    bias_correction: bool = True
    """Adam's bias correction; false in the BSC paper's code."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay; not applied to biases, norms and the temperature."""
    max_grad_norm: float = Field(1.0, gt=0, title="Gradient clipping")
    """Maximum norm of the gradient."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 if the device benefits from it, else fp32. fp16 uses loss scaling and needs a GPU."""
    gradient_cache: Literal["auto", "always", "never"] = Field("auto", title="Gradient caching")
    """always: recompute all activations (two forward passes; memory for activations does not grow with the batch).
    never: store all activations (one pass). auto: store those that fit into activation_memory and recompute the others.
    The gradients are equal."""
    activation_memory: int | None = Field(None, ge=16)
    """Memory for stored activations, in MiB; none: chosen for the device."""
    gradient_accumulation_steps: int = Field(1, ge=1, title="Gradient accumulation")
    """Number of batches whose gradients are averaged per step. The in-batch negatives of a query are those of its batch
    only."""
    compile: bool = False
    """Apply torch.compile to the encoder. The first steps are slower; later steps may be faster."""
    micro_tokens: int | None = Field(None, ge=64, title="Tokens per forward pass")
    """Maximum number of padded tokens per forward pass; none: chosen for the device."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Random seed. On a CPU, runs with the same config, data, machine and number of threads and processes are
    bit-identical."""
    seeds: tuple[int, ...] = ()
    """Train one run per seed, and report the mean, standard deviation and best value; empty: one run with `seed`."""
    early_stopping_patience: int | None = Field(None, ge=1)
    """Number of epochs without improvement of the dev metric after which training stops; none: off."""
    early_stopping_general_loss: float | None = Field(None, gt=0, le=1, title="Tolerated decrease of the general score")
    """Maximum decrease (absolute) of the general score since before training. If it decreases more, training stops,
    and the model of that epoch is not saved, unless it is the first epoch; none: off. Needs evaluation.general."""
    merge_with_start: float | None = Field(None, gt=0, le=1, title="Merge with the initial weights")
    """Weight alpha of the trained weights in the model that is evaluated and saved: (1 - alpha) * start + alpha *
    trained, where start are the weights before training (WiSE-FT, Wortsman et al. 2021). 1 or none: the trained model.
    The lower alpha, the closer the model is to the initial encoder."""
    save_total_limit: int = Field(2, ge=0, title="Checkpoints to keep")
    """Number of checkpoints that are kept; older checkpoints are deleted. 0: none is saved, so an interrupted run
    starts again from the beginning."""
    report_to: tuple[Literal["trackio", "mlflow", "tensorboard", "wandb"], ...] = ()
    """Experiment trackers to which every step and evaluation is reported; their packages must be installed."""
    save_steps: int | None = Field(None, ge=1)
    """Steps between checkpoints; none: only at the end of each epoch."""
    threads: int | None = Field(None, ge=1, le=1024)
    """Number of CPU threads; none: all cores."""

    @property
    def merges(self) -> bool:
        """Whether the model that is evaluated and saved differs from the trained one."""
        return self.merge_with_start is not None and self.merge_with_start < 1

    @field_validator("batch_size")
    @classmethod
    def _at_least_two(cls, value: int) -> int:
        if value < 2:
            raise ValueError(
                f"batch_size is {value}; it must be >= 2, since in-batch losses use the other pairs as negatives"
            )
        return value

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value) or any(not 0 <= seed < 2**31 for seed in value):
            raise ValueError(f"seeds is {list(value)}; seeds must be distinct and from 0 to 2**31 - 1")
        return value
