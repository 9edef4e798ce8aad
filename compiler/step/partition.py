"""Splits a whole step in HLO: the library keeps compute-intensive operators, and everything else becomes a few stitch ops.

    HloModule -> flat computations (calls inlined, tuples resolved) -> units -> scopes.identify -> a Graph for each stitch op

Every computation that runs as such is split separately: the entry, the bodies and conditions of loops, the branches of
conditionals. Its instructions are

    members   instructions that have a row in the op table, in this form: they go into stitch ops
    views     reshapes and what amounts to one. They cost nothing and belong to whatever reads them; the stitch op writes the value
              that they are a view of
    ambient   computed from constants alone. Each stitch op that reads one computes it by itself, as XLA does. If something outside
              reads one, it must be in memory, and it is a member
    outside   matrix products, convolutions, control flow, and what the importer refuses, with its reason

Layouts: what passes between a stitch op and the library is row-major, whatever the module says (before XLA has assigned layouts, a
layout only says that a transpose could be a bitcast). Only the step's own parameters and results have the layouts that it states.

Merging goes as far as cycles and `Caps` allow; for a GPU, only if its cost model says that it pays (merging.py).

A split computation lists stitch ops and outside instructions in an order in which they can be executed (`SplitComputation.steps`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ..hlo.importer import (
    SUPPORTED_OPCODES,
    UnsupportedHloError,
    UnsupportedOp,
    import_module,
    refusal_of,
)
from ..hlo.module import HloComputation, HloImportError, HloInstruction, HloModule, HloShape
from ..ir.graph import Graph
from ..targets.targets import GpuTarget
from .merging import MergeModel, StepMerges
from .scopes import Caps, Dag, fewest_sets, identify

if TYPE_CHECKING:
    from typing import TypeAlias

MOST_OPS: Final = 4096
"""Most instructions of one stitch op. Otherwise remote stitching would merge a whole model's optimizer and more into one."""
DEFAULT_CAPS: Final = Caps(MOST_OPS)
_CONTROL_FLOW: Final = frozenset({"while", "conditional"})
_INLINED: Final = frozenset({"call", "fusion"})
_TRANSPARENT: Final = frozenset({"opt-barrier", "optimization-barrier", "domain"})
_GLUE: Final = frozenset({"parameter", "tuple", "get-tuple-element"})
_COMPUTED_ONCE: Final = frozenset(
    "reduce reduce-window gather scatter dynamic-slice dynamic-update-slice rng-bit-generator map batch-norm-training "
    "batch-norm-inference batch-norm-grad".split()
)
"""Opcodes that are members even if they depend on constants alone: several stitch ops should not each compute them."""


@dataclass(frozen=True)
class StitchOp:
    """What one kernel computes. inputs, outputs: names of flat instructions, in the order of the graph's parameters and outputs."""

    name: str
    graph: Graph
    instructions: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


Step: TypeAlias = "StitchOp | HloInstruction"


@dataclass(frozen=True)
class SplitComputation:
    """A split computation. computation: its name. flat: its instructions with calls inlined. steps: the stitch ops and the
    instructions outside, in an order in which they can run (tuples, parameters and views are no steps)."""

    computation: str
    flat: HloComputation
    steps: tuple[Step, ...]
    merges: tuple[str, ...] = ()
    """What a GPU's cost model said about merges, one line each."""
    fewest: int = 1
    """The least number of stitch ops possible if the same instructions stay outside, whatever is merged."""

    @property
    def stitch_ops(self) -> tuple[StitchOp, ...]:
        """The stitch ops among the steps."""
        return tuple(step for step in self.steps if isinstance(step, StitchOp))


