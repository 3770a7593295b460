"""Which numbers the encoder computes in: float32, or half as many bits where the processor gains from it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Literal

import torch

from bsc_core.encoders.forward import Precision, autocast
from bsc_core.errors import ConfigError

__all__ = ["Precision", "autocast", "make_scaler", "processor_gains_from_bf16", "resolve_precision"]

BF16_FLAGS = ("avx512_bf16", "amx_bf16")


def processor_gains_from_bf16(device: torch.device, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """True when matrix products in bfloat16 have instructions of their own there; without them they are far slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or platform.system() != "Linux" or not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), "").split()
    return any(flag in flags for flag in BF16_FLAGS)


def resolve_precision(wanted: Literal["auto", "fp32", "bf16", "fp16"], device: torch.device) -> Precision:
    """What `auto` means on this device. Raises ConfigError for fp16 where the device is a processor."""
    if wanted == "fp16" and device.type == "cpu":
        raise ConfigError("training.precision is fp16, which is for GPUs, and this run is on a processor; choose auto")
    if wanted != "auto":
        return wanted
    return "bf16" if processor_gains_from_bf16(device) else "fp32"


def make_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Scales the loss so that small gradients survive fp16; with other numbers it lets everything through."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
