"""CUDA kernels by the cache, for a device that tells its own figures."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from stitchfleet.compiler.kernel.cache import KernelCache
from stitchfleet.compiler.kernel.metadata import KernelMetadata
from stitchfleet.compiler.pipeline.backend import KernelRequest
from stitchfleet.compiler.pipeline.cuda import CudaBackend
from stitchfleet.compiler.targets.cuda_attributes import ask_device, cuda_attributes
from stitchfleet.compiler.targets.targets import A100, V100, target_of_device
from stitchfleet.compiler.toolchain import nvrtc

from .. import library

MIG: dict[str, int | str] = {
    "name": "NVIDIA A100 MIG 1g.5gb",
    "major": 8,
    "minor": 0,
    "multiprocessors": 14,
    "threads_per_multiprocessor": 2048,
    "blocks_per_multiprocessor": 32,
    "registers_per_multiprocessor": 65536,
    "shared_bytes_per_multiprocessor": 167936,
    "shared_bytes_per_block": 49152,
    "cooperative": 1,
    "l2_bytes": 5 << 20,
    "memory_clock_khz": 1215000,
    "memory_bus_bits": 640,
}


def test_a_slice_of_a_gpu_is_planned_for_as_what_it_is() -> None:
    target = target_of_device(MIG)
    assert (target.arch, target.multiprocessors, target.cooperative) == ("sm_80", 14, True)
    assert target.bytes_per_ns == pytest.approx(194.4)
    assert target.light_ns == pytest.approx(A100.light_ns * 108 / 14)
    assert target.blocks_at_once(0) < A100.blocks_at_once(0) / 7


def test_a_device_is_asked_for_all_that_planning_wants_to_know() -> None:
    numbers = cuda_attributes()
    by_number = {numbers[figure]: value for figure, value in MIG.items() if figure != "name"}
    assert ask_device(str(MIG["name"]), by_number.__getitem__) == MIG
    # as cuda.h numbers them
    assert (numbers["multiprocessors"], numbers["major"], numbers["minor"], numbers["cooperative"]) == (16, 75, 76, 95)


def test_a_device_between_two_rows_takes_the_older_ones_figures() -> None:
    target = target_of_device({**MIG, "minor": 6, "memory_clock_khz": 0})
    assert target.arch == "sm_86"
    assert target.bytes_per_ns == pytest.approx(A100.bytes_per_ns * 14 / 108)


@pytest.mark.parametrize(
    ("change", "words"), [({"major": 6, "minor": 1}, "6.1"), ({"multiprocessors": None}, "multipr")]
)
def test_a_device_that_is_too_old_or_silent_is_refused(change: dict[str, int | None], words: str) -> None:
    described = {key: value for key, value in {**MIG, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=words):
        target_of_device(described)


def test_a_kernel_is_built_once(tmp_path: Path) -> None:
    request = KernelRequest("softmax", library.softmax(20, 300))
    cache = KernelCache(tmp_path)
    (first,) = CudaBackend(V100).compile([request], cache)
    assert first.entry is not None, first.failure
    launch = first.entry.metadata.launch
    assert launch is not None
    assert launch.arch == "sm_70"
    assert {kind for kind, _ in launch.tensors} >= {"input", "output"}
    assert first.entry.library.read_bytes().startswith(b"\x7fELF")
    assert KernelMetadata.from_json(first.entry.metadata.to_json()) == first.entry.metadata

    def never(source: str, arch: str, besides: Collection[str]) -> nvrtc.CudaBinary:
        raise AssertionError("it is there")

    (again,) = CudaBackend(V100, never).compile([request], cache)
    assert again.entry is not None
    (other,) = CudaBackend(A100, never).compile([request], cache)
    assert other.entry is None
    assert other.failure is not None
    assert "it is there" in other.failure
