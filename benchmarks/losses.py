"""Losses compared with other libraries: speed and extra memory of forward and backward pass.

    python benchmarks/losses.py [--sizes 32 512] [--parts speed memory tiles switches scl]

Peers: the multiple negatives ranking loss of sentence-transformers and NTXent of pytorch-metric-learning, in the same
process, taking turns; medians of several runs. Memory is measured in a separate process for each size (Linux).
"""

# B pairs, D dimensions

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
import torch.nn.functional as functional
from measure import parser, print_header, print_row, reset_peak, resident_mib, run_python, take_turns
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from bsc_core.config import BSCLossConfig, MNRLConfig, SupConLossConfig
from bsc_core.losses import build_loss

DIMENSIONS = 384
TEMPERATURE = 0.05
RUNS = {32: 300, 64: 300, 512: 60, 4096: 7, 8192: 5, 16384: 3, 65536: 1}
NTXENT_LARGEST = 512  # its matrix of positives times negatives has (2B) x (2B) x (2B - 2) numbers
MASK = {"mask": "self", "mask_margin": 0.05}
WEIGHTS = {"hardness": "in_batch_negatives", "hardness_strength": 5.0}
SWITCHES: dict[str, dict[str, object]] = {
    "plain": {},
    "mask by the model": MASK,
    "mask by a guide": {"mask": "guide", "mask_margin": 0.05, "mask_guide": "static"},
    "hardness weights": WEIGHTS,
    "decoupled": {"decoupled": True},
    "debiased": {"debiased_prior": 0.05},
    "mask by the model, weights, debiased": {**MASK, **WEIGHTS, "debiased_prior": 0.05},
}
Call = Callable[[Tensor, Tensor], Tensor]


