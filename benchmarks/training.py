"""Training beside sentence-transformers' own trainer, in one run: pairs a second and peak memory.

    python benchmarks/training.py --data FOLDER_OF_DATA [--parts speed memory cached] [--threads 1] [--dropout]

Both sides train the bundled encoder in bfloat16 on the same batches in the same order, in a process each, and take
turns of some steps; medians of the turns. Seconds are processor time of all threads, which other work on the machine
hardly moves; `--wall` takes the clock instead. Ours include its tokenising, sentence-transformers' its collator. Its
attention is what is faster in the run, SDPA or eager. limit: how many times faster a step would be that did nothing but
the matrix products of the distinct real tokens. tokens: the share of these in padded columns. first losses: ours and
theirs with SDPA.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from training_sides import Setting

SPEED = {"pfcc_s": "source", "stsb": "random", "wikiqa": "source", "cqa_a": "source"}
MINI_BATCHES = (16, 32, 64)
PARTS = ("speed", "memory", "cached")


class Side:
    """One trainer in a process of its own, which trains only when it is told to."""

    def __init__(self, side: str, setting: Setting, arguments: argparse.Namespace) -> None:
        command = [sys.executable, str(Path(__file__).with_name("training_sides.py")), side]
        environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "TOKENIZERS_PARALLELISM": "false"}
        self.clock, self.batch = "wall" if arguments.wall else "cpu", setting.batch
        self.process = subprocess.Popen(
            [*command, json.dumps(asdict(setting)), str(arguments.data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.facts = self._read()
        self.first_loss = float(self._read()["loss"])
        self.seconds: list[float] = []

    def train(self, steps: int) -> None:
        """A turn of so many steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.seconds.append(self._read()[self.clock] / steps + self.facts["once"])

    def close(self) -> float:
        """End the process. Returns the most MiB that it held."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak = float(self._read()["peak"])
        self.process.wait()
        return peak

    @property
    def pairs_per_second(self) -> float:
        return self.batch / statistics.median(self.seconds)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise SystemExit(f"a side ended early: {self.process.args}")


def alternate(sides: list[Side], arguments: argparse.Namespace) -> None:
    """Turn after turn, each side; the first turn is not counted."""
    for _ in range(1 + arguments.turns):
        for side in sides:
            side.train(arguments.steps)
    for side in sides:
        del side.seconds[0]


def steps_of(arguments: argparse.Namespace) -> int:
    return 1 + (1 + arguments.turns) * arguments.steps


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def speed(arguments: argparse.Namespace) -> None:
    row(
        "data",
        "order",
        "pairs/s",
        "sentence-transformers",
        "ratio",
        "limit",
        "tokens",
        "MiB",
        "theirs",
        "losses",
    )
    row(*["---"] * 10)
    for name in arguments.only or SPEED:
        order = SPEED[name]
        setting = Setting(name, order == "random", steps=steps_of(arguments), dropout=arguments.dropout)
        theirs = [Side("theirs", replace(setting, attention=kind), arguments) for kind in ("sdpa", "eager")]
        ours = Side("ours", setting, arguments)
        alternate([ours, *theirs], arguments)
        best = max(theirs, key=lambda side: side.pairs_per_second)
        usual = theirs[0].first_loss  # with SDPA; eager attention rounds its scores to bfloat16
        if not arguments.dropout and abs(ours.first_loss - usual) > 1e-3:
            raise SystemExit(f"{name}: the first losses differ: {ours.first_loss} and {usual}")
        peaks = {side: side.close() for side in (ours, *theirs)}
        row(
            name,
            order,
            f"{ours.pairs_per_second:.1f}",
            f"{best.pairs_per_second:.1f}",
            f"{ours.pairs_per_second / best.pairs_per_second:.2f}",
            f"{setting.batch / best.pairs_per_second / ours.facts['products']:.2f}",
            f"{ours.facts['distinct'] / ours.facts['padded']:.0%}",
            f"{peaks[ours]:,.0f}",
            f"{peaks[best]:,.0f}",
            f"{ours.first_loss:.4f} {usual:.4f}",
        )


def memory(arguments: argparse.Namespace) -> None:
    row("data", "batch", "MiB", "of batch 30")
    row(*["---"] * 4)
    for name in ("stsb", "wikiqa"):
        least = None
        for batch, steps in ((30, 300), (3000, 3)):  # the same rows
            side = Side("ours", Setting(name, True, batch=batch, steps=steps, dropout=arguments.dropout), arguments)
            side.train(min(steps, 100) - 1)
            peak = side.close()
            least = least or peak
            row(name, f"{batch:,}", f"{peak:,.0f}", f"{peak / least:.3f}")


def cached(arguments: argparse.Namespace) -> None:
    row("trainer", "mini-batch", "pairs/s", "MiB", "ours is faster by")
    row(*["---"] * 5)
    setting = Setting("stsb", True, batch=3000, steps=3, dropout=arguments.dropout)
    sides = [("ours", setting), *(("theirs", replace(setting, mini_batch=size)) for size in MINI_BATCHES)]
    ours = None
    for which, chosen in sides:
        side = Side(which, chosen, arguments)
        side.train(1)
        ours = ours or side.pairs_per_second
        name = "this project" if which == "ours" else "CachedMultipleNegativesRankingLoss"
        gain = f"{ours / side.pairs_per_second:.2f}"
        row(name, chosen.mini_batch or "-", f"{side.pairs_per_second:.1f}", f"{side.close():,.0f}", gain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with pfcc_s, stsb, wikiqa and cqa_a")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--only", nargs="*", choices=list(SPEED), help="data sets of the part `speed`")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of a turn")
    parser.add_argument("--dropout", action="store_true", help="keep the encoder's dropout; first losses then differ")
    parser.add_argument("--wall", action="store_true", help="seconds by the clock: for a machine without other work")
    arguments = parser.parse_args()
    dropout, clock = "on" if arguments.dropout else "off", "wall" if arguments.wall else "CPU"
    print(f"{arguments.threads} thread(s), dropout {dropout}, {clock} seconds\n", flush=True)
    for part in arguments.parts:
        {"speed": speed, "memory": memory, "cached": cached}[part](arguments)
        print()


if __name__ == "__main__":
    main()