@dataclass(frozen=True)
class Partition:
    """A split module. outside: the instructions that are in no stitch op, with the reasons."""

    module: str
    splits: tuple[SplitComputation, ...]
    outside: tuple[UnsupportedOp, ...]

    @property
    def stitch_ops(self) -> tuple[StitchOp, ...]:
        """The stitch ops of all computations."""
        return tuple(op for split in self.splits for op in split.stitch_ops)

    @property
    def is_one_op(self) -> bool:
        """Whether the module is exactly one stitch op."""
        return len(self.splits) == 1 and not self.outside and len(self.stitch_ops) == 1

    def distinct(self) -> Iterator[tuple[str, Graph]]:
        """The graph of each different stitch op once, with the names of all stitch ops that have it."""
        names: dict[str, list[str]] = {}
        graphs: dict[str, Graph] = {}
        for op in self.stitch_ops:
            names.setdefault(op.graph.digest, []).append(op.name)
            graphs[op.graph.digest] = op.graph
        for digest, graph in graphs.items():
            yield ", ".join(names[digest]), graph

    def __str__(self) -> str:
        ops = self.stitch_ops
        merged = sum(len(op.instructions) for op in ops)
        lines = [f"module {self.module}: {merged} ops in {len(ops)} stitch ops, {len(self.outside)} ops outside"]
        for split in self.splits:
            lines.append(f"{split.computation}:")
            for step in split.steps:
                if isinstance(step, StitchOp):
                    lines.append(
                        f"  {step.name}: {len(step.instructions)} ops, {len(step.inputs)} inputs, {len(step.outputs)} outputs"
                    )
                else:
                    lines.append(f"  {step.opcode} {step.name} {step.shape}")
            lines += [f"  {line}" for line in split.merges]
        counts: dict[tuple[str, str], int] = {}
        for op in self.outside:
            counts[op.opcode, op.reason] = counts.get((op.opcode, op.reason), 0) + 1
        lines += [f"outside: {count} x {opcode}: {reason}" for (opcode, reason), count in sorted(counts.items())]
        return "\n".join(lines)


def partition(
    module: HloModule, remote: bool = True, caps: Caps = DEFAULT_CAPS, target: GpuTarget | None = None
) -> Partition:
    """Splits all computations that run. remote: stitch ops that no path connects are merged too (remote stitching). target: the
    GPU whose cost model decides whether merges pay; None: all merges do. Raises HloImportError if the module is malformed or its
    result has a layout that is not row-major."""
    if module.result_layout is not None and not module.result_layout.is_row_major:
        raise HloImportError(
            f"HLO module {module.name}: given a result layout that is not row-major, expected row-major"
        )
    splits: list[SplitComputation] = []
    outside: list[UnsupportedOp] = []
    waiting, seen = [module.entry], {module.entry}
    model = None if target is None else MergeModel(target)
    while waiting:
        name = waiting.pop(0)
        flat = _Flattener(module).flatten(_computation(module, name))
        refused: dict[str, UnsupportedOp] = {}
        split = None
        while split is None:
            split = _Splitter(module, flat, refused, remote, caps, model).split()
        splits.append(split)
        for item in flat.instructions.values():
            if item.opcode in _CONTROL_FLOW:
                found = [called for called in item.called if called not in seen]
                waiting += found
                seen.update(found)
        outside += [
            refused.get(item.name) or refusal_of(item) for item in split.steps if isinstance(item, HloInstruction)
        ]
    return Partition(module.name, tuple(splits), tuple(outside))


def stitch_ops_of(module: HloModule, target: GpuTarget | None = None) -> Partition:
    """The module as one stitch op if all of it can be stitched (with its parameters and results in their order), else split around
    what cannot. target: as for `partition`. Raises HloImportError if the module is malformed or nothing can be stitched."""
    try:
        graph = import_module(module).graph
    except UnsupportedHloError as error:
        step = partition(module, target=target)
        if not step.stitch_ops:
            raise HloImportError(f"nothing to stitch: {error}") from None
        return step
    op = StitchOp(graph.name, graph, (), (), ())
    return Partition(module.name, (SplitComputation(module.entry, module.computations[module.entry], (op,)),), ())


def _computation(module: HloModule, name: str) -> HloComputation:
    if name not in module.computations:
        raise HloImportError(f"HLO module {module.name}: computation {name} is not there")
    return module.computations[name]


# ---- calls inlined, tuples resolved -------------------------------------------------------------------------------------------

_Value: TypeAlias = "str | tuple[_Value, ...]"


