"""Who does what of a nest, and where values lie: each iteration is one thread's, and no two things lie in one place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.compiler.codegen.cuda.layout import KEPT_REGISTERS, MOST_KEPT, How, Layout, ThreadMapping, assign
from stitchfleet.compiler.codegen.cuda.survey import distributed_loops
from stitchfleet.compiler.ir.graph import DType
from stitchfleet.compiler.ir.index_maps import ZERO, Index, Var
from stitchfleet.compiler.loops.loops import (
    Assign,
    Buffer,
    BufferKind,
    Collapse,
    Combine,
    Let,
    Load,
    LoadLocal,
    Local,
    Loop,
    LoopKind,
    NestCode,
    Scan,
    Statement,
    Store,
    shared_room,
    walk,
)

ROWS = 1000
INPUTS = 3
TYPES = [DType.F32, DType.F32, DType.F16, DType.F64]
OUTPUT = INPUTS
R = Var("r", ROWS)


SIZES = st.sampled_from([1, 8, 33])


@st.composite
def nests(draw: st.DrawFn) -> NestCode:
    """A loop over rows that makes several passes over each, which load, keep elements in arrays, add up and store."""
    passes: list[Statement] = []
    arrays: list[tuple[str, int]] = []
    extents = draw(
        st.lists(st.one_of(st.integers(1, 40), st.sampled_from([64, 128, 768, 1024])), min_size=1, max_size=2)
    )
    dtypes = draw(st.lists(st.sampled_from(TYPES), min_size=INPUTS + 1, max_size=INPUTS + 1))
    for number in range(draw(st.integers(1, 6))):
        extent = draw(st.sampled_from(extents))
        k = Var(f"k{number}", extent)
        place = Index.of_var(k)
        kind = draw(st.sampled_from([LoopKind.SIMD, LoopKind.LANES, LoopKind.FOLD, LoopKind.SCAN]))
        body: list[Statement] = []
        for which in draw(st.sets(st.integers(0, INPUTS - 1), min_size=1)):
            index = Index.of_var(R) * extent + place if draw(st.booleans()) else place
            body.append(Let(f"x{number}_{which}", dtypes[which], Load(which, dtypes[which], index)))
        value = body[-1].name if isinstance(body[-1], Let) else ""
        there = [name for name, size in arrays if size == extent]
        if there and kind is LoopKind.SIMD:
            body.append(Let(f"y{number}", DType.F32, LoadLocal(draw(st.sampled_from(there)), place)))
        after: list[Statement] = []
        if kind is LoopKind.LANES:
            passes.append(Local(f"sums{number}", DType.F32, 16, "sum"))
            body.append(Combine(f"sums{number}", DType.F32, None, "sum", value))
            after.append(Collapse(f"total{number}", f"sums{number}", DType.F32, 16, "sum"))
        elif kind is LoopKind.SCAN:
            passes.append(Local(f"sum{number}", DType.F32, 1, "sum"))
            body.append(Scan(f"s{number}", DType.F32, f"sum{number}", DType.F32, ZERO, "sum", value))
        elif kind is LoopKind.SIMD and draw(st.booleans()):
            arrays.append((f"array{number}", extent))
            passes.append(Local(f"array{number}", DType.F32, extent, None))
            body.append(Assign(f"array{number}", place, value))
        if draw(st.booleans()):
            body.append(Store(OUTPUT, dtypes[OUTPUT], Index.of_var(R) * extent + place, value))
        width = 16 if kind in (LoopKind.LANES, LoopKind.SCAN) else 0
        passes += [Loop(k, extent, kind, tuple(body), width), *after]
    rows = Loop(R, ROWS, LoopKind.SERIAL, tuple(passes), bounds=("first_row", "last_row"))
    totals = [
        Local(f"all{n}", DType.F32, size, "sum") for n, size in enumerate(draw(st.lists(SIZES, min_size=1, max_size=3)))
    ]
    buffers = tuple(
        Buffer(BufferKind.OUTPUT if number == OUTPUT else BufferKind.INPUT, number, dtype, ROWS * max(extents))
        for number, dtype in enumerate(dtypes)
    )
    return NestCode(0, buffers, (*totals, rows), ROWS, 4, 1.0, per_task=draw(st.booleans()))


BLOCKS = st.sampled_from([(1, 64), (8, 8), (32, 2), (32, 8), (64, 1), (256, 1)])
"""Threads of a group, and groups."""


def iterations(mapping: ThreadMapping, thread: int) -> Iterator[int]:
    """Those of a loop over a whole row that are the thread's, in order."""
    extent = mapping.loop.extent
    if mapping.how is How.STRETCHES:
        yield from range(thread * mapping.stretch, min((thread + 1) * mapping.stretch, extent))
        return
    for step in range(mapping.steps):
        first = (thread + step * mapping.threads) * mapping.width
        if first < extent:
            yield from range(first, first + mapping.width if mapping.vectors is not None else first + 1)


