"""`scripts/bench --products`: the matrix products and convolutions of steps, compared with the machine's arithmetic.

A workload's step is profiled plain and stitched, as for --coverage. Each product is then called by itself, on random data of its
shapes, to see how many threads TensorFlow gives it. Its least time is the longer of two: its operations at the speed of all cores'
arithmetic (measured from registers), and its operands and result at the bandwidth of a copy. The share of the peak is the first of
these divided by the product's time in the step.

How to read it: "to gain" is what the product's time in the stitched step exceeds its least time by, if that is taken at 85% of the
peak, which the best libraries reach. It is a bound, not a promise, and too high if two products run side by side. A product above
85% of the peak has nothing to gain from another kernel, whatever its share of the step.

columns:
  runs       of the product in a step, over all nodes with its shapes
  us         of one run: in the plain step; in the stitched step ("-": within a loop that a stitch op runs); by itself
  threads    processor time by itself divided by its wall time
  peak       share of all cores' arithmetic in the plain step
  to gain    ms per step
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from stitchfleet.compiler.toolchain.host import ToolchainError
from stitchfleet.plugin.graph.tf_ops import is_product

from ..zoo.environments import ZooError
from . import arithmetic, machine
from .arithmetic import Arithmetic
from .contestants import ROOT, WORKLOADS, UnknownNameError, Workload, find_workload, kernels_of, zoo_workloads
from .coverage import record
from .processes import watched
from .progress import say
from .race import ContestantError, Limits, installed
from .trace import NodeTime

ALONE = pathlib.Path(__file__).with_name("products_alone.py")
REACHABLE: Final = 0.85
"""Share of the peak that the best libraries reach on large matrices."""
FORMAT: Final = 1
_OPERAND = re.compile(r"(\w+)\[([\d,]*)\]")
_BYTES = {"float": 4, "double": 8, "bfloat16": 2, "half": 2, "complex64": 8, "complex128": 16, "int32": 4, "int64": 8}
_ORDINARY = re.compile(r"^(Stitchfleet)?_?(Mkl)?(Native)?(Fused)?")
_DTYPES = {1: "float", 2: "double", 14: "bfloat16", 19: "half"}
_DECIDING = frozenset(
    "transpose_a transpose_b adj_x adj_y equation strides padding explicit_paddings dilations data_format".split()
)
"""Attributes that tell products of the same operands apart."""


@dataclass(frozen=True)
class Operand:
    """An input of a product. dtype: as TensorFlow's profile writes it, "float"."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * _BYTES.get(self.dtype, 4)


@dataclass(frozen=True)
class Product:
    """A product as TensorFlow runs it. op: the operator without the prefixes of oneDNN, a fusion or ours. attributes: those of its
    node that tell it from others, sorted by name, without those that are false; a list is a tuple here."""

    op: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    def attribute(self, name: str, default: Any = None) -> Any:
        return dict(self.attributes).get(name, default)


@dataclass(frozen=True)
class Work:
    """What a product must do. operations: a multiply-add counts as two. bytes: of operands and result."""

    operations: int
    bytes: int


@dataclass(frozen=True)
class Alone:
    """A product called by itself. us: median of a call. threads: processor time divided by wall time."""

    us: float
    threads: float


@dataclass(frozen=True)
class Row:
    """A product of a step. nodes: how many have its shapes. runs: per step, of all of them. plain_us: of a run in the plain step.
    stitched_us: of a run in the stitched step; None if the profile does not show it there. alone, work: None if not known."""

    product: Product
    nodes: int
    runs: float
    plain_us: float
    stitched_us: float | None
    alone: Alone | None
    work: Work | None

    def least_us(self, peak: float, bandwidth: float) -> float:
        """The least time of a run in microseconds. peak: operations per second. bandwidth: bytes per second."""
        return 0.0 if self.work is None else max(self.work.operations / peak, self.work.bytes / bandwidth) * 1e6

    def to_gain_ms(self, peak: float, bandwidth: float) -> float:
        """Milliseconds per step above the least time at REACHABLE of the peak."""
        if self.work is None:
            return 0.0
        now = self.plain_us if self.stitched_us is None else self.stitched_us
        return max(0.0, now - self.least_us(REACHABLE * peak, bandwidth)) * self.runs / 1e3


