"""Reads a serialized HloModuleProto, which `experimental_get_compiler_ir(...)(stage="hlo_serialized")` and
`jax.jit(f).lower(...)` give.

The messages are a wire-compatible subset of XLA's `hlo.proto` and `xla_data.proto` (with the same field numbers). They are
described in Python under a package name of our own, so that TensorFlow's generated classes and their registry are not
touched. A descriptor made at import works with every protobuf runtime from 3.20 to 5; generated modules are tied to the
version that generated them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ..ir.graph import BFLOAT16, Array, GatherDimensions, WindowDimension
from .module import (
    ConvolutionDimensions,
    DotDimensions,
    HloComputation,
    HloImportError,
    HloInstruction,
    HloModule,
    HloShape,
)

_PACKAGE: Final = "stitchfleet.hlo"

# Message -> "name number type". The type is one of the scalars below or a message of this table; `*` before it: repeated.
_MESSAGES: Final[Mapping[str, Sequence[str]]] = {
    "Layout": ("minor_to_major 1 *int64",),
    "Shape": (
        "element_type 2 int32",
        "dimensions 3 *int64",
        "tuple_shapes 4 *Shape",
        "layout 5 Layout",
        "is_dynamic_dimension 6 *bool",
    ),
    "ProgramShape": ("parameters 1 *Shape", "result 2 Shape"),
    "Literal": (
        "shape 1 Shape",
        "preds 2 *bool",
        "s8s 15 bytes",
        "u8s 3 bytes",
        "s32s 4 *int32",
        "s64s 5 *int64",
        "u32s 6 *uint32",
        "u64s 7 *uint64",
        "f32s 8 *float",
        "f64s 9 *double",
        "f16s 11 bytes",
        "bf16s 13 bytes",
        "u16s 16 bytes",
        "s16s 17 bytes",
    ),
    "WindowDimension": (
        "size 1 int64",
        "stride 2 int64",
        "padding_low 3 int64",
        "padding_high 4 int64",
        "window_dilation 5 int64",
        "base_dilation 6 int64",
        "window_reversal 7 bool",
    ),
    "Window": ("dimensions 1 *WindowDimension",),
    "SliceDimensions": ("start 1 int64", "limit 2 int64", "stride 3 int64"),
    "PaddingDimension": ("low 1 int64", "high 2 int64", "interior 3 int64"),
    "Padding": ("dimensions 1 *PaddingDimension",),
    "IndexNumbers": (  # GatherDimensionNumbers and ScatterDimensionNumbers have the same fields under two sets of names
        "window_dims 1 *int64",
        "collapsed_dims 2 *int64",
        "index_map 3 *int64",
        "index_vector_dim 4 int64",
        "batching_dims 5 *int64",
    ),
    "ConvolutionNumbers": (
        "rhs_input_feature 3 int64",
        "rhs_output_feature 4 int64",
        "rhs_spatial 6 *int64",
        "lhs_batch 7 int64",
        "lhs_feature 8 int64",
        "result_batch 9 int64",
        "result_feature 10 int64",
        "lhs_spatial 11 *int64",
        "result_spatial 12 *int64",
    ),
    "DotNumbers": ("lhs_summed 1 *int64", "rhs_summed 2 *int64", "lhs_batch 3 *int64", "rhs_batch 4 *int64"),
    "Metadata": ("op_type 1 string", "op_name 2 string"),
    "Instruction": (
        "name 1 string",
        "opcode 2 string",
        "shape 3 Shape",
        "metadata 7 Metadata",
        "literal 8 Literal",
        "parameter_number 9 int64",
        "tuple_index 13 int64",
        "dimensions 14 *int64",
        "window 15 Window",
        "convolution_dimension_numbers 16 ConvolutionNumbers",
        "slice_dimensions 17 *SliceDimensions",
        "exponent_bits 18 int32",
        "mantissa_bits 19 int32",
        "dynamic_slice_sizes 20 *int64",
        "padding_config 21 Padding",
        "epsilon 24 float",
        "feature_index 25 int64",
        "custom_call_target 28 string",
        "dot_dimension_numbers 30 DotNumbers",
        "gather_dimension_numbers 33 IndexNumbers",
        "gather_slice_sizes 34 *int64",
        "id 35 int64",
        "operand_ids 36 *int64",
        "called_computation_ids 38 *int64",
        "scatter_dimension_numbers 48 IndexNumbers",
        "feature_group_count 50 int64",
        "batch_group_count 58 int64",
        "comparison_direction 63 string",
        "rng_algorithm 70 int32",
        "comparison_type 72 string",
    ),
    "Computation": ("name 1 string", "instructions 2 *Instruction", "id 5 int64", "root_id 6 int64"),
    "Module": (
        "name 1 string",
        "entry_computation_name 2 string",
        "computations 3 *Computation",
        "host_program_shape 4 ProgramShape",
        "entry_computation_id 6 int64",
    ),
}

ELEMENT_TYPES: Final[Mapping[int, str]] = {
    1: "pred",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    12: "f64",
    13: "tuple",
    14: "opaque",
    15: "c64",
    16: "bf16",
    17: "token",
    18: "c128",
}
"""xla_data.proto's PrimitiveType, as far as shapes of it occur; other types are named by their number."""

