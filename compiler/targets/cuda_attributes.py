"""The figures that are read from a CUDA device, with their CUdevice_attribute numbers: cuda_attributes.def, read by Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import resources

_ROW = re.compile(r"^CUDA_ATTRIBUTE\((\w+), CU_DEVICE_ATTRIBUTE_\w+, (\d+)\)$", re.MULTILINE)


@lru_cache(maxsize=1)
def cuda_attributes() -> dict[str, int]:
    """CUdevice_attribute number of each figure, keyed by the name that `targets.target_of_device` uses."""
    text = (resources.files(__package__) / "cuda_attributes.def").read_text(encoding="utf-8")
    return {name: int(number) for name, number in _ROW.findall(text)}


def ask_device(name: str, ask: Callable[[int], int]) -> dict[str, int | str]:
    """Describes a device for `targets.target_of_device`. `name`: the driver's name of the device. `ask` returns the device's value
    of a CUdevice_attribute; its exceptions pass through."""
    return {"name": name, **{figure: ask(number) for figure, number in cuda_attributes().items()}}
