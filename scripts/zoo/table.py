"""The zoo's results as lines of Markdown, from the files that `scripts/bench --zoo --json FILE` writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..benchmark.figures import Ratio, geometric_mean
from .catalog import MODELS

HEADER = (
    "| job | step, plain | over plain | over the better of plain and XLA | memory-intensive time in stitch ops | most of the rest | "
    "kernels | largest error of a kernel | reverted | stitched after | memory beside plain |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)

COVERED = 0.85
"""The share of memory-intensive time in stitch ops that is asked of three quarters of the jobs."""
_BY_JOB = ("workloads", "beside_the_better_of_plain_and_xla", "coverage")


def rows(document: Mapping[str, Any]) -> Iterator[str]:
    """A row for each job of the result file `document`."""
    for name, results in document["workloads"].items():
        found = {result["contestant"]: result for result in results}
        plain, stitched = found["plain"], found.get("stitched")
        model = MODELS.get(name)
        title = f"{name} ({model.package}, {model.author}; {model.environment.tensorflow})" if model else name
        if plain["failure"] or stitched is None or stitched["failure"]:
            reason = plain["failure"] or (stitched or {}).get("failure") or "not run"
            yield f"| {title} | did not run: {reason} |" + " |" * 9
            continue
        best = document["beside_the_better_of_plain_and_xla"].get(name)
        coverage = document["coverage"].get(name)
        over = stitched["figures"]["ratio_of_wall"] if stitched["figures"] else None
        summary = stitched["summary"]
        kernels = [each for cluster in summary["clusters"] for each in cluster["executables"]] if summary else []
        used = [each for each in kernels if each["calls"]["stitched"]]
        error = max((each["error_over_tolerance"] for each in used), default=math.nan)
        after = [p["stitched_after_seconds"] for p in summary["programs"] if p["name"] == summary["main"]]
        yield " | ".join(
            [
                f"| {title}",
                f"{plain['figures']['wall_ms']:.4g} ms" if plain["figures"] else "-",
                _ratio(over),
                f"{_ratio(best['by_wall'])}, {best['name']}" if best else "-",
                f"{coverage['share']:.0%}" if coverage else "-",
                _outside(coverage) if coverage else "-",
                f"{len(used)}",
                f"{error:.2f} of its bound" if used else "-",
                f"{len(summary['reverts'])}" if summary else "-",
                "; ".join([*[f"{seconds:.0f} s" for seconds in after if seconds], *filter(None, [stitched["note"]])])
                or "-",
                f"{(stitched['peak_bytes'] - plain['peak_bytes']) / 2**20:+.0f} MiB |",
            ]
        )


def table(document: Mapping[str, Any]) -> list[str]:
    """The lines of the table."""
    return [*HEADER, *rows(document)]


def merged(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One document of several, in the order of time: a job's last result counts. The zoo takes hours, and is run in parts."""
    whole: dict[str, Any] = {key: {} for key in _BY_JOB}
    for document in sorted(documents, key=lambda each: str(each["when"])):
        for name in document["workloads"]:
            for key in _BY_JOB:
                whole[key].pop(name, None)
                if name in document[key]:
                    whole[key][name] = document[key][name]
    return whole


def summary(document: Mapping[str, Any]) -> list[str]:
    """The figures over all jobs, as lines of Markdown: how many ran, were stitched and were covered, and the mean speed."""
    found = [{result["contestant"]: result for result in results} for results in document["workloads"].values()]
    failed = [each["stitched"] for each in found if not each["plain"]["failure"] and each["stitched"]["failure"]]
    ran = [each["stitched"]["summary"] for each in found if each["stitched"]["summary"]]
    best = [each["by_wall"] for each in document["beside_the_better_of_plain_and_xla"].values()]
    over = [each["stitched"]["figures"]["ratio_of_wall"] for each in found if each["stitched"]["figures"]]
    shares = [each["share"] for each in document["coverage"].values()]
    lines = [
        f"- {len(found)} jobs; {len(failed)} broken by stitching; {sum(len(each['reverts']) for each in ran)} reverts by the guard.",
        f"- Coverage of {COVERED:.0%} of the memory-intensive time and more: {sum(s >= COVERED for s in shares)} of {len(shares)}.",
    ]
    for title, ratios in (("plain", over), ("the better of plain and XLA", best)):
        measured = [Ratio(**ratio) for ratio in ratios if ratio]
        if mean := geometric_mean(measured):
            values = [ratio.value for ratio in measured]
            slower = sum(ratio.high < 1.0 for ratio in measured)
            lines.append(
                f"- Over {title}: {mean.value:.2f} (geometric mean of {len(values)}), "
                f"{min(values):.2f} to {max(values):.2f}; slower beyond the interval: {slower}."
            )
    return lines


LEAST = 1.1
"""Over the better of plain and XLA: a job below it is explained by its profile."""


def below(document: Mapping[str, Any]) -> list[str]:
    """The lines of a table of the jobs below LEAST, the lowest first: the times of a step's operators by the profiles, plain and
    stitched, and what the step would gain if memory-intensive work took no time."""
    lines = [
        "| job | over the better of plain and XLA | plain: products, the rest | stitched: products, stitch ops, the rest "
        "| the most that stitching could gain | what the stitched step consists of |",
        "|---|---|---|---|---|---|",
    ]
    found = document["beside_the_better_of_plain_and_xla"]
    for name in sorted(found, key=lambda name: float(found[name]["by_wall"]["value"])):
        coverage = document["coverage"].get(name)
        if found[name]["by_wall"]["value"] >= LEAST or not coverage:
            continue
        plain, stitched = coverage["plain"], coverage["stitched"]
        rest = stitched["memory_us"] - stitched["stitch_us"]
        most = (plain["product_us"] + plain["memory_us"]) / plain["product_us"] if plain["product_us"] else math.inf
        lines.append(
            f"| {name} | {_ratio(found[name]['by_wall'])}, {found[name]['name']} "
            f"| {_ms(plain['product_us'])}, {_ms(plain['memory_us'])} ms "
            f"| {_ms(stitched['product_us'])}, {_ms(stitched['stitch_us'])}, {_ms(rest)} ms | {most:.2f} | {_kinds(stitched)} |"
        )
    return lines


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3g}"


def _kinds(iteration: Mapping[str, Any], most: int = 4) -> str:
    kinds = iteration.get("kinds", ())[:most]
    return ", ".join(f"{kind['runs']:.0f} {kind['op']} {_ms(kind['us'])} ms" for kind in kinds) or "-"


def _ratio(ratio: Mapping[str, float] | None) -> str:
    return f"{ratio['value']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})" if ratio else "-"


def _outside(coverage: Mapping[str, Any]) -> str:
    """The operator that takes most of the time outside stitch ops, its share of memory-intensive time, and why it stays out."""
    whole = coverage["plain"]["memory_us"]
    if not coverage["outside"] or not whole:
        return "-"
    most = max(coverage["outside"], key=lambda each: each["us"])
    return f"{most['op']}, {most['us'] / whole:.0%}: {most['reason']}"
