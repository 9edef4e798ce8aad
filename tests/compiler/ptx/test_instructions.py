"""The table of instructions: values beside NumPy's, and what has no row is refused by one line that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .executable import INPUT, MEMORY, SEMAPHORE, Buffer, build
from .faulty import COPIED, HEAD
from .instructions import TABLE
from .module import PtxError, parse
from .translate import translate

Array = np.typing.NDArray[Any]

WORDS = np.array([0, 1, 2, 5, 31, 32, 33, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xDEADBEEF, 0x12345678], np.uint32)


def signed(x: Array) -> Array:
    return x.astype(np.uint32).view(np.int32).astype(np.int64)


def wide(x: Array) -> Array:
    return x.astype(np.uint64)


def floats(x: Array) -> Array:
    return x.astype(np.uint32).view(np.float32)


def bits(x: Array) -> Array:
    return x.astype(np.float32).view(np.uint32)


def each(function: Callable[..., int]) -> Callable[..., Array]:
    return lambda *arrays: np.array([function(*map(int, values)) & 0xFFFFFFFF for values in zip(*arrays)], np.uint64)


def _byte(a: int, b: int, selector: int) -> int:
    byte = (b << 32 | a) >> 8 * (selector & 7) & 255
    return (0xFF if byte & 128 else 0) if selector & 8 else byte


def _field(a: int, position: int, length: int) -> int:
    value = a >> position & (1 << length) - 1
    return value - (1 << length) if length and value >> (length - 1) else value


INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "add.s32 %r3, %r1, %r2;": lambda a, b: wide(a) + b,
    "sub.s32 %r3, %r1, %r2;": lambda a, b: wide(a) - b,
    "mul.lo.s32 %r3, %r1, %r2;": lambda a, b: wide(a) * b,
    "mul.hi.s32 %r3, %r1, %r2;": lambda a, b: signed(a) * signed(b) >> 32,
    "mul.hi.u32 %r3, %r1, %r2;": lambda a, b: wide(a) * b >> np.uint64(32),
    "mad.lo.s32 %r3, %r1, %r2, 7;": lambda a, b: wide(a) * b + np.uint64(7),
    "{ .reg .b64 %wide; mad.wide.u32 %wide, %r1, %r2, 0x1FFFFFFFF; cvt.u32.u64 %r3, %wide; }": lambda a, b: (
        wide(a) * b + np.uint64(0x1FFFFFFFF)
    ),
    "add.cc.u32 %r4, %r1, %r2; addc.u32 %r3, %r1, %r2;": each(lambda a, b: a + b + (a + b >> 32)),
    "sub.cc.u32 %r4, %r1, %r2; subc.u32 %r3, %r1, %r2;": each(lambda a, b: a - b - (a < b)),
    "add.cc.u32 %r4, %r1, %r2; addc.cc.u32 %r4, %r1, -1; addc.u32 %r3, 0, 0;": each(
        lambda a, b: a + (1 << 32) - 1 + (a + b >> 32) >> 32
    ),
    "sub.cc.u32 %r4, %r1, %r2; subc.cc.u32 %r4, %r1, %r1; subc.u32 %r3, 0, 0;": each(lambda a, b: -(a < b)),
    "mad.lo.cc.u32 %r4, %r1, %r2, %r2; madc.hi.u32 %r3, %r1, %r2, %r1;": each(lambda a, b: (a * b + b >> 32) + a),
    "mad.lo.cc.u32 %r4, %r1, %r2, %r2; madc.hi.cc.u32 %r4, %r1, %r2, %r1; madc.lo.u32 %r3, %r2, %r2, 5;": each(
        lambda a, b: b * b + 5 + (a * b + b + (a << 32) >> 64)
    ),
    "min.s32 %r3, %r1, %r2;": lambda a, b: np.minimum(signed(a), signed(b)),
    "max.u32 %r3, %r1, %r2;": np.maximum,
    "neg.s32 %r3, %r1;": lambda a, b: -signed(a),
    "shl.b32 %r3, %r1, %r2;": each(lambda a, b: a << b if b < 32 else 0),
    "shr.u32 %r3, %r1, %r2;": each(lambda a, b: a >> b if b < 32 else 0),
    "shr.s32 %r3, %r1, %r2;": lambda a, b: signed(a) >> np.minimum(b.astype(np.int64), 63),
    "shf.l.wrap.b32 %r3, %r1, %r2, 9;": each(lambda a, b: (b << 32 | a) << 9 >> 32),
    "shf.r.wrap.b32 %r3, %r1, %r2, 9;": each(lambda a, b: (b << 32 | a) >> 9),
    "prmt.b32 %r3, %r1, %r2, 8452;": each(lambda a, b: sum(_byte(a, b, 8452 >> 4 * i & 15) << 8 * i for i in range(4))),
    "prmt.b32 %r3, %r1, %r2, 46811;": each(
        lambda a, b: sum(_byte(a, b, 46811 >> 4 * i & 15) << 8 * i for i in range(4))
    ),
    "bfi.b32 %r3, %r1, %r2, 3, 7;": each(lambda a, b: b & ~(127 << 3) | (a & 127) << 3),
    "bfi.b32 %r3, %r1, %r2, 6, 26;": each(lambda a, b: b & 63 | a << 6),
    "bfe.u32 %r3, %r1, 5, 9;": each(lambda a, b: a >> 5 & 511),
    "bfe.s32 %r3, %r1, 5, 9;": each(lambda a, b: _field(a, 5, 9)),
    "brev.b32 %r3, %r1;": each(lambda a, b: int(f"{a:032b}"[::-1], 2)),
    "popc.b32 %r3, %r1;": each(lambda a, b: a.bit_count() if hasattr(a, "bit_count") else bin(a).count("1")),
    "clz.b32 %r3, %r1;": each(lambda a, b: 32 - a.bit_length()),
    "bfind.u32 %r3, %r1;": each(lambda a, b: a.bit_length() - 1),
    "bfind.shiftamt.u32 %r3, %r1;": each(lambda a, b: 32 - a.bit_length() if a else -1),
    "lop3.b32 %r3, %r1, %r2, 255, 0x96;": lambda a, b: a ^ b ^ np.uint32(255),
    "dp2a.lo.u32.u32 %r3, %r1, %r2, 7;": each(lambda a, b: (a & 0xFFFF) * (b & 255) + (a >> 16) * (b >> 8 & 255) + 7),
    "dp2a.lo.s32.u32 %r3, %r1, %r2, 7;": each(
        lambda a, b: _field(a, 0, 16) * (b & 255) + _field(a, 16, 16) * (b >> 8 & 255) + 7
    ),
    "dp2a.hi.s32.s32 %r3, %r1, %r2, 7;": each(
        lambda a, b: _field(a, 0, 16) * _field(b, 16, 8) + _field(a, 16, 16) * _field(b, 24, 8) + 7
    ),
    "dp2a.hi.u32.u32 %r3, %r1, %r2, %r1;": each(
        lambda a, b: (a & 0xFFFF) * (b >> 16 & 255) + (a >> 16) * (b >> 24) + a
    ),
    "setp.lt.s32 %p2, %r1, %r2; selp.b32 %r3, 1, 0, %p2;": lambda a, b: signed(a) < signed(b),
    "setp.lt.u32 %p2, %r1, %r2; selp.b32 %r3, 1, 0, %p2;": lambda a, b: a < b,
    "setp.eq.s32 %p3, %r1, 5; setp.gt.or.u32 %p2, %r1, %r2, %p3; selp.b32 %r3, 1, 0, %p2;": lambda a, b: (
        (a > b) | (a == 5)
    ),
    "setp.lt.u32 %p2|%p3, %r1, %r2; selp.b32 %r3, 1, 0, %p3;": lambda a, b: ~(a < b),
    "cvt.s64.s32 %rd10, %r1; shr.u64 %rd10, %rd10, 32; cvt.u32.u64 %r3, %rd10;": lambda a, b: signed(a) >> 32,
    "cvt.u16.u32 %h1, %r1; cvt.s32.s16 %r3, %h1;": lambda a, b: a.astype(np.uint16).view(np.int16).astype(np.int64),
    "mov.b64 %rd10, {%r1, %r2}; mov.b64 {%r4, %r3}, %rd10;": lambda a, b: b,
    "ld.const.u32 %r4, [numbers+4]; add.s32 %r3, %r4, %r1;": lambda a, b: wide(a) + np.uint64(2),
}

REALS: dict[str, Callable[[Array, Array], Array]] = {
    "add.rn.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;": lambda a, b: bits(a + b),
    "fma.rn.f32 %f3, %f1, %f2, %f1; mov.b32 %r3, %f3;": lambda a, b: bits(
        a.astype(np.float64) * b.astype(np.float64) + a
    ),
    "mul.rz.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;": lambda a, b: bits(_cut(a.astype(np.float64) * b)),
    "div.rn.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;": lambda a, b: bits(a / b),
    "min.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;": lambda a, b: bits(np.fmin(a, b)),
    "copysign.f32 %f3, %f1, %f2; mov.b32 %r3, %f3;": lambda a, b: bits(np.copysign(b, a)),
    "setp.lt.f32 %p2, %f1, %f2; selp.b32 %r3, 1, 0, %p2;": lambda a, b: a < b,
    "setp.geu.f32 %p2, %f1, %f2; selp.b32 %r3, 1, 0, %p2;": lambda a, b: ~(a < b),
    "setp.neu.f32 %p2, %f1, %f2; selp.b32 %r3, 1, 0, %p2;": lambda a, b: a != b,
    "setp.nan.f32 %p2, %f1, %f2; selp.b32 %r3, 1, 0, %p2;": lambda a, b: np.isnan(a) | np.isnan(b),
    "setp.num.f32 %p2, %f1, %f2; selp.b32 %r3, 1, 0, %p2;": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "cvt.rni.f32.f32 %f3, %f1; mov.b32 %r3, %f3;": lambda a, b: bits(np.rint(a)),
    "cvt.rzi.s32.f32 %r3, %f1;": lambda a, b: np.clip(
        np.where(np.isnan(a), 0, np.trunc(a.astype(np.float64))), -(2**31), 2**31 - 1
    ).astype(np.int64),
    "cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r3, %h1;": lambda a, b: np.where(
        np.isnan(a), 0x7FFF, a.astype(np.float16).view(np.uint16)
    ),
    "cvt.rn.bf16x2.f32 %r3, %f1, 0f00000000;": lambda a, b: np.where(
        np.isnan(a), 0x7FFF0000, (wide(bits(a)) + 0x7FFF + (bits(a) >> 16 & 1)) & np.uint64(0xFFFF0000)
    ),
}


def _cut(exact: Array) -> Array:
    """The next float towards zero."""
    nearest = exact.astype(np.float32)
    too_far = np.isfinite(exact) & (np.abs(nearest.astype(np.float64)) > np.abs(exact))
    return np.where(too_far, np.nextafter(nearest, np.float32(0)), nearest)


VALUES = np.array(
    [0.0, -0.0, 1.0, -1.5, 2.5, 1e-8, 6e-8, 3e-5, 6.1e-5, 65504.0, 65519.9, 65520.0, -7e4, 1e9, 3e38, -np.inf, np.nan],
    np.float32,
)


def table(codes: list[str], a: Array, b: Array, functions: tuple[str, str] = ("", "")) -> Array:
    """The words that each code leaves in %r3 of two words, in one kernel. functions: what stands before it and behind it."""
    count = len(a)
    lines = [f"mad.lo.u32 %r30, %r2, 64, %r1;\n  setp.ge.u32 %p8, %r30, {count};\n  @%p8 bra $end;"]
    lines += ["mul.wide.u32 %rd6, %r30, 4;\n  add.s64 %rd7, %rd4, %rd6;\n  add.s64 %rd8, %rd5, %rd6;"]
    lines += [f"ld.global.u32 %r31, [%rd8];\n  ld.global.u32 %r32, [%rd8+{4 * count}];"]
    for number, code in enumerate(codes):
        lines += ["mov.b32 %r1, %r31;\n  mov.b32 %r2, %r32;\n  mov.b32 %f1, %r31;\n  mov.b32 %f2, %r32;", code]
        lines += [f"st.global.u32 [%rd7+{4 * count * number}], %r3;"]
    library = build(functions[0] + HEAD + "\n  ".join(lines) + "\n$end:\n  ret;\n}\n" + functions[1])
    out = np.zeros((len(codes), count), np.uint32)
    given = np.concatenate([a, b]).astype(np.uint32)
    buffers = [Buffer(out, MEMORY), Buffer(given, INPUT), Buffer(np.zeros(1, np.uint32), SEMAPHORE)]
    addresses = np.array([each.array.ctypes.data for each in buffers], np.uint64)
    assert library.launch(addresses.tobytes(), buffers, -(-count // 64), 64) == []
    return out


def test_integers_are_as_numpy_has_them() -> None:
    a, b = (each.reshape(-1) for each in np.meshgrid(WORDS, WORDS))
    for row, (code, expected) in zip(table(list(INTEGERS), a, b), INTEGERS.items()):
        wanted = np.asarray(expected(a, b)).astype(np.int64 if expected(a, b).dtype == bool else expected(a, b).dtype)
        assert row.tolist() == (wanted.astype(np.uint64) & np.uint64(0xFFFFFFFF)).tolist(), code


def test_floats_are_as_numpy_has_them() -> None:
    a, b = (each.reshape(-1) for each in np.meshgrid(VALUES, VALUES))
    with np.errstate(all="ignore"):
        for row, (code, expected) in zip(table(list(REALS), bits(a), bits(b)), REALS.items()):
            wanted = np.asarray(expected(a, b)).astype(np.int64).astype(np.uint32)
            # Which NaN a result is, and which zero is the smaller one, NumPy leaves open.
            is_nan = "mov.b32 %r3, %f3" in code
            same = (row == wanted) | (is_nan & np.isnan(floats(row)) & np.isnan(floats(wanted)))
            same |= code.startswith("min") & (floats(row) == 0) & (floats(wanted) == 0)
            assert same.all(), (code, a[~same], b[~same], row[~same], wanted[~same])


def test_an_approximation_is_the_nearest_float_or_a_neighbour() -> None:
    values = np.random.default_rng(1).uniform(-30, 30, 1000).astype(np.float32)
    codes = [f"{name}.approx.ftz.f32 %f3, %f1; mov.b32 %r3, %f3;" for name in ("rcp", "ex2")]
    exact = [1 / values.astype(np.float64), np.exp2(values.astype(np.float64))]
    for row, wanted in zip(table(codes, bits(values), bits(values)), exact):
        apart = np.abs(row.astype(np.int64) - bits(wanted).astype(np.int64))
        assert apart.max() == 1
        assert (apart == 0).any()


def test_every_half_becomes_its_float_and_back() -> None:
    halves = np.arange(1 << 16, dtype=np.uint32)
    codes = ["cvt.u16.u32 %h1, %r1; cvt.f32.f16 %f3, %h1; mov.b32 %r3, %f3;"]
    codes += [f"{codes[0]} cvt.rn.f16.f32 %h2, %f3; cvt.u32.u16 %r3, %h2;"]
    whole, back = table(codes, halves, halves)
    wanted = halves.astype(np.uint16).view(np.float16).astype(np.float32)
    is_nan = np.isnan(wanted)
    assert (floats(whole)[~is_nan].view(np.uint32) == wanted[~is_nan].view(np.uint32)).all()
    assert np.isnan(floats(whole)[is_nan]).all()
    assert (back[~is_nan] == halves[~is_nan]).all()
    assert (back[is_nan] == 0x7FFF).all()


@pytest.mark.parametrize(
    "unknown",
    [
        "lg2.approx.ftz.f32 %f1, %f2",
        "add.f32 %f1, %f2, %f2",
        "fma.rn.ftz.f32 %f1, %f2, %f2, %f2",
        "bar.sync 1",
        "bar.sync 0, 64",
        "bar.red.popc.u32 %r1, 0, %p1",
        "ld.acquire.gpu.global.u32 %r1, [%rd1]",
        "cvta.shared.u64 %rd1, %rd2",
        "cp.async.ca.shared.global [%r1], [%rd1], 4",
        "atom.shared.add.u32 %r1, [%r2], 1",
        "shfl.sync.up.b64 %rd1, %rd2, 1, 0, -1",
        "brx.idx %r1, $table",
        "call.uni (%r1), function, (%r2)",
        "st.param.u64 [out], %rd1",
        "trap",
        "mov.u32 %r1, %clock",
        "mov.u32 %r1, elsewhere",
    ],
)
def test_an_unknown_instruction_is_one_line_that_names_it(unknown: str) -> None:
    ptx = COPIED.but("ld.global.nc.u32 %r3, [%rd8];", f"{unknown};").ptx
    with pytest.raises(PtxError) as caught:
        translate(parse(ptx))
    assert repr(unknown) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("declaration", [".shared .align 4 .b8 tile[64]", ".func helper()", ".global .texref image"])
def test_an_unknown_declaration_is_one_line_that_names_it(declaration: str) -> None:
    with pytest.raises(PtxError, match=r"declaration '\.") as caught:
        parse(COPIED.ptx.replace(".visible", f"{declaration};\n.visible"))
    assert declaration in str(caught.value)


PROTOTYPE = """.func (.param .align 8 .b8 func_retval0[16]) half_and_more
(
	.param .b32 half_and_more_param_0
)
;
"""
FUNCTION = """.func (.param .align 8 .b8 func_retval0[16]) half_and_more(
	.param .b32 half_and_more_param_0
)
{
	.local .align 4 .b8 	__local_depot1[8];
	.reg .b64 	%SPL;
	.reg .pred 	%p<2>;
	.reg .b32 	%r<4>;

	mov.u64 	%SPL, __local_depot1;
	ld.param.u32 	%r1, [half_and_more_param_0];
	st.local.u32 	[%SPL+4], %r1;
	setp.lt.u32 	%p1, %r1, 100;
	@%p1 bra 	$L__BB1_2;
	{
	.reg .b32 %r1;
	ld.local.u32 	%r1, [%SPL+4];
	shr.u32 	%r2, %r1, 1;
	}
	st.param.b32 	[func_retval0+0], %r2;
	st.param.b32 	[func_retval0+8], %r1;
	ret;
$L__BB1_2:
	st.param.b32 	[func_retval0+0], 7;
	st.param.b32 	[func_retval0+8], 8;
	ret;
}
"""
CALL = """{
	.param .b32 param0;
	st.param.b32 	[param0+0], GIVEN;
	.param .align 8 .b8 retval0[16];
	call.uni (retval0),
	half_and_more,
	(
	param0
	);
	ld.param.b32 	TAKEN, [retval0+0];
	ld.param.b32 	%r5, [retval0+8];
	}"""


def test_a_function_is_inlined_where_it_is_called() -> None:
    """Twice; its registers, those of a scope in it, labels and memory are not the caller's."""
    calls = "\n".join(
        CALL.replace("GIVEN", given).replace("TAKEN", taken) for given, taken in (("%r1", "%r3"), ("%r2", "%r4"))
    )
    a = np.arange(0, 400, 3, dtype=np.uint32)
    b = a[::-1] + np.uint32(1)
    (found,) = table([f"{calls}\nadd.u32 %r3, %r3, %r4;\nadd.u32 %r3, %r3, %r5;"], a, b, (PROTOTYPE, FUNCTION))
    first, second = (np.where(x < 100, 7, x >> 1) for x in (a, b))
    assert np.array_equal(found, first + second + np.where(b < 100, 8, b))


def test_the_table_has_what_the_inline_assembly_of_the_kernels_says() -> None:
    for opcode in ("cvt.f32.f16", "cvt.rn.f16.f32", "cvt.rn.bf16x2.f32", "vote.sync.ballot.b32", "nanosleep.u32"):
        assert opcode in TABLE