@dataclass(frozen=True)
class Step:
    """The products of a workload's step. wall_ms, product_wall_ms: of the stitched step, and the part in which a product runs."""

    workload: str
    rows: tuple[Row, ...]
    wall_ms: float
    product_wall_ms: float


# ---- shapes and work -----------------------------------------------------------------------------------------------


def operands_of(shapes: str) -> tuple[Operand, ...]:
    """The operands in a profile's text, "(float[64,36];float[36,72])"."""
    return tuple(
        Operand(dtype, tuple(int(extent) for extent in extents.split(",") if extent))
        for dtype, extents in _OPERAND.findall(shapes)
    )


def product_of(op: str, shapes: str, member: Mapping[str, Any]) -> Product:
    """The product of a node of the profile. member: {"attributes", "shapes"} of its node in the graph, as recorder.py writes them;
    its shapes are used if the profile has none, as TensorFlow 2.21's."""
    attributes = member.get("attributes", {})
    operands = operands_of(shapes)
    if not operands and None not in (static := member.get("shapes", [])):
        dtype = _DTYPES.get(attributes.get("T"), "float")
        operands = tuple(Operand(dtype, tuple(shape)) for shape in static)
    op = _ORDINARY.sub("", op)
    if op == "BatchMatMulSum":  # the product, added up (plugin/graph/batch_products.py)
        op, operands = "BatchMatMulV2", operands[:2]
    held = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in attributes.items()
        if value and (name in _DECIDING or name.startswith("input "))
    }
    return Product(op, operands, tuple(sorted(held.items())))


def work_of(product: Product) -> Work | None:
    """The work of a product; None for an operator that is not known here, such as a Cholesky decomposition."""
    sizes = None
    if all(extent >= 0 for operand in product.operands for extent in operand.shape):
        sizes = _result_and_depth(product)
    if sizes is None:
        return None
    result, depth = sizes
    floats = [operand for operand in product.operands if operand.dtype != "int32"]
    return Work(2 * result * depth, sum(o.bytes for o in floats[:2]) + result * _BYTES.get(floats[0].dtype, 4))


def _result_and_depth(product: Product) -> tuple[int, int] | None:
    """(elements of the result, multiply-adds for each of them)."""
    shapes = [operand.shape for operand in product.operands]
    with contextlib.suppress(IndexError, ValueError, KeyError, TypeError):
        if product.op == "MatMul":
            (m, k), n = (
                _turned(shapes[0], product.attribute("transpose_a")),
                _turned(shapes[1], product.attribute("transpose_b"))[1],
            )
            return m * n, k
        if product.op.startswith("BatchMatMul"):
            m, k = _turned(shapes[0][-2:], product.attribute("adj_x"))
            n = _turned(shapes[1][-2:], product.attribute("adj_y"))[1]
            first, second = shapes[0][:-2], shapes[1][:-2]
            longest = max(len(first), len(second))
            pairs = zip((1,) * (longest - len(first)) + first, (1,) * (longest - len(second)) + second, strict=True)
            return math.prod(max(pair) for pair in pairs) * m * n, k
        if product.op == "Einsum":
            return _einsum(product.attribute("equation"), shapes)
        if product.op in ("Conv2D", "Conv3D"):
            return _convolution(product, shapes[0], shapes[1])
        if product.op in (
            "Conv2DBackpropInput",
            "Conv3DBackpropInputV2",
        ):  # each element of dy meets each of the filter's
            return _gradient(shapes[1], shapes[2], product)
        if product.op in ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"):
            return _gradient(product.attribute("input 1"), shapes[2], product)
    return None


def _turned(shape: Sequence[int], transposed: bool | None) -> tuple[int, int]:
    rows, columns = shape
    return (columns, rows) if transposed else (rows, columns)


