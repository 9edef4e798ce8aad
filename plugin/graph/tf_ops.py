"""Which TensorFlow operators may be in a cluster: a table with one row per operator.

A row says which operands must be known as *values* to lower the operator to HLO (XLA's "compile-time constants": shapes, axes,
permutations), whether the operator only renames a buffer, and whether it reads only its operand's shape. An operator without a row
stays in TensorFlow, for the reason that `why_not` returns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from ..base.dtypes import DT_BFLOAT16, DT_FLOAT, DT_HALF, FLOATS, INTEGERS, WIDE_FLOATS
from ..base.op_names import READ_VARIABLE, RESOURCE_GATHER

MEMORY_BOUND: Final = "_stitchfleet_memory_bound"
"""Attribute of a product that a cluster may have (memory_bound.py, small_products.py), in a prepared graph."""


@dataclass(frozen=True)
class OpRule:
    """A row of the operator table.

    values: positions of the operands whose values lowering needs; negative positions count from the end.
    free: the result is the operand's buffer with another shape. It costs nothing in TensorFlow, so it is not worth a kernel.
    shape_only: the result depends on the operands' shapes, not on their elements.
    weight: the number of element-wise operators that it counts as; 0 if it computes nothing.
    dtypes: the result dtypes that are supported (DataType numbers); None: all of base.dtypes.KERNEL_DTYPES.
    """

    values: tuple[int, ...] = ()
    free: bool = False
    shape_only: bool = False
    weight: int = 1
    dtypes: frozenset[int] | None = None


def _rows(names: str, rule: OpRule) -> dict[str, OpRule]:
    return dict.fromkeys(names.split(), rule)


_ELEMENT = OpRule()
_AXIS_LAST = OpRule(values=(1,), weight=2)

_UNARY = (
    "Abs Neg Sign Exp Expm1 Log Log1p Sqrt Rsqrt Sin Cos Tan Tanh Sigmoid Floor Ceil Rint Round Reciprocal Inv Square "
    "Erf Erfc Sinh Cosh Asinh Acosh Atanh Atan Asin Acos Relu Relu6 Elu Selu LeakyRelu Softplus Softsign "
    "LogicalNot IsFinite IsInf IsNan Invert Cast Bitcast"
)
_BINARY = (
    "Add AddV2 Sub Mul Div RealDiv DivNoNan MulNoNan FloorDiv FloorMod TruncateDiv TruncateMod Mod Maximum Minimum Pow "
    "SquaredDifference Atan2 Xdivy Xlogy Xlog1py LogicalAnd LogicalOr BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift "
    "Equal NotEqual Less LessEqual Greater GreaterEqual ApproximateEqual Select SelectV2 ClipByValue AddN "
    "TanhGrad SigmoidGrad RsqrtGrad SqrtGrad InvGrad ReciprocalGrad ReluGrad Relu6Grad EluGrad SeluGrad LeakyReluGrad "
    "SoftplusGrad SoftsignGrad"
)
ELEMENT_WISE = frozenset([*_UNARY.split(), *_BINARY.split(), "Identity"]) - {"Bitcast"}
"""Operators whose result has the shape that its operands broadcast to."""

RANDOM_UNIFORM = "StatelessRandomUniformV2"
"""Inputs: shape, key, counter, algorithm. XLA draws other numbers, so the compiled body has other nodes for it
(clusters/bodies.py)."""
UNIFORM_BITS: Final = {DT_FLOAT: 23, DT_HALF: 10, DT_BFLOAT16: 7}
"""A DataType that kernels draw uniform numbers of -> the lowest bits of a random word that make a number in [0, 1): those of its
mantissa, as in TensorFlow's random_distributions_utils.h. float64 takes two words."""

