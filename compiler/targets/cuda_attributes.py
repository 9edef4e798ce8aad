"""The figures that a CUDA device is asked for, by CUdevice_attribute's numbers: cuda_attributes.def, as Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from importlib import resources

_ROW = re.compile(r"^CUDA_ATTRIBUTE\((\w+), CU_DEVICE_ATTRIBUTE_\w+, (\d+)\)$", re.MULTILINE)


@lru_cache(maxsize=1)
def cuda_attributes() -> dict[str, int]:
    """The CUdevice_attribute of each figure, by the names that `targets.target_of_device` knows."""
    text = (resources.files(__package__) / "cuda_attributes.def").read_text(encoding="utf-8")
    return {name: int(number) for name, number in _ROW.findall(text)}


def ask_device(name: str, ask: Callable[[int], int]) -> dict[str, int | str]:
    """A device as `targets.target_of_device` takes it. name: the driver's name of it. ask: gives the device's value of a
    CUdevice_attribute; what it raises is raised."""
    return {"name": name, **{figure: ask(number) for figure, number in cuda_attributes().items()}}
