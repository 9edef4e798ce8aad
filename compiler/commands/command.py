"""`stitchfleet compile` and `stitchfleet explain`: the compiler for people, stage by stage.

A user's mistake (a missing file, malformed HLO, ops that cannot be stitched) prints one line on stderr and exits with code
2; a kernel that fails to build or to pass its check exits with code 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..check.random_inputs import Regime, random_inputs
from ..codegen.cuda.kernel_text import CudaError, plan_for_gpu
from ..explaining.picture import draw
from ..explaining.words import explain
from ..hlo.importer import read_hlo_file
from ..ir.graph import Graph
from ..kernel.cache import CacheEntry, KernelCache
from ..kernel.host_kernel import LoadedKernel, aligned_copy
from ..pipeline.backend import Backend, KernelRequest, stop_after
from ..pipeline.backends import BACKENDS, BackendKind, Effort
from ..planning.plan import plan_graph
from ..planning.rules import BY_NAME, Rules
from ..step.partition import Partition, stitch_ops_of
from ..support.entry_points import entry_points
from ..targets.targets import CPU, GPUS, GpuTarget, Target
from ..toolchain import nvrtc
from .command_cuda import run_on_gpu
from .command_io import MistakeError, emit, kernel_text, mistakes, show_progress, tell_run

STAGES: Final = ("hlo", *dict.fromkeys(stage for kind in BACKENDS.values() for stage in kind.stages), "binary")
"""What `--stop-after` knows: the file as read, the stages of any backend, and the kernel built but not checked."""

ARCHS: Final = tuple(dict.fromkeys(arch for kind in BACKENDS.values() for arch in sorted(kind.targets)))

BUNDLE_GROUP: Final = "stitchfleet.bundle_judges"
"""Entry points that judge a guard's bundle (the compiler does not know the framework whose op a bundle holds): a function from the
folder to an object with `right: bool` and `line: str`."""

JOB_GROUP: Final = "stitchfleet.job_explainers"
"""Entry points that explain a job's summary in JSON (the compiler does not know jobs): a function from the file, and the files for
a page and a picture or None, to the text to print. It raises ValueError, with a line for the user, for the user's mistakes."""

TIMED_CALLS: Final = 200
TIMED_SECONDS: Final = 2.0