@given(nests(), BLOCKS)
def test_each_iteration_of_a_loop_is_one_threads(nest: NestCode, block: tuple[int, int]) -> None:
    layout = assign(nest, *block)
    loops = list(distributed_loops(nest.body))
    assert [*layout.mappings] == [id(loop) for loop in loops]
    for loop in loops:
        mapping = layout.mappings[id(loop)]
        done = sorted(k for thread in range(block[0]) for k in iterations(mapping, thread))
        assert done == list(range(loop.extent))


@given(nests(), BLOCKS)
def test_elements_that_threads_keep_fit_their_registers(nest: NestCode, block: tuple[int, int]) -> None:
    layout = assign(nest, *block)
    sizes = {each.name: each.dtype.size_bytes for each in walk(nest.body) if isinstance(each, Let | Local)}
    kept = [(slots, sizes[name]) for name, slots in layout.places.registers.items()]
    for mapping in layout.mappings.values():
        kept += [(mapping.steps * mapping.width, sizes[name]) for name in mapping.fills]
    assert all(slots <= MOST_KEPT for slots, _ in kept)
    assert sum(slots * (2 if size == 8 else 1) for slots, size in kept) <= KEPT_REGISTERS


@given(nests(), BLOCKS)
def test_what_a_loop_takes_from_registers_an_earlier_one_has_left_in_the_same_places(
    nest: NestCode, block: tuple[int, int]
) -> None:
    filled: dict[str, ThreadMapping] = {}
    for mapping in assign(nest, *block).mappings.values():
        for array in mapping.kept.values():
            assert (filled[array].steps, filled[array].width) == (mapping.steps, mapping.width)
            assert mapping.unrolled
        assert len({*filled, *mapping.fills.values()}) == len(filled) + len(mapping.fills), (
            "each array keeps one element"
        )
        filled |= dict.fromkeys(mapping.fills.values(), mapping)


@given(nests(), BLOCKS)
def test_nothing_overlaps_in_shared_memory(nest: NestCode, block: tuple[int, int]) -> None:
    layout = assign(nest, *block)
    places, end = layout.places, 0
    for name, offset in sorted(places.offsets.items(), key=lambda pair: pair[1]):
        assert offset == end
        end += shared_room(places.room(name), places.uses[name].dtype)
    assert end == places.shared_bytes
    end *= layout.groups
    for total in layout.totals:
        assert total.offset == end
        end += shared_room(total.room, total.local.dtype)
    assert end <= layout.block_bytes


@given(nests(), BLOCKS)
def test_a_block_does_one_task_together_where_tasks_are_apart_and_it_has_groups(
    nest: NestCode, block: tuple[int, int]
) -> None:
    layout = assign(nest, *block)
    assert layout.together == (nest.per_task and block[1] > 1)
    totals = [each for each in nest.body if isinstance(each, Local)]
    assert [total.local for total in layout.totals] == (totals if layout.together else [])


def row(extent: int, *loads: str) -> NestCode:
    """Passes over a row that each load one element of the first buffer."""
    passes = []
    for number, name in enumerate(loads):
        k = Var(f"k{number}", extent)
        load = Let(name, DType.F32, Load(0, DType.F32, Index.of_var(R) * extent + Index.of_var(k)))
        store = Store(1, DType.F32, Index.of_var(R) * extent + Index.of_var(k), name)
        passes.append(Loop(k, extent, LoopKind.SIMD, (load, store)))
    rows = Loop(R, ROWS, LoopKind.SERIAL, tuple(passes), bounds=("first_row", "last_row"))
    buffers = (
        Buffer(BufferKind.INPUT, 0, DType.F32, ROWS * extent),
        Buffer(BufferKind.OUTPUT, 0, DType.F32, ROWS * extent),
    )
    return NestCode(0, buffers, (rows,), ROWS, 1, 1.0, per_task=False)


def mappings_of(layout: Layout) -> list[ThreadMapping]:
    return list(layout.mappings.values())


def test_an_element_that_two_passes_load_is_loaded_once() -> None:
    first, second = mappings_of(assign(row(1024, "a", "b"), 256, 1))
    assert (first.fills, first.kept) == ({"a": "kept1"}, {})
    assert (second.fills, second.kept) == ({}, {"b": "kept1"})
    assert first.width == second.width == 4
    assert second.vectors is not None
    assert not second.vectors.loads, "what is in registers is not loaded in vectors either"


def test_a_row_that_does_not_fit_registers_is_loaded_by_each_pass() -> None:
    for mapping in mappings_of(assign(row(256 * (MOST_KEPT + 1), "a", "b"), 256, 1)):
        assert (mapping.fills, mapping.kept, mapping.unrolled) == ({}, {}, False)


@pytest.mark.parametrize(("extent", "how"), [(1023, How.STRIDED), (1024, How.VECTORS)])
def test_a_nest_that_only_computes_goes_in_vectors_where_its_row_has_whole_ones(extent: int, how: How) -> None:
    layout = assign(row(extent, "a"), 256, 1)
    (mapping,) = mappings_of(layout)
    assert mapping.how is how
    assert layout.aligned == ({0: 16, 1: 16} if how is How.VECTORS else {})
