"""`stitchfleet compile --target cuda --run`: kernels run and tuned through pycuda and the tests' driver."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ...marks import slow
from ..commands.test_command import SOFTMAX

pycuda = find_spec("pycuda")
HERE = Path(__file__).parents[1]
STITCHFLEET = Path(sys.executable).with_name("stitchfleet")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tests' libcuda.so.1. Of the functions that pycuda links to and nothing here calls, it has empty ones."""
    folder = tmp_path_factory.mktemp("driver")
    assert pycuda is not None, "scripts/environment installs it"
    (extension,) = Path(str(pycuda.origin)).parent.glob("_driver*.so")
    listed = subprocess.run(["nm", "-D", "--undefined-only", extension], capture_output=True, text=True, check=True)
    wanted = set(re.findall(r" U (cu[A-Z]\w+)", listed.stdout))
    header = HERE / "emulated_driver.h"
    known = set(re.findall(r"^int (cu\w+)\(", header.read_text(), re.MULTILINE))
    assert {"cuMemAlloc_v2", "cuEventRecord", "cuModuleLoadData"} <= known
    source = folder / "driver.cc"
    empty = "".join(f"int {name}() {{ return 801; }}\n" for name in sorted(wanted - known))
    source.write_text(f'#include "{header}"\nextern "C" {{\n{empty}}}\n')
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["g++", *options, source, "-o", folder / "libcuda.so.1", "-ldl"], check=True)
    return folder


