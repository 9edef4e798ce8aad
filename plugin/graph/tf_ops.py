"""Which TensorFlow operators may lie in a cluster, as data: one row an operator.

A row says which operands must be known as *values* to lower the operator to HLO (XLA's "compile-time constants": shapes, axes,
permutations), whether the operator only renames a buffer, and whether it reads only its operand's shape. What is not in the table
stays in TensorFlow, with the reason that `why_not` gives.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpRule:
    """How one TensorFlow operator takes part.

    values: operand positions whose values lowering needs; negative positions count from the end.
    free: the result is the operand's buffer under another shape: no work in TensorFlow, so not worth a kernel of its own.
    shape_only: depends on its operands' shapes, not on their elements.
    weight: how many element-wise operators it stands for; 0 for those that compute nothing.
    dtypes: of the results, where not all that kernels have will do (TensorFlow's DataType numbers).
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
"""Operators whose results have their operands' shape (or the one that these broadcast to)."""

RANDOM_UNIFORM = "StatelessRandomUniformV2"
"""Inputs shape, key, counter, algorithm. XLA would draw other numbers: the compiler gets it spelled out (clusters/bodies.py)."""

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
    **_rows("Transpose ReverseV2 Tile BroadcastTo Pad", OpRule(values=(1,))),
    **_rows("PadV2 MirrorPad", OpRule(values=(1,))),
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
    # TensorFlow's kernel rounds each sum of halves to a half, XLA's lowering only the results.
    **_rows("Cumsum Cumprod", OpRule(values=(1,), weight=2, dtypes=frozenset((1, 2, 3, 4, 5, 6, 9, 17, 22, 23)))),
    **_rows("InvertPermutation", OpRule(values=(0,), weight=0)),
    **_rows("MaxPool AvgPool", OpRule(weight=4)),
    "AvgPoolGrad": OpRule(values=(0,), weight=4),
    # What these demand of their indices: demands.py.
    "GatherV2": OpRule(values=(2,)),
    "ResourceGather": _ELEMENT,
    **_rows(
        "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin", OpRule(values=(2,), weight=2)
    ),
    RANDOM_UNIFORM: OpRule(values=(0, 3), weight=6, dtypes=frozenset((1,))),
    **_rows("MatrixBandPart MatrixSetDiagV3 MatrixDiagPartV3", OpRule(weight=1)),
}
# Const is a member only as a copy inside a cluster, and only when small.
MAX_CONST_BYTES = 1024

# numpy-like element types that kernels have: TensorFlow's DataType numbers of f32 f64 s32 u8 s16 s8 s64 bool bf16 u16 f16 u32 u64.
KERNEL_DTYPES = frozenset((1, 2, 3, 4, 5, 6, 9, 10, 14, 17, 19, 22, 23))

PRODUCT = "matrix product or convolution"
UNCOUNTED = frozenset(("Const", "_Arg", "_Retval", "NoOp"))
"""Operators that nobody misses in a cluster: no work, nor a place where work could be."""
_COMPUTE = frozenset(
    (
        "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 _FusedMatMul _FusedBatchMatMulV2 "
        "_MklFusedBatchMatMulV2 _MklMatMul Conv2D Conv3D _FusedConv2D DepthwiseConv2dNative "
        "Conv2DBackpropInput Conv2DBackpropFilter Einsum"
    ).split()
)
_PLUMBING = frozenset(
    (
        "NoOp Placeholder PlaceholderWithDefault Const _Arg _Retval _Send _Recv _HostSend _HostRecv Switch "
        "Merge Enter Exit NextIteration LoopCond RefSwitch RefMerge RefEnter RefExit ControlTrigger"
    ).split()
)


def why_not(op: str, stateful: bool) -> str:
    """The reason, for people, why an operator without a row stays in TensorFlow."""
    if op in _COMPUTE:
        return PRODUCT
    if op in _PLUMBING:
        return "control flow or plumbing"
    if op.startswith("Horovod"):
        return "Horovod collective"
    if op.startswith(("Random", "Stateless", "Truncated", "Parameterized", "StitchfleetRandom", "Multinomial")):
        return "random numbers"
    if op.startswith(("ReadVariableOp", "Assign", "VarHandle", "Resource", "Apply", "VariableV2", "VarIsInit")):
        return "reads or writes a variable"
    if stateful:
        return "has state or effects"
    return "no row in the operator table"
