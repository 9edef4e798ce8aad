"""The program that starts a container's command: what it does, and that it can stand in an annotation."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from stitchfleet.operator.policy import starter
from stitchfleet.operator.policy.starter import pack
from stitchfleet.operator.webhook import selftest

PATH = "/nowhere::/usr/bin:/bin"


HAS_BINUTILS = all(map(shutil.which, ("as", "ld", "objcopy")))


@pytest.fixture(params=["script", "text", "program"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    file = tmp_path / "start"
    if request.param == "program":
        if not HAS_BINUTILS:
            pytest.skip("binutils are not installed")
        # as the payload's Dockerfile does
        subprocess.run(["as", "--64", "-o", f"{file}.o", pack.HERE / "starter.S"], check=True)
        subprocess.run(["ld", "-m", "elf_x86_64", "-s", "-o", file, f"{file}.o"], check=True)
        return str(file)
    file.write_text(starter.SCRIPT if request.param == "script" else starter.BINARY, encoding="ascii")
    file.chmod(0o555)
    return str(file)


def program_kind(program: str) -> str:
    return "script" if Path(program).read_bytes().startswith(b"#!") else "binary"


def run(*words: str, **environment: str) -> tuple[int, str]:
    """(exit code, output)."""
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def extended(program: str, **environment: str) -> tuple[int, str]:
    return run(program, "PYTHONPATH=/first", ":/last", "printenv", "PYTHONPATH", PATH=PATH, **environment)


def test_a_value_is_extended_on_both_sides(program: str) -> None:
    assert extended(program) == extended(program, PYTHONPATH="") == (0, "/first:/last\n")
    assert extended(program, PYTHONPATH="/mine:/other") == (0, "/first:/mine:/other:/last\n")
    assert extended(program, PYTHONPATH="x" * 100_000) == (0, f"/first:{'x' * 100_000}:/last\n")


def test_all_other_variables_are_handed_on_whatever_their_names(program: str) -> None:
    given = {
        "PATH": PATH,
        "spring.config": "x",
        "PYTHONPATHS": "a=b",
        "PYTHONPAT": "",
        "Z": "é",
        "PWD": str(Path.cwd()),
    }
    if "script" in program_kind(program):
        del given["spring.config"]  # no shell hands it on: such pods are left alone
    code, text = run(program, "PYTHONPATH=/first", ":/last", "/usr/bin/env", "-0", **given)
    assert code == 0
    assert dict(line.split("=", 1) for line in text.split("\0") if line) == given | {"PYTHONPATH": "/first:/last"}


def test_hostile_words_and_the_exit_code_are_handed_on(program: str) -> None:
    words = ["sh", "-c", 'printf "%s|" "$0" "$@"; exit 7', "x", "$(id)", "`id`", "a b", "'", '"', ";", ""]
    assert run(program, "PYTHONPATH=/first", ":/last", *words, PATH=PATH) == (7, "x|$(id)|`id`|a b|'|\"|;||")


def test_a_program_is_looked_for_as_the_container_runtime_does(program: str, tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one" / "job").mkdir()
    (tmp_path / "two" / "job").write_text("#!/bin/sh\necho not executable\n")
    (tmp_path / "three" / "job").write_text("#!/bin/sh\necho right\n")
    (tmp_path / "three" / "job").chmod(0o755)
    path = ":".join(str(tmp_path / folder) for folder in ("one", "two", "three"))
    assert run(program, "PYTHONPATH=/first", ":/last", "job", PATH=path) == (0, "right\n")


@pytest.mark.parametrize("words", [["nothing-there"], ["/nothing/there"], [""], []])
def test_what_cannot_be_run_ends_as_in_a_shell(program: str, words: list[str]) -> None:
    assert run(program, "PYTHONPATH=/first", ":/last", *words, PATH=PATH)[0] in (126, 127)
    assert run(program, "PYTHONPATH=/first", ":/last", *words)[0] in (126, 127)


def test_trying_what_is_not_there_does_nothing(program: str) -> None:
    assert run(program, "try", "/nothing/there") == (0, "")


def test_trying_runs_the_command_with_the_folders(program: str, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text('#!/bin/sh\necho "$1|$2|$VAR"\n')
    (tmp_path / "copy").chmod(0o755)
    words = (f"{tmp_path}/copy", "/payload", f"{tmp_path}")
    assert run(program, "try", *words, PATH=PATH, VAR="x") == (0, f"/payload|{tmp_path}|x\n")


@pytest.mark.parametrize("copy", ["exit 0", "exit 3", "echo better > $2/start; chmod 755 $2/start", None])
def test_whatever_the_payload_s_program_does_a_starter_is_there(copy: str | None, tmp_path: Path) -> None:
    """The controller may have given the init container the user's image, which has no such program; or the payload is an old one."""
    script, folder = tmp_path / "script", tmp_path / "start"
    folder.mkdir()
    script.write_text(starter.SCRIPT)
    script.chmod(0o555)
    if copy is not None:
        (tmp_path / "copy").write_text(f"#!/bin/sh\n{copy}\n")
        (tmp_path / "copy").chmod(0o755)
    assert run(str(script), "try", f"{tmp_path}/copy", "/payload", str(folder), PATH=PATH) == (0, "")
    if "better" in (copy or ""):
        assert (folder / "start").read_text() == "better\n"
    else:
        assert extended(str(folder / "start"), PYTHONPATH="/mine") == (0, "/first:/mine:/last\n")