@pytest.fixture
def run(driver: Path, tmp_path: Path) -> Run:
    """`stitchfleet compile` with the arguments, on a machine whose GPU is the tests'."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        builder = [sys.executable, str(HERE / "emulated_driver_builder.py"), str(tmp_path)]
        gpu = {
            "LD_LIBRARY_PATH": str(driver),
            "TEST_GPU_BUILDER": shlex.join(builder),
            "TEST_GPU_LOG": str(tmp_path / "log"),
        }
        (tmp_path / "scratch").mkdir(exist_ok=True)
        return subprocess.run(
            [STITCHFLEET, "compile", *map(str, arguments)],
            env={**os.environ, **gpu, "TMPDIR": str(tmp_path / "scratch"), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


CENTRED = """HloModule centred
both { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[512,40] parameter(0)
  zero = f32[] constant(0)
  sums = f32[40] reduce(x, zero), dimensions={0}, to_apply=both
  spread = f32[512,40] broadcast(sums), dimensions={1}
  ROOT y = f32[512,40] subtract(x, spread)
}
"""
"""Each row waits for all others: a grid barrier."""


def many(count: int) -> str:
    given = "\n".join(f"  x{i} = f32[3] parameter({i})\n  y{i} = f32[3] multiply(x{i}, x{i})" for i in range(count))
    made = ", ".join(f"y{i}" for i in range(count))
    return f"HloModule many\nENTRY e {{\n{given}\n  ROOT t = ({', '.join(['f32[3]'] * count)}) tuple({made})\n}}\n"


def written(text: str, folder: Path) -> Path:
    path = folder / "kernel.hlo"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "launched", "is_by_table"),
    [
        (SOFTMAX, "cuLaunchKernel", False),
        (CENTRED, "cuLaunchCooperativeKernel", False),
        slow(many(450), "cuLaunchKernel", True),
    ],
    ids=["softmax", "centred", "many"],
)
def test_a_kernel_is_run_judged_and_timed(
    run: Run, tmp_path: Path, text: str, launched: str, is_by_table: bool
) -> None:
    done = run(
        written(text, tmp_path), "--target", "cuda", "--run", "--launch", "search", "--cache", tmp_path / "cache"
    )
    assert done.returncode == 0, done.stderr
    assert "for Test GPU 0 (sm_70)" in done.stdout
    assert re.search(r"run: \w+: \d+ outputs right", done.stdout), done.stdout
    assert re.search(r"a launch takes \d+\.\d+ us .* a copy of as many bytes \(\d+\.\d MiB\) \d", done.stdout)
    calls = (tmp_path / "log").read_text().split()
    assert calls.count(launched) > 16  # one that is judged, and sixteen batches
    (entry,) = (tmp_path / "cache").rglob("entry.json")
    assert json.loads(entry.read_text())["metadata"]["launch"]["by_table"] == is_by_table


@pytest.mark.slow  # all candidates of a kernel, each timed in the emulator
def test_the_fastest_candidate_is_kept_for_jobs(run: Run, tmp_path: Path) -> None:
    file, cache = written(CENTRED, tmp_path), tmp_path / "cache"
    gpu = ("--target", "cuda", "--run", "--cache", cache)
    assert run(file, *gpu).returncode == 0
    (by_model,) = (json.loads(path.read_text()) for path in cache.rglob("entry.json"))
    done = run(file, *gpu, "--launch", "tune")
    assert done.returncode == 0, done.stderr
    (tuned,) = (json.loads(path.read_text()) for path in cache.rglob("entry.json"))
    assert tuned["key"] == by_model["key"]
    timed = {int(block): float(ns) for block, ns in re.findall(r"(\d+) threads, .* ([\d.]+) us measured", done.stdout)}
    assert len(timed) > 2
    assert tuned["metadata"]["launch"]["block"] == min(timed, key=timed.__getitem__)
    assert tuned["metadata"]["estimated_ns"] == pytest.approx(1e3 * min(timed.values()), abs=100)
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.slow
def test_the_usual_launch_is_not_searched_for_and_is_no_jobs(run: Run, tmp_path: Path) -> None:
    file, cache = written(CENTRED, tmp_path), tmp_path / "cache"
    gpu = ("--target", "cuda", "--run", "--cache", cache)
    usual = run(file, *gpu, "--launch", "usual")
    assert usual.returncode == 0, usual.stderr
    considered = re.compile(r"^ +(\*?) +(\d+) threads, +\d+ registers", re.MULTILINE)
    assert considered.findall(usual.stdout) == [("*", "256")]
    assert "cuLaunchCooperativeKernel" in (tmp_path / "log").read_text()
    (kept,) = (json.loads(path.read_text()) for path in cache.rglob("entry.json"))
    assert kept["metadata"]["launch"]["block"] == 256
    searched = run(file, *gpu)
    assert searched.returncode == 0, searched.stderr
    assert len(considered.findall(searched.stdout)) > 2
    assert len(list(cache.rglob("entry.json"))) == 2


@pytest.mark.slow
def test_a_candidate_that_the_driver_refuses_is_out(run: Run, tmp_path: Path) -> None:
    """The fourth image that is loaded, and all behind it."""
    file = written(CENTRED, tmp_path)
    done = run(file, "--target", "cuda", "--run", "--launch", "tune", TEST_GPU_FAIL="cuModuleLoadData 4 200")
    assert done.returncode == 2
    assert "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE" in done.stderr
    done = run(file, "--target", "cuda", "--run", "--launch", "tune", TEST_GPU_FAIL="cuModuleLoadData 1 200")
    assert done.returncode == 2
    assert "no candidate runs on Test GPU 0" in done.stderr


def test_a_wrong_kernel_is_called_wrong(run: Run, tmp_path: Path) -> None:
    file = written(SOFTMAX, tmp_path)
    done = run(file, "--target", "cuda", "--run", TEST_GPU_BREAK="wrong")
    assert done.returncode == 1
    assert "wrong elements" in done.stdout
    done = run(file, "--target", "cuda", "--run", "--launch", "tune", TEST_GPU_BREAK="wrong")
    assert done.returncode == 2
    assert "no candidate runs" in done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cuDevicePrimaryCtxRetain 1 2", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuMemAlloc_v2 2 2", "bytes of device memory cannot be allocated"),
        slow("cuLaunchKernel 1 701", "cuLaunchKernel: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        ("cuStreamSynchronize 6 719", "the device has stopped"),
        slow("cuModuleGetFunction 1 500", "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"),
    ],
)
def test_a_fault_of_the_driver_is_one_line(run: Run, tmp_path: Path, fault: str, words: str) -> None:
    done = run(written(SOFTMAX, tmp_path), "--target", "cuda", "--run", TEST_GPU_FAIL=fault)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "1"), "there is no GPU 1: the driver shows 1"),
        (("--arch", "sm_90"), "--arch sm_90: Test GPU 0 is sm_70"),
        (("--stop-after", "ptx"), "--stop-after and --output make something on any machine"),
    ],
)
def test_what_does_not_fit_the_gpu_is_one_line(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = run(written(SOFTMAX, tmp_path), "--target", "cuda", "--run", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_without_a_driver_one_line_says_what_to_install(run: Run, tmp_path: Path) -> None:
    done = run(written(SOFTMAX, tmp_path), "--target", "cuda", "--run", LD_LIBRARY_PATH="")
    assert done.returncode == 2
    assert "pycuda cannot be loaded: libcuda.so.1" in done.stderr


OCCUPANCY = """
from dataclasses import replace
from itertools import product
import pycuda.driver
from pycuda.tools import DeviceData, OccupancyRecord
from stitchfleet.compiler.pipeline.cuda_runtime import Gpu

with Gpu() as gpu:
    data = DeviceData(pycuda.driver.Device(0))
    data.thread_blocks_per_mp = gpu.target.blocks_per_multiprocessor  # pycuda has Fermi's
    data.shared_memory = gpu.target.shared_bytes_per_multiprocessor  # and a block's
    compared = 0
    for block, registers, shared in product((32, 96, 128, 256, 384, 512, 1024), range(16, 256, 8), range(0, 48 << 10, 3 << 10)):
        if block * registers > 65536:
            continue
        ours = replace(gpu.target, block=block).blocks_at_once(shared, registers) // gpu.target.multiprocessors
        assert ours == OccupancyRecord(data, block, shared + 1024, registers).tb_per_mp, (block, registers, shared)
        compared += 1
    print(compared)
"""


def test_occupancy_is_what_pycuda_computes(driver: Path) -> None:
    """With a kibibyte of shared memory for the system, and registers in units of eight, neither of which its formula knows."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver)}
    done = subprocess.run(
        [sys.executable, "-c", OCCUPANCY], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2000
