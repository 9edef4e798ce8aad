"""`scripts/bench --changed CHECKOUT`: which kernels a change of the compiler changes, and how much faster they became.

Jobs keep their clusters as HLO beside their kernels. Both checkouts write the kernel of each kept cluster, in their own environments.
Where the text differs, both build it, and the two kernels are timed in turns on the same random inputs, on one core, by processor
time: a ratio above 1 says that this checkout's is faster. So a rule of the planner is judged on all clusters that jobs here ever
had, most of which it should leave alone, and these need not be compiled. A cluster that only one of the two can plan is listed.

    git worktree add --detach ../before HEAD~3 && (cd ../before && scripts/environment)
    scripts/bench --changed ../before
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

CACHE: Final = pathlib.Path(__file__).resolve().parents[2] / ".cache" / "stitchfleet"
"""The kernel cache of the jobs that the benchmark runs."""
SLOWER: Final = 0.97
"""Below this ratio a kernel is counted as slower: turns on one core differ by some 2%."""


@dataclass(frozen=True)
class Changed:
    """A cluster whose kernel's text differs: microseconds a call, before and after."""

    cluster: str
    before_us: float
    after_us: float

    @property
    def ratio(self) -> float:
        """Above 1 if the kernel became faster."""
        return self.before_us / self.after_us


def main(words: Sequence[str]) -> int:
    """The command. Returns 0; 1 if a cluster can no longer be planned or built; 2 for a mistake on the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench --changed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "checkout", type=pathlib.Path, metavar="CHECKOUT", help="another checkout with an environment of its own"
    )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=CACHE,
        metavar="DIR",
        help="kernel cache whose clusters are compared (default: .cache/stitchfleet in the project)",
    )
    parser.add_argument("--most", type=int, default=200, metavar="N", help="time at most so many kernels (default 200)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each kernel (default 5)")
    arguments = parser.parse_args(words)
    clusters = clusters_of(arguments.cache)
    python = arguments.checkout / ".venv" / "bin" / "python"
    if not clusters:
        parser.error(
            f"{arguments.cache / 'hlo'} holds no clusters; a job under `stitchfleet run --cache DIR` leaves them there"
        )
    if not python.exists():
        parser.error(f"{arguments.checkout} has no environment; run scripts/environment there")
    if arguments.most < 1 or arguments.rounds < 1:
        parser.error("--most, --rounds: at least 1")
    from .progress import say  # here, since another checkout's interpreter runs this file alone

    sides = {"before": str(python), "after": sys.executable}
    with tempfile.TemporaryDirectory(prefix="stitchfleet-changed-") as folder:
        say(f"writing the kernels of {len(clusters)} clusters on both sides")
        texts = _ask(sides, "texts", clusters, pathlib.Path(folder))
        differ = [path for path in clusters if texts["before"][path.name] != texts["after"][path.name]]
        lost = {side: [path for path in differ if texts[side][path.name].startswith("!")] for side in sides}
        both = [path for path in differ if path not in lost["before"] and path not in lost["after"]]
        print(f"{len(clusters)} clusters, the kernels of {len(both)} differ", flush=True)
        lines = [
            f"no kernel {side}: {path.name}: {texts[side][path.name][1:]}" for side in sides for path in lost[side]
        ]
        chosen = both[:: max(1, -(-len(both) // arguments.most))]
        say(f"building {len(chosen)} of them on both sides")
        built = _ask(sides, "build", chosen, pathlib.Path(folder))
        failed = {side: [path for path in chosen if isinstance(built[side][path.name], str)] for side in sides}
        lines += [f"not built {side}: {path.name}: {built[side][path.name]}" for side in sides for path in failed[side]]
        timed = [path for path in chosen if path not in failed["before"] and path not in failed["after"]]
        found = []
        for number, path in enumerate(timed, 1):
            if number % 20 == 1:
                say(f"timing kernel {number} of {len(timed)}")
            found.append(measure(path, built["before"][path.name], built["after"][path.name], arguments.rounds))
    for line in (*lines, *table(found)):
        print(line)
    return int(bool(lost["after"] or failed["after"]))


def clusters_of(cache: pathlib.Path) -> list[pathlib.Path]:
    """The files of HLO that jobs have left in a kernel cache, a cluster each."""
    return sorted(path for path in (cache / "hlo").glob("*") if path.suffix in (".pb", ".hlo"))


def table(found: Sequence[Changed]) -> list[str]:
    """The kernels as lines of text, the one that lost most first, then how many became slower and faster."""
    if not found:
        return []
    lines = [f"{'kernel':<60}{'before us':>10}{'after us':>10}{'ratio':>7}"]
    lines += [
        f"{each.cluster[:59]:<60}{each.before_us:>10.1f}{each.after_us:>10.1f}{each.ratio:>7.2f}"
        for each in sorted(found, key=lambda each: each.ratio)
    ]
    ratios = [each.ratio for each in found]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    slower, faster = sum(ratio < SLOWER for ratio in ratios), sum(ratio > 1 / SLOWER for ratio in ratios)
    lines.append(
        f"{len(found)} timed: {faster} faster, {slower} slower; geometric mean {mean:.3f}, {min(ratios):.2f} to {max(ratios):.2f}"
    )
    return lines


def measure(path: pathlib.Path, before: Mapping[str, Any], after: Mapping[str, Any], rounds: int) -> Changed:
    """Times both kernels of the cluster at `path` in turns; the fastest turn of each, since other work only adds time."""
    import numpy as np

    from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
    from stitchfleet.compiler.hlo.importer import import_hlo_file
    from stitchfleet.compiler.kernel.host_kernel import LoadedKernel, Prepared, aligned, aligned_copy
    from stitchfleet.compiler.kernel.metadata import KernelMetadata

    from .turns import kernels_us

    graph = import_hlo_file(path).graph
    given = [aligned_copy(array) for array in random_inputs(graph, np.random.default_rng(3), Regime.UNIT)]
    with contextlib.ExitStack() as stack:
        calls = {}
        for side, said in (("before", before), ("after", after)):
            metadata = KernelMetadata.from_json(said["metadata"])
            outputs = [aligned(kind.shape, kind.numpy) for kind in metadata.outputs]
            kernel = LoadedKernel(pathlib.Path(said["library"]), metadata)
            calls[side] = stack.enter_context(Prepared(kernel, given, outputs, 1)).call
        times = kernels_us(calls, rounds, lambda _: time.thread_time_ns)
    return Changed(path.stem, times["before"], times["after"])


# ---- in a checkout's own environment ------------------------------------------------------------------------------------


def _ask(
    sides: Mapping[str, str], what: str, clusters: Sequence[pathlib.Path], folder: pathlib.Path
) -> dict[str, dict[str, Any]]:
    """What each checkout answers, side by side: this file is run by its interpreter, with its own stitchfleet."""
    asked = folder / f"{what}.txt"
    asked.write_text("\n".join(map(str, clusters)))
    running = {}
    for side, python in sides.items():
        (folder / side).mkdir(exist_ok=True)
        command = [python, "-P", __file__, what, str(asked), str(folder / side), str(folder / side / f"{what}.json")]
        running[side] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = {side: process.communicate()[0] for side, process in running.items()}
    for side, process in running.items():
        if process.returncode:
            raise SystemExit(f"scripts/bench --changed: {sides[side]} failed: {said[side].strip().splitlines()[-1:]}")
    return {side: json.loads((folder / side / f"{what}.json").read_text()) for side in sides}


def _texts(clusters: Sequence[pathlib.Path]) -> dict[str, str]:
    """By cluster, a digest of its kernel's text; "!" and the reason if there is none."""
    from stitchfleet.compiler.codegen.cpu.kernel_text import render
    from stitchfleet.compiler.hlo.importer import import_hlo_file
    from stitchfleet.compiler.lowering.kernel_loops import lower
    from stitchfleet.compiler.planning.plan import plan_graph

    found = {}
    for path in clusters:
        try:
            text = render(lower(plan_graph(import_hlo_file(path).graph)), "kernel")
            found[path.name] = hashlib.sha256(text.encode()).hexdigest()
        except Exception as error:  # of any kind: a planner under development
            found[path.name] = f"!{type(error).__name__}: {str(error).splitlines()[:1]}"
    return found


