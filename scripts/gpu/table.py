"""The tables of a file of results.

    scripts/bench-gpu table FILE [--markdown]

XLA has two figures. `kernels` is the sum of its kernels alone, without what lies between them: the least that it could take, whatever
starts them. `span` is from the beginning of an execution's first kernel to the end of its last one, as XLA started them. Ours is a
launch in a CUDA graph, what lies between two launches included. Ratios are XLA's or TorchInductor's time over ours.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import Case, cases_of

Row = dict[str, Any]


@dataclass
class Seen:
    """What was measured of one case, in microseconds. ours: by kernel; kernels, span, inductor: by contestant, the least of each."""

    ours: dict[str, float] = field(default_factory=dict)
    kernels: dict[str, float] = field(default_factory=dict)
    span: dict[str, float] = field(default_factory=dict)
    inductor: dict[str, float] = field(default_factory=dict)

    @property
    def tuned(self) -> float | None:
        """Our time in microseconds by the fastest of the case's kernels; None if none was measured."""
        return min(self.ours.values(), default=None)

    def chosen(self, case: Case) -> float | None:
        """Our time in microseconds by the kernel that the compiler chooses without a measurement; None if it was not
        measured."""
        return self.ours.get(case.kernels[0]) if case.kernels else None


def read_results(path: Path) -> list[Row]:
    """The lines of a file of results, which may be compressed."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def seen_of(rows: Sequence[Row]) -> dict[str, Seen]:
    """Maps the name of each case to what was measured of it. Rows of errors are left out."""
    found: dict[str, Seen] = defaultdict(Seen)
    for row in rows:
        name, contestant = row.get("name"), str(row.get("contestant"))
        if not name or "error" in row:
            continue
        if contestant == "stitchfleet" and row.get("us"):
            _least(found[name].ours, row["kernel"], row["us"])
        elif contestant.startswith("inductor") and row.get("us"):
            _least(found[name].inductor, contestant, row["us"])
        elif "xla" in contestant:
            for key, place in (("busy_us", found[name].kernels), ("us", found[name].span)):
                if row.get(key):
                    _least(place, contestant, row[key])
    return dict(found)


def _least(found: dict[str, float], key: str, value: float) -> None:
    found[key] = min(found.get(key, value), value)


def copies_of(rows: Sequence[Row]) -> dict[int, float]:
    """Maps the bytes that a copy moves to its time in microseconds, by the faster of both ways to start it."""
    return {row["copy_bytes"]: min(row["us"], row["us_without_graph"]) for row in rows if row.get("copy_bytes")}


def table(path: Path, markdown: bool = False) -> str:
    """The results as text."""
    rows = read_results(path)
    cases = {case.name: case for row in rows if row.get("fact") == "cases" for case in cases_of(row["cases"])}
    return "\n".join(_lines(rows, cases, markdown))


def _lines(rows: Sequence[Row], cases: Mapping[str, Case], markdown: bool) -> Iterator[str]:
    judged = [row for row in rows if "wrong" in row]
    wrong = [row for row in judged if row["wrong"]]
    yield f"{len(judged)} judgements, {len(wrong)} wrong"
    yield from (f"  WRONG {row['kernel']} on {row['regime']} inputs: {row['wrong'][:150]}" for row in wrong[:40])
    errors: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if "error" in row:
            said = f"{row.get('contestant', row.get('worker', ''))}: {row['error'][:160]}"
            errors[said].append(row.get("kernel") or row.get("name", ""))
    yield from (f"  ERROR {said} ({len(names)}: {', '.join(names[:3])})" for said, names in list(errors.items())[:40])
    for row in rows:
        if "barrier_blocks" in row:
            yield f"a grid barrier of {row['barrier_blocks']} blocks takes {row['us']:.2f} us"
    seen, copies = seen_of(rows), copies_of(rows)
    yield from _written(_cases_table(seen, copies, cases), markdown)
    yield from _written(_workloads_table(seen, cases), markdown)
    yield from _written(_steps_table(rows, cases), markdown)


def _cases_table(seen: Mapping[str, Seen], copies: Mapping[int, float], cases: Mapping[str, Case]) -> list[list[str]]:
    made = [["us", "ours", "tuned", "XLA kernels", "XLA span", "TorchInductor", "of a copy's speed", "XLA / ours"]]
    ratios: list[float] = []
    for name, one in seen.items():
        case = cases.get(name)
        if case is None or case.group != "micro" or one.tuned is None:
            continue
        kernels, copy = min(one.kernels.values(), default=None), copies.get(case.bytes_moved)
        ratio = kernels / one.tuned if kernels else None
        ratios += [ratio] if ratio else []
        figures = (one.chosen(case), one.tuned, kernels, min(one.span.values(), default=None))
        shown = [name, *map(_us, figures), _us(min(one.inductor.values(), default=None))]
        made.append([*shown, f"{copy / one.tuned:.0%}" if copy else "-", f"{ratio:.2f}" if ratio else "-"])
    if ratios:
        made.append(["geometric mean", *[""] * 6, f"{statistics.geometric_mean(ratios):.2f}"])
    return made


def _workloads_table(seen: Mapping[str, Seen], cases: Mapping[str, Case]) -> list[list[str]]:
    """The stitch ops of each workload's step: sums over the step, and the geometric mean over the different ones."""
    made = [["stitch ops of a step, us", "ops", "ours", "XLA kernels", "XLA span", "sum", "mean", "mean by span"]]
    everything: list[tuple[float, float]] = []
    for workload in dict.fromkeys(case.workload for case in cases.values() if case.group == "op"):
        found = []
        for case in cases.values():
            one = seen.get(case.name)
            ours = one.chosen(case) if one is not None else None
            if case.group == "op" and case.workload == workload and one is not None and ours and one.kernels:
                kernels = min(one.kernels.values())
                found.append((case.count, ours, kernels, min(one.span.values(), default=kernels)))
        if not found:
            continue
        total = [sum(row[0] * row[k] for row in found) for k in (1, 2, 3)]
        pairs = [(row[2] / row[1], row[3] / row[1]) for row in found]
        everything += pairs
        means = [statistics.geometric_mean(pair[k] for pair in pairs) for k in (0, 1)]
        sums = [f"{one:.0f}" for one in total]
        made.append([workload, str(sum(row[0] for row in found)), *sums, f"{total[1] / total[0]:.2f}"])
        made[-1] += [f"{one:.2f}" for one in means]
    if everything:
        means = [statistics.geometric_mean(pair[k] for pair in everything) for k in (0, 1)]
        made.append([f"{len(everything)} different ones", *[""] * 5, *(f"{one:.2f}" for one in means)])
    return made


