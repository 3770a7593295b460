"""How much of a batch's activations is kept."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.training.memory import CPU_MIB, MIB, Room, activation_room, peak_memory_bytes

CPU = torch.device("cpu")


@given(most=st.integers(0, 10**6), needed=st.integers(0, 10**7))
def test_what_fits_is_kept_and_never_more_than_the_room(most: int, needed: int) -> None:
    room = Room(most, most // 4)
    assert room.of(needed) == needed if needed <= most else most // 4 <= room.of(needed) <= most
    assert room.of(needed + 1) <= max(most, needed + 1)


def test_the_room_is_what_is_asked_for_or_what_suits_the_device() -> None:
    assert activation_room(CPU, 64, weights=10**9) == Room(64 * MIB, 64 * MIB)
    assert activation_room(CPU, None, weights=10**9).most == CPU_MIB * MIB
    assert activation_room(CPU, None, weights=10**9).modest < CPU_MIB * MIB


def test_a_much_larger_batch_keeps_a_modest_part() -> None:
    room = Room(1000, 250)
    assert [room.of(needed) for needed in (999, 1000, 1100, 1500, 1900, 10**9)] == [999, 1000, 900, 500, 250, 250]


def test_the_peak_of_the_process_only_grows() -> None:
    before = peak_memory_bytes()
    held = torch.ones(before // 4 + 2**22)  # as much again
    assert peak_memory_bytes() > before
    assert len(held) > 0
