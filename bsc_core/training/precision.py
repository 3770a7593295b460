"""Which numbers the encoder computes in: float32, or bfloat16 where the processor gains from it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Literal

import torch

BF16_FLAGS = ("avx512_bf16", "amx_bf16")


def processor_gains_from_bf16(device: torch.device, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """True when matrix products in bfloat16 have instructions of their own there; without them they are far slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or platform.system() != "Linux" or not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "").split()
    return any(flag in flags for flag in BF16_FLAGS)


def resolve_precision(wanted: Literal["auto", "fp32", "bf16"], device: torch.device) -> Literal["fp32", "bf16"]:
    """What `auto` means on this device."""
    if wanted != "auto":
        return wanted
    return "bf16" if processor_gains_from_bf16(device) else "fp32"


def autocast(precision: Literal["fp32", "bf16"], device: torch.device) -> torch.autocast:
    """The context a step runs in; under bf16 it casts each weight once and keeps the copy until it ends."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
