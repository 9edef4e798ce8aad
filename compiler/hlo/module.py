"""An HLO module in memory. The proto reader (`proto`) and the text parser (`text`) both produce it, and `importer` reads
it.

It holds only what the importer needs; other attributes (shardings, schedules, backend configurations) are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..ir.graph import Array, GatherDimensions, WindowDimension


class HloImportError(ValueError):
    """The HLO cannot be read, or no kernel can be made of it. The text says where and why, in one line."""


@dataclass(frozen=True)
class HloShape:
    """Shape of an array or a tuple. `element_type` is HLO's spelling in lower case (`f32`, `c64`, `token`, `tuple`). `dynamic`:
    whether an extent is known at run time only."""

    element_type: str
    dimensions: tuple[int, ...] = ()
    minor_to_major: tuple[int, ...] | None = None  # None: not stated, which means row-major
    tuple_shapes: tuple[HloShape, ...] = ()
    dynamic: bool = False

    @property
    def is_tuple(self) -> bool:
        """Whether it is the shape of a tuple."""
        return self.element_type == "tuple"

    @property
    def is_row_major(self) -> bool:
        """Whether the layout is row-major. Dimensions of extent 1 do not count (they may be anywhere)."""
        if self.is_tuple:
            return all(shape.is_row_major for shape in self.tuple_shapes)
        if self.minor_to_major is None:
            return True
        if sorted(self.minor_to_major) != list(range(len(self.dimensions))):
            return False
        real = [dimension for dimension in self.minor_to_major if self.dimensions[dimension] != 1]
        return real == sorted(real, reverse=True)

    @property
    def without_layout(self) -> HloShape:
        """The same shape with a row-major layout."""
        return replace(
            self, minor_to_major=None, tuple_shapes=tuple(shape.without_layout for shape in self.tuple_shapes)
        )

    def __str__(self) -> str:
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.tuple_shapes)) + ")"
        return f"{self.element_type}[{','.join(map(str, self.dimensions))}]"


@dataclass(frozen=True)
class DotDimensions:
    """The contracting dimensions (`summed`) and the batch dimensions of a dot, each as (dimensions of the left operand,
    dimensions of the right operand in the same order). The result has the batch dimensions, then the other dimensions of the
    left operand, then those of the right operand."""

    summed: tuple[tuple[int, ...], tuple[int, ...]]
    batch: tuple[tuple[int, ...], tuple[int, ...]]

    def fits(self, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> bool:
        """Whether operands of these shapes have the dimensions, each named once, with equal extents in both operands."""
        shapes = (lhs, rhs)
        named = [(*self.batch[side], *self.summed[side]) for side in (0, 1)]
        if any(len(set(names)) < len(names) or not set(names) <= set(range(len(s))) for names, s in zip(named, shapes)):
            return False
        first, second = ([shape[i] for i in names] for names, shape in zip(named, shapes))
        return first == second and len(self.batch[0]) == len(self.batch[1])

    def own(self, side: int, rank: int) -> tuple[int, ...]:
        """The dimensions of operand `side` (0: left, 1: right) that are neither batch nor contracting dimensions, ascending.
        rank: the operand's number of dimensions."""
        return tuple(i for i in range(rank) if i not in self.summed[side] and i not in self.batch[side])


@dataclass(frozen=True)
class ConvolutionDimensions:
    """Which dimensions of a convolution's operands and result are what: (first, second, spatial ones in order). First and second are
    batch and feature of the left operand and of the result, and input feature and output feature of the right one, the filter.

    feature_groups, batch_groups: number of groups into which the left operand's features, or its batch, and the output features
    are divided.
    """

    lhs: tuple[int, int, tuple[int, ...]]
    rhs: tuple[int, int, tuple[int, ...]]
    result: tuple[int, int, tuple[int, ...]]
    feature_groups: int = 1
    batch_groups: int = 1

    def fits(self, lhs: tuple[int, ...], rhs: tuple[int, ...], window: Sequence[WindowDimension]) -> bool:
        """Whether operands of these shapes have the dimensions, and the filter the window's extents."""
        names = ((*side[:2], *side[2]) for side in (self.lhs, self.rhs, self.result))
        if any(sorted(each) != list(range(len(window) + 2)) for each in names):
            return False
        if not len(lhs) == len(rhs) == len(window) + 2:
            return False
        return all(rhs[i] == item.size for i, item in zip(self.rhs[2], window))