RULES: dict[str, OpRule] = {
    **_rows(_UNARY, _ELEMENT),
    **_rows(_BINARY, _ELEMENT),
    **_rows("BiasAdd", _ELEMENT),
    **_rows("Sum Mean Prod Max Min All Any ArgMax ArgMin", _AXIS_LAST),
    **_rows("BiasAddGrad L2Loss", OpRule(weight=2)),
    **_rows("Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits", OpRule(weight=5)),
    **_rows(
        "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3",
        OpRule(weight=6),
    ),
    **_rows("Reshape ExpandDims", OpRule(values=(1,), free=True, weight=0)),
    **_rows("Squeeze Identity Snapshot StopGradient PreventGradient", OpRule(free=True, weight=0)),
    **_rows("Shape Size Rank ShapeN", OpRule(shape_only=True, weight=0)),
    **_rows("ZerosLike OnesLike", OpRule(shape_only=True)),
    **_rows("BroadcastGradientArgs BroadcastArgs", OpRule(values=(0, 1), weight=0)),
    # A transpose is worth a kernel of its own: TensorFlow's takes 2 to 8 times as long (--kernels-cpu).
    **_rows("Transpose", OpRule(values=(1,), weight=2)),
    **_rows("ReverseV2 Tile BroadcastTo Pad", OpRule(values=(1,))),
    **_rows("PadV2 MirrorPad MirrorPadGrad", OpRule(values=(1,))),
    **_rows("SpaceToBatchND BatchToSpaceND Roll", OpRule(values=(1, 2))),
    **_rows("SpaceToDepth DepthToSpace", _ELEMENT),
    **_rows("Slice", OpRule(values=(1, 2))),
    **_rows("StridedSlice", OpRule(values=(1, 2, 3))),
    **_rows("StridedSliceGrad", OpRule(values=(0, 1, 2, 3))),
    **_rows("ConcatV2", OpRule(values=(-1,))),
    **_rows("Pack Unpack", _ELEMENT),
    **_rows("Split", OpRule(values=(0,))),
    **_rows("SplitV", OpRule(values=(1, 2))),
    **_rows("Fill", OpRule(values=(0,))),
    **_rows("Range", OpRule(values=(0, 1, 2))),
    **_rows("OneHot", OpRule(values=(1,))),
    # In half precision TensorFlow's kernel rounds each partial sum, XLA's lowering only the results.
    **_rows("Cumsum Cumprod", OpRule(values=(1,), weight=2, dtypes=WIDE_FLOATS | INTEGERS)),
    **_rows("InvertPermutation", OpRule(values=(0,), weight=0)),
    **_rows("MaxPool AvgPool", OpRule(weight=4)),
    "MaxPoolGrad": OpRule(weight=8, dtypes=FLOATS),
    "DepthwiseConv2dNative": OpRule(weight=8, dtypes=WIDE_FLOATS),
    "DepthwiseConv2dNativeBackpropInput": OpRule(values=(0,), weight=8, dtypes=WIDE_FLOATS),
    "DepthwiseConv2dNativeBackpropFilter": OpRule(values=(1,), weight=8, dtypes=WIDE_FLOATS),
    "AvgPoolGrad": OpRule(values=(0,), weight=4),
    # clusters/demands.py has their demands on the indices.
    "GatherV2": OpRule(values=(2,)),
    RESOURCE_GATHER: _ELEMENT,
    "GatherNd": OpRule(weight=2),
    "ScatterNd": OpRule(values=(2,), weight=2),
    **_rows(
        "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin", OpRule(values=(2,), weight=2)
    ),
    RANDOM_UNIFORM: OpRule(values=(0, 3), weight=6, dtypes=frozenset(UNIFORM_BITS)),
    **_rows("MatrixBandPart MatrixSetDiagV3 MatrixDiagPartV3", OpRule(weight=1)),
    "MatrixDiagV3": OpRule(values=(1, 2, 3)),
}
_MEMORY_BOUND = OpRule(weight=2)
_CAST_OF_HALVES = OpRule(weight=2)
"""Worth a kernel of its own, as a weight of Keras' mixed precision has it in each step: TensorFlow's takes two to three times as
long."""
RESIZE_EXTENTS: Final = "_stitchfleet_resize"
"""Attribute of a resize in a prepared graph whose extents are known: height and width of the image, then of the result
(clusters/resizes.py)."""
_RESIZES = {
    "ResizeNearestNeighbor": OpRule(values=(1,), weight=4),
    "ResizeNearestNeighborGrad": OpRule(values=(1,), weight=4, dtypes=WIDE_FLOATS),
    "ResizeBilinear": OpRule(values=(1,), weight=8),
    "ResizeBilinearGrad": OpRule(weight=8, dtypes=frozenset((DT_FLOAT,))),
}
RESIZES: Final = tuple(_RESIZES)


