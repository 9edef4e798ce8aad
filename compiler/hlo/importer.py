"""HLO in, Graph out. This is the only way into the compiler: TensorFlow and JAX both lower to HLO, so about 60 ops serve hundreds
of their operators.

`import_hlo_proto`, `import_hlo_text` and `import_hlo_file` read a module and turn its entry computation into a graph. Calls, maps
and fusions are inlined, tuples resolved, composites written out, and reduction regions recognised. Scalars that HLO broadcasts
implicitly are broadcast explicitly, and the leftovers of the lowering are cleaned up (`simplify`).

An instruction without a row in the op table cannot be stitched. UnsupportedHloError lists each such instruction that the results
need, with the framework's op that it came from, so that the caller can split the cluster around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ..ir.graph import REDUCE_KINDS, Array, Attribute, DType, Graph, GraphBuilder, Literal, Node, Shape
from ..ops.infer import GraphError, NewNode
from ..ops.reference import reduce_identity
from ..ops.table import build, infer_node
from ..ops.verify import verify_if_asked
from ..passes.simplify import simplify
from . import composites, convolutions, selections
from .module import HloComputation, HloImportError, HloInstruction, HloModule, HloShape
from .proto import read_hlo_proto
from .text import read_hlo_text

if TYPE_CHECKING:
    from typing import TypeAlias


@dataclass(frozen=True)
class UnsupportedOp:
    """An instruction that cannot be part of a kernel: the reason, and the framework's op that it came from ("" if HLO does not say).
    `name`: its name for people, without the id that the reader of protos adds; `instruction`: its name in the module."""

    opcode: str
    name: str
    reason: str
    op_type: str = ""
    op_name: str = ""
    instruction: str = ""

    def __str__(self) -> str:
        origin = f" from {self.op_type} {self.op_name}" if self.op_type or self.op_name else ""
        return f"{self.opcode} {self.name}{origin}: {self.reason}"


class UnsupportedHloError(HloImportError):
    """The module's results need instructions that cannot be imported; `ops` lists them, each once."""

    def __init__(self, module: str, ops: Sequence[UnsupportedOp]) -> None:
        self.ops = tuple(ops)
        super().__init__(f"HLO module {module}: {len(ops)} unsupported ops: " + "; ".join(map(str, ops)))


class ImportResult(NamedTuple):
    """The graph, and the instructions that could not be imported but that no result needs (there are none if the lowering is
    clean)."""

    graph: Graph
    unsupported: tuple[UnsupportedOp, ...]


def import_hlo_proto(data: bytes) -> ImportResult:
    """The graph of a serialized HloModuleProto. Raises HloImportError if it is malformed, or UnsupportedHloError."""
    return import_module(read_hlo_proto(data))


def import_hlo_text(text: str) -> ImportResult:
    """The graph of a module in HLO's text form. Raises as `import_hlo_proto`; a syntax error names line and column."""
    return import_module(read_hlo_text(text))


def import_hlo_file(path: Path) -> ImportResult:
    """The graph of the module in a file. Raises OSError, or as `import_hlo_proto`."""
    return import_module(read_hlo_file(path))


