"""What CUDA has to offer here, and if nothing, why: driver, torch build, cards. Reads only; writes no file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

DRIVER = Path("/proc/driver/nvidia/version")


def report() -> dict[str, Any]:
    """`usable`; `why` when it is not; driver line, torch build, and each card's name, memory (bytes), capability."""
    why = _obstacle()
    cards = []
    if why is None:
        for i in range(torch.cuda.device_count()):
            card = torch.cuda.get_device_properties(i)
            with torch.cuda.device(i):
                bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
            capability = f"{card.major}.{card.minor}"
            cards.append({"name": card.name, "memory": card.total_memory, "capability": capability, "bf16": bf16})
    return {
        "usable": why is None,
        "why": why,
        "driver": _driver(),
        "torch": torch.__version__,
        "built_for": torch.version.cuda or "",
        "cards": cards,
    }


def _obstacle() -> str | None:
    """The first thing that is in the way, from the software up to the card; None when a tensor can be made there."""
    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "CUDA_VISIBLE_DEVICES is set and empty"
    if not _driver():
        return f"no NVIDIA driver is loaded ({DRIVER} is not there)"
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return "the driver is loaded and there is no card (no /dev/nvidia0)"
    try:
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return None


def _driver() -> str:
    try:
        return DRIVER.read_text(encoding="utf-8", errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return ""
