"""The table of instructions: what each opcode, its types included, is in C++ after runtime.h.

A row is a template or a function. In a template `{a}`, `{b}`, `{c}` and `{d}` are the operands behind the first, as values of the
opcode's type `{T}` (`{U}`: the unsigned type of its width), `{B}` and the like their bits as `u32` (a count, a selector),
`{c_result}` and the like values of the result's type, and its value is what the first operand becomes. What has no row is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .module import WIDTHS, Instruction, Module, PtxError

SPECIAL = {
    "%tid.x": "t.number",
    "%ctaid.x": "t.block->number",
    "%nctaid.x": "launched.grid",
    "%ntid.x": "launched.block",
    "%laneid": "t.lane",
    **dict.fromkeys(("%tid.y", "%tid.z", "%ctaid.y", "%ctaid.z"), "0u"),
    **dict.fromkeys(("%ntid.y", "%ntid.z", "%nctaid.y", "%nctaid.z"), "1u"),
}
"""Registers that the hardware sets."""

_REAL = {"f32": "float", "f64": "double"}


def c_type(ptx_type: str) -> str:
    """The C++ type of a value; of f16 and bf16, of their bits."""
    if ptx_type == "pred":
        return "bool"
    return _REAL.get(ptx_type) or (ptx_type if ptx_type[0] in "us" else bits_type(ptx_type))


def bits_type(ptx_type: str) -> str:
    """The C++ type of a register's bits."""
    return "bool" if ptx_type == "pred" else f"u{WIDTHS[ptx_type]}"


def label(name: str) -> str:
    """The C++ name of a label."""
    return name.replace("$", "at_")


@dataclass
class Writer:
    """Writes operands in C++. sites: the texts of the instructions that a message can name."""

    module: Module
    sites: list[str] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    """Those before the instruction that is written: a branch to one is the turn of a loop."""

    def site(self, one: Instruction) -> int:
        """The number by which a message names the instruction."""
        self.sites.append(one.text)
        return len(self.sites) - 1

    def register(self, operand: str) -> str:
        """The C++ variable of a register."""
        if operand not in self.module.registers:
            raise PtxError(f"operand {operand!r} is no register")
        return "r_" + operand[1:]

    def value(self, operand: str, ptx_type: str) -> str:
        """An operand read as a type."""
        as_type = f"as<{c_type(ptx_type)}>"
        if operand.startswith("!"):
            return f"!{self.register(operand[1:])}"
        if operand in SPECIAL:
            return f"{as_type}({SPECIAL[operand]})"
        if operand in self.module.registers:
            return self.register(operand) if ptx_type == "pred" else f"{as_type}({self.register(operand)})"
        if match := re.match(r"0[fF]([0-9a-fA-F]{8})$", operand):
            return f"{as_type}((u32)0x{match[1]}u)"
        if match := re.match(r"0[dD]([0-9a-fA-F]{16})$", operand):
            return f"{as_type}((u64)0x{match[1]}ull)"
        if re.match(r"-?(0[xX][0-9a-fA-F]+|\d+)U?$", operand):
            return f"{as_type}((u64){int(operand.rstrip('U'), 0) & (1 << 64) - 1}ull)"
        raise PtxError(f"operand {operand!r}")

    def assign(self, target: str, value: str, result: str) -> str:
        """`target = value`, which is of the type `result`."""
        if target == "_":
            return f"(void)({value});"
        return f"set({self.register(target)}, ({c_type(result)})({value}));"

    def symbol(self, name: str) -> str | None:
        """The address of what the module declares."""
        for parameter in self.module.parameters:
            if name == parameter.name:
                return f"(u64)(params + {parameter.offset})"
        if name in self.module.shared:
            return "SHARED_WINDOW"
        for local in self.module.locals:
            if name == local.name:
                return f"(u64)(locals + {local.offset})"
        if any(name == each.name for each in self.module.constants):
            return f"(u64){name}"
        return None

    def address(self, operand: str) -> str:
        """`[register + offset]` or `[symbol + offset]`."""
        match = re.match(r"\[\s*([%$\w.]+)\s*(?:\+\s*(-?\d+))?\s*\]$", operand)
        if match is None:
            raise PtxError(f"address {operand!r}")
        base = self.symbol(match[1]) or f"(u64){self.register(match[1])}"
        return f"({base} + (u64)({match[2] or 0}ll))"