def _steps_table(rows: Sequence[Row], cases: Mapping[str, Case]) -> list[list[str]]:
    """Whole steps, by the clock: XLA alone, and with our kernels in it, under the same flags."""
    by: dict[tuple[str, str], Row] = {}
    for row in rows:
        case = cases.get(row.get("name", ""))
        if row.get("wall_us") and case is not None and case.group == "step":
            by[row["name"], row["contestant"]] = row
    distances = {(row["name"], row["contestant"]): row["distance"] for row in rows if "distance" in row}
    made = [["a whole step, us", "flags", "XLA", "with our kernels", "XLA / ours", "kernels", "ours", "distance"]]
    for (name, contestant), row in by.items():
        ours = by.get((name, f"stitchfleet in {contestant}"))
        if ours is not None:
            ratio, far = row["wall_us"] / ours["wall_us"], distances.get((name, contestant))
            made.append([name, contestant, _us(row["wall_us"]), _us(ours["wall_us"]), f"{ratio:.2f}"])
            counts = [f"{one.get('kernels') or 0:.0f}" for one in (row, ours)]
            made[-1] += [*counts, "-" if far is None else f"{far:.0e}"]
    return made


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _written(made: list[list[str]], markdown: bool) -> Iterator[str]:
    if len(made) < 2:
        return
    yield ""
    if markdown:
        yield "| " + " | ".join(made[0]) + " |"
        yield "| :-- |" + " --: |" * (len(made[0]) - 1)
        yield from ("| " + " | ".join(row) + " |" for row in made[1:])
        return
    widths = [max(len(row[k]) for row in made) for k in range(len(made[0]))]
    for row in made:
        yield "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        prog="bench-gpu table", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="results")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    print(table(arguments.file, arguments.markdown))


if __name__ == "__main__":
    main()
