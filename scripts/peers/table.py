"""The peers' results as lines of Markdown, from the file that `scripts/bench --peers --json FILE` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..benchmark.contestants import WORKLOADS
from ..benchmark.figures import Ratio, geometric_mean

_TITLES = {"plain": "TensorFlow", "xla": "TensorFlow's XLA", "stitched": "stitched", "jax": "JAX"}
_TITLES |= {
    "torch": "PyTorch, eager",
    "torch-compile": "torch.compile",
    "torch-autotune": "torch.compile, max-autotune",
}


def table(document: Mapping[str, Any]) -> list[str]:
    """The lines of the table: a row for each model, a column for each contestant: ms of a step, and that over stitched's (above 1:
    stitched is faster) with its 95% interval. Below, the geometric means."""
    names = list(dict.fromkeys(each["contestant"] for found in document["models"].values() for each in found))
    lines = [f"| | {' | '.join(_TITLES.get(name, name) for name in names)} |", f"|---|{'---|' * len(names)}"]
    ratios: dict[str, list[Ratio]] = {name: [] for name in names}
    for model, results in document["models"].items():
        cells = []
        for name in names:
            result = next((each for each in results if each["contestant"] == name), None)
            cells.append(_cell(result))
            if result and result["over_stitched"]:
                ratios[name].append(Ratio(**result["over_stitched"]))
        lines.append(f"| {WORKLOADS[model].title} | {' | '.join(cells)} |")
    means = [_text(geometric_mean(ratios[name])) if ratios[name] else "" for name in names]
    lines.append(f"| geometric mean | {' | '.join(f'**{mean}**' if mean else '' for mean in means)} |")
    return lines


def _cell(result: Mapping[str, Any] | None) -> str:
    if result is None or result["figures"] is None:
        return f"- ({result['failure'] or result['note']})" if result else "-"
    median = result["figures"]["median_ms"]
    time = f"{median:.2f} ms" if median < 1.0 else f"{median:.1f} ms"
    return f"{time}, {_text(Ratio(**result['over_stitched']))}" if result["over_stitched"] else time


def _text(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else "-"
