"""What the graphics card says of itself: memory taken, temperature, power; asked of its driver about every ten seconds.

Promises never to end a run and never to hold up a step: what the driver does not tell is None, and one that cannot be
asked is said once, in the journal. Writes, through `Outside`, `events/`. Imports torch and the driver's library, NVML
(https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml
import torch

from andrea_train.outside import Outside

SECONDS = 10.0


class Card:
    """A card by the handle that its driver gave, or none, which says nothing."""

    def __init__(self, handle: Any, outside: Outside) -> None:
        self._handle, self._outside, self._due = handle, outside, 0.0

    def tell(self, step: int) -> None:
        """Put into the events what it says, unless that was done a moment ago."""
        if self._handle is not None and (now := time.monotonic()) >= self._due:
            self._due = now + SECONDS
            self._outside.events.append("card", step=step, **figures(self._handle))


def of(device: torch.device, outside: Outside) -> Card:
    """The card that a device is; that its driver cannot be asked is said in the journal."""
    if device.type != "cuda":
        return Card(None, outside)
    try:
        # By its UUID: the driver does not know of CUDA_VISIBLE_DEVICES, and counts the cards otherwise.
        return Card(found(str(torch.cuda.get_device_properties(device).uuid)), outside)
    except pynvml.NVMLError as error:
        text = f"the card's memory, temperature and power are not known: {error}"
        outside.log.info("%s", text, extra={"event": "card"})
        return Card(None, outside)


def found(uuid: str) -> Any:
    """The driver's handle of a card; NVMLError when there is no driver, or it does not know the card."""
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")


def figures(handle: Any) -> dict[str, float | None]:
    """`memory` taken by all processes and `memory_total` (bytes), `temperature` (degrees Celsius), `power` drawn and
    `power_limit` (watts); None for what this card or driver does not tell."""
    memory = _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    drawn = _asked(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    limit = _asked(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    return {
        "memory": None if memory is None else memory.used,
        "memory_total": None if memory is None else memory.total,
        "temperature": _asked(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        "power": None if drawn is None else drawn / 1000,
        "power_limit": None if limit is None else limit / 1000,
    }


def _asked(question: Callable[[], Any]) -> Any:
    with suppress(pynvml.NVMLError):
        return question()
    return None
