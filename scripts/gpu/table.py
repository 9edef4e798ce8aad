"""The table of a file of results: python3 -m scripts.gpu.table FILE FOLDER"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any


def table(path: Path, folder: Path) -> str:
    """The results as text: facts, verdicts, barrier, and microseconds of each case by contestant."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines: list[str] = []
    wrong = [row for row in rows if row.get("wrong")]
    judged = [row for row in rows if "wrong" in row]
    lines.append(f"{len(judged)} judgements, {len(wrong)} wrong")
    lines += [f"  WRONG {row['name']} {row['kernel']} {row['regime']}: {row['wrong'][:150]}" for row in wrong[:40]]
    errors: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if "error" in row:
            said = f"{row.get('contestant', row.get('worker', ''))}: {row['error'][:160]}"
            errors[said].append(row.get("kernel") or row.get("name", ""))
    lines += [f"  ERROR {said} ({len(names)}: {', '.join(names[:3])})" for said, names in list(errors.items())[:40]]
    for row in rows:
        if "barrier_blocks" in row:
            lines.append(
                f"barrier of {row['barrier_blocks']} blocks: {row['us']:.2f} us, launch {row['launch_us']:.2f}"
            )
    copies = {row["copy_bytes"]: row["us"] for row in rows if "copy_bytes" in row and "us" in row}
    best: dict[str, dict[str, float]] = defaultdict(dict)
    first_kernel: dict[str, str] = {}
    for row in rows:
        if "contestant" in row and row.get("name") and (value := _value(row)) is not None:
            name, contestant = row["name"], row["contestant"]
            if contestant == "stitchfleet":
                first_kernel.setdefault(name, row["kernel"])
                if row["kernel"] == first_kernel[name]:
                    _least(best[name], "chosen", value)
            _least(best[name], contestant, value)
    columns = ["stitchfleet", "chosen", "xla", "xla tuned", "inductor", "inductor max-autotune"]
    lines.append(f"{'us':42}" + "".join(f"{one[:13]:>14}" for one in columns) + f"{'copy share':>12}{'xla/ours':>10}")
    ratios: list[float] = []
    moved = _moved(folder)
    for name, found in best.items():
        text = "".join(f"{found[one]:14.2f}" if one in found else f"{'-':>14}" for one in columns)
        size = moved.get(name, 0)
        copy = copies.get(size)
        ours = found.get("stitchfleet")
        share = f"{copy / ours:12.0%}" if copy and ours else f"{'':12}"
        peers = [found[one] for one in ("xla", "xla tuned") if one in found]
        ratio = min(peers) / ours if peers and ours else None
        if ratio is not None:
            ratios.append(ratio)
        lines.append(f"{name[:42]:42}{text}{share}" + (f"{ratio:10.2f}" if ratio is not None else ""))
    if ratios:
        lines.append(
            f"geometric mean of XLA's best over ours: {statistics.geometric_mean(ratios):.2f}, {len(ratios)} cases"
        )
    return "\n".join(lines)


def _value(row: dict[str, Any]) -> float | None:
    """A result's microseconds: of the kernels, where a profile has them."""
    for key in ("us", "busy_us"):
        if row.get(key):
            return float(row[key])
    return None


def _least(found: dict[str, float], key: str, value: float) -> None:
    found[key] = min(found.get(key, value), value)


def _moved(folder: Path) -> dict[str, int]:
    """Bytes that our kernel of each case reads and writes."""
    return {row["name"]: row["bytes_moved"] for row in json.loads((folder / "cases.json").read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench-gpu table", description=table.__doc__)
    parser.add_argument("file", type=Path, help="results")
    parser.add_argument("folder", type=Path, help="the prepared folder")
    arguments = parser.parse_args()
    print(table(arguments.file, arguments.folder))


if __name__ == "__main__":
    main()