Write = Callable[[Writer, Instruction], str]
TABLE: dict[str, Write] = {}
"""By opcode, all of its parts included."""


def write(writer: Writer, one: Instruction) -> str:
    """The C++ statement of an instruction without its guard. Raises PtxError, which names the instruction."""
    row = TABLE.get(one.opcode)
    if row is None:
        raise PtxError(f"unknown instruction {one.text!r}")
    try:
        return row(writer, one)
    except (PtxError, ValueError, IndexError) as error:
        raise PtxError(f"instruction {one.text!r}: {error}") from error


def _list(operand: str) -> list[str]:
    return [each.strip() for each in operand.strip("{}").split(",")]


def _template(template: str, operand: str, result: str) -> Write:
    count = 1 + max(
        ("abcd".index(name.lower()) + 1 for name in re.findall(r"\{([a-dA-D])(?:_result)?\}", template)), default=0
    )

    def written(writer: Writer, one: Instruction) -> str:
        if len(one.operands) != count:
            raise PtxError(f"{len(one.operands)} operands instead of {count}")
        values = {"T": c_type(operand), "U": bits_type(operand), "W": str(WIDTHS[operand])}
        for name, each in zip("abcd", one.operands[1:]):
            if f"{{{name}}}" in template:
                values[name] = writer.value(each, operand)
            if f"{{{name.upper()}}}" in template:
                values[name.upper()] = writer.value(each, "u32")
            if f"{{{name}_result}}" in template:
                values[f"{name}_result"] = writer.value(each, result)
        return writer.assign(one.operands[0], template.format(**values), result)

    return written


def _rows(opcodes: str, types: str, template: str, result: str = "") -> None:
    """A row for each of the opcodes and types. result: the type that the first operand is set to, if it is not theirs."""
    for opcode in opcodes.split():
        for each in types.split():
            TABLE[f"{opcode}.{each}"] = _template(template, each, result or each)


_REALS, _NARROW, _WHOLE = "f32 f64", "u16 s16 u32 s32", "u16 s16 u32 s32 u64 s64"
_BITS = "b16 b32 b64"

# Without a rounding mode the compiler may fuse an addition with a multiplication: --fmad=false leaves none.
_rows("add.rn", _REALS, "{a} + {b}")
_rows("sub.rn", _REALS, "{a} - {b}")
_rows("mul.rn", _REALS, "{a} * {b}")
_rows("div.rn", _REALS, "{a} / {b}")
_rows("rcp.rn", _REALS, "1 / {a}")
_rows("sqrt.rn", _REALS, "std::sqrt({a})")
_rows("fma.rn", _REALS, "std::fma({a}, {b}, {c})")
for _name, _sign in {"add": "+", "sub": "-", "mul": "*"}.items():
    _rows(f"{_name}.rz", _REALS, f"towards_zero<{{T}}>('{_sign}', {{a}}, {{b}})")
_rows("fma.rz", _REALS, "towards_zero<{T}>('f', {a}, {b}, {c})")
_rows("rcp.approx.ftz", "f32", "approximate(1 / (double)flushed({a}))")
_rows("ex2.approx.ftz", "f32", "approximate(std::exp2((double)flushed({a})))")
_rows("min", _REALS, "least_of({a}, {b})")
_rows("max", _REALS, "most_of({a}, {b})")
_rows("abs", _REALS, "std::fabs({a})")
_rows("neg", _REALS, "-{a}")
_rows("copysign", _REALS, "std::copysign({b}, {a})")

# The sums and products of narrower numbers are computed wide, and the assignment takes their lower bits.
_rows("add", _WHOLE, "(u64){a} + (u64){b}")
_rows("sub", _WHOLE, "(u64){a} - (u64){b}")
_rows("mul.lo", _WHOLE, "(u64){a} * (u64){b}")
_rows("mad.lo", _WHOLE, "(u64){a} * (u64){b} + (u64){c}")
_rows("mul.hi", "u16 u32 u64", "((u128){a} * (u128){b}) >> {W}")
_rows("mul.hi", "s16 s32 s64", "((s128){a} * (s128){b}) >> {W}")
for _type, _wide in {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}.items():
    _rows("mul.wide", _type, f"({_wide}){{a}} * ({_wide}){{b}}", _wide)
    _rows("mad.wide", _type, f"(u64)(({_wide}){{a}} * ({_wide}){{b}}) + (u64){{c_result}}", _wide)
