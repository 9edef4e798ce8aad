"""The machine's compiler: found, identified, killed when it hangs, and never a traceback for the user."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import translation_unit
from stitchfleet.compiler.toolchain.host import (
    CompilerFailedError,
    CompilerMissingError,
    Toolchain,
    find_toolchain,
    vector_symbols,
)


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_says_what_it_looked_for_when_there_is_no_compiler(tmp_path: Path) -> None:
    with pytest.raises(CompilerMissingError, match=r"no C\+\+ compiler: .*not on the PATH"):
        find_toolchain({"PATH": str(tmp_path)})


def test_a_compiler_named_by_the_user_comes_first(tmp_path: Path) -> None:
    mine = script(tmp_path / "mine", "echo mine 1.0\n")
    found = find_toolchain({"CXX": f"{mine} --flag", "PATH": os.environ["PATH"]})
    assert found.command == (str(mine), "--flag")
    assert found.version == "mine 1.0"


def test_a_compiler_that_cannot_start_is_passed_over(tmp_path: Path) -> None:
    assert find_toolchain({"CXX": str(tmp_path / "absent"), "PATH": os.environ["PATH"]}).version


def test_a_failing_compiler_is_one_line_and_keeps_its_last_words(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cc"
    source.write_text("int main() { return nonsense; }\n")
    with pytest.raises(CompilerFailedError) as caught:
        find_toolchain().build(source, tmp_path / "out.so")
    assert "nonsense" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "nonsense" in caught.value.details
    assert not (tmp_path / "out.so").exists()


def test_a_hanging_compiler_is_killed_with_its_children(tmp_path: Path) -> None:
    slow = Toolchain((str(script(tmp_path / "slow", "sleep 60 & sleep 60\n")),), timeout_s=0.3)
    begun = time.monotonic()
    with pytest.raises(CompilerFailedError, match="did not end within"):
        slow.build(tmp_path / "x.cc", tmp_path / "x.so")
    assert time.monotonic() - begun < 50


def test_identity_names_compiler_flags_cpu_and_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_toolchain()
    assert found.version in found.identity
    assert "-march=native" in found.identity
    assert "glibc" in found.identity or "unknown" in found.identity
    from stitchfleet.compiler.toolchain import host

    monkeypatch.setattr(host, "cpu_features", lambda: "another CPU")
    assert replace(found).digest != found.digest


def test_never_asks_for_arithmetic_that_changes_values() -> None:
    flags = find_toolchain().flags
    assert not {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math"} & set(flags)


def test_names_of_vector_functions_are_read_from_the_binary(tmp_path: Path) -> None:
    if find_toolchain().is_clang or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("only gcc on x86 calls functions of whole vectors")
    source = tmp_path / "v.cc"
    loop = "void f(float* x) { for (int i = 0; i < 1024; ++i) x[i] = stitch_sin(x[i]); }\n"
    source.write_text(translation_unit([f'extern "C" STITCH_EXPORT {loop}']))
    find_toolchain().build(source, tmp_path / "v.so")
    assert any(name.endswith("v_stitch_sin_f32") for name in vector_symbols(tmp_path / "v.so"))


@pytest.mark.parametrize(
    ("said", "is_certain"),
    [
        ("k.cc:3:1: error: 'nonsense' does not name a type", True),
        ("g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.", False),
        ("/tmp/x.s: fatal error: can't write 19 bytes: No space left on device", False),
        ("k.cc:3:1: internal compiler error: Segmentation fault", False),
        ("cc1plus: out of memory allocating 65536 bytes\nk.cc:3:1: error: expected", False),
        ("", False),
    ],
)
def test_a_compiler_that_finds_fault_with_the_source_will_again(said: str, is_certain: bool, tmp_path: Path) -> None:
    script = tmp_path / "c++"
    (tmp_path / "said").write_text(said + "\n")
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit 1\n")
    script.chmod(0o755)
    (tmp_path / "k.cc").write_text("")
    with pytest.raises(CompilerFailedError) as failed:
        Toolchain((str(script),)).build(tmp_path / "k.cc", tmp_path / "k.so")
    assert failed.value.is_certain == is_certain


def test_zig_links_no_library_and_brings_the_declarations_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training image may have no C library to compile against; the cluster's tests run the real compiler in one."""
    log = tmp_path / "log"
    zig = script(
        tmp_path / "python", f'echo "clang version 22"; echo "$@" >> {log}; while [ $# -gt 1 ]; do shift; done\n'
    )
    found = Toolchain((str(zig), "-m", "ziglang", "c++"))
    assert found.is_zig
    assert found.is_clang
    assert "-nostdlib" in found.identity
    monkeypatch.setattr(os, "replace", lambda *_: None)
    found.build(tmp_path / "k.cc", tmp_path / "k.so")
    found.build_c(tmp_path / "r.c", tmp_path / "r.so", tmp_path)
    kernel, helper = (line for line in log.read_text().splitlines() if "--version" not in line)
    assert kernel.endswith("-nostdlib")
    assert "-lm" not in kernel
    assert "-isystem" in helper
    assert "lib/libc/include/generic-glibc" in helper