def _built(clusters: Sequence[pathlib.Path], folder: pathlib.Path) -> dict[str, Any]:
    """By cluster, its kernel's library and metadata, or why it was not built."""
    from stitchfleet.compiler.check.selfcheck import CheckOptions
    from stitchfleet.compiler.hlo.importer import import_hlo_file
    from stitchfleet.compiler.kernel.cache import KernelCache
    from stitchfleet.compiler.pipeline.backend import KernelRequest
    from stitchfleet.compiler.pipeline.cpu import compile_graphs

    requests = [KernelRequest(path.stem, import_hlo_file(path).graph) for path in clusters]
    outcomes = compile_graphs(requests, KernelCache(folder), check=CheckOptions(skip=True))
    return {
        path.name: outcome.failure
        if outcome.entry is None
        else {"library": str(outcome.entry.library), "metadata": outcome.entry.metadata.to_json()}
        for path, outcome in zip(clusters, outcomes)
    }


def _answer(what: str, asked: str, folder: str, answer: str) -> None:
    clusters = [pathlib.Path(line) for line in pathlib.Path(asked).read_text().splitlines()]
    said = _texts(clusters) if what == "texts" else _built(clusters, pathlib.Path(folder))
    pathlib.Path(answer).write_text(json.dumps(said))


if __name__ == "__main__":
    _answer(*sys.argv[1:])