class CompileCommand:
    """`stitchfleet compile FILE [--stop-after STAGE] [--run]`, or with `--target cuda [--arch ARCH] [--launch HOW]`."""

    help = (
        "Compile a file of HLO (text, or a serialized HloModuleProto) into one kernel. A whole step, with matrix products,\n"
        "loops or anything else that cannot be in a kernel, becomes one kernel per stitch op; what stays outside is listed.\n\n"
        "With --stop-after, print a stage's result: hlo (as read), graph (the compiler's own ops), plan (groups, schemes,\n"
        "mapping), loops, source (C++), binary (built, not checked). Without it, build the kernel and check it on random\n"
        "inputs against a float64 oracle; with --run, run and time it too.\n\n"
        "With --target cuda, make CUDA kernels instead, on any machine, with or without a GPU. The stages are the same,\n"
        "with CUDA C as source, then ptx, then binary (machine code, for --output); without --stop-after, print the launch and\n"
        "registers. With --run, make the kernel for a GPU of this machine, run it there, judge it by the float64 oracle and time\n"
        "it beside a copy (needs pycuda)."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments to `parser`."""
        parser.add_argument("file", type=Path, metavar="FILE", help="HLO text (.hlo, .txt) or proto (.pb)")
        parser.add_argument("--stop-after", choices=STAGES, metavar="STAGE", help=f"one of {', '.join(STAGES)}")
        parser.add_argument("--target", choices=BACKENDS, default="cpu", help="what the kernel is for (default cpu)")
        parser.add_argument(
            "--arch",
            choices=ARCHS,
            metavar="ARCH",
            help="; ".join(f"with --target {name}: {_archs(kind)}" for name, kind in BACKENDS.items())
            + "; with --run the GPU's own",
        )
        parser.add_argument(
            "--launch",
            choices=("search", "tune", "usual"),
            metavar="HOW",
            help="with --target cuda: search for the best block size and registers by the model, building a few (default for "
            "one stitch op), tune (with --run: the best by the clock; with --cache, for jobs too), or take the usual ones "
            "(default for a whole step)",
        )
        parser.add_argument(
            "--device", type=int, default=0, metavar="N", help="with --target cuda --run: which GPU (default 0)"
        )
        parser.add_argument("--run", action="store_true", help="run the kernel on random inputs, judge and time it")
        parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads for --run (default 2)")
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random inputs (default 0)")
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="write the stage's result, or the binary, to FILE"
        )
        parser.add_argument("--cache", type=Path, metavar="DIR", help="kernel cache to use (default: a temporary one)")

    def run(self, args: argparse.Namespace) -> int:
        """Runs the command. Returns the exit code."""
        with mistakes("compile") as code:
            _refuse(args)
            if args.target == "cuda" and args.run:
                return run_on_gpu(args)
            module = read_hlo_file(args.file)
            if args.stop_after == "hlo":
                emit(str(module), args.output)
                return 0
            kind = BACKENDS[args.target]
            target = kind.targets[args.arch or kind.usual]
            step = stitch_ops_of(module, target if isinstance(target, GpuTarget) else None)
            # By default the launch of a single kernel is searched for, if NVRTC can build candidates.
            search = args.launch == "search" or (args.launch is None and step.is_one_op and nvrtc.is_installed())
            # An unchecked kernel must not get into a cache that others load from.
            backend = kind.make(target, Effort(search, check=args.stop_after != "binary"))
            if args.stop_after not in (None, "binary"):
                return _stop(step, backend, args)
            if not step.is_one_op and (args.run or args.output is not None):
                raise MistakeError(
                    f"--run and --output take one kernel; {args.file} is split into {len(step.stitch_ops)}"
                )
            code[0] = self._build(step, backend, args)
        return code[0]

    def _build(self, step: Partition, backend: Backend, args: argparse.Namespace) -> int:
        with tempfile.TemporaryDirectory(prefix="stitchfleet-compile-") as folder:
            cache = KernelCache(args.cache or Path(folder) / "cache")
            if cache.notice and args.cache:
                print(f"stitchfleet compile: {cache.notice}", file=sys.stderr)
            into = KernelCache(Path(folder) / "unchecked") if args.stop_after == "binary" else cache
            started = time.monotonic()
            requests = [KernelRequest(op.name, op.graph) for op in step.stitch_ops]
            outcomes = backend.compile(requests, into, show_progress)
            seconds = time.monotonic() - started
            if not step.is_one_op:
                print(step)
            for outcome in outcomes:
                if outcome.entry is None:
                    print(f"stitchfleet compile: {outcome.failure}", file=sys.stderr)
            entries = {outcome.entry.key: outcome.entry for outcome in outcomes if outcome.entry is not None}
            notes = {outcome.entry.key: outcome.notes for outcome in reversed(outcomes) if outcome.entry is not None}
            for entry in entries.values():
                print(kernel_text(entry, notes[entry.key]))
                if args.output is not None:
                    args.output.write_bytes(entry.library.read_bytes())
            if any(outcome.entry is None for outcome in outcomes):
                return 1
            print(f"  {seconds:.2f} s in all")
            runs = [_run(requests[0].graph, entry, args.threads, args.seed) for entry in entries.values() if args.run]
            return max(runs, default=0)


def _archs(kind: BackendKind) -> str:
    """The architectures of a backend, and which is the default, in words."""
    return f"{', '.join(sorted(kind.targets))} (default {kind.usual})"


def _refuse(args: argparse.Namespace) -> None:
    """Raises MistakeError for options that do not go together."""
    kind = BACKENDS[args.target]
    if args.stop_after not in (None, "hlo", *kind.stages, "binary"):
        raise MistakeError(f"--stop-after {args.stop_after}: --target {args.target} has {', '.join(kind.stages)}")
    if args.arch not in (None, *kind.targets):
        raise MistakeError(f"--arch {args.arch}: --target {args.target} has {_archs(kind)}")
    if args.target == "cpu":
        if args.launch is not None:
            raise MistakeError("--launch is for --target cuda; a CPU's kernel is not launched")
    elif args.run:
        if args.stop_after is not None or args.output is not None:
            raise MistakeError(
                "--stop-after and --output make something on any machine; --run makes a kernel for this machine's GPU"
            )
    elif args.launch == "tune":
        raise MistakeError("--launch tune times candidates on a GPU: it goes with --run")
    if args.device and not (args.target == "cuda" and args.run):
        raise MistakeError("--device is for --target cuda --run")
    if args.run and args.stop_after not in (None, "binary"):
        raise MistakeError(f"--run needs a binary, but --stop-after {args.stop_after} makes none")
    if args.threads < 1:
        raise MistakeError(f"--threads: given {args.threads}, expected at least 1")


def _stop(step: Partition, backend: Backend, args: argparse.Namespace) -> int:
    """Prints the result of a stage for each stitch op, and returns the exit code. A stitch op that fails does not affect the
    others."""
    texts, failures = [], []
    for names, graph in step.distinct():
        try:
            text = stop_after(backend, graph, args.stop_after, show_progress)
        except ValueError as error:
            line = str(error).splitlines()[0]
            if step.is_one_op:
                raise MistakeError(line) from error
            failures.append(f"no kernel for {names}: {' '.join(line.split())}")
            continue
        texts.append(text if step.is_one_op else f"== {names}\n{text}")
    show_progress("")
    for line in failures:
        print(f"stitchfleet compile: {line}", file=sys.stderr)
    emit("\n\n".join(texts), args.output)
    return 1 if failures else 0


class ExplainCommand:
    """`stitchfleet explain FILE|SUMMARY|BUNDLE [--svg FILE] [--html FILE]`."""

    help = (
        "Explain what the compiler does with a file of HLO: what it merges, each op's scheme and why, the mapping, the bytes\n"
        "that go through memory; with --svg also as a picture. For a job's summary (`stitchfleet run --summary FILE.json`): its\n"
        "step, what each cluster saves, what stayed out and why; with --html or --svg as a picture too. For a guard's bundle (a\n"
        "folder): what was compared, where it differed, and whether the kernel was wrong by the float64 oracle."
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments to `parser`."""
        parser.add_argument(
            "path", type=Path, metavar="PATH", help="HLO text or proto, a job's summary, or a bundle's folder"
        )
        parser.add_argument("--svg", type=Path, metavar="FILE", help="write a picture to FILE (for HLO or a summary)")
        parser.add_argument("--html", type=Path, metavar="FILE", help="write a page to FILE (for a summary)")
        parser.add_argument(
            "--rules",
            choices=BY_NAME,
            default="all",
            metavar="RULES",
            help=f"for HLO: plan with {', '.join(BY_NAME)} of the planner's rules",
        )
        parser.add_argument(
            "--arch", choices=sorted(GPUS), metavar="ARCH", help="for HLO: plan for a GPU instead of the CPU"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Runs the command. Returns the exit code."""
        with mistakes("explain") as code:
            if args.path.is_dir():
                if args.svg is not None or args.html is not None:
                    raise MistakeError("--svg and --html draw a file, not a bundle")
                _explain_bundle(args.path)
                return 0
            if _is_json(args.path):
                print(_job_text(args))
                return 0
            if args.html is not None:
                raise MistakeError(f"--html is for a job's summary; {args.path} is not one (--svg draws HLO)")
            step = stitch_ops_of(read_hlo_file(args.path), GPUS[args.arch] if args.arch else None)
            if args.svg is not None and not step.is_one_op:
                raise MistakeError(f"--svg draws one stitch op; {args.path} is split into {len(step.stitch_ops)}")
            if not step.is_one_op:
                print(f"{step}\n")
            target = GPUS[args.arch] if args.arch else CPU
            rules = BY_NAME[args.rules]
            for number, (names, graph) in enumerate(step.distinct()):
                heading = "" if step.is_one_op else f"== {names}\n"
                print(("\n" if number else "") + heading + _explained(graph, target, rules))
            if args.svg is not None:
                args.svg.write_text(draw(plan_graph(step.stitch_ops[0].graph, target, rules)))
        return code[0]


def _explained(graph: Graph, target: Target, rules: Rules) -> str:
    """The plan in words; for a GPU, with the kernel's estimated cost."""
    if not isinstance(target, GpuTarget):
        return explain(plan_graph(graph, target, rules))
    try:
        plan, kernel = plan_for_gpu(graph, target, rules=rules)
    except CudaError as error:
        return f"no kernel: {error}"
    return f"{explain(plan)}\n{kernel.cost()}"


def _is_json(path: Path) -> bool:
    """Whether the file is a JSON object; neither HLO's text nor its proto begins with a brace."""
    with path.open("rb") as file:
        return file.read(1) == b"{"


def _job_text(args: argparse.Namespace) -> str:
    explainers = list(entry_points(JOB_GROUP))
    if not explainers:
        raise MistakeError(f"{args.path}: no package of this installation explains jobs")
    try:
        return str(explainers[0].load()(args.path, args.html, args.svg))
    except ValueError as error:
        raise MistakeError(str(error)) from None


def _run(graph: Graph, entry: CacheEntry, threads: int, seed: int) -> int:
    """Runs a kernel on normal random inputs; prints the judge's verdict and the time of a call. Returns the exit code."""
    inputs = random_inputs(graph, np.random.default_rng(seed), Regime.NORMAL)
    kernel = LoadedKernel(entry.library, entry.metadata)
    outputs = kernel.run(inputs, threads)
    is_right = tell_run(graph, inputs, outputs)
    print(f"  {_timing(kernel, entry, inputs, outputs, threads)}")
    return 0 if is_right else 1


def _timing(
    kernel: LoadedKernel,
    entry: CacheEntry,
    inputs: Sequence[npt.NDArray[np.generic]],
    outputs: Sequence[npt.NDArray[np.generic]],
    threads: int,
) -> str:
    given = [aligned_copy(array) for array in inputs]
    durations_ns = kernel.durations_ns(given, outputs, threads, TIMED_CALLS, TIMED_SECONDS)
    median_ns = statistics.median(durations_ns)
    moved = entry.metadata.bytes_read + entry.metadata.bytes_written
    speed = f"{moved / max(median_ns, 1):.2f} GB/s"
    return f"median of {len(durations_ns)} calls {median_ns / 1e3:.2f} us on {threads} threads, {speed}"


def _explain_bundle(folder: Path) -> None:
    facts = _bundle_facts(folder)
    print(f"cluster {facts.get('cluster', '?')}, output {facts.get('output', '?')} at step {facts.get('step', '?')}")
    print(f"  TensorFlow {facts.get('expected')}, kernel {facts.get('actual')} at element {facts.get('index')}")
    print(f"  largest difference {facts.get('largest_error')}")
    print(f"  {_differences(folder, facts)}")
    judges = list(entry_points(BUNDLE_GROUP))
    if not judges:
        print("  the float64 oracle: cannot be asked here (no package of this installation judges bundles)")
        return
    try:
        verdict: Any = judges[0].load()(folder)
    except Exception as error:  # this is another package's code, and it imports a framework
        raise MistakeError(f"{folder}: the oracle could not be asked: {type(error).__name__}: {error}") from error
    print(f"  the float64 oracle: the kernel is {'right' if verdict.right else 'wrong'}: {verdict.line}")


def _bundle_facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / "bundle.json").read_text())
    except FileNotFoundError:
        raise MistakeError(f"{folder}: given a folder without bundle.json, expected a bundle of the guard") from None
    except ValueError as error:
        raise MistakeError(f"{folder}/bundle.json: not JSON: {error}") from None
    if not isinstance(facts, dict):
        raise MistakeError(f"{folder}/bundle.json: given {type(facts).__name__}, expected an object")
    return facts


def _differences(folder: Path, facts: dict[str, Any]) -> str:
    """How many elements of the output differ, as text."""
    number = facts.get("output")
    try:
        with np.load(folder / "tensors.npz") as stored:
            expected, actual = stored[f"expected_{number}"], stored[f"actual_{number}"]
    except (OSError, KeyError, ValueError) as error:
        raise MistakeError(f"{folder}/tensors.npz: {error}") from None
    different = int((expected != actual).sum() - ((expected != expected) & (actual != actual)).sum())
    return f"{different} of {expected.size} elements differ in their bits"