# Sums that set the carry, take it, or both.
for _name, _takes in {"add": "false", "addc": "carry"}.items():
    _rows(f"{_name}.cc", "u32 s32 u64 s64", f"sum_with_carry<{{U}}>(carry, {{a}}, {{b}}, {_takes})")
for _name, _takes in {"sub": "false", "subc": "carry"}.items():
    _rows(f"{_name}.cc", "u32 s32 u64 s64", f"difference_with_borrow<{{U}}>(carry, {{a}}, {{b}}, {_takes})")
_rows("addc", "u32 s32 u64 s64", "({U}){a} + ({U}){b} + carry")
_rows("subc", "u32 s32 u64 s64", "({U}){a} - ({U}){b} - carry")
for _part, _product in {"lo": "(u128){a} * (u128){b}", "hi": "((u128){a} * (u128){b}) >> {W}"}.items():
    for _name, _takes in {"mad": "false", "madc": "carry"}.items():
        _rows(f"{_name}.{_part}.cc", "u32 u64", f"sum_with_carry<{{U}}>(carry, {_product}, {{c}}, {_takes})")
    _rows(f"madc.{_part}", "u32 u64", f"({{U}})({_product}) + {{c}} + carry")
_rows("div", _WHOLE, "quotient<{T}>({a}, {b})")
_rows("rem", _WHOLE, "remainder_of<{T}>({a}, {b})")
_rows("min", _WHOLE, "{a} < {b} ? {a} : {b}")
_rows("max", _WHOLE, "{a} > {b} ? {a} : {b}")
_rows("abs", "s16 s32 s64", "{a} < 0 ? 0 - (u64){a} : (u64){a}")
_rows("neg", "s16 s32 s64", "0 - (u64){a}")

_rows("and", _BITS, "{a} & {b}")
_rows("or", _BITS, "{a} | {b}")
_rows("xor", _BITS, "{a} ^ {b}")
_rows("not", _BITS, "~{a}")
_rows("and", "pred", "{a} && {b}")
_rows("or", "pred", "{a} || {b}")
_rows("xor", "pred", "{a} != {b}")
_rows("not", "pred", "!{a}")
_rows("shl", _BITS, "shift_left<{T}>({a}, {B})")
_rows("shr", f"{_BITS} {_WHOLE}", "shift_right<{T}>({a}, {B})")
_rows("shf.l.wrap", "b32", "funnel_left({a}, {b}, {C} & 31)")
_rows("shf.l.clamp", "b32", "funnel_left({a}, {b}, {C} > 32 ? 32 : {C})")
_rows("shf.r.wrap", "b32", "(u64){b} << 32 >> ({C} & 31) | {a} >> ({C} & 31)")
_rows("prmt", "b32", "permuted({a}, {b}, {c})")
_rows("bfi", "b32 b64", "field_inserted<{U}>({a}, {b}, {C}, {D})")
_rows("bfe", "u32 s32 u64 s64", "field_of<{T}>({a}, {B}, {C})")
_rows("brev", "b32 b64", "reversed<{U}>({a})")
_rows("popc", "b32 b64", "__builtin_popcountll({a})", "u32")
_rows("clz", "b32 b64", "leading_zeros({a}, {W})", "u32")
_rows("bfind", "u32 s32 u64 s64", "highest<{T}>({a})", "u32")
_rows("bfind.shiftamt", "u32 s32 u64 s64", "highest<{T}>({a}) == ~0u ? ~0u : {W} - 1 - highest<{T}>({a})", "u32")
_rows("lop3", "b32", "logic({a}, {b}, {c}, {d})")
# Two halves of the first operand times two bytes of the second, each signed or not.
for _half, _first in {"lo": 0, "hi": 2}.items():
    for _a, _b in itertools.product("su", "su"):
        _products = " + ".join(
            f"({_a}64)({_a}16)({{a}} >> {16 * i}) * ({_b}64)({_b}8)({{b}} >> {8 * (_first + i)})" for i in range(2)
        )
        TABLE[f"dp2a.{_half}.{_a}32.{_b}32"] = _template(f"{_products} + {{c}}", "u32", "u32")


