"""Rewrites a step's HLO text: each stitch op that has a kernel becomes one custom call.

    rewritten(text, step, calls)   the text in which the kernels run
    baseline(text)                 the text that it is compared with: the same module, likewise without aliases of its parameters

A computation that the partition has split is written anew, from its root: what the root needs, operands first. An instruction that
stays is its line of the original text with the operands' names replaced, since the compiler's model of HLO drops attributes that it
does not need (a convolution's, for instance). Calls of computations are inlined, as the partition does. All other computations (those
of reductions, say) are copied.

What passes between a custom call and the rest is row-major.

A loop's scalar arithmetic (its counter and its condition) stays XLA's, also if a kernel computes it besides: otherwise XLA would not
know how often the loop runs, and would ask the device after each turn. A stitch op that reads an array whose extent is known only
at run time stays XLA's too, which allows no such operand of a custom call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from stitchfleet.compiler.hlo.module import HloComputation, HloInstruction, HloShape
from stitchfleet.compiler.hlo.text import _Attributes, _Parser
from stitchfleet.compiler.ir.graph import Array
from stitchfleet.compiler.step.partition import Partition, SplitComputation, StitchOp

from .ffi import TARGET, Call


@dataclass(frozen=True)
class _Line:
    """An instruction's original text: the shape, and what is behind the operands. inner: what is between the opcode's brackets."""

    shape: str
    opcode: str
    inner: str
    rest: str


class _Lines(_Parser):
    """The parser, which also notes the text of each instruction and computation."""

    def __init__(self, text: str) -> None:
        super().__init__(text, elided_constants=False)
        self.lines: dict[tuple[str, str], _Line] = {}
        self.bodies: dict[str, str] = {}
        self._opcode_at = 0
        self._found: dict[str, _Line] = {}

    def computation(self) -> HloComputation:
        start = self.peek.start
        self._found = {}
        found = super().computation()
        last = self.tokens[self.position - 1]
        self.bodies[found.name] = self.text[start : last.start + len(last.text)]
        self.lines.update({(found.name, name): line for name, line in self._found.items()})
        return found

    def instruction(self) -> HloInstruction:
        start = self.peek.start
        item = super().instruction()
        last = self.tokens[self.position - 1]
        text = self.text[start : last.start + len(last.text)]
        opcode_at = self._opcode_at - start
        opening = text.index("(", opcode_at)
        closing = _closing(text, opening)
        shape = text[text.index("=") + 1 : opcode_at].strip()
        self._found[item.name] = _Line(
            shape, text[opcode_at:opening].strip(), text[opening + 1 : closing], text[closing + 1 :]
        )
        return item

    def build(
        self,
        name: str,
        opcode: str,
        shape: HloShape,
        operands: tuple[str, ...],
        number: int,
        literal: Array | None,
        attributes: _Attributes,
    ) -> HloInstruction:
        self._opcode_at = attributes.at.start
        return super().build(name, opcode, shape, operands, number, literal, attributes)


def _closing(text: str, opening: int) -> int:
    """The place of the bracket that closes the one at `opening`."""
    pairs = {"(": ")", "{": "}"}
    open_mark, close_mark = text[opening], pairs[text[opening]]
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] == open_mark) - (text[place] == close_mark)
        if depth == 0:
            return place
    raise ValueError(f"no {close_mark!r} in {text[:80]!r}")


def baseline(text: str) -> str:
    """The text without `input_output_alias`: its parameters are not overwritten."""
    start = text.index("HloModule")
    end = text.index("\n", start)
    header = text[start:end]
    found = re.search(r",\s*input_output_alias=\{", header)
    if found is not None:
        header = header[: found.start()] + header[_closing(header, found.end() - 1) + 1 :]
    return text[:start] + header + text[end:]


def rewritten(text: str, step: Partition, calls: Mapping[str, Call]) -> str:
    """The module of `text`, which `step` has split, with kernels as custom calls. calls: by the digest of a stitch op's graph
    (`StitchOp.graph.digest`); a stitch op without one stays as it is."""
    return _Writer(text, step, calls).module()


class _Writer:
    def __init__(self, text: str, step: Partition, calls: Mapping[str, Call]) -> None:
        self.text = baseline(text)
        self.parser = _Lines(self.text)
        self.source = self.parser.module()
        self.splits = {split.computation: split for split in step.splits}
        self.calls = calls
        self.written: dict[str, str] = {}

    def module(self) -> str:
        header = self.text[self.text.index("HloModule") :].split("\n", 1)[0]
        self.write(self.source.entry)
        return header + "\n\n" + "\n\n".join(self.written.values()) + "\n"

    def write(self, name: str) -> None:
        """Writes a computation behind those that it calls."""
        if name in self.written:
            return
        split = self.splits.get(name)
        if split is None:
            for item in self.source.computations[name].instructions.values():
                for called in item.called:
                    self.write(called)
            self.written[name] = self.parser.bodies[name]
            return
        body = _Body(self, split)
        lines = body.lines()
        for called in body.called:
            self.write(called)
        entry = "ENTRY " if name == self.source.entry else ""
        self.written[name] = f"{entry}%{name} {{\n" + "\n".join(lines) + "\n}"


_GLUE: Final = frozenset({"parameter", "tuple", "get-tuple-element"})
_COUNTING: Final = frozenset(
    "constant add subtract multiply minimum maximum negate compare and or xor not select convert copy reshape".split()
)

_Key = tuple[str, str]
"""("", name of a flat instruction) or (name of a stitch op, "")."""


@dataclass
class _Body:
    """One split computation."""

    writer: _Writer
    split: SplitComputation
    called: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _readers: dict[str, set[_Key]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        flat = self.split.flat
        with_kernel = [
            op
            for op in self.split.stitch_ops
            if op.graph.digest in self.writer.calls
            and not any(flat.instructions[one].shape.dynamic for one in op.inputs)
        ]
        ops = {op.name: op for op in with_kernel}
        made_by = {output: op.name for op in with_kernel for output in op.outputs if not self._is_counting(output)}
        origins = _origins(self.writer, self.split)

        def needs(key: _Key) -> list[_Key]:
            op, name = key
            if op:
                return [("", one) for one in ops[op].inputs]
            if name in made_by:
                return [(made_by[name], "")]
            return [("", one) for one in flat.instructions[name].operands]

        order: dict[_Key, None] = {}
        waiting: list[_Key] = [("", flat.root)]
        waiting += [("", item.name) for item in reversed(flat.parameters)]
        while waiting:
            key = waiting[-1]
            missing = [one for one in needs(key) if one not in order] if key not in order else []
            waiting += reversed(missing)
            if not missing:
                order[waiting.pop()] = None
        for key in order:
            for needed in needs(key):
                self._readers.setdefault(needed[1], set()).add(key)
        found: list[str] = []
        for op, name in order:
            if op:
                found.append(self._custom_call(ops[op]))
            elif name in made_by:
                found.append(self._element(ops[made_by[name]], name))
            else:
                found.append(self._kept(name, origins))
        root = self._name(flat.root)
        return [f"  ROOT {line}" if line.startswith(f"%{root} = ") else f"  {line}" for line in found]

    def _is_counting(self, name: str) -> bool:
        """Whether the value belongs to a loop's scalar arithmetic: an integer or a truth value that is computed from such alone."""
        if self.split.computation == self.writer.source.entry:
            return False
        items = self.split.flat.instructions
        waiting = [name]
        while waiting:
            item = items[waiting.pop()]
            if item.opcode == "parameter":
                continue
            is_element = item.opcode == "get-tuple-element" and items[item.operands[0]].opcode in _GLUE
            if not is_element and (item.opcode not in _COUNTING or not _is_whole_number(item.shape)):
                return False
            waiting += item.operands
        return _is_whole_number(items[name].shape)

    def _name(self, flat: str) -> str:
        """The name in the text of a flat instruction."""
        if flat not in self._names:
            plain = re.sub(r"[^\w.-]", "_", flat).strip("_")
            name, number = plain, 1
            while name in self._taken:
                number += 1
                name = f"{plain}.again{number}"
            self._taken.add(name)
            self._names[flat] = name
        return self._names[flat]

    def _custom_call(self, op: StitchOp) -> str:
        call = self.writer.calls[op.graph.digest]
        items = self.split.flat.instructions
        results = [_row_major(items[name].shape) for name in op.outputs]
        if call.scratch_bytes:
            results.append(f"u8[{call.scratch_bytes}]{{0}}")
        operands = ", ".join(f"%{self._name(name)}" for name in op.inputs)
        layouts = ", ".join(_row_major(items[name].shape) for name in op.inputs)
        pairs = ", ".join(f"{{{output}}}: ({given}, {{}})" for output, given in self._in_place(op, call))
        in_place = f"output_to_operand_aliasing={{{pairs}}}, " if pairs else ""
        return (
            f"%{self._name(op.name + '.kernel')} = ({', '.join(results)}) custom-call({operands}), "
            f'custom_call_target="{TARGET}", operand_layout_constraints={{{layouts}}}, {in_place}'
            f"api_version=API_VERSION_TYPED_FFI, backend_config={call.attributes(self._site(op, call))}"
        )

    def _in_place(self, op: StitchOp, call: Call) -> Iterator[tuple[int, int]]:
        """The pairs (output, input) of arrays that a loop carries and that only this stitch op reads: they share memory, as XLA lets
        its own instructions do. Without it, XLA would copy the output."""
        done: set[int] = set()
        for output, given in call.aliases:
            source = op.inputs[given]
            path = self._carried(source)
            is_only_reader = self._readers.get(source) == {(op.name, "")}
            if path and is_only_reader and self._result(path) == op.outputs[output] and not {output, ~given} & done:
                done |= {output, ~given}
                yield output, given

    def _carried(self, name: str) -> list[int]:
        """Where in a loop's parameter the array is; empty if it is not there."""
        items, path = self.split.flat.instructions, list[int]()
        if self.split.computation == self.writer.source.entry or not items[name].shape.dimensions:
            return []
        while items[name].opcode == "get-tuple-element":
            path.insert(0, items[name].tuple_index)
            name = items[name].operands[0]
        return path if items[name].opcode == "parameter" else []

    def _result(self, path: list[int]) -> str:
        """The value at this place of the result, seen through reshapes."""
        items, name = self.split.flat.instructions, self.split.flat.root
        for place in path:
            if items[name].opcode != "tuple":
                return ""
            name = items[name].operands[place]
        while items[name].opcode in ("reshape", "bitcast"):
            name = items[name].operands[0]
        return name

    def _site(self, op: StitchOp, call: Call) -> int:
        """A number that no other custom call has."""
        parts = (self.writer.source.name, self.split.computation, op.name, call.image, call.symbol)
        return int.from_bytes(hashlib.sha256("|".join(parts).encode()).digest()[:7], "big")

    def _element(self, op: StitchOp, name: str) -> str:
        shape = _row_major(self.split.flat.instructions[name].shape)
        producer = self._name(op.name + ".kernel")
        return f"%{self._name(name)} = {shape} get-tuple-element(%{producer}), index={op.outputs.index(name)}"

    def _kept(self, name: str, origins: Mapping[str, _Line]) -> str:
        item = self.split.flat.instructions[name]
        operands = ", ".join(f"%{self._name(operand)}" for operand in item.operands)
        line = origins.get(name)
        if line is None:
            return f"%{self._name(name)} = {item.shape} {item.opcode}({operands})"
        self.called += item.called
        inner = line.inner if item.opcode in ("constant", "parameter") else operands
        return f"%{self._name(name)} = {line.shape} {line.opcode}({inner}){line.rest}"


def _is_whole_number(shape: HloShape) -> bool:
    return not shape.is_tuple and not shape.dimensions and shape.element_type[0] in "sup"


def _row_major(shape: HloShape) -> str:
    """An array's shape with the layout that a custom call's tensors have."""
    order = ",".join(map(str, reversed(range(len(shape.dimensions)))))
    return f"{shape}{{{order}}}" if order else str(shape)


def _origins(writer: _Writer, split: SplitComputation) -> dict[str, _Line]:
    """The original texts of a computation's flat instructions. An inlined call's instructions have its name, a colon for each number
    sign in it, before theirs. Tuples that flattening has made have no text."""
    found: dict[str, _Line] = {}
    lines = writer.parser.lines

    def walk(computation: str, prefix: str) -> None:
        for name, item in writer.source.computations[computation].instructions.items():
            flat = prefix + name
            if flat in split.flat.instructions and (not prefix or item.opcode != "parameter"):
                found[flat] = lines[computation, name]
            elif item.opcode in ("call", "fusion") and item.called:
                walk(item.called[0], f"{flat.replace('#', ':')}/")

    walk(split.computation, "")
    return found


__all__ = ["baseline", "rewritten"]
