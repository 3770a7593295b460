"""Losses beside their peers: forward and backward, speed and extra memory. `python benchmarks/losses.py` prints tables.

Peers, in the same process and run, taking turns, medians of several runs: sentence-transformers' multiple negatives
ranking loss and pytorch-metric-learning's NTXent. `--sizes 32 512` takes some sizes only, `--parts speed memory tiles
scl` some tables only. Memory is measured in a process of its own for each size (Linux).
"""

# B pairs, D dimensions

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as functional
from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from bsc_core.config import BSCLossConfig, MNRLConfig, SupConLossConfig
from bsc_core.losses import build_loss

DIMENSIONS = 384
TEMPERATURE = 0.05
RUNS = {32: 300, 64: 300, 512: 60, 4096: 7, 8192: 5, 16384: 3, 65536: 1}
PARTS = ("speed", "memory", "tiles", "scl")
NTXENT_LARGEST = 512  # it holds positives times negatives: (2B) x (2B) x (2B - 2) numbers
Call = Callable[[Tensor, Tensor], Tensor]


class Given(torch.nn.Module):
    """Stands for an encoder where a peer wants one: the vectors are there already."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}


def vectors(pairs: int, dimensions: int = DIMENSIONS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(pairs, dimensions, generator=generator, requires_grad=True) for _ in range(2)]


def ours(symmetric: bool) -> Call:
    """BSC in both directions, or its plain in-batch form in one."""
    config = BSCLossConfig(temperature=TEMPERATURE) if symmetric else MNRLConfig(temperature=TEMPERATURE)
    loss = build_loss(config)
    return lambda left, right: loss(left, right).total


def of_sentence_transformers(symmetric: bool) -> Call:
    chosen = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"} if symmetric else {}
    loss = MultipleNegativesRankingLoss(Given(), scale=1 / TEMPERATURE, **chosen)
    return lambda left, right: loss([{"vectors": left}, {"vectors": right}], None)


def of_metric_learning() -> Call:
    loss = SelfSupervisedLoss(NTXentLoss(temperature=TEMPERATURE), symmetric=False)
    return lambda left, right: loss(left, right)


def plain(symmetric: bool) -> Call:
    """The whole matrix in autograd: what a loss costs that is not tiled."""

    def call(left: Tensor, right: Tensor) -> Tensor:
        scores = functional.normalize(left, dim=1) @ functional.normalize(right, dim=1).T / TEMPERATURE
        labels = torch.arange(len(left))
        first = functional.cross_entropy(scores, labels)
        return (first + functional.cross_entropy(scores.T, labels)) / 2 if symmetric else first

    return call


def seconds(calls: dict[str, Call], pairs: int) -> dict[str, float]:
    """Median seconds of forward and backward, the calls taking turns."""
    sides = vectors(pairs)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(RUNS.get(pairs, 3) + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call(*sides).backward()
            if turn:  # the first warms up
                found[name].append(time.perf_counter() - started)
            for side in sides:
                side.grad = None
    return {name: statistics.median(values) for name, values in found.items()}


def print_speed(sizes: list[int]) -> None:
    print("| B | directions | ours | sentence-transformers | pytorch-metric-learning | times the faster peer |")
    print("| --- | --- | --- | --- | --- | --- |")
    for pairs in sizes:
        for symmetric in (False, True):
            calls = {"ours": ours(symmetric), "st": of_sentence_transformers(symmetric)}
            if not symmetric and pairs <= NTXENT_LARGEST:
                calls["pml"] = of_metric_learning()
            found = seconds(calls, pairs)
            faster = min(value for name, value in found.items() if name != "ours")
            pml = f"{1e3 * found['pml']:.2f} ms" if "pml" in found else "-"
            cells = f"{1e3 * found['ours']:.2f} ms | {1e3 * found['st']:.2f} ms | {pml} | {found['ours'] / faster:.2f}"
            print(f"| {pairs:,} | {'both' if symmetric else 'one'} | {cells} |", flush=True)


def print_tiles(sizes: list[int]) -> None:
    print("| B | one, whole matrix | one, ours | ratio | both, whole matrix | both, ours | ratio | both / one |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for pairs in sizes:
        calls = {"one plain": plain(False), "one": ours(False), "both plain": plain(True), "both": ours(True)}
        found = seconds(calls, pairs)
        cells = [
            *(f"{1e3 * found[name]:.0f} ms" for name in ("one plain", "one")),
            f"{found['one'] / found['one plain']:.2f}",
            *(f"{1e3 * found[name]:.0f} ms" for name in ("both plain", "both")),
            f"{found['both'] / found['both plain']:.2f}",
            f"{found['both'] / found['one']:.2f}",
        ]
        print(f"| {pairs:,} | {' | '.join(cells)} |", flush=True)


def print_memory(sizes: list[int], threads: int) -> None:
    print("| B | the matrix alone | extra memory at the peak, ours, both directions | seconds |")
    print("| --- | --- | --- | --- |")
    for pairs in sizes:
        command = [sys.executable, __file__, "--one", str(pairs), "--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        extra, taken = done.stdout.split()
        print(
            f"| {pairs:,} | {4 * pairs**2 / 2**20:,.0f} MiB | {float(extra):,.0f} MiB | {float(taken):.1f} |",
            flush=True,
        )


def measure_memory(pairs: int) -> None:
    """MiB by which the peak of this process grows in one forward and backward, and its seconds."""
    call = ours(True)
    call(*vectors(64)).backward()  # what loads once
    sides = vectors(pairs)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew from here
    before = resident("VmRSS")
    started = time.perf_counter()
    call(*sides).backward()
    taken = time.perf_counter() - started
    print(resident("VmHWM") - before, taken)


def resident(name: str) -> float:
    """MiB of this process in memory: VmRSS now, VmHWM at the peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def print_scl() -> None:
    loss = build_loss(SupConLossConfig(mix=1))
    generator = torch.Generator().manual_seed(0)
    ids = {"classes": torch.randint(0, 3, (64,), generator=generator), "query_ids": torch.arange(64) // 3}
    found = seconds({"ours": lambda left, right: loss(left, right, None, **ids).total}, 64)
    print("| B | SCL, ours |\n| --- | --- |")
    print(f"| 64 | {1e3 * found['ours']:.2f} ms |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="*")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.one:
        measure_memory(arguments.one)
        return
    print(f"{arguments.threads} threads, torch {torch.__version__}, D = {DIMENSIONS}, forward and backward, medians\n")
    if "speed" in arguments.parts:
        print_speed(arguments.sizes or [32, 512, 4096])
    if "tiles" in arguments.parts:
        print()
        print_tiles(arguments.sizes or [4096, 8192])
    if "memory" in arguments.parts:
        print()
        print_memory(arguments.sizes or [16384, 65536], arguments.threads)
    if "scl" in arguments.parts:
        print()
        print_scl()


if __name__ == "__main__":
    main()
