"""Ablation of the fast training path of BERT on a CPU: what each part contributes to the speed of a step.

    python benchmarks/ablation.py FOLDER_OF_DATA [--only cqa_a stsb] [--precision fp32 bf16] [--dropout on off]

A step is forward pass, loss and backward pass of the bundled encoder on one batch of real data, without the optimizer.
All variants run in this process on the same batches with one thread. They take turns, one step each per round, so that
other work on the machine affects them alike. The tables report the median of processor time and wall time per step and
the median over rounds of the ratio of processor times.

Before timing, the gradients of each variant are compared with those of the padded step on all texts. The first version
of this script also timed a backward pass of the packed layers that was written by hand; see docs/results/benchmarks.md.
"""

# m texts of a block padded to L tokens, h attention heads, d size of a head

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from measure import parser, print_header, print_row, take_turns
from torch import Tensor, nn
from torch.nn import functional
from training import LENGTH, ORDERS, TEMPERATURE, Setting, bundled_model, pairs

from bsc_core.config import BSCLossConfig
from bsc_core.data import PairDataset
from bsc_core.encoders import TokenTable, tokenize
from bsc_core.encoders.forward import Forward, Precision
from bsc_core.encoders.forward.packed import WORDS, PackedForward
from bsc_core.encoders.forward.packed_layout import Block
from bsc_core.losses import build_loss
from bsc_core.training.loop.device import resolve_precision

DATA = ("cqa_a", "pfcc_s", "stsb")
BATCH = 30
BATCHES = 4
"""Number of different batches of a dataset; the rounds cycle through them."""
BATCHES_READ = 100
"""Batches of the dataset whose texts are tokenized, so that as many word vectors are trained as in a real run."""
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-2}
"""Largest allowed distance between two gradients of all weights, relative to the norm of the gradient."""


class FusedForward(PackedForward):
    """The packed forward pass with attention of the same blocks by `scaled_dot_product_attention`."""

    def _attend(self, projected: Tensor, block: Block, attention: Any) -> Tensor:
        heads, module = attention.num_attention_heads, attention.dropout
        padded = projected.index_select(0, block.source)
        apart = padded.view(block.texts, block.length, 3, heads, attention.attention_head_size)
        queries, keys, values = apart.permute(2, 0, 3, 1, 4).unbind(0)  # (m, h, L, d) each
        mask = block.mask.view(block.texts, heads, 1, block.length)[:, :1].to(projected.dtype)
        mixed = functional.scaled_dot_product_attention(
            queries, keys, values, mask, module.p if module.training else 0.0, scale=attention.scaling
        )
        return mixed.transpose(1, 2).reshape(block.texts * block.length, -1).index_select(0, block.padded_position)


class TorchDropoutForward(PackedForward):
    """The packed forward pass with the dropout of torch."""

    def _drop(self, x: Tensor, module: nn.Dropout) -> Tensor:
        return functional.dropout(x, module.p, module.training)


@dataclass(frozen=True)
class Variant:
    """One way to compute a step.

    Attributes:
        name: First column of the table.
        forward: Computes the vectors.
        distinct: Encode each distinct text once. If False, encode both sides of all pairs.
        by_side: Encode each side in one padded pass. If False, use the micro-batches of `forward`.
        one_context: Share one autocast context (and so the cast weights) between the passes of a step.
    """

    name: str
    forward: Forward
    distinct: bool = True
    by_side: bool = False
    one_context: bool = True

    def step(self, dataset: PairDataset, loss: nn.Module, batches: Iterator[np.ndarray]) -> None:
        """Add the gradient of the loss of the next batch, given by its rows, to the gradients of the weights."""
        rows = next(batches)
        sides = [dataset.query[rows], dataset.document[rows]]
        if self.distinct:
            ids, columns = zip(*(np.unique(side, return_inverse=True) for side in sides), strict=True)
        else:
            ids, columns = sides, [np.arange(len(side)) for side in sides]
        texts, middle = np.concatenate(ids), len(ids[0])
        pieces = np.split(np.arange(len(texts)), [middle]) if self.by_side else self.forward.micro_batches(texts)
        with self.forward.one_pass() if self.one_context else nullcontext():
            parts = [self.forward.embed(texts[piece]) for piece in pieces]
        vectors = torch.empty(len(texts), self.forward.width)
        vectors[torch.from_numpy(np.concatenate(pieces))] = torch.cat(parts).detach()
        vectors.requires_grad_()
        queries, documents = vectors[torch.from_numpy(columns[0])], vectors[torch.from_numpy(columns[1] + middle)]
        loss(queries, documents, None).total.backward()
        assert vectors.grad is not None
        for part, piece in zip(reversed(parts), reversed(pieces), strict=True):  # as `Encoding.backward` does
            part.backward(vectors.grad[torch.from_numpy(piece)])

    def zero(self) -> None:
        """Drop the gradients and mark the weights as changed, as the optimizer does after a step."""
        for _, parameter in self.forward.named_parameters():
            parameter.grad = None
        self.forward.weights_changed()


PADDED, DISTINCT = "padded, all texts (0)", "distinct texts (1)"
PACKED, CAST = "+ real tokens only (2)", "+ weights cast once (3)"
CHAIN = (PADDED, DISTINCT, PACKED, CAST)