class _Flattener:
    """Copies what a computation's root needs, in topological order. Calls are inlined, and elements of tuples are resolved."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.found: dict[str, HloInstruction] = {}
        self.depth = 0

    def flatten(self, computation: HloComputation) -> HloComputation:
        parameters: list[_Value] = []
        for item in computation.parameters:
            own = computation.name == self.module.entry
            self.found[item.name] = item if own else replace(item, shape=item.shape.without_layout)
            parameters.append(item.name)
        root = self.materialize(self.walk(computation, parameters, ""))
        return HloComputation(computation.name, self.found, root)

    def walk(self, computation: HloComputation, parameters: Sequence[_Value], prefix: str) -> _Value:
        if self.depth > 64:
            raise HloImportError(
                f"HLO computation {computation.name}: calls nest deeper than 64, expected no recursion"
            )
        self.depth += 1
        values: dict[str, _Value] = {}
        for item in computation.parameters:
            if item.parameter_number >= len(parameters):
                raise HloImportError(f"HLO parameter {item.name}: number {item.parameter_number} of {len(parameters)}")
            values[item.name] = parameters[item.parameter_number]
        for item in _needed(computation):
            if item.name not in values:
                values[item.name] = self.instruction(item, [values[operand] for operand in item.operands], prefix)
        self.depth -= 1
        return values[computation.root]

    def instruction(self, item: HloInstruction, operands: list[_Value], prefix: str) -> _Value:
        if item.opcode == "tuple":
            return tuple(operands)
        if item.opcode in _TRANSPARENT and len(operands) == 1:
            return operands[0]
        if item.opcode == "get-tuple-element" and operands and isinstance(operands[0], tuple):
            if not 0 <= item.tuple_index < len(operands[0]):
                raise HloImportError(f"HLO {item.name}: element {item.tuple_index} of {len(operands[0])}")
            return operands[0][item.tuple_index]
        name = prefix + item.name
        if item.opcode in _INLINED:
            if not item.called:
                raise HloImportError(f"HLO {item.opcode} {item.name}: given no computation, expected one")
            return self.walk(_computation(self.module, item.called[0]), operands, f"{name.replace('#', ':')}/")
        shape = item.shape if item.opcode == "bitcast" else item.shape.without_layout
        given = tuple(self.materialize(value) for value in operands)
        self.found[name] = replace(item, name=name, shape=shape, operands=given)
        return name

    def materialize(self, value: _Value) -> str:
        """The name of a value. For a tuple, a new tuple instruction is made."""
        if isinstance(value, str):
            return value
        parts = tuple(self.materialize(part) for part in value)
        name = f"tuple({len(self.found)})"
        shape = HloShape("tuple", tuple_shapes=tuple(self.found[part].shape for part in parts))
        self.found[name] = HloInstruction(name, "tuple", shape, parts)
        return name


def _needed(computation: HloComputation) -> Iterator[HloInstruction]:
    """The instructions that the root needs, operands first. Raises HloImportError for a cycle or an unknown operand."""
    done: set[str] = set()
    waiting = [computation.root]
    while waiting:
        name = waiting[-1]
        if name in done:
            waiting.pop()
            continue
        if name not in computation.instructions:
            raise HloImportError(f"HLO computation {computation.name}: operand {name} does not exist")
        item = computation.instructions[name]
        missing = next((operand for operand in item.operands if operand not in done), None)
        if missing is None:
            waiting.pop()
            done.add(name)
            yield item
        elif len(waiting) > len(computation.instructions):
            raise HloImportError(f"HLO computation {computation.name}: {name} depends on itself")
        else:
            waiting.append(missing)


# ---- which instructions make a stitch op --------------------------------------------------------------------------------------


@dataclass
class _Splitter:
    """One computation, with the instructions that the importer is known to refuse (`refused`). `split` either finds more of them or
    succeeds."""

    module: HloModule
    flat: HloComputation
    refused: dict[str, UnsupportedOp]
    remote: bool
    caps: Caps
    model: MergeModel | None = None
    sources: dict[str, str] = field(default_factory=dict)
    """For each view and tuple element, the instruction that computes it."""
    ambient: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    elements: dict[str, list[str]] = field(default_factory=dict)
    """For each instruction that computes a tuple, the instructions that take an array out of it."""

    def split(self) -> SplitComputation | None:
        """The split; None if the importer refused another instruction, which is in `refused` now."""
        items = self.flat.instructions
        self._classify()
        units = [name for name in items if name in self.members or self._runs_outside(name)]
        place = {name: number for number, name in enumerate(units)}
        edges = tuple(
            (place[producer], place[consumer])
            for consumer in units
            for producer in self._producers(consumer)
            if producer in place
        )
        member = [name in self.members for name in units]
        readers = self._readers(units)
        if self.model is None:
            merges = None
            scopes = identify(Dag(len(units), edges), member, caps=self.caps, remote=self.remote)
        else:
            merges = StepMerges(
                self.model,
                units,
                [items[name].opcode.startswith("reduce") for name in units],
                edges,
                lambda some: self._graph_of([units[i] for i in some], readers),
            )
            alone = identify(Dag(len(units), edges), member, caps=self.caps)
            parts = merges.cut(alone.clusters)
            scopes = identify(
                Dag(len(units), edges), member, caps=self.caps, remote=self.remote, part=parts, pays=merges.pays
            )
        steps: list[tuple[tuple[int, ...], Step]] = []
        for cluster in scopes.clusters:
            op = self._stitch_op(f"stitch_{len(steps)}", [units[i] for i in cluster], readers)
            if isinstance(op, UnsupportedHloError):
                self._refuse(op, {units[i] for i in cluster})
                return None
            if op is not None:
                steps.append((cluster, op))
        steps += [((i,), items[units[i]]) for i in range(len(units)) if not member[i]]
        notes = () if merges is None else tuple(merges.notes(scopes.clusters))
        fewest = fewest_sets(Dag(len(units), edges), member)
        return SplitComputation(self.flat.name, self.flat, tuple(_in_order(len(units), edges, steps)), notes, fewest)

    def _refuse(self, error: UnsupportedHloError, cluster: set[str]) -> None:
        for op in error.ops:
            names = {op.instruction} & cluster
            if not names:  # an input of the stitch op: the instructions that read it there are left out
                names = {name for name in cluster if op.instruction in self._producers(name)}
            if not names:
                names = {op.instruction} & self.flat.instructions.keys() - self.refused.keys()
            # If the instruction cannot be told from others, the whole stitch op is left out.
            self.refused.update(dict.fromkeys(names or cluster, op))

    def _classify(self) -> None:
        items = self.flat.instructions
        for name, item in items.items():
            if item.opcode == "get-tuple-element":
                self.sources[name] = self.source(item.operands[0])
                if not item.shape.is_tuple:
                    self.elements.setdefault(self.sources[name], []).append(name)
            elif item.opcode in _GLUE:
                continue
            elif self._is_ambient(item):
                self.ambient.add(name)
            elif self._is_view(item):
                self.sources[name] = self.source(item.operands[0])
            elif self._is_supported(item):
                self.members.add(name)
        for name, item in items.items():
            # A value that is read outside must be in memory; a constant is.
            if self._runs_outside(name) or item.opcode == "tuple":
                needed = [operand for operand in item.operands if operand in self.ambient]
                self.members.update(operand for operand in needed if items[operand].opcode != "constant")
        root = self.flat.root
        if root in self.ambient and items[root].opcode != "constant":
            self.members.add(root)

    def _is_supported(self, item: HloInstruction) -> bool:
        if item.opcode not in SUPPORTED_OPCODES or item.name in self.refused or item.shape.dynamic:
            return False
        return item.shape.is_row_major

    def _is_ambient(self, item: HloInstruction) -> bool:
        if item.opcode in _COMPUTED_ONCE or not self._is_supported(item):
            return False
        return all(operand in self.ambient for operand in item.operands)

    def _is_view(self, item: HloInstruction) -> bool:
        """Whether its elements are those of its operand, in the same order in memory."""
        if len(item.operands) != 1 or not self._is_supported(item):
            return False
        given, made = self.flat.instructions[item.operands[0]].shape, item.shape
        if given.element_type != made.element_type or not given.is_row_major or given.is_tuple:
            return False
        if item.opcode in ("reshape", "bitcast", "copy"):
            return True
        if item.opcode == "transpose":
            kept = [d for d in item.dimensions if given.dimensions[d] != 1]
            return kept == sorted(kept)
        if item.opcode == "broadcast":
            same = [extent for extent in given.dimensions if extent != 1] == [e for e in made.dimensions if e != 1]
            return same and list(item.dimensions) == sorted(item.dimensions)
        return False

    def _runs_outside(self, name: str) -> bool:
        item = self.flat.instructions[name]
        inside = name in self.members or name in self.ambient or name in self.sources
        return not inside and item.opcode not in _GLUE

    def source(self, name: str) -> str:
        """The instruction that computes the value, seen through views and elements of tuples."""
        return self.sources.get(name, name)

    def _producers(self, name: str) -> Iterator[str]:
        """The units that must have run before."""
        waiting, seen = list(self.flat.instructions[name].operands), set[str]()
        while waiting:
            operand = self.source(waiting.pop())
            if operand in seen:
                continue
            seen.add(operand)
            item = self.flat.instructions[operand]
            if operand in self.members or self._runs_outside(operand):
                yield operand
            elif item.opcode == "tuple":
                waiting += item.operands

    def _readers(self, units: Sequence[str]) -> Mapping[str, set[str]]:
        """By value (an array), the units that read it, also through views; "" stands for the root."""
        readers: dict[str, set[str]] = {}

        def note(reader: str, value: str) -> None:
            item = self.flat.instructions[value]
            if item.opcode == "tuple":
                for part in item.operands:
                    note(reader, part)
                return
            while value in self.sources and item.opcode != "get-tuple-element":
                value = item.operands[0]
                item = self.flat.instructions[value]
            if value in self.ambient and value not in self.members:
                return
            readers.setdefault(value, set()).add(reader)

        for unit in units:
            for operand in self.flat.instructions[unit].operands:
                note(unit, operand)
        note("", self.flat.root)
        return readers

    # -- the graph of one stitch op --

    def _graph_of(self, cluster: Sequence[str], readers: Mapping[str, set[str]]) -> Graph | None:
        """The graph of a set of units; None if nothing reads it, or if the importer refuses some of it, which `split` will find."""
        op = self._stitch_op("asked", cluster, readers)
        return op.graph if isinstance(op, StitchOp) else None

    def _stitch_op(
        self, name: str, cluster: Sequence[str], readers: Mapping[str, set[str]]
    ) -> StitchOp | UnsupportedHloError | None:
        """The stitch op of a set of units; None if nothing reads it; an error if the importer refuses some of it."""
        inside = set(cluster)
        outputs = [value for value in self._values_of(cluster) if readers.get(value, set()) - inside]
        if not outputs:
            return None
        body: dict[str, HloInstruction] = {}
        inputs: list[str] = []
        waiting = list(outputs)
        while waiting:
            value = waiting[-1]
            item = self.flat.instructions[value]
            own = value in inside or value in self.ambient or (value in self.sources and self._is_ours(value, inside))
            missing = [operand for operand in item.operands if own and operand not in body]
            if value in body or not missing:
                waiting.pop()
                if value not in body and own:
                    body[value] = item
                elif value not in body:
                    body[value] = HloInstruction(
                        value, "parameter", item.shape, parameter_number=len(inputs), op_name=item.op_name
                    )
                    inputs.append(value)
                continue
            waiting += missing
        root = f"tuple({name})"
        shapes = tuple(self.flat.instructions[output].shape for output in outputs)
        body[root] = HloInstruction(root, "tuple", HloShape("tuple", tuple_shapes=shapes), tuple(outputs))
        computations = {**self.module.computations, name: HloComputation(name, body, root)}
        try:
            graph = import_module(HloModule(name, computations, name)).graph
        except UnsupportedHloError as error:
            return error
        return StitchOp(name, graph, tuple(cluster), tuple(inputs), tuple(outputs))

    def _values_of(self, cluster: Sequence[str]) -> Iterator[str]:
        """The arrays that these instructions compute: each instruction's own, or the elements of its tuple."""
        for name in cluster:
            if not self.flat.instructions[name].shape.is_tuple:
                yield name
            yield from self.elements.get(name, ())

    def _is_ours(self, value: str, inside: set[str]) -> bool:
        """Whether a view is made inside the stitch op. The element of a tuple is if the tuple is computed there."""
        if self.flat.instructions[value].opcode == "get-tuple-element":
            return self.source(value) in inside
        return True


def _in_order(
    count: int, edges: Sequence[tuple[int, int]], steps: Sequence[tuple[tuple[int, ...], Step]]
) -> list[Step]:
    """The steps in an order in which each runs after those that it reads from. If several could be next, the first one in the module
    is."""
    step_of = {unit: number for number, (units, _) in enumerate(steps) for unit in units}
    before: list[set[int]] = [set() for _ in steps]
    after: list[set[int]] = [set() for _ in steps]
    for producer, consumer in edges:
        if producer in step_of and consumer in step_of and step_of[producer] != step_of[consumer]:
            before[step_of[consumer]].add(step_of[producer])
            after[step_of[producer]].add(step_of[consumer])

    def first(number: int) -> int:
        return min(steps[number][0])

    ready = sorted((number for number in range(len(steps)) if not before[number]), key=first)
    ordered: list[Step] = []
    while ready:
        number = ready.pop(0)
        ordered.append(steps[number][1])
        for follower in after[number]:
            before[follower].discard(number)
            if not before[follower]:
                ready.append(follower)
        ready.sort(key=first)
    if len(ordered) != len(steps):
        raise AssertionError(f"{count} instructions were stitched into a cycle")
    return ordered
