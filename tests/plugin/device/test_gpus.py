"""What `stitchfleet doctor` says of a machine's GPUs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from stitchfleet.plugin.base.gpus import VisibleGpu, find_gpus
from stitchfleet.plugin.native.library import compiler_command

DRIVER = """
#include <stdio.h>
int cuInit(unsigned flags) { return STATUS; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int number) { *device = 7 + number; return 0; }
int cuDeviceGetName(char* name, int length, int device) { return snprintf(name, length, "Device %d", device) < 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 16 ? 100 + device : attribute == 75 ? (device == 7 ? 9 : 3) : attribute == 76 ? 0 : -1;
  return *value < 0;
}
"""


def built(folder: pathlib.Path, status: int) -> pathlib.Path:
    source, library = folder / "driver.cc", folder / f"driver{status}.so"
    source.write_text(f'extern "C" {{{DRIVER.replace("STATUS", str(status))}}}'.replace("#include <stdio.h>\n", ""))
    source.write_text("#include <stdio.h>\n" + source.read_text())
    subprocess.run([*compiler_command(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


def doctor(driver: pathlib.Path, cache: pathlib.Path) -> str:
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "doctor", "--cache", str(cache)]
    settings = {**os.environ, "STITCHFLEET_CUDA_DRIVER": str(driver)}
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False).stdout


def test_a_machine_without_one_lacks_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OSError, match=r"nowhere\.so"):
        find_gpus(tmp_path / "nowhere.so")
    assert "GPU          none (" in doctor(tmp_path / "nowhere.so", tmp_path)


def test_gpus_are_named_with_what_they_lack(tmp_path: pathlib.Path) -> None:
    driver = built(tmp_path, 0)
    assert find_gpus(driver) == [VisibleGpu("Device 7", (9, 0), 107), VisibleGpu("Device 8", (3, 0), 108)]
    said = doctor(driver, tmp_path)
    assert "GPU 0        Device 7, 107 multiprocessors of compute capability 9.0\n" in said
    assert (
        "GPU 1        Device 8, 108 multiprocessors of compute capability 3.0\n             -> no kernels for it: NVRTC"
        in said
    )


def test_a_driver_that_fails_says_where(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OSError, match="cuInit fails with 999"):
        find_gpus(built(tmp_path, 999))