def variants_of(model: Any, tokens: TokenTable, precision: Precision) -> dict[str, Variant]:
    """Build all variants by name; the steps (0) to (3) build on each other, the others change one thing."""
    plain, packed = Forward(model, tokens, precision), PackedForward(model, tokens, precision)
    variants = (
        Variant(PADDED, plain, distinct=False, by_side=True, one_context=False),
        Variant(DISTINCT, plain, by_side=True, one_context=False),
        Variant(PACKED, packed, one_context=False),
        Variant(CAST, packed),
        Variant("(0) with real tokens only", packed, distinct=False, one_context=False),
        Variant("(0) with weights cast once", plain, distinct=False, by_side=True),
        Variant("(1) in padded micro-batches of similar length", plain),
        Variant("(3) with fused attention", FusedForward(model, tokens, precision)),
        Variant("(3) with torch's dropout", TorchDropoutForward(model, tokens, precision)),
    )
    return {variant.name: variant for variant in variants}


@contextmanager
def no_dropout(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode, in which no module drops anything."""
    model.eval()
    try:
        yield
    finally:
        model.train()


def gradients(variant: Variant, dataset: PairDataset, loss: nn.Module) -> dict[str, Tensor]:
    """Return the gradients of one step by parameter, for word embeddings those of the data's word pieces only."""
    forward = variant.forward
    variant.zero()
    torch.manual_seed(1)
    variant.step(dataset, loss, iter([np.arange(BATCH)]))
    result = {name: p.grad.clone() for name, p in forward.named_parameters() if p.grad is not None}
    variant.zero()
    if not isinstance(forward, PackedForward):
        name = next(name for name in result if name.endswith(WORDS))
        result[name] = result[name][np.unique(forward.tokens.tokens)]
    return result


def distance(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the norm of the difference of two gradients of all weights, relative to the norm of the expected one."""
    if actual.keys() != expected.keys():
        raise SystemExit(f"other parameters have gradients: {sorted(actual.keys() ^ expected.keys())[:4]}")
    difference = sum(float((actual[name] - of).double().square().sum()) for name, of in expected.items())
    return (difference / sum(float(of.double().square().sum()) for of in expected.values())) ** 0.5


def check(
    variants: dict[str, Variant], dataset: PairDataset, loss: nn.Module, model: nn.Module, precision: str
) -> None:
    """Compare gradients before anything is timed. Ends the program if some differ by more than the tolerance."""
    with no_dropout(model):
        expected = gradients(variants[PADDED], dataset, loss)
        errors = {name: distance(gradients(one, dataset, loss), expected) for name, one in variants.items()}
    worst = max(errors, key=errors.__getitem__)
    print(f"Gradients differ from those of (0) by at most {errors[worst]:.1e}, for {worst}.\n")
    if errors[worst] > TOLERANCE[precision]:
        raise SystemExit("the gradients differ by more than the tolerance")


def print_table(times: dict[str, np.ndarray]) -> None:
    """Print median times; ratios are medians over the rounds of the ratios of processor times."""
    print_header("variant", "CPU ms per step", "wall ms per step", "times as fast as (0)", "as the variant before")

    def ratio(name: str, other: str) -> str:
        return f"{np.median(times[other][:, 1] / times[name][:, 1]):.2f}"

    for name, values in times.items():
        before = CHAIN[CHAIN.index(name) - 1] if name in CHAIN[1:] else CAST if name.startswith("(3)") else None
        wall, cpu = 1e3 * np.median(values, axis=0)
        print_row(name, f"{cpu:.0f}", f"{wall:.0f}", ratio(name, PADDED), ratio(name, before) if before else "")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, help=f"a folder with {', '.join(DATA)}")
    options.add_argument("--only", nargs="*", choices=DATA, default=DATA)
    options.add_argument("--precision", nargs="*", choices=("auto", "fp32", "bf16"), default=("auto", "fp32"))
    options.add_argument("--dropout", nargs="*", choices=("on", "off"), default=("on",))
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--seconds", type=float, default=100.0, help="longest time for the rounds of one table")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    precisions = dict.fromkeys(resolve_precision(precision, device) for precision in arguments.precision)
    for name in arguments.only:
        setting = Setting(name, ORDERS[name] == "random", batch=BATCH, steps=BATCHES_READ)
        dataset, loss = pairs(arguments.folder, setting), build_loss(BSCLossConfig(temperature=TEMPERATURE))
        batches = np.arange(BATCHES * BATCH).reshape(BATCHES, BATCH)
        for precision in precisions:
            for dropout in arguments.dropout:
                model = bundled_model(Setting(name, dropout=dropout == "on")).train()
                tokens = tokenize(model, dataset.texts.texts, LENGTH)
                variants = variants_of(model, tokens, precision)
                print(f"### {name}, {precision}, dropout {dropout}, batches of {BATCH} pairs\n")
                check(variants, dataset, loss, model, precision)
                steps = {key: partial(one.step, dataset, loss, cycle(batches)) for key, one in variants.items()}
                setup = {key: one.zero for key, one in variants.items()}
                print_table(take_turns(steps, arguments.rounds, setup=setup, limit=arguments.seconds))
                print(flush=True)


if __name__ == "__main__":
    main()