_LITERAL_FIELDS: Final[Mapping[str, tuple[str, Any]]] = {
    "pred": ("preds", np.bool_),
    "s8": ("s8s", np.int8),
    "s16": ("s16s", np.dtype("<i2")),
    "s32": ("s32s", np.int32),
    "s64": ("s64s", np.int64),
    "u8": ("u8s", np.uint8),
    "u16": ("u16s", np.dtype("<u2")),
    "u32": ("u32s", np.uint32),
    "u64": ("u64s", np.uint64),
    "f16": ("f16s", np.dtype("<f2")),
    # Without its dtype the bits are kept, for a value that no graph takes.
    "bf16": ("bf16s", np.dtype("<u2") if BFLOAT16 is None else BFLOAT16),
    "f32": ("f32s", np.float32),
    "f64": ("f64s", np.float64),
}


@functools.cache
def _module_class() -> Any:
    """The message class of a module; it is made once."""
    file = descriptor_pb2.FileDescriptorProto(name="stitchfleet_hlo.proto", package=_PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _MESSAGES.items():
        entry = file.message_type.add(name=message)
        for line in fields:
            name, number, kind = line.split()
            field = entry.field.add(name=name, number=int(number))
            field.label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if not hasattr(pool, "AddSerializedFile") else pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.Module")
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and later
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


def read_hlo_proto(data: bytes) -> HloModule:
    """The module in `data`, a serialized HloModuleProto. Raises HloImportError if `data` is not one."""
    message = _module_class()()
    try:
        message.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        raise HloImportError(f"not a serialized HloModuleProto: {error}") from None
    if not message.computations:
        raise HloImportError(f"not a serialized HloModuleProto: no computations in {len(data)} bytes")
    names = {computation.id: computation.name for computation in message.computations}
    computations = {item.name: _computation(item, names) for item in message.computations}
    entry = message.entry_computation_name or names.get(message.entry_computation_id, "")
    if entry not in computations:
        raise HloImportError(
            f"HLO module {message.name}: given entry computation {entry!r}, expected one of the module's"
        )
    layout = _shape(message.host_program_shape.result) if message.HasField("host_program_shape") else None
    return HloModule(message.name, computations, entry, layout)


def _computation(message: Any, computation_names: Mapping[int, str]) -> HloComputation:
    # XLA prints names that are unique in a module, but operands refer to ids only.
    names = {item.id: f"{item.name}#{item.id}" for item in message.instructions}
    find = functools.partial(_find, message.name)
    instructions = {names[item.id]: _instruction(item, names, computation_names, find) for item in message.instructions}
    return HloComputation(message.name, instructions, find(names, message.root_id))


_RNG_ALGORITHMS: Final = {0: "rng_default", 1: "rng_three_fry", 2: "rng_philox"}


def _find(computation: str, names: Mapping[int, str], wanted: int) -> str:
    if wanted not in names:
        raise HloImportError(
            f"HLO computation {computation}: given a reference to id {wanted}, expected an existing one"
        )
    return names[wanted]


def _instruction(
    item: Any,
    names: Mapping[int, str],
    computation_names: Mapping[int, str],
    find: Callable[[Mapping[int, str], int], str],
) -> HloInstruction:
    gather, scatter, dot = item.gather_dimension_numbers, item.scatter_dimension_numbers, item.dot_dimension_numbers
    return HloInstruction(
        name=names[item.id],
        opcode=item.opcode,
        shape=_shape(item.shape),
        operands=tuple(find(names, operand) for operand in item.operand_ids),
        called=tuple(find(computation_names, called) for called in item.called_computation_ids),
        literal=_literal(item.literal, item.name) if item.HasField("literal") else None,
        parameter_number=item.parameter_number,
        tuple_index=item.tuple_index,
        dimensions=tuple(item.dimensions),
        slices=tuple((s.start, s.limit, s.stride) for s in item.slice_dimensions),
        padding=tuple((p.low, p.high, p.interior) for p in item.padding_config.dimensions),
        window=tuple(
            WindowDimension(w.size, w.stride, w.padding_low, w.padding_high, w.window_dilation, w.base_dilation)
            for w in item.window.dimensions
        ),
        dynamic_slice_sizes=tuple(item.dynamic_slice_sizes),
        gather=_numbers(gather, item.gather_slice_sizes) if item.HasField("gather_dimension_numbers") else None,
        scatter=_numbers(scatter, ()) if item.HasField("scatter_dimension_numbers") else None,
        dot=DotDimensions((tuple(dot.lhs_summed), tuple(dot.rhs_summed)), (tuple(dot.lhs_batch), tuple(dot.rhs_batch)))
        if item.opcode == "dot"
        else None,
        convolution=_convolution(item) if item.opcode == "convolution" else None,
        batching_dims=bool(gather.batching_dims or scatter.batching_dims),
        direction=item.comparison_direction,
        total_order=item.comparison_type == "TOTALORDER",
        epsilon=item.epsilon,
        feature_index=item.feature_index,
        exponent_bits=item.exponent_bits,
        mantissa_bits=item.mantissa_bits,
        custom_call_target=item.custom_call_target,
        rng_algorithm=_RNG_ALGORITHMS.get(item.rng_algorithm, f"algorithm {item.rng_algorithm}")
        if item.opcode == "rng-bit-generator"
        else "",
        op_type=item.metadata.op_type,
        op_name=item.metadata.op_name,
    )


def _convolution(item: Any) -> ConvolutionDimensions | None:
    if any(dimension.window_reversal for dimension in item.window.dimensions):
        return None
    numbers = item.convolution_dimension_numbers
    return ConvolutionDimensions(
        (numbers.lhs_batch, numbers.lhs_feature, tuple(numbers.lhs_spatial)),
        (numbers.rhs_input_feature, numbers.rhs_output_feature, tuple(numbers.rhs_spatial)),
        (numbers.result_batch, numbers.result_feature, tuple(numbers.result_spatial)),
        item.feature_group_count or 1,
        item.batch_group_count or 1,
    )


def _numbers(numbers: Any, slice_sizes: Sequence[int]) -> GatherDimensions:
    return GatherDimensions(
        tuple(numbers.window_dims),
        tuple(numbers.collapsed_dims),
        tuple(numbers.index_map),
        numbers.index_vector_dim,
        tuple(slice_sizes),
    )


def _shape(message: Any) -> HloShape:
    return HloShape(
        ELEMENT_TYPES.get(message.element_type, f"type{message.element_type}"),
        tuple(message.dimensions),
        tuple(message.layout.minor_to_major) if message.HasField("layout") else None,
        tuple(_shape(part) for part in message.tuple_shapes),
        any(message.is_dynamic_dimension),
    )


def _literal(message: Any, name: str) -> Array | None:
    """The constant's value; None for a dtype that kernels do not support (the importer then reports it)."""
    shape = _shape(message.shape)
    if shape.element_type not in _LITERAL_FIELDS:
        return None
    field, dtype = _LITERAL_FIELDS[shape.element_type]
    stored = getattr(message, field)
    flat: Array = np.frombuffer(stored, dtype) if isinstance(stored, bytes) else np.array(stored, dtype)
    count = int(np.prod(shape.dimensions, dtype=np.int64))
    if flat.size != count:
        raise HloImportError(f"HLO constant {name}: given {flat.size} elements, expected {count} for {shape}")
    if shape.minor_to_major is None or shape.is_row_major:
        return flat.reshape(shape.dimensions)
    if sorted(shape.minor_to_major) != list(range(len(shape.dimensions))):
        raise HloImportError(f"HLO constant {name}: given layout {shape.minor_to_major}, expected an order of {shape}")
    # The elements are stored in another order: reshape with the major dimension first, then transpose back.
    major_to_minor = tuple(reversed(shape.minor_to_major))
    physical = flat.reshape([shape.dimensions[dimension] for dimension in major_to_minor])
    return np.ascontiguousarray(physical.transpose(np.argsort(major_to_minor)))