class VectorInput(torch.nn.Module):
    """Encoder stub for peers that require one; returns the vectors in its input."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}


def vectors(pairs: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(pairs, DIMENSIONS, generator=generator, requires_grad=True) for _ in range(2)]


def of_this_project(symmetric: bool) -> Call:
    """BSC in both directions, or its plain in-batch form in one."""
    loss = build_loss((BSCLossConfig if symmetric else MNRLConfig)(temperature=TEMPERATURE))
    return lambda left, right: loss(left, right).total


def with_switches(name: str, pairs: int) -> Call:
    """BSC in both directions with a treatment of its negatives.

    A guide has vectors of the same width. Its cosines of the pairs are about 0.8, and those of other texts about 0.
    """
    loss = build_loss(BSCLossConfig(temperature=TEMPERATURE, **SWITCHES[name]))
    ids = {}
    if SWITCHES[name].get("mask") == "guide":
        queries, noise = torch.randn(2, pairs, DIMENSIONS, generator=torch.Generator().manual_seed(1))
        ids = {"guide_queries": queries, "guide_documents": queries + 0.75 * noise}
    return lambda left, right: loss(left, right, None, **ids).total


def of_sentence_transformers(symmetric: bool) -> Call:
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"} if symmetric else {}
    loss = MultipleNegativesRankingLoss(VectorInput(), scale=1 / TEMPERATURE, **both)
    return lambda left, right: loss([{"vectors": left}, {"vectors": right}], None)


def full_matrix(symmetric: bool) -> Call:
    """Loss with the full matrix in autograd, not tiled."""

    def call(left: Tensor, right: Tensor) -> Tensor:
        scores = functional.normalize(left, dim=1) @ functional.normalize(right, dim=1).T / TEMPERATURE
        labels = torch.arange(len(left))
        first = functional.cross_entropy(scores, labels)
        return (first + functional.cross_entropy(scores.T, labels)) / 2 if symmetric else first

    return call


def step(call: Call, sides: list[Tensor]) -> None:
    torch.autograd.grad(call(*sides), sides)


def median_ms(calls: dict[str, Call], pairs: int, sides: list[Tensor] | None = None) -> dict[str, float]:
    """Return the median milliseconds of forward and backward pass, the calls taking turns."""
    sides = sides or vectors(pairs)
    times = take_turns({name: partial(step, call, sides) for name, call in calls.items()}, RUNS.get(pairs, 3))
    return {name: 1e3 * float(np.median(values[:, 0])) for name, values in times.items()}


def print_speed(sizes: list[int]) -> None:
    names = ("this project", "sentence-transformers", "pytorch-metric-learning")
    print_header("B", "directions", *names, "times the faster peer")
    for pairs in sizes:
        for symmetric in (False, True):
            calls = dict(zip(names, (of_this_project(symmetric), of_sentence_transformers(symmetric)), strict=False))
            if not symmetric and pairs <= NTXENT_LARGEST:
                from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss

                calls[names[2]] = SelfSupervisedLoss(NTXentLoss(temperature=TEMPERATURE), symmetric=False)
            times = median_ms(calls, pairs)
            cells = [f"{times[name]:.2f} ms" if name in times else "-" for name in names]
            ratio = times["this project"] / min(value for name, value in times.items() if name != "this project")
            print_row(f"{pairs:,}", "both" if symmetric else "one", *cells, f"{ratio:.2f}")


def print_tiles(sizes: list[int]) -> None:
    names = ("one, whole matrix", "one, this project", "both, whole matrix", "both, this project")
    print_header("B", *names[:2], "ratio", *names[2:], "ratio", "both / one")
    for pairs in sizes:
        calls = (full_matrix(False), of_this_project(False), full_matrix(True), of_this_project(True))
        one_matrix, one, both_matrix, both = median_ms(dict(zip(names, calls, strict=True)), pairs).values()
        cells = [f"{one_matrix:.0f} ms", f"{one:.0f} ms", f"{one / one_matrix:.2f}"]
        cells += [f"{both_matrix:.0f} ms", f"{both:.0f} ms", f"{both / both_matrix:.2f}", f"{both / one:.2f}"]
        print_row(f"{pairs:,}", *cells)


def print_memory(sizes: list[int]) -> None:
    print_header("B", "the matrix alone", "extra memory at the peak, this project, both directions", "seconds")
    for pairs in sizes:
        child = run_python(__file__, "--one", pairs, "--threads", torch.get_num_threads())
        extra, seconds = map(float, child.output.split())
        print_row(f"{pairs:,}", f"{4 * pairs**2 / 2**20:,.0f} MiB", f"{extra:,.0f} MiB", f"{seconds:.1f}")


def print_switches(sizes: list[int]) -> None:
    print_header("B", "switches", "milliseconds", "times plain", "extra memory at B = 16,384")
    for pairs in sizes:
        queries, noise = vectors(pairs)  # positives have cosines of about 0.8, as those of a trained model
        sides = [queries, (queries + 0.75 * noise).detach().requires_grad_()]
        times = median_ms({name: with_switches(name, pairs) for name in SWITCHES}, pairs, sides)
        for name, time_ in times.items():
            child = run_python(__file__, "--one", 16384, "--switches", name, "--threads", torch.get_num_threads())
            extra = float(child.output.split()[0])
            print_row(f"{pairs:,}", name, f"{time_:.0f}", f"{time_ / times['plain']:.2f}", f"{extra:,.0f} MiB")


def measure_memory(pairs: int, switches: str) -> None:
    """Print the growth of this process's peak memory in MiB by one forward and backward pass, and its seconds."""
    with_switches(switches, 64)(*vectors(64)).backward()  # loads libraries
    call = with_switches(switches, pairs)
    sides = vectors(pairs)
    reset_peak()
    before, started = resident_mib("VmRSS"), time.perf_counter()
    call(*sides).backward()
    seconds = time.perf_counter() - started
    print(resident_mib("VmHWM") - before, seconds)


def print_scl(sizes: list[int]) -> None:
    loss = build_loss(SupConLossConfig(mix=1))
    print_header("B", "SCL, this project")
    for pairs in sizes:
        classes = torch.randint(0, 3, (pairs,), generator=torch.Generator().manual_seed(0))
        ids = {"classes": classes, "query_ids": torch.arange(pairs) // 3}
        times = median_ms({"this project": lambda left, right, ids=ids: loss(left, right, None, **ids).total}, pairs)
        print_row(pairs, f"{times['this project']:.2f} ms")


PARTS = {
    "speed": (print_speed, [32, 512, 4096]),
    "tiles": (print_tiles, [4096, 8192]),
    "memory": (print_memory, [16384, 65536]),
    "switches": (print_switches, [4096]),
    "scl": (print_scl, [64]),
}
"""Function and default sizes of each table."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--sizes", type=int, nargs="*")
    options.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    options.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options.add_argument("--switches", choices=list(SWITCHES), default="plain", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.one:
        measure_memory(arguments.one, arguments.switches)
        return
    print(f"{arguments.threads} threads, torch {torch.__version__}, D = {DIMENSIONS}, forward and backward, medians")
    for name, (print_part, sizes) in PARTS.items():
        if name in arguments.parts:
            print()
            print_part(arguments.sizes or sizes)


if __name__ == "__main__":
    main()
