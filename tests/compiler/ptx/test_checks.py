"""PTX by hand: right kernels are right in every order, and each check of the runtime fires."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.compiler.kernel.host_kernel import aligned

from .executable import INPUT, MEMORY, SEMAPHORE, Buffer, Library, Schedule, build, build_all
from .faulty import COPIED, COUNTED, EXCHANGED, GRID, IN_WARP, PAIRS, REVERSED, Kernel
from .module import Instruction, parse
from .translate import Mutant

IN_TURN = Schedule(0)
SCHEDULES = [Schedule(seed, (0, 30, 300)[seed % 3], seed >= 3) for seed in range(6)]
WORDS = np.arange(64, dtype=np.uint32) * 3 + 1

Array = np.typing.NDArray[Any]


def launch(
    library: Library,
    schedule: Schedule = IN_TURN,
    grid: int = 1,
    resident: int = 4,
    shared_bytes: int = 256,
    most_turns: int = 1 << 20,
    mutant: int = 0,
) -> tuple[list[str], Array]:
    out, given = aligned((64,), np.dtype(np.uint32)), aligned((64,), np.dtype(np.uint32))
    out[...], given[...] = 0xA5A5A5A5, WORDS
    semaphore = np.zeros(1, np.uint32)
    buffers = [Buffer(out, MEMORY), Buffer(given, INPUT), Buffer(semaphore, SEMAPHORE)]
    parameters = np.array([each.array.ctypes.data for each in buffers], np.uint64).tobytes()
    messages = library.launch(
        parameters, buffers, grid, 64, shared_bytes, resident, schedule, mutant=mutant, most_turns=most_turns
    )
    return messages, out


def _neighbours_and_odd_ones() -> Array:
    votes = [sum(int(x & 1) << lane for lane, x in enumerate(warp)) for warp in WORDS.reshape(2, 32)]
    return (WORDS.reshape(-1, 2)[:, ::-1].reshape(-1) ^ np.repeat(votes, 32)).astype(np.uint32)


GENERIC = COPIED.but("ld.global.nc.u32", "ld.u32").but("st.global.u32", "st.u32")
"""As NVRTC writes accesses where addresses come from a table: it does not see that they are global."""

RIGHT: list[tuple[Kernel, Array]] = [
    (REVERSED, WORDS[::-1]),
    (COPIED, WORDS),
    (GENERIC, WORDS),
    (PAIRS, WORDS),
    (IN_WARP, WORDS.reshape(2, 32)[:, ::-1].reshape(-1)),
    (EXCHANGED, _neighbours_and_odd_ones()),
]


ONE_FAULT = {
    "barrier left out": (REVERSED.but("bar.sync 0;"), {"data race", "uninitialised"}),
    "warp barrier left out": (IN_WARP.but("bar.warp.sync -1;"), {"data race", "uninitialised"}),
    "warp barrier of half a warp": (
        IN_WARP.but("bar.warp.sync -1;", "and.b32 %r20, %r1, 16;\n  shl.b32 %r21, 65535, %r20;\n  bar.warp.sync %r21;"),
        {"data race", "uninitialised"},
    ),
    "shared memory never written": (REVERSED.but("st.shared.u32 [%r11], %r3;"), {"uninitialised"}),
    "output read first": (COPIED.but("ld.global.nc.u32 %r3, [%rd8]", "ld.global.u32 %r3, [%rd7]"), {"uninitialised"}),
    "load behind the input": (COPIED.but("%r3, [%rd8]", "%r3, [%rd8+4]"), {"out of bounds"}),
    "generic load behind the input": (GENERIC.but("%r3, [%rd8]", "%r3, [%rd8+4]"), {"out of bounds"}),
    "store before the output": (COPIED.but("[%rd7], %r3", "[%rd7+-4], %r3"), {"out of bounds"}),
    "shared memory's end": (
        REVERSED.but("ld.shared.u32 %r4, [%r12]", "ld.shared.u32 %r4, [%r12+4]"),
        {"out of bounds"},
    ),
    "constant's end": (COPIED.but("[%rd8];", "[%rd8];\n  ld.const.u32 %r5, [numbers+8];"), {"out of bounds"}),
    "vector between": (PAIRS.but("[%rd10]", "[%rd10+4]"), {"misaligned"}),
    "vector stored between": (PAIRS.but("[%rd11]", "[%rd11+4]"), {"misaligned"}),
    "input written": (COPIED.but("[%rd7], %r3", "[%rd8], %r3"), {"read-only"}),
    "all write one word": (COPIED.but("[%rd7], %r3", "[%rd4], %r3"), {"data race"}),
    "non-coherent load of what is written": (
        COPIED.but("[%rd7], %r3;", "[%rd7], %r3;\n  ld.global.nc.u32 %r4, [%rd7];"),
        {"read-only"},
    ),
    "barrier of half of the block": (
        REVERSED.but("bar.sync 0;", "@%p1 bar.sync 0;"),
        {"thread exit", "data race", "uninitialised"},
    ),
    "barriers in two places": (
        REVERSED.but("bar.sync 0;", "@%p1 bar.sync 0;\n  @!%p1 bar.sync 0;"),
        {"divergence"},
    ),
    "mask without the caller": (EXCHANGED.but("1, 31, -1;", "1, 31, 65535;"), {"divergence"}),
    "lane that takes no part": (
        EXCHANGED.but("1, 31, -1;", "16, 31, %r13;").but(
            "shfl", "and.b32 %r12, %r1, 16;\n  shl.b32 %r13, 65535, %r12;\n  shfl"
        ),
        {"divergence"},
    ),
    "vote of a thread that has ended": (
        EXCHANGED.but("vote", "setp.eq.u32 %p4, %r1, 5;\n  @%p4 ret;\n  vote"),
        {"thread exit"},
    ),
    "some in a barrier, some in a vote": (
        EXCHANGED.but("vote", "setp.eq.u32 %p4, %r1, 5;\n  @%p4 bar.sync 0;\n  vote"),
        {"deadlock"},
    ),
    "loop without end": (COPIED.but("  ld.global.nc", "$again:\n  bra $again;\n  ld.global.nc"), {"no end"}),
}


GRID_FAULTS = {
    "not waiting": (GRID.but("@%p4 bra $seen;", "bra $seen;"), "grid barrier"),
    "no fence before": (GRID.but("membar.gl;\n  sub", "sub"), "grid barrier"),
    "no fence behind": (GRID.but("membar.gl;\n$past", "$past"), "grid barrier"),
    "left out": (GRID.but("@!%p2 bra $past;", "bra $past;"), "data race"),
}
COUNTED_FAULTS = {
    "unordered": (COUNTED.but("bar.sync 0;"), {"data race", "uninitialised"}),
    "of rubbish": (COUNTED.but("@%p2 st.global.u32 [%rd4], %r3;"), {"uninitialised"}),
}


@pytest.fixture(scope="module")
def libraries() -> dict[str, Library]:
    """Of all kernels of this file: compiled at once, since the header takes longer than they do."""
    faulty = [kernel for faults in (ONE_FAULT, GRID_FAULTS, COUNTED_FAULTS) for kernel, _ in faults.values()]
    texts = [kernel.ptx for kernel in (*(kernel for kernel, _ in RIGHT), COUNTED, GRID, *faulty)]
    return dict(zip(texts, build_all(texts)))


def found(library: Library, **options: int) -> list[list[str]]:
    """What is said in each schedule."""
    return [launch(library, schedule, **options)[0] for schedule in SCHEDULES]


def kinds(messages: list[list[str]]) -> set[str]:
    return {message.split(":")[0] for some in messages for message in some}


@pytest.mark.parametrize("number", range(len(RIGHT)))
def test_a_right_kernel_is_right_in_every_order_and_nothing_is_reported(
    libraries: dict[str, Library], number: int
) -> None:
    kernel, expected = RIGHT[number]
    for schedule in SCHEDULES:
        messages, out = launch(libraries[kernel.ptx], schedule)
        assert messages == []
        assert (out == expected).all()


def test_atomics_of_one_word_do_not_race_but_with_a_store_they_do(libraries: dict[str, Library]) -> None:
    for schedule in SCHEDULES:
        messages, out = launch(libraries[COUNTED.ptx], schedule)
        assert messages == []
        assert out[0] == 5 + 2 * 64
    for kernel, expected in COUNTED_FAULTS.values():
        messages_of_all = found(libraries[kernel.ptx])
        assert all(messages_of_all)
        assert kinds(messages_of_all) == expected


@pytest.mark.parametrize("name", ONE_FAULT)
def test_a_fault_is_reported_in_every_order_with_its_instruction(libraries: dict[str, Library], name: str) -> None:
    kernel, expected = ONE_FAULT[name]
    messages = found(libraries[kernel.ptx])
    assert all(messages)
    assert kinds(messages) <= expected
    lines = [line.strip(" ;") for line in kernel.text.splitlines() if line.strip()]
    assert any(message.endswith(f": {line}") for some in messages for message in some for line in lines)


def test_a_grid_barrier_waits_for_all_blocks(libraries: dict[str, Library]) -> None:
    for schedule in SCHEDULES:
        messages, out = launch(libraries[GRID.ptx], schedule, grid=4)
        assert messages == []
        assert out[32:36].tolist() == [8, 9, 10, 7]
    assert kinds(found(libraries[GRID.ptx], grid=4, resident=3)) == {"deadlock"}


@pytest.mark.parametrize("name", GRID_FAULTS)
def test_a_fault_of_a_grid_barrier_is_reported(libraries: dict[str, Library], name: str) -> None:
    """One that does not wait is only seen where not all have arrived: in some schedules."""
    kernel, expected = GRID_FAULTS[name]
    messages = found(libraries[kernel.ptx], grid=4)
    assert expected in kinds(messages)
    assert all(messages) or name == "not waiting"


def test_a_mutant_is_the_kernel_with_some_instructions_changed_and_says_whether_it_is_reached() -> None:
    statements = [one for one in parse(REVERSED.ptx).statements if isinstance(one, Instruction)]
    places = {one.opcode: place for place, one in enumerate(statements)}
    unordered = Mutant("no barrier", {places["bar.sync"]: ""})
    never = Mutant("behind the end", {places["ret"] + 1: "bar.sync 0"})
    library = build(REVERSED.ptx.replace("ret;", "ret;\n  bar.sync 0;"), [unordered, never])
    assert launch(library)[0] == []
    assert library.reached.tolist() == [0, 1, 0]
    assert "data race" in kinds([launch(library, mutant=1)[0]])
    assert launch(library, mutant=2)[0] == []