def _einsum(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Without an ellipsis; raises ValueError with one."""
    inputs, result = equation.replace(" ", "").split("->")
    if "." in equation:
        raise ValueError(equation)
    extents = {
        label: extent
        for labels, shape in zip(inputs.split(","), shapes, strict=True)
        for label, extent in zip(labels, shape, strict=True)
    }
    elements = math.prod(extents[label] for label in result)
    return elements, math.prod(extent for label, extent in extents.items() if label not in result)


def _spatial(product: Product, values: Sequence[int]) -> tuple[int, ...]:
    """The values of the spatial dimensions, of one value for each dimension of the image."""
    return tuple(values[2:] if str(product.attribute("data_format", "NHWC")).startswith("NC") else values[1:-1])


def _convolution(product: Product, image: Sequence[int], filter_shape: Sequence[int]) -> tuple[int, int]:
    """A convolution's image [batch, ..., channels] (or channels first) and filter [..., channels / groups, filters]."""
    strides = _spatial(product, product.attribute("strides"))
    dilations = _spatial(product, product.attribute("dilations") or (1,) * len(image))
    extents, taps = _spatial(product, image), filter_shape[:-2]
    padding = product.attribute("padding")
    if padding == "SAME":
        places = [-(-extent // stride) for extent, stride in zip(extents, strides)]
    else:
        around = product.attribute("explicit_paddings") or (0,) * (2 * len(image))
        pads = [a + b for a, b in zip(_spatial(product, around[::2]), _spatial(product, around[1::2]))]
        reach = [(tap - 1) * dilation + 1 for tap, dilation in zip(taps, dilations)]
        places = [(e + p - r) // s + 1 for e, p, r, s in zip(extents, pads, reach, strides)]
    return image[0] * math.prod(places) * filter_shape[-1], math.prod(filter_shape[:-1])


def _gradient(filter_shape: Sequence[int], gradient: Sequence[int], product: Product) -> tuple[int, int]:
    """A convolution's gradient does the convolution's multiply-adds: those of the result whose gradient it is given."""
    return math.prod(gradient), math.prod(filter_shape[:-1])


def title_of(product: Product) -> str:
    """A product in a few words: "MatMul 1024x256 . 256x1024", with ' after an operand that is transposed."""
    flags = [
        product.attribute(a) or product.attribute(b) for a, b in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    ]
    floats = [operand for operand in product.operands if operand.dtype != "int32"]
    marked = zip(floats[:2], (flags + [False] * len(floats)) if "MatMul" in product.op else [False] * len(floats))
    shapes = " . ".join(
        "x".join("?" if extent < 0 else str(extent) for extent in operand.shape) + "'" * bool(flag)
        for operand, flag in marked
    )
    extra = []
    if strides := product.attribute("strides"):
        extra += [f"/{'x'.join(map(str, _spatial(product, strides)))}"] if set(strides) != {1} else []
    if equation := product.attribute("equation"):
        extra.append(str(equation))
    if floats and floats[0].dtype != "float":
        extra.append(floats[0].dtype)
    return " ".join([product.op, shapes, *extra])


# ---- a step --------------------------------------------------------------------------------------------------------


def rows_of(
    plain: Iterable[NodeTime],
    stitched: Iterable[NodeTime],
    steps: tuple[int, int],
    members: Mapping[str, Mapping[str, Any]],
) -> list[Row]:
    """The products of both profiles, in the order of their time in the plain step. steps: how many each profile has. members: node ->
    {"attributes", "shapes"}, as recorder.py writes them. `alone` is None in each."""
    theirs = _by_product(stitched, members)
    rows = []
    for product, nodes in _by_product(plain, members).items():
        seen, runs = theirs.get(product, ()), sum(node.runs for node in nodes)
        again = sum(node.runs for node in seen)
        rows.append(
            Row(
                product,
                len({node.node for node in nodes}),
                runs / steps[0],
                sum(node.own_us for node in nodes) / runs,
                sum(node.own_us for node in seen) / again if again else None,
                None,
                work_of(product),
            )
        )
    return sorted(rows, key=lambda row: -row.runs * row.plain_us)


def _by_product(nodes: Iterable[NodeTime], members: Mapping[str, Mapping[str, Any]]) -> dict[Product, list[NodeTime]]:
    found: dict[Product, list[NodeTime]] = collections.defaultdict(list)
    for node in nodes:
        if is_product(node.op):
            found[product_of(node.op, node.shapes, members.get(node.node, {}))].append(node)
    return found


def step_of(
    workload: Workload, limits: Limits, mark: str, folder: pathlib.Path, cache: pathlib.Path, alone: bool
) -> Step:
    """Profiles a workload's step, and calls each of its products by itself if `alone`. Raises ContestantError."""
    place = folder / workload.name
    plain, stitched, members, _ = record(workload, limits, mark, place, cache, (), say)
    (_, steps, nodes), (after, again, theirs) = plain.profile(()), stitched.profile(())
    rows = rows_of(nodes, theirs, (steps, again), members)
    if alone:
        say(f"{workload.name}: calling its {len(rows)} products by themselves")
        rows = [dataclasses.replace(row, alone=found) for row, found in zip(rows, _alone(workload, rows, place))]
    wall = after.wall
    return Step(workload.name, tuple(rows), sum(wall) / 1e3, wall.product / 1e3)


def _alone(workload: Workload, rows: Sequence[Row], folder: pathlib.Path) -> list[Alone | None]:
    source, result = folder / "products.json", folder / "alone.json"
    products = [
        {"op": p.op, "operands": [(o.dtype, o.shape) for o in p.operands], "attributes": dict(p.attributes)}
        for p in (row.product for row in rows)
    ]
    source.write_text(json.dumps(products))
    python = installed(workload, say).python
    done = subprocess.run([python, str(ALONE), str(source), str(result)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ContestantError(f"its products could not be called: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return [None if found is None else Alone(**found) for found in json.loads(result.read_text())]


# ---- the command ---------------------------------------------------------------------------------------------------


def main(words: Sequence[str]) -> int:
    """The command. Returns exit code 0; 1 if a workload failed; 2 for a mistake on the command line; 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench --products", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="all", metavar="A,B", help="workloads, or all (default)")
    parser.add_argument("--zoo", metavar="A,B", help="instead, models of public packages; all, or some")
    parser.add_argument("--cache", type=pathlib.Path, default=kernels_of(ROOT), metavar="DIR", help="kernel cache")
    parser.add_argument(
        "--most", type=int, default=12, metavar="N", help="products listed for each workload (default 12)"
    )
    parser.add_argument("--not-alone", action="store_true", help="do not call the products by themselves")
    parser.add_argument("--warm-up-limit", type=float, default=900.0, metavar="S", help="longest warm-up (default 900)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to FILE")
    arguments = parser.parse_args(words)
    try:
        if arguments.zoo is not None:
            workloads = zoo_workloads(arguments.zoo)
        else:
            names = WORKLOADS if arguments.workloads == "all" else arguments.workloads.split(",")
            workloads = [find_workload(name.strip()) for name in names]
    except UnknownNameError as error:
        parser.error(str(error))
    if any(workload.ranks for workload in workloads):
        parser.error("--workloads: give workloads of one process")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        return _measured(workloads, arguments)
    except KeyboardInterrupt:
        print("scripts/bench: interrupted", file=sys.stderr)
        return 130
    except (OSError, ToolchainError, ZooError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 2


def _measured(workloads: Sequence[Workload], arguments: argparse.Namespace) -> int:
    say("measuring the machine's arithmetic and its copy bandwidth")
    speed, bandwidth = arithmetic.measure(), machine.copy_bandwidth()
    print("\n".join(head(speed, bandwidth)), flush=True)
    steps: list[Step] = []
    failures: dict[str, str] = {}
    limits = Limits(0, 0.0, warm_up_s=arguments.warm_up_limit)
    mark = f"{os.getpid()}-{time.monotonic_ns()}/"
    with tempfile.TemporaryDirectory(prefix="stitchfleet-products-") as folder, watched(mark):
        for workload in workloads:
            try:
                place = pathlib.Path(folder)
                step = step_of(workload, limits, mark, place, arguments.cache.absolute(), not arguments.not_alone)
            except (ContestantError, ValueError) as error:
                failures[workload.name] = str(error)
                print(f"\n{workload.name}: {error}", flush=True)
                continue
            steps.append(step)
            print("\n".join(["", *table(step, speed, bandwidth, arguments.most)]), flush=True)
            if arguments.json is not None:  # after each workload, so that an interrupted run leaves its results
                arguments.json.write_text(json.dumps(document(steps, failures, speed, bandwidth), indent=1) + "\n")
    if len(steps) > 1:
        print("\n".join(["", *totals(steps, speed, bandwidth)]))
    return int(bool(failures))


# ---- out -----------------------------------------------------------------------------------------------------------


def head(speed: Arithmetic, bandwidth: float) -> list[str]:
    """What the machine can do, as lines of text."""
    tiles = speed.bfloat16_tiles
    return [
        f"{machine.cpu_name()}, {machine.cores()} cores",
        f"float32, from registers: {speed.float32.one / 1e9:.0f} GFLOP/s on one core, {speed.float32.all / 1e9:.0f} on all",
        *(
            [f"bfloat16, AMX's tiles: {tiles.one / 1e9:.0f} GFLOP/s on one core, {tiles.all / 1e9:.0f} on all"]
            if tiles
            else []
        ),
        f"copy: {bandwidth / 1e9:.1f} GB/s, read plus written",
    ]


def table(step: Step, speed: Arithmetic, bandwidth: float, most: int) -> list[str]:
    """The products of one step as lines of text, those with the most to gain first."""
    peak = speed.float32.all
    gain = sum(row.to_gain_ms(peak, bandwidth) for row in step.rows)
    lines = [
        f"{step.workload}: a product runs in {step.product_wall_ms:.2f} of the stitched step's {step.wall_ms:.2f} ms; "
        f"at {REACHABLE:.0%} of the peak {min(gain, step.product_wall_ms):.2f} ms less",
        f"  {'product':<62}{'runs':>7}{'plain us':>10}{'stitched':>10}{'alone':>9}{'threads':>9}{'peak':>6}{'to gain':>9}",
    ]
    ordered = sorted(step.rows, key=lambda row: -row.to_gain_ms(peak, bandwidth))
    for row in ordered[:most]:
        stitched = "-" if row.stitched_us is None else f"{row.stitched_us:.1f}"
        alone, threads = ("-", "-") if row.alone is None else (f"{row.alone.us:.1f}", f"{row.alone.threads:.1f}")
        share = "-" if row.work is None else f"{row.work.operations / peak * 1e6 / row.plain_us:.0%}"
        lines.append(
            f"  {title_of(row.product)[:61]:<62}{row.runs:>7.0f}{row.plain_us:>10.1f}{stitched:>10}{alone:>9}{threads:>9}{share:>6}"
            f"{row.to_gain_ms(peak, bandwidth):>9.2f}"
        )
    if rest := ordered[most:]:
        lines.append(f"  {f'{len(rest)} more':<113}{sum(row.to_gain_ms(peak, bandwidth) for row in rest):>9.2f}")
    return lines


def totals(steps: Sequence[Step], speed: Arithmetic, bandwidth: float) -> list[str]:
    """What could be gained in each step, as lines of text."""
    lines = [f"{'workload':<36}{'stitched ms':>12}{'products ms':>12}{'to gain ms':>12}{'at best':>9}"]
    for step in steps:
        gain = min(sum(row.to_gain_ms(speed.float32.all, bandwidth) for row in step.rows), step.product_wall_ms)
        lines.append(
            f"{step.workload:<36}{step.wall_ms:>12.2f}{step.product_wall_ms:>12.2f}{gain:>12.2f}"
            f"{step.wall_ms / (step.wall_ms - gain):>8.2f}x"
        )
    return lines


def document(steps: Sequence[Step], failures: Mapping[str, str], speed: Arithmetic, bandwidth: float) -> dict[str, Any]:
    """All results as JSON. Times in the units that the fields name, speeds per second."""
    peak = speed.float32.all
    return {
        "format": FORMAT,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "versions": machine.versions(),
        "arithmetic": asdict(speed),
        "copy_bytes_per_s": bandwidth,
        "steps": [
            {
                **asdict(step),
                "rows": [
                    {**asdict(row), "title": title_of(row.product), "to_gain_ms": row.to_gain_ms(peak, bandwidth)}
                    for row in step.rows
                ],
            }
            for step in steps
        ],
        "failures": dict(failures),
    }