def _select(ptx_type: str) -> Write:
    def written(writer: Writer, one: Instruction) -> str:
        target, yes, no, which = one.operands
        # By its bits: a NaN keeps them.
        bits = f"b{WIDTHS[ptx_type]}"
        chosen = f"{writer.value(which, 'pred')} ? {writer.value(yes, bits)} : {writer.value(no, bits)}"
        return writer.assign(target, chosen, bits)

    return written


for _type in f"{_BITS} {_WHOLE} {_REALS}".split():
    TABLE[f"selp.{_type}"] = _select(_type)

# ---- conversions ----

_INTEGERS = [f"{kind}{width}" for kind in "us" for width in (8, 16, 32, 64)]
_ROUNDINGS = {"rni": "std::nearbyint", "rzi": "std::trunc", "rmi": "std::floor", "rpi": "std::ceil"}


def _convert(opcode: str, source: str, target: str, template: str) -> None:
    TABLE[f"{opcode}.{target}.{source}"] = _template(template, source, target)


for _target in _INTEGERS:
    for _source in _INTEGERS:
        _convert("cvt", _source, _target, "{a}")
for _real in _REAL:
    for _type in _INTEGERS:
        _convert("cvt.rn", _type, _real, "{a}")
        for _mode, _round in _ROUNDINGS.items():
            _convert(f"cvt.{_mode}", _real, _type, f"to_int<{_type}>({_round}({{a}}))")
    for _mode, _round in _ROUNDINGS.items():
        _convert(f"cvt.{_mode}", _real, _real, f"{_round}({{a}})")
_convert("cvt", "f32", "f64", "{a}")
_convert("cvt.rn", "f64", "f32", "{a}")
for _half in ("f16", "bf16"):
    _convert("cvt", _half, "f32", f"from_{_half}({{a}})")
    _convert("cvt.rn", "f32", _half, f"to_{_half}({{a}})")
    _convert("cvt.rn", "f32", f"{_half}x2", f"(u32)to_{_half}({{a}}) << 16 | to_{_half}({{b}})")

# ---- comparisons ----

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_COMBINED = {"": "{0}", "and": "{0} && {1}", "or": "{0} || {1}", "xor": "{0} != {1}"}


def _compare(sign: str, ptx_type: str, combined: str, unordered: str) -> Write:
    """sign: an operator, or what is so of all numbers. unordered: the same if an operand is NaN; "" where there is none."""

    def written(writer: Writer, one: Instruction) -> str:
        targets, a, b, *third = one.operands
        if bool(third) != (combined != ""):
            raise PtxError(f"{len(one.operands)} operands")
        other = writer.value(third[0], "pred") if third else ""
        parts = [f"const auto x = {writer.value(a, ptx_type)}, y = {writer.value(b, ptx_type)};"]
        compared = sign if sign in ("true", "false") else f"x {sign} y"
        parts.append(f"const bool p = {f'x != x || y != y ? {unordered} : ' if unordered else ''}{compared};")
        results = [_COMBINED[combined].format(first, other) for first in ("p", "!p")]
        names = targets.split("|")
        parts += [f"const bool q{n} = {value};" for n, value in enumerate(results[: len(names)])]
        parts += [f"{writer.register(name)} = q{n};" for n, name in enumerate(names) if name != "_"]
        return " ".join(parts)

    return written


def _add_comparisons() -> None:
    for combined in _COMBINED:
        middle = f".{combined}" if combined else ""
        for name, sign in {**_COMPARISONS, **_UNSIGNED}.items():
            for each in _WHOLE.split():
                if name in _COMPARISONS or each[0] == "u":
                    TABLE[f"setp.{name}{middle}.{each}"] = _compare(sign, each, combined, "")
            for each in _BITS.split():
                if name in ("eq", "ne"):
                    TABLE[f"setp.{name}{middle}.{each}"] = _compare(sign, each, combined, "")
        for each in _REAL:
            for name, sign in _COMPARISONS.items():
                TABLE[f"setp.{name}{middle}.{each}"] = _compare(sign, each, combined, "false")
                TABLE[f"setp.{name}u{middle}.{each}"] = _compare(sign, each, combined, "true")
            TABLE[f"setp.nan{middle}.{each}"] = _compare("false", each, combined, "true")
            TABLE[f"setp.num{middle}.{each}"] = _compare("true", each, combined, "false")