@dataclass(frozen=True)
class HloInstruction:
    """One instruction. The opcode decides which fields have a meaning, as in HloInstructionProto."""

    name: str
    opcode: str
    shape: HloShape
    operands: tuple[str, ...] = ()  # names of instructions of the same computation
    called: tuple[str, ...] = ()  # names of computations
    literal: Array | None = None
    parameter_number: int = 0
    tuple_index: int = 0
    dimensions: tuple[int, ...] = ()  # includes iota's dimension
    slices: tuple[tuple[int, int, int], ...] = ()  # start, limit, stride
    padding: tuple[tuple[int, int, int], ...] = ()  # low, high, interior
    window: tuple[WindowDimension, ...] = ()
    dynamic_slice_sizes: tuple[int, ...] = ()
    gather: GatherDimensions | None = None
    scatter: GatherDimensions | None = None
    dot: DotDimensions | None = None
    convolution: ConvolutionDimensions | None = None
    batching_dims: bool = False  # gather or scatter with operand batching dimensions
    direction: str = ""
    total_order: bool = False
    epsilon: float = 0.0
    feature_index: int = 0
    exponent_bits: int = 0
    mantissa_bits: int = 0
    custom_call_target: str = ""
    rng_algorithm: str = ""  # rng_default, rng_three_fry, rng_philox
    op_type: str = ""  # the framework's op that it came from, as the metadata says
    op_name: str = ""

    def __str__(self) -> str:
        inner = ", ".join(self.operands)
        if self.opcode == "parameter":
            inner = str(self.parameter_number)
        elif self.literal is not None:
            inner = str(self.literal.tolist()) if self.literal.size <= 8 else f"{self.literal.size} elements"
        details = {
            "dimensions": self.dimensions,
            "slice": self.slices,
            "padding": self.padding,
            "window": self.window,
            "sizes": self.dynamic_slice_sizes,
            "gather": self.gather,
            "scatter": self.scatter,
            "dot": self.dot,
            "direction": self.direction,
            "calls": self.called,
            "target": self.custom_call_target,
            "algorithm": self.rng_algorithm,
        }
        text = "".join(f", {key}={value}" for key, value in details.items() if value)
        if self.opcode == "get-tuple-element":
            text = f", index={self.tuple_index}"
        return f"{self.name} = {self.shape} {self.opcode}({inner}){text}" + (
            f"  # {self.op_name}" if self.op_name else ""
        )


@dataclass(frozen=True)
class HloComputation:
    """Instructions by name, in their order in the module, and the name of the root."""

    name: str
    instructions: Mapping[str, HloInstruction]
    root: str

    @property
    def parameters(self) -> tuple[HloInstruction, ...]:
        """Parameter instructions, ordered by number."""
        found = [item for item in self.instructions.values() if item.opcode == "parameter"]
        return tuple(sorted(found, key=lambda item: item.parameter_number))


@dataclass(frozen=True)
class HloModule:
    """Computations by name, and the name of the entry computation."""

    name: str
    computations: Mapping[str, HloComputation]
    entry: str
    result_layout: HloShape | None = field(default=None)  # of the entry; None if the module states none

    def __str__(self) -> str:
        """A listing for people; it is not HLO's syntax."""
        lines = [f"module {self.name}"]
        for computation in self.computations.values():
            lines += ["", f"{'entry ' if computation.name == self.entry else ''}{computation.name} {{"]
            for item in computation.instructions.values():
                lines.append(("  root " if item.name == computation.root else "  ") + str(item))
            lines.append("}")
        return "\n".join(lines)