def rule_of(node: Any) -> OpRule | None:
    """The row of a NodeDef's operator; of a matrix product only if it is marked as memory-bound, of a resize only if its
    extents are known."""
    if MEMORY_BOUND in node.attr:
        return _MEMORY_BOUND
    if node.op in _RESIZES:
        return _RESIZES[node.op] if RESIZE_EXTENTS in node.attr else None
    if node.op == "Cast" and {DT_BFLOAT16, DT_HALF} & {int(node.attr["SrcT"].type), int(node.attr["DstT"].type)}:
        return _CAST_OF_HALVES
    return RULES.get(node.op)


# A Const is copied into the clusters that read it if its TensorProto has at most so many bytes.
MAX_CONST_BYTES = 1024

PRODUCT = "matrix product or convolution"
COMPILED_BY_XLA = "compiled whole by XLA (jit_compile=True)"
UNCOUNTED = frozenset(("Const", "_Arg", "_Retval", "NoOp"))
"""Operators that are not counted as left out: they compute nothing."""
_PRODUCT = re.compile(
    r"MatMul|(?<!Depthwise)Conv[123][Dd]|Einsum"  # fused ones and oneDNN's as well: _MklNativeFusedMatMul
    r"|LSTM|GRUBlock|RNN"  # a whole recurrent layer, with its products
    r"|Cholesky|TriangularSolve|MatrixSolve|MatrixInverse|Determinant|MatrixLogarithm|MatrixSquareRoot|Eig|^(Svd|Qr|Lu)$"
)
_PLUMBING = frozenset(
    (
        "NoOp Placeholder PlaceholderWithDefault Const _Arg _Retval _Send _Recv _HostSend _HostRecv Switch "
        "Merge Enter Exit NextIteration LoopCond RefSwitch RefMerge RefEnter RefExit ControlTrigger"
    ).split()
)


def is_product(op: str) -> bool:
    """Whether an operator does its work in matrix products, convolutions or a library's dense linear algebra, which are limited by
    arithmetic. op: its name in a graph or a profile."""
    return bool(_PRODUCT.search(op))


def is_compiled_by_xla(attributes: Any) -> bool:
    """Whether a call or a function is compiled as a whole by XLA, since the job asks for it. attributes: the `attr` of its NodeDef or
    FunctionDef."""
    return "_XlaMustCompile" in attributes and bool(attributes["_XlaMustCompile"].b)


def why_not(op: str, stateful: bool) -> str:
    """The reason, for people, why an operator without a row stays in TensorFlow."""
    if is_product(op):
        return PRODUCT
    if op in _PLUMBING:
        return "control flow or plumbing"
    if op.startswith("Horovod"):
        return "Horovod collective"
    if op.startswith(("Random", "Stateless", "Truncated", "Parameterized", "StitchfleetRandom", "Multinomial")):
        return "random numbers"
    if op.startswith((READ_VARIABLE, "Assign", "VarHandle", "Resource", "Apply", "VariableV2", "VarIsInit")):
        return "reads or writes a variable"
    if stateful:
        return "has state or effects"
    if op in _RESIZES:
        return "its extents are not known before the job runs"
    return "no row in the operator table"