_add_comparisons()

# ---- moves and memory ----


def _move(ptx_type: str) -> Write:
    def written(writer: Writer, one: Instruction) -> str:
        target, source = one.operands
        bits = ptx_type if ptx_type == "pred" else f"b{WIDTHS[ptx_type]}"
        if target.startswith("{"):
            parts = _list(target)
            width = WIDTHS[ptx_type] // len(parts)
            whole = f"const {bits_type(ptx_type)} whole = {writer.value(source, bits)}; "
            shifted = (
                (part, f"(u{width})(whole >> {number * width})") for number, part in enumerate(parts) if part != "_"
            )
            return whole + " ".join(writer.assign(part, value, f"b{width}") for part, value in shifted)
        if source.startswith("{"):
            parts = _list(source)
            width = WIDTHS[ptx_type] // len(parts)
            values = (writer.value(part, f"b{width}") for part in parts)
            joined = " | ".join(f"({bits_type(ptx_type)}){v} << {n * width}" for n, v in enumerate(values))
            return writer.assign(target, joined, bits)
        return writer.assign(target, writer.symbol(source) or writer.value(source, bits), bits)

    return written


for _type in f"{_BITS} {_WHOLE} {_REALS} pred".split():
    TABLE[f"mov.{_type}"] = _move(_type)
for _space in ("global", "const", "local"):
    # An address is the same in its own window and in the generic one. Shared ones are not converted: a generic access that
    # needed it would have to look in two places.
    for _way in (f"cvta.to.{_space}", f"cvta.{_space}"):
        TABLE[f"{_way}.u64"] = _template("{a}", "u64", "u64")


def _place(writer: Writer, one: Instruction, space: str, operand: str, size: int, access: str) -> str:
    """The address in this process of what a load or store touches."""
    site = writer.site(one)
    address = writer.address(operand)
    if space == "shared":
        return f"shared(t, {address}, {size}, {access}, {site})"
    if space == "const":
        return f"constant({address}, {size}, {site})"
    if space == "param":
        return f'within("parameter", {address}, {size}, params, launched.param_bytes, {site})'
    if space == "local":
        if not writer.module.locals:
            raise PtxError("no local memory is declared")
        return f'within("local", {address}, {size}, locals, {writer.module.local_bytes}, {site})'
    return f"global({address}, {size}, {access}, {site})"


def _load(space: str, vector: int, ptx_type: str, access: str) -> Write:
    def written(writer: Writer, one: Instruction) -> str:
        targets, operand = one.operands
        names, size = _list(targets), WIDTHS[ptx_type] // 8
        if len(names) != vector:
            raise PtxError(f"{len(names)} registers instead of {vector}")
        result = ptx_type if ptx_type[0] in "us" else f"b{WIDTHS[ptx_type]}"
        loads = (
            writer.assign(name, f"load<{c_type(result)}>(place + {number * size})", result)
            for number, name in enumerate(names)
        )
        place = _place(writer, one, space, operand, size * vector, access)
        return f"const char* place = {place}; {' '.join(loads)}"

    return written


def _store(space: str, vector: int, ptx_type: str) -> Write:
    def written(writer: Writer, one: Instruction) -> str:
        operand, sources = one.operands
        names, size, bits = _list(sources), WIDTHS[ptx_type] // 8, f"b{WIDTHS[ptx_type]}"
        if len(names) != vector:
            raise PtxError(f"{len(names)} registers instead of {vector}")
        stores = (
            f"store<{c_type(bits)}>(place + {number * size}, {writer.value(name, bits)});"
            for number, name in enumerate(names)
        )
        place = _place(writer, one, space, operand, size * vector, "STORE")
        return f"char* place = {place}; {' '.join(stores)}"

    return written


def _add_memory() -> None:
    kinds = [each for each in WIDTHS if WIDTHS[each] >= 8 and "x" not in each and each not in ("f16", "bf16")]
    for each in kinds:
        for vector in (1, 2, 4):
            if vector * WIDTHS[each] > 128:
                continue
            end = f"{f'.v{vector}' if vector > 1 else ''}.{each}"
            for space in ("global", "shared", "const", "param", "local", ""):
                # Without a space an access is generic; shared and local addresses never get there (see cvta).
                for volatile in ("", ".volatile") if space in ("global", "shared", "") else ("",):
                    opcode = f"{volatile}{f'.{space}' if space else ''}{end}"
                    TABLE[f"ld{opcode}"] = _load(space, vector, each, "LOAD")
                    if space not in ("const", "param"):
                        TABLE[f"st{opcode}"] = _store(space, vector, each)
            TABLE[f"ld.global.nc{end}"] = _load("global", vector, each, "LOAD_NON_COHERENT")