def read_hlo_file(path: Path) -> HloModule:
    """The module in a file: parsed as text if it starts with `HloModule` or is named .hlo or .txt, else as proto. Raises OSError or
    HloImportError."""
    data = path.read_bytes()
    if data.lstrip()[:9] != b"HloModule" and path.suffix not in (".hlo", ".txt"):
        return read_hlo_proto(data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise HloImportError(f"{path}: given bytes that are not UTF-8 at {error.start}, expected HLO text") from None
    return read_hlo_text(text)


def import_module(module: HloModule) -> ImportResult:
    """The graph of a module's entry computation. Raises UnsupportedHloError if a result needs an instruction that cannot be imported;
    HloImportError for a layout of the entry's parameters or result that is not row-major, a tuple parameter, or a broken reference.
    """
    entry = module.computations[module.entry]
    importer = _Importer(module)
    parameters: list[HloValue] = []
    for number, item in enumerate(entry.parameters):
        if item.parameter_number != number:
            given = [parameter.parameter_number for parameter in entry.parameters]
            raise HloImportError(f"HLO module {module.name}: given parameter numbers {given}, expected 0, 1, ...")
        parameters.append(importer.entry_parameter(item))
    if module.result_layout is not None and not module.result_layout.is_row_major:
        raise HloImportError(
            f"HLO module {module.name}: given a result layout that is not row-major, expected row-major"
        )
    try:
        root = importer.computation(entry, parameters)
    except GraphError as error:
        raise HloImportError(f"HLO module {module.name}: {error}") from None
    outputs = _flatten(root)
    if importer.refused:
        raise UnsupportedHloError(module.name, importer.refused)
    graph = simplify(importer.builder.finish(_Importer.index(output) for output in outputs))
    return ImportResult(verify_if_asked(graph), _unreached(entry, importer))


def _unreached(entry: HloComputation, importer: _Importer) -> tuple[UnsupportedOp, ...]:
    return tuple(
        _unsupported(item, f"{_REASONS.get(item.opcode, 'no row in the op table')}; no result needs it")
        for item in entry.instructions.values()
        if item.opcode != "parameter" and item.opcode not in importer.handlers
    )


class _Poison:
    """The value of an instruction that could not be imported. Everything that reads it gets it too."""


class _LaterState(_Poison):
    """The first result of rng-bit-generator: it is refused if anything reads it."""


_POISON: Final = _Poison()
HloValue: TypeAlias = "int | _Poison | tuple[HloValue, ...]"
"""What an instruction's result became: a node, nothing (it is refused if a node needs it), or a tuple of these."""


class _Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error
    """This instruction cannot be imported; the text is the reason."""


_COLLECTIVE: Final = "a collective"
_HOST: Final = "talks to the host or another program"
_CONTROL: Final = "control flow"
_REASONS: Final = {
    "dot": "a matrix product, left to the library",
    "convolution": "a convolution, left to the library",
    "rng": "random numbers",
    "rng-get-and-update-state": "random numbers",
    "sort": "a sort",
    "topk": "a sort",
    "while": _CONTROL,
    "conditional": _CONTROL,
    "fft": "a Fourier transform",
    "cholesky": "linear algebra, left to the library",
    "triangular-solve": "linear algebra, left to the library",
    "infeed": _HOST,
    "outfeed": _HOST,
    "send": _HOST,
    "recv": _HOST,
    **dict.fromkeys(("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute"), _COLLECTIVE),
}

_SAME_NAME: Final = (
    *(
        "abs",
        "negate",
        "sign",
        "log",
        "sqrt",
        "rsqrt",
        "cbrt",
        "tan",
        "tanh",
        "logistic",
        "floor",
        "ceil",
        "not",
        "erf",
    ),
    *("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "atan2", "and", "or", "xor"),
    *("popcnt", "copy"),
)
_ELEMENTWISE: Final = {
    **{opcode: opcode for opcode in _SAME_NAME},
    "exponential": "exp",
    "exponential-minus-one": "expm1",
    "log-plus-one": "log1p",
    "sine": "sin",
    "cosine": "cos",
    "round-nearest-even": "round_nearest_even",
    "round-nearest-afz": "round_nearest_afz",
    "count-leading-zeros": "clz",
    "is-finite": "is_finite",
    "shift-left": "shift_left",
    "shift-right-arithmetic": "shift_right_arithmetic",
    "shift-right-logical": "shift_right_logical",
}
_PRED_ARITHMETIC: Final = {"add": "or", "multiply": "and"}
_REGION_KINDS: Final = {
    "add": "sum",
    "multiply": "product",
    "maximum": "max",
    "minimum": "min",
    "and": "and",
    "or": "or",
}
_KIND_OPS: Final = {kind: op for op, kind in _REGION_KINDS.items()}


_OPERANDS: Final = {
    "dot": (2, 2),
    "convolution": (2, 2),
    **dict.fromkeys(("select", "clamp", "batch-norm-training", "select-and-scatter"), (3, 3)),
    **dict.fromkeys(("batch-norm-inference", "batch-norm-grad"), (5, 5)),
    **dict.fromkeys(("compare", "reduce", "reduce-window", "dynamic-update-slice"), (2, None)),
    **dict.fromkeys(
        ("rng-bit-generator", "get-tuple-element", "get-dimension-size", "opt-barrier", "optimization-barrier"), (1, 1)
    ),
    **dict.fromkeys(("bitcast", "domain", "dynamic-slice"), (1, None)),
}
"""Fewest and most operands of opcodes whose operands differ from those of the op table's row."""


def _unsupported(item: HloInstruction, reason: str) -> UnsupportedOp:
    return UnsupportedOp(item.opcode, item.name.partition("#")[0], reason, item.op_type, item.op_name, item.name)


def refusal_of(item: HloInstruction) -> UnsupportedOp:
    """The reason why an instruction cannot be an op of a kernel, found from its opcode, shape and layout alone."""
    known = _REASONS.get(item.opcode, "")
    if item.opcode == "custom-call":
        known = f"custom call {item.custom_call_target!r}"
    elif item.shape.dynamic:
        known = "a dynamic dimension"
    elif item.opcode in SUPPORTED_OPCODES and not item.shape.is_row_major:
        known = "a layout that is not row-major"
    return _unsupported(item, known or "no row in the op table")


def _flatten(value: HloValue) -> list[HloValue]:
    """The leaves of nested tuples, in order."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _flatten(part)]
    return [value]


class _Importer:
    """Walks computations and builds nodes. There is one per entry computation or region."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.builder = GraphBuilder(module.name)
        self.refused: list[UnsupportedOp] = []
        self.depth = 0
        simple: Callable[[HloInstruction, list[HloValue]], HloValue] = self.elementwise
        self.handlers: dict[str, Callable[[HloInstruction, list[HloValue]], HloValue]] = {
            **dict.fromkeys(_ELEMENTWISE, simple),
            "constant": self.constant,
            "iota": self.iota,
            "compare": self.compare,
            "select": self.select,
            "clamp": self.clamp,
            "convert": self.convert,
            "bitcast-convert": self.bitcast_convert,
            "reduce-precision": self.reduce_precision,
            "broadcast": self.broadcast,
            "reshape": self.reshape,
            "bitcast": self.bitcast,
            "transpose": self.transpose,
            "slice": self.slice,
            "pad": self.pad,
            "concatenate": self.concatenate,
            "reverse": self.reverse,
            "reduce": self.reduce,
            "reduce-window": self.reduce_window,
            "select-and-scatter": self.select_and_scatter,
            "gather": self.gather,
            "scatter": self.scatter,
            "dynamic-slice": self.dynamic_slice,
            "dynamic-update-slice": self.dynamic_update_slice,
            "tuple": lambda item, operands: tuple(operands),
            "get-tuple-element": self.get_tuple_element,
            "call": self.call,
            "fusion": self.call,
            "map": self.call,
            "opt-barrier": lambda item, operands: operands[0],
            "optimization-barrier": lambda item, operands: operands[0],
            "domain": lambda item, operands: operands[0],
            "get-dimension-size": self.get_dimension_size,
            "dot": self.dot,
            "convolution": self.convolution,
            "batch-norm-training": self.batch_norm_training,
            "batch-norm-inference": self.batch_norm_inference,
            "batch-norm-grad": self.batch_norm_gradient,
            "rng-bit-generator": self.random_bits,
        }

    # -- walking --

    def entry_parameter(self, item: HloInstruction) -> int:
        where = f"HLO module {self.module.name}: parameter {item.parameter_number}"
        if item.shape.is_tuple:
            raise HloImportError(f"{where}: given a tuple, expected an array (flatten the function's arguments)")
        if not item.shape.is_row_major:
            raise HloImportError(f"{where}: given layout {item.shape.minor_to_major}, expected row-major")
        try:
            dtype = _dtype(item.shape)
        except _Refusal as refusal:
            raise UnsupportedHloError(self.module.name, [_unsupported(item, str(refusal))]) from None
        shape, number = item.shape.dimensions, item.parameter_number
        return build(self.builder, "parameter", (), number=number, shape=shape, dtype=dtype, name=item.op_name)

    def computation(self, computation: HloComputation, parameters: Sequence[HloValue]) -> HloValue:
        """The root's value. Only what the root needs is imported, so dead instructions cost nothing and cause no refusal."""
        if self.depth > 64:
            raise HloImportError(
                f"HLO computation {computation.name}: calls nest deeper than 64, expected no recursion"
            )
        self.depth += 1
        values: dict[str, HloValue] = {}
        waiting = [computation.root]
        while waiting:
            name = waiting[-1]
            if name in values:
                waiting.pop()
                continue
            item = computation.instructions[name]
            missing = [operand for operand in item.operands if operand not in values]
            if any(operand not in computation.instructions for operand in missing):
                raise HloImportError(f"HLO computation {computation.name}: {name} has an operand that does not exist")
            if missing:
                if len(waiting) > len(computation.instructions):
                    raise HloImportError(f"HLO computation {computation.name}: {name} depends on itself")
                waiting += missing[:1]
                continue
            waiting.pop()
            values[name] = self.instruction(item, [values[operand] for operand in item.operands], parameters)
        self.depth -= 1
        return values[computation.root]

    def instruction(self, item: HloInstruction, operands: list[HloValue], parameters: Sequence[HloValue]) -> HloValue:
        if item.opcode == "parameter":
            if item.parameter_number >= len(parameters):
                raise HloImportError(f"HLO parameter {item.name}: number {item.parameter_number} of {len(parameters)}")
            return parameters[item.parameter_number]
        if any(isinstance(operand, _Poison) for operand in operands) and item.opcode != "tuple":
            return _POISON
        handler = self.handlers.get(item.opcode)
        try:
            if handler is None:
                raise _Refusal(refusal_of(item).reason)
            fewest, most = _OPERANDS.get(item.opcode, (0, None))
            if len(operands) < fewest or (most is not None and len(operands) > most):
                raise _Refusal(f"{len(operands)} operands where it takes {fewest}")
            if item.shape.dynamic:
                raise _Refusal("a dynamic dimension")
            return handler(item, operands)
        except _Refusal as refusal:
            self.refused.append(_unsupported(item, str(refusal)))
        except GraphError as error:
            # The op is known but this form of it is not, or the module is malformed. Either way there is no kernel.
            self.refused.append(_unsupported(item, str(error)))
        return _POISON

    @staticmethod
    def index(value: HloValue) -> int:
        if not isinstance(value, int):
            raise _Refusal("a tuple where an array is expected")
        return value

    def emit(
        self,
        item: HloInstruction,
        op: str,
        operands: Sequence[HloValue],
        *,
        shape: Shape | None = None,
        dtype: DType | None = None,
        **attributes: Attribute,
    ) -> int:
        return self.emit_with(item, op, operands, attributes, shape, dtype)

    def emit_with(
        self,
        item: HloInstruction,
        op: str,
        operands: Sequence[HloValue],
        attributes: Mapping[str, Attribute],
        shape: Shape | None = None,
        dtype: DType | None = None,
    ) -> int:
        """Adds an inferred node that carries the framework's op name. Raises GraphError, or _Refusal if an operand is a
        tuple."""
        indices = tuple(self.index(operand) for operand in operands)
        sources = tuple(self.builder.nodes[index] for index in indices)
        found_shape, found_dtype = infer_node(NewNode(op, sources, attributes, shape, dtype))
        return self.builder.add(op, indices, found_shape, found_dtype, item.op_name, **attributes)

    def shape_of(self, value: HloValue) -> Shape:
        return self.builder.nodes[self.index(value)].shape

    def dtype_of(self, value: HloValue) -> DType:
        return self.builder.nodes[self.index(value)].dtype

    # -- element-wise --

    def elementwise(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        op = _ELEMENTWISE[item.opcode]
        if operands and self.dtype_of(operands[0]) is DType.PRED:
            op = _PRED_ARITHMETIC.get(op, op)
        return self.emit(item, op, operands)

    def compare(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        total_order = item.total_order and self.dtype_of(operands[0]).is_float
        return self.emit(item, "compare", operands, direction=item.direction, total_order=total_order)

    def spread(self, item: HloInstruction, scalar: HloValue, shape: Shape) -> HloValue:
        """`scalar` broadcast to `shape`: HLO lets select and clamp take scalars beside arrays."""
        if self.shape_of(scalar) == () and shape != ():
            return self.emit(item, "broadcast", (scalar,), shape=shape, dimensions=())
        return scalar

    def select(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        if any(isinstance(operand, tuple) for operand in operands):
            raise _Refusal("a select of tuples")
        predicate, on_true, on_false = operands
        predicate = self.spread(item, predicate, self.shape_of(on_true))
        return self.emit(item, "select", (predicate, on_true, on_false))

    def clamp(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        shape = self.shape_of(operands[1])
        return self.emit(item, "clamp", [self.spread(item, operand, shape) for operand in operands])

    def convert(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        return self.emit(item, "convert", operands, dtype=_dtype(item.shape))

    def bitcast_convert(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        return self.emit(item, "bitcast_convert", operands, dtype=_dtype(item.shape))

    def reduce_precision(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        bits: dict[str, Attribute] = {"exponent_bits": item.exponent_bits, "mantissa_bits": item.mantissa_bits}
        return self.emit_with(item, "reduce_precision", operands, bits)

    # -- leaves and movement --

    def constant(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        del operands
        _dtype(item.shape)
        if item.literal is None:
            raise _Refusal(f"a constant of type {item.shape}")
        return self.emit(item, "constant", (), literal=Literal(item.literal))

    def iota(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        dimension = item.dimensions[0] if item.dimensions else 0
        return self.emit(
            item, "iota", operands, shape=item.shape.dimensions, dtype=_dtype(item.shape), dimension=dimension
        )

    def broadcast(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        order = sorted(range(len(item.dimensions)), key=lambda i: item.dimensions[i])
        if order != list(range(len(order))):
            # HLO lets a broadcast transpose as well.
            operands = [self.emit(item, "transpose", operands, permutation=tuple(order))]
        dimensions = tuple(sorted(item.dimensions))
        return self.emit(item, "broadcast", operands, shape=item.shape.dimensions, dimensions=dimensions)

    def reshape(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        return self.emit(item, "reshape", operands, shape=item.shape.dimensions)

    def bitcast(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        if not item.shape.is_row_major or _dtype(item.shape) is not self.dtype_of(operands[0]):
            raise _Refusal("a bitcast that is not a row-major reshape")
        return self.reshape(item, operands)

    def transpose(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        return self.emit(item, "transpose", operands, permutation=item.dimensions)

    def slice(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        start, limit, strides = _columns(item.slices, 3)
        return self.emit(item, "slice", operands, start=start, limit=limit, strides=strides)

    def pad(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        low, high, interior = _columns(item.padding, 3)
        return self.emit(item, "pad", operands, low=low, high=high, interior=interior)

    def concatenate(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        if len(item.dimensions) != 1:
            raise _Refusal("a concatenate without a dimension")
        return self.emit(item, "concatenate", operands, dimension=item.dimensions[0])

    def reverse(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        return self.emit(item, "reverse", operands, dimensions=item.dimensions)

    def get_dimension_size(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        shape = self.shape_of(operands[0])
        if len(item.dimensions) != 1 or not 0 <= item.dimensions[0] < len(shape):
            raise _Refusal("a dimension that does not exist")
        return self.emit(item, "constant", (), literal=Literal(np.array(shape[item.dimensions[0]], np.int32)))

    def random_bits(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        """The random words of a state u64[3] (key, counter's low half, its high half), as Philox by position."""
        if item.rng_algorithm != "rng_philox" or self.shape_of(operands[0]) != (3,):
            raise _Refusal(f"random numbers by {item.rng_algorithm} from a state {self.shape_of(operands[0])}")
        if len(item.shape.tuple_shapes) != 2 or item.shape.tuple_shapes[1].element_type != "u32":
            raise _Refusal("random numbers that are not u32")
        shape = item.shape.tuple_shapes[1].dimensions
        scalars = []
        for i in range(3):
            part = self.emit(item, "slice", operands, start=(i,), limit=(i + 1,), strides=(1,))
            scalar = self.emit(item, "reshape", [part], shape=())
            scalars.append(self.emit(item, "broadcast", [scalar], shape=shape, dimensions=()))
        count = int(np.prod(shape, dtype=np.int64))
        place = self.emit(item, "iota", (), shape=(count,), dtype=DType.U64, dimension=0)
        index = self.emit(item, "reshape", [place], shape=shape)
        return (_LaterState(), self.emit(item, "philox", [*scalars, index]))

    # -- tuples and calls --

    def get_tuple_element(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        value = operands[0]
        if not isinstance(value, tuple) or not 0 <= item.tuple_index < len(value):
            raise _Refusal(f"element {item.tuple_index} of something else")
        element = value[item.tuple_index]
        if isinstance(element, _LaterState):
            raise _Refusal("the state after random numbers were drawn")
        return element

    def called(self, item: HloInstruction, number: int = 0) -> HloComputation:
        if len(item.called) <= number or item.called[number] not in self.module.computations:
            raise HloImportError(f"HLO {item.opcode} {item.name}: given no existing computation, expected one")
        return self.module.computations[item.called[number]]

    def call(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        """call and fusion are inlined. map is too: its ops are element-wise on scalars, so they apply to arrays
        unchanged."""
        if item.opcode == "map":
            return self.map(item, operands)
        return self.computation(self.called(item), operands)

    def map(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        body = self.region(item)
        shape = item.shape.dimensions
        values: list[int] = []
        for node in body.nodes:
            if node.op == "parameter":
                values.append(self.index(operands[int(node.attributes["number"])]))  # type: ignore[arg-type]
                continue
            mapped = [values[operand] for operand in node.operands]
            if node.op == "constant":
                scalar = self.emit_with(item, "constant", (), node.attributes)
                values.append(self.index(self.spread(item, scalar, shape)))
            else:
                values.append(self.emit_with(item, node.op, mapped, node.attributes, dtype=node.dtype))
        return values[body.outputs[0]]

    # -- reductions --

    def region(self, item: HloInstruction, number: int = 0) -> Graph:
        """A called computation as a scalar graph with flattened outputs. Raises _Refusal if it cannot be imported."""
        computation = self.called(item, number)
        inner = _Importer(self.module)
        inner.depth = self.depth
        parameters: list[HloValue] = []
        for number, parameter in enumerate(computation.parameters):
            if parameter.shape.dimensions:
                raise _Refusal("a region on arrays")
            dtype = _dtype(parameter.shape)
            parameters.append(build(inner.builder, "parameter", (), number=number, shape=(), dtype=dtype))
        outputs = _flatten(inner.computation(computation, parameters))
        if inner.refused:
            raise _Refusal(f"its region has {inner.refused[0]}")
        graph = simplify(inner.builder.finish(self.index(output) for output in outputs))
        return Graph(computation.name, graph.nodes, graph.outputs)

    def splat(self, value: HloValue) -> Array | None:
        """The constant that a scalar node equals, seen through converts, reshapes, broadcasts and copies, as an array of shape
        (); None if it is not a constant."""
        chain = [self.builder.nodes[self.index(value)]]
        while chain[-1].op in ("convert", "reshape", "broadcast", "copy"):
            chain.append(self.builder.nodes[chain[-1].operands[0]])
        small = GraphBuilder("splat")
        for position, node in enumerate(reversed(chain)):
            operands = (position - 1,) if position else ()
            if not position and node.op != "constant":
                return None
            small.add(node.op, operands, node.shape, node.dtype, "", **node.attributes)
        graph = simplify(small.finish((len(chain) - 1,)))
        literal = graph.nodes[graph.outputs[0]].attributes.get("literal")
        return literal.value.reshape(()) if isinstance(literal, Literal) and literal.value.size == 1 else None

    def reduce(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        count = len(operands) // 2
        inputs, inits = operands[:count], operands[count:]
        body = self.region(item)
        if len(body.outputs) != count:
            raise _Refusal(f"a region of {len(body.outputs)} results for {count} operands")
        results: list[HloValue] = []
        for number in range(count):
            kind = region_kind(body, number, count)
            if kind is None:
                attributes: dict[str, Attribute] = {"dimensions": item.dimensions, "body": body, "result": number}
                results.append(self.emit_with(item, "reduce_general", operands, attributes))
            else:
                reduced = self.emit(item, "reduce", (inputs[number],), dimensions=item.dimensions, kind=kind)
                results.append(self.start_from(item, reduced, kind, inits[number]))
        return results[0] if count == 1 and not item.shape.is_tuple else tuple(results)

    def start_from(self, item: HloInstruction, reduced: int, kind: str, init: HloValue) -> int:
        """`reduced` combined with the initial value, unless that is the kind's identity."""
        node = self.builder.nodes[reduced]
        value = self.splat(init)
        if value is not None and value == reduce_identity(kind, node.dtype):  # -0 counts as 0
            return reduced
        start = self.spread(item, init, node.shape)
        return self.emit(item, _KIND_OPS[kind], (reduced, start))

    def reduce_window(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        if len(operands) != 2:
            raise _Refusal("a reduce-window of several operands")
        kind = region_kind(self.region(item), 0, 1)
        if kind is None:
            raise _Refusal("a reduce-window with a region of its own")
        return self.emit(item, "reduce_window", operands, window=item.window, kind=kind)

    def select_and_scatter(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        x, source, init = map(self.index, operands)
        select = self.region(item)
        root = select.nodes[select.outputs[0]]
        is_first_best = root.op == "compare" and root.attributes["direction"] in ("GE", "LE")
        if not is_first_best or not _is_of_both_parameters(select, root):
            raise _Refusal("a selection by window that is not of the first largest or smallest element")
        if region_kind(self.region(item, 1), 0, 1) != "sum":
            raise _Refusal("a selection by window whose elements are not added")
        if not self.dtype_of(x).is_float or root.attributes["total_order"]:
            raise _Refusal("a selection by window of integers or in a total order")
        if not selections.is_written_out(item.window):
            raise _Refusal("a selection by a large or dilated window")
        direction = str(root.attributes["direction"])
        found = selections.select_and_scatter(self.builder, x, source, item.window, direction)
        return self.start_from(item, self.as_stated(item, found), "sum", init)

    # -- indexed --

    def gather(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        if item.batching_dims or item.gather is None:
            raise _Refusal("a gather with batching dimensions")
        return self.emit(item, "gather", operands, gather=item.gather)

    def scatter(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        if item.batching_dims or item.scatter is None:
            raise _Refusal("a scatter with batching dimensions")
        if len(operands) != 3:
            raise _Refusal("a scatter of several operands")
        body = self.region(item)
        x, indices, updates = operands
        kind = region_kind(body, 0, 1)
        root = body.nodes[body.outputs[0]]
        if kind is None and root.op == "parameter":
            if root.attributes["number"] == 0:
                return x
            kind = "replace"
        if kind is None and root.op == "subtract" and _is_of_both_parameters(body, root):
            kind, updates = "sum", self.emit(item, "negate", (updates,))
        if kind is None:
            raise _Refusal("a scatter with a region of its own")
        return self.emit(item, "scatter", (x, indices, updates), scatter=item.scatter, kind=kind)

    def starts(self, item: HloInstruction, operands: list[HloValue], rank: int) -> list[HloValue]:
        """The start indices as scalars; an older form of HLO has them in one vector."""
        if len(operands) == 1 and self.shape_of(operands[0]) == (rank,) and rank:
            vector = operands[0]
            found: list[HloValue] = []
            for i in range(rank):
                one = self.emit(item, "slice", (vector,), start=(i,), limit=(i + 1,), strides=(1,))
                found.append(self.emit(item, "reshape", (one,), shape=()))
            return found
        return operands

    def dynamic_slice(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        starts = self.starts(item, operands[1:], len(self.shape_of(operands[0])))
        return self.emit(item, "dynamic_slice", (operands[0], *starts), sizes=item.dynamic_slice_sizes)

    def dynamic_update_slice(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        starts = self.starts(item, operands[2:], len(self.shape_of(operands[0])))
        return self.emit(item, "dynamic_update_slice", (*operands[:2], *starts))

    # -- composites --

    def batch_norm_training(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        x, scale, offset = map(self.index, operands)
        return composites.batch_norm_training(self.builder, x, scale, offset, item.epsilon, item.feature_index)

    def batch_norm_inference(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        x, scale, offset, mean, variance = map(self.index, operands)
        return composites.batch_norm_inference(
            self.builder, x, scale, offset, mean, variance, item.epsilon, item.feature_index
        )

    def refuse_narrow(self, item: HloInstruction, what: str, operands: tuple[int, int]) -> None:
        """Refuses sums of products in other dtypes than float32 and float64: their terms are rounded, or summed in another dtype."""
        dtype = _dtype(item.shape)
        if {*map(self.dtype_of, operands), dtype} - {DType.F32, DType.F64}:
            raise _Refusal(f"{what} of {self.dtype_of(operands[0]).value} in {dtype.value}")

    def as_stated(self, item: HloInstruction, found: int) -> int:
        """Node `found`, if it has the instruction's shape."""
        if self.shape_of(found) != item.shape.dimensions:
            raise _Refusal(f"a {item.opcode} of shape {item.shape}, whose operands give {self.shape_of(found)}")
        return found

    def dot(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        lhs, rhs = map(self.index, operands)
        shapes = self.shape_of(lhs), self.shape_of(rhs)
        if item.dot is None or not item.dot.fits(*shapes):
            raise _Refusal(f"a dot whose dimensions do not fit {shapes[0]} and {shapes[1]}")
        is_memory_bound = composites.is_memory_bound(*shapes, item.dot)
        if not is_memory_bound and not composites.is_compiled(*shapes, item.dot):
            raise _Refusal(_REASONS["dot"])
        self.refuse_narrow(item, "a matrix product", (lhs, rhs))
        write = composites.dot if is_memory_bound else composites.product
        return self.as_stated(item, write(self.builder, lhs, rhs, item.dot))

    def convolution(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        lhs, rhs = map(self.index, operands)
        shapes = self.shape_of(lhs), self.shape_of(rhs)
        if item.convolution is None:
            raise _Refusal("a convolution with a reversed window")
        if not item.convolution.fits(*shapes, item.window):
            raise _Refusal(f"a convolution whose dimensions do not fit {shapes[0]} and {shapes[1]}")
        if not convolutions.is_depthwise(*shapes, item.convolution):
            raise _Refusal(_REASONS["convolution"])
        self.refuse_narrow(item, "a convolution", (lhs, rhs))
        found = convolutions.depthwise(self.builder, lhs, rhs, item.convolution, item.window, item.shape.dimensions)
        return self.as_stated(item, found)

    def batch_norm_gradient(self, item: HloInstruction, operands: list[HloValue]) -> HloValue:
        x, scale, mean, variance, gradient = map(self.index, operands)
        return composites.batch_norm_gradient(
            self.builder, x, scale, mean, variance, gradient, item.epsilon, item.feature_index
        )


SUPPORTED_OPCODES: Final = frozenset(_Importer(HloModule("", {}, "")).handlers) - {"dot", "convolution"}
"""Opcodes that the importer knows in some form. A whole step is split at each dot and convolution, whatever its extents."""


def region_kind(body: Graph, result: int, count: int) -> str | None:
    """The REDUCE_KINDS word for result `result` of a reduction region with 2 * `count` parameters: the kind of `op(accumulator,
    value)` of the result's own two parameters, in either order. Converts between floats are ignored (a bf16 sum promoted to f32).
    None if the region has another form."""

    def through_converts(index: int) -> int:
        node = body.nodes[index]
        while node.op == "convert" and node.dtype.is_float and body.nodes[node.operands[0]].dtype.is_float:
            index = node.operands[0]
            node = body.nodes[index]
        return index

    root = body.nodes[through_converts(body.outputs[result])]
    kind = _REGION_KINDS.get(root.op)
    if kind is None or kind not in REDUCE_KINDS:
        return None
    numbers = [body.nodes[through_converts(operand)].attributes.get("number") for operand in root.operands]
    return kind if sorted(map(str, numbers)) == sorted((str(result), str(result + count))) else None


def _is_of_both_parameters(body: Graph, node: Node) -> bool:
    """Whether a node's operands are a region's two parameters, in order."""
    return [body.nodes[operand].attributes.get("number") for operand in node.operands] == [0, 1]


def _dtype(shape: HloShape) -> DType:
    try:
        found = DType(shape.element_type)
    except ValueError:
        raise _Refusal(f"element type {shape.element_type}") from None
    if not found.is_available:
        raise _Refusal(f"element type {found.value}, which needs the package ml_dtypes")
    return found


def _columns(rows: Sequence[Sequence[int]], width: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row[i] for row in rows) for i in range(width))
