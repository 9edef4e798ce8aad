"""Makes starter.txt from starter.S: an ELF program that is valid text, as an annotation must be.

    python -m stitchfleet.operator.policy.starter.pack        # needs binutils

An annotation is UTF-8, and machine code is not. So each byte of the code loses its highest bit, and instructions in front of it,
all of bytes below 0x80, set these bits again when the program starts. Its one segment is therefore writable and executable.
"""

from __future__ import annotations

import pathlib
import struct
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent
BASE = 0x400000
HEADERS = 64 + 56
_PRELUDE = bytes((0x6A, 0x7F, 0x58, 0x04, 0x01, 0x6A, 0x01, 0x5B))
"""push 0x7f; pop rax; add al, 1; push 1; pop rbx. Then al is the highest bit, and rbx is 1."""
_NOTHING, _NOTHING_ODD = bytes((0x04, 0x00)), bytes((0x40, 0x04, 0x00))
"""add al, 0 in two bytes and in three."""


def pack(code: bytes) -> str:
    """The program, consisting of characters below 0x80. code: position-independent, entered at its first byte. Raises ValueError if
    it does not fit."""
    stripped = bytes(byte & 0x7F for byte in code)
    for room in range(len(_PRELUDE), 8 * len(code)):
        setting = _PRELUDE + _highest_bits(code, BASE + HEADERS + room)
        rest = room - len(setting)
        if rest == 0 or rest > 1:
            padding = (_NOTHING_ODD + _NOTHING * ((rest - 3) // 2)) if rest % 2 else _NOTHING * (rest // 2)
            return _elf(setting + padding + stripped).decode("ascii")
    raise ValueError("the code does not fit")


def _highest_bits(code: bytes, address: int) -> bytes:
    """Instructions that set the highest bits of the bytes of `code`, which is stored without them at `address`."""
    found, window = bytearray(), None
    for place, byte in enumerate(code, address):
        if byte < 0x80:
            continue
        base = place & ~0xFF | (0x7F if place & 0x80 else 0)
        if base != window:
            window = base
            found += b"\x68" + struct.pack("<i", base) + b"\x5f"  # push base; pop rdi
        distance = place - base
        # xor [rdi + distance], al; a distance of 0x80 cannot be written in 7 bits: xor [rdi + rbx + 0x7f], al
        found += bytes((0x30, 0x47, distance)) if distance < 0x80 else bytes((0x30, 0x44, 0x1F, distance - 1))
    return bytes(found)


def _elf(content: bytes) -> bytes:
    """An ELF file with one segment, loaded at BASE, that also holds the headers. Sizes are padded to bytes below 0x80."""
    size = HEADERS + len(content)
    if size & 0x80:
        size = (size | 0xFF) + 1
    if size >> 8 & 0x80 or size >> 15:
        raise ValueError("the program is too long")
    identity = b"\x7fELF" + bytes((2, 1, 1, 0)) + bytes(8)
    header = identity + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, BASE + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 7, 0, BASE, BASE, size, size, 0x1000)
    return (header + segment + content).ljust(size, b"\0")


def assembled(source: pathlib.Path) -> bytes:
    """The machine code of an assembly source. Raises OSError or CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        linked, binary = f"{folder}/linked", f"{folder}/binary"
        subprocess.run(["as", "--64", "-o", f"{folder}/object", str(source)], check=True)
        link = [
            "ld",
            "-m",
            "elf_x86_64",
            "-Ttext=0",
            "-e",
            "0",
            "--oformat=elf64-x86-64",
            "-o",
            linked,
            f"{folder}/object",
        ]
        subprocess.run(link, check=True)
        subprocess.run(["objcopy", "-O", "binary", "-j", ".text", linked, binary], check=True)
        return pathlib.Path(binary).read_bytes()


if __name__ == "__main__":
    (HERE / "starter.txt").write_bytes(pack(assembled(HERE / "starter.S")).encode("ascii"))