_add_memory()

_ATOMICS = {"add": ("+", "u32 s32 u64"), "min": ("<", "u32 s32 u64 s64"), "max": (">", "u32 s32 u64 s64")}
_ATOMICS |= {"and": ("&", "b32 b64"), "or": ("|", "b32 b64"), "exch": ("=", "b32 b64"), "cas": ("?", "b32 b64")}


def _atomic(sign: str, ptx_type: str, has_result: bool) -> Write:
    def written(writer: Writer, one: Instruction) -> str:
        target, operand, *values = one.operands if has_result else ("_", *one.operands)
        if len(values) != (2 if sign == "?" else 1):
            raise PtxError(f"{len(one.operands)} operands")
        given = ", ".join(writer.value(value, ptx_type) for value in values)
        call = f"atomic<{c_type(ptx_type)}>(t, {writer.address(operand)}, {writer.site(one)}, '{sign}', {given})"
        return writer.assign(target, call, ptx_type)

    return written


for _name, (_sign, _types) in _ATOMICS.items():
    for _type in _types.split():
        TABLE[f"atom.global.{_name}.{_type}"] = _atomic(_sign, _type, True)
        TABLE[f"atom.{_name}.{_type}"] = _atomic(_sign, _type, True)
        TABLE[f"red.global.{_name}.{_type}"] = _atomic(_sign, _type, False)

# ---- control and synchronisation ----


def _branch(writer: Writer, one: Instruction) -> str:
    (target,) = one.operands
    turn = f"turn({writer.site(one)}); " if target in writer.labels else ""
    return f"{turn}goto {label(target)};"


def _barrier(writer: Writer, one: Instruction) -> str:
    if one.operands != ("0",):
        raise PtxError("a barrier of other threads than the block's")
    return f"barrier({writer.site(one)});"


def _warp_barrier(writer: Writer, one: Instruction) -> str:
    (mask,) = one.operands
    return f"warp_barrier({writer.value(mask, 'u32')}, {writer.site(one)});"


def _shuffle(mode: str) -> Write:
    def written(writer: Writer, one: Instruction) -> str:
        targets, *operands = one.operands
        if len(operands) != 4:
            raise PtxError(f"{len(one.operands)} operands")
        target, _, valid = targets.partition("|")
        given = ", ".join(writer.value(each, "u32") for each in operands)
        call = f"const u32 got = shuffle({mode}, {given}, valid, {writer.site(one)});"
        there = f" {writer.register(valid)} = valid;" if valid and valid != "_" else ""
        return f"bool valid; {call} {writer.assign(target, 'got', 'b32')}{there}"

    return written


def _ballot(writer: Writer, one: Instruction) -> str:
    target, value, mask = one.operands
    call = f"vote({writer.value(value, 'pred')}, {writer.value(mask, 'u32')}, {writer.site(one)})"
    return writer.assign(target, call, "b32")


def _fixed(text: str) -> Write:
    return lambda writer, one: text


def _add(opcodes: Iterable[str], row: Write) -> None:
    TABLE.update(dict.fromkeys(opcodes, row))


_add(("bra", "bra.uni"), _branch)
_add(("ret", "exit"), _fixed("return;"))
_add(("bar.sync", "barrier.sync", "barrier.sync.aligned"), _barrier)
_add(("bar.warp.sync",), _warp_barrier)
_add(("membar.cta",), _fixed(";"))
_add(("membar.gl", "membar.sys", "fence.acq_rel.gpu", "fence.sc.gpu"), _fixed("fence(t);"))
_add(("nanosleep.u32",), _fixed("yield();"))
for _name, _mode in {"up": "UP", "down": "DOWN", "bfly": "BUTTERFLY", "idx": "INDEX"}.items():
    TABLE[f"shfl.sync.{_name}.b32"] = _shuffle(_mode)
TABLE["vote.sync.ballot.b32"] = _ballot
