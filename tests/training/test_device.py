"""Precision and memory of a device."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.neighbors import has_bf16_instructions
from bsc_core.training.loop.device import (
    CPU_MIB,
    MIB,
    ActivationMemory,
    activation_memory,
    peak_memory_bytes,
    resolve_precision,
)

CPU = torch.device("cpu")


@given(limit=st.integers(0, 10**6), needed=st.integers(0, 10**7))
def test_a_batch_that_fits_is_stored_and_the_limit_is_never_exceeded(limit: int, needed: int) -> None:
    memory = ActivationMemory(limit, limit // 4)
    budget = memory.budget(needed)
    assert budget == needed if needed <= limit else limit // 4 <= budget <= limit
    assert memory.budget(needed + 1) <= max(limit, needed + 1)


def test_a_much_larger_batch_stores_less() -> None:
    memory = ActivationMemory(1000, 250)
    assert [memory.budget(needed) for needed in (999, 1000, 1100, 1500, 1900, 10**9)] == [999, 1000, 900, 500, 250, 250]


def test_the_memory_is_the_requested_one_or_suits_the_device() -> None:
    assert activation_memory(CPU, 64, weights=10**9) == ActivationMemory(64 * MIB, 64 * MIB)
    assert activation_memory(CPU, None, weights=10**9).limit == CPU_MIB * MIB
    assert activation_memory(CPU, None, weights=10**9).minimum < CPU_MIB * MIB


def test_the_peak_memory_of_the_process_grows() -> None:
    before = peak_memory_bytes()
    array = torch.ones(before // 4 + 2**22)  # as much again
    assert peak_memory_bytes() > before
    assert len(array) > 0


@pytest.mark.parametrize(
    ("flags", "gains"), [("fpu avx2 avx512f", False), ("fpu avx512_bf16", True), ("fpu amx_bf16 amx_tile", True)]
)
def test_auto_precision_depends_on_the_processor(tmp_path, flags, gains, monkeypatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n")
    assert has_bf16_instructions(cpuinfo) is gains
    assert (resolve_precision("fp32", CPU), resolve_precision("bf16", CPU)) == ("fp32", "bf16")