def test_a_folder_that_takes_no_starter_does_not_fail_the_init_container(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(starter.SCRIPT)
    script.chmod(0o555)
    assert run(str(script), "try", "/nothing", "/payload", "/nowhere/at/all", PATH=PATH) == (0, "")


def test_an_annotation_can_hold_it() -> None:
    assert max(starter.BINARY.encode()) < 0x80
    assert len(starter.BINARY) < 2048


def test_yaml_can_write_the_usual_one() -> None:
    """JSON does not escape 0x7f, and YAML does not take it: `kubectl get -o yaml` fails on a pod with such an annotation."""
    assert all(letter == "\n" or 0x20 <= ord(letter) < 0x7F for letter in starter.SCRIPT)
    assert "\x7f" in starter.BINARY


@pytest.mark.skipif(not HAS_BINUTILS, reason="binutils are not installed")
def test_it_is_what_its_source_says() -> None:
    assert pack.pack(pack.assembled(pack.HERE / "starter.S")) == starter.BINARY


@pytest.mark.parametrize("size", [1, 2, 127, 128, 129, 600])
def test_any_code_can_be_packed(tmp_path: Path, size: int) -> None:
    """The highest bit of every byte, at every place, is set again: code that compares its own bytes, and ends with 0 or 1."""
    data = bytes(0x80 | number & 0x7F for number in range(size))
    # lea rsi, [rip + data]; mov ecx, size; 1: cmp byte [rsi], 0x80; jb bad; inc rsi; dec ecx; jnz 1b
    # xor edi, edi; jmp end; bad: mov edi, 1; end: mov eax, 60; syscall
    check = bytes.fromhex("488d351f000000b9") + size.to_bytes(4, "little")
    check += bytes.fromhex("803e80720948ffc6ffc975f431ff") + bytes.fromhex("eb05bf01000000b83c0000000f05")
    check = check.replace(bytes.fromhex("1f000000"), (len(check) - 7).to_bytes(4, "little"), 1)
    file = tmp_path / "program"
    file.write_text(pack.pack(check + data), encoding="ascii")
    file.chmod(0o755)
    assert subprocess.run([str(file)], check=False).returncode == 0


def test_the_webhook_tries_it_and_says_why_it_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert selftest.why_not(str(tmp_path)) == ""
    monkeypatch.setattr(starter, "SCRIPT", "#!/nothing\n")
    assert "does not run in this cluster" in selftest.why_not(str(tmp_path))
    assert "does not run in this cluster" in selftest.why_not(str(tmp_path / "nothing"))
