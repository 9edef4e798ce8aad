"""The step as a picture (SVG): levels from top to bottom, clusters coloured by kind, products grey, the other operators as a line of
text.

A model's layers repeat, so rows that repeat, with the same clusters and products, are drawn once with the number of repetitions. An
edge over more than MAX_SPAN rows, as between the forward and the backward half, is not drawn, since it would hide the rest; the
tooltip of its source counts such edges.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from ..clusters.step_graph import CLUSTER, PRODUCT_BLOCK, STAYED, StepBlock, StepGraph

COLOURS = {
    "normalization": "#3f8f6b",
    "normalization_gradient": "#7db343",
    "softmax": "#8a5fb8",
    "cross_entropy": "#b85f9e",
    "gelu": "#d08a2e",
    "activation": "#d9a62e",
    "optimizer": "#c1543c",
    "reduce": "#3a7fc1",
    "movement": "#5a9fa8",
    "elementwise": "#7f88d1",
}
OTHER_COLOUR = "#8a94a3"
WIDTH, MARGIN, GUTTER, GAP = 960, 14, 178, 8
BOX, PRODUCT_HEIGHT, STRIP, ROW_GAP = 30, 22, 15, 20
MIN_BOX, MAX_BOX = 158, 480
MAX_SPAN = 3
"""Most rows that an edge may cross."""
MAX_PERIOD = 400
MAX_LISTED = 8
"""Most scopes, names and operators that a tooltip lists."""


@dataclass(frozen=True)
class KindTimes:
    """Times of one call of a cluster in microseconds, by TensorFlow's operators and by the kernel (None: not measured), and its
    state."""

    fallback_us: float | None = None
    kernel_us: float | None = None
    state: str = ""


@dataclass(frozen=True)
class Repeat:
    """Rows first .. first + period - 1 occur `times` times, one after the other."""

    first: int
    period: int
    times: int


@dataclass
class _Box:
    """Equal blocks of one row, drawn once. per_copy: their number in one repetition. read_far: edges from it that are not drawn."""

    blocks: list[StepBlock]
    per_copy: int
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    read_far: int = 0


@dataclass
class _Row:
    boxes: list[_Box]
    stayed: list[StepBlock] = field(default_factory=list)


def label_of(cluster: str) -> str:
    """A cluster's name without its hash."""
    return cluster.rpartition("_")[0] or cluster


def colour_of(cluster: str) -> str:
    """The colour of a cluster's boxes, by its label."""
    return COLOURS.get(label_of(cluster), OTHER_COLOUR)


def find_repeats(rows: Sequence[Hashable]) -> list[Repeat]:
    """Sequences of rows that repeat immediately, without overlap, in order.

    The repeat that saves the most rows is taken first (of several, the one with the shortest period); then the rows above and below
    it are searched in the same way.
    """
    found: list[Repeat] = []
    waiting = [(0, len(rows))]
    while waiting:
        low, high = waiting.pop()
        best, saved = None, 1  # one row saved is not worth a frame
        for period in range(1, min((high - low) // 2, MAX_PERIOD) + 1):
            run = 0
            for i in range(high - period - 1, low - 1, -1):
                run = run + 1 if rows[i] == rows[i + period] else 0
                if (copies := run // period) * period > saved:
                    best, saved = Repeat(i, period, copies + 1), copies * period
        if best is not None:
            found.append(best)
            waiting += [(low, best.first), (best.first + best.period * best.times, high)]
    return sorted(found, key=lambda repeat: repeat.first)


def draw(step: StepGraph, times: Mapping[str, KindTimes]) -> str:
    """The picture as SVG text. times: cluster's name -> its times."""
    levels = max((block.level for block in step.blocks), default=-1) + 1
    by_level: list[dict[Hashable, list[int]]] = [{} for _ in range(levels)]
    stayed: list[list[StepBlock]] = [[] for _ in range(levels)]
    for number, block in enumerate(step.blocks):
        if block.kind == STAYED:
            stayed[block.level].append(block)
        else:
            by_level[block.level].setdefault(_key(block), []).append(number)
    signatures = [frozenset((key, len(blocks)) for key, blocks in row.items()) for row in by_level]
    repeats = find_repeats(signatures)
    rows, box_of, row_of_box = _make_rows(step, by_level, stayed, repeats)
    longest = max((time.fallback_us or 0.0 for time in times.values()), default=0.0)
    y = 10.0
    tops: list[float] = []
    parts: list[str] = []
    frames = {repeat.first: repeat for repeat in repeats}
    number = 0
    shown = []
    for position, row in enumerate(rows):
        shown.append(number)
        repeat = frames.get(number)
        y += 16 if repeat else 0
        tops.append(y)
        y = _place(row, y, times, longest)
        inside = next((r for r in repeats if r.first <= number < r.first + r.period), None)
        if inside and number == inside.first + inside.period - 1:
            top = tops[position - inside.period + 1]
            parts.append(_frame(inside, top, y))
            y += 16
            number = inside.first + inside.period * inside.times
        else:
            number += 1
    lines = _lines(step, box_of, row_of_box)
    for row, level in zip(rows, shown):
        parts += _row_parts(row, level, times)
    height = y + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, DejaVu Sans, sans-serif" font-size="11" '
            'role="img" aria-label="the step from top to bottom">',
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
            *lines,
            *parts,
            "</svg>",
        ]
    )


def _key(block: StepBlock) -> Hashable:
    """Blocks with equal keys are drawn alike."""
    return (CLUSTER, block.name) if block.kind == CLUSTER else (PRODUCT_BLOCK, *sorted(block.ops))


def _make_rows(
    step: StepGraph,
    by_level: list[dict[Hashable, list[int]]],
    stayed: list[list[StepBlock]],
    repeats: list[Repeat],
) -> tuple[list[_Row], dict[int, _Box], dict[int, int]]:
    """The rows that are drawn, the box of each block, and the row of each box (by its id)."""
    box_of: dict[int, _Box] = {}
    row_of_box: dict[int, int] = {}
    rows: list[_Row] = []
    level = 0
    starts = {repeat.first: repeat for repeat in repeats}
    while level < len(by_level):
        repeat = starts.get(level, Repeat(level, 1, 1))
        for offset in range(repeat.period):
            copies = [level + offset + k * repeat.period for k in range(repeat.times)]
            row = _Row([], [block for copy in copies for block in stayed[copy]])
            for key in by_level[copies[0]]:
                numbers = [number for copy in copies for number in by_level[copy][key]]
                box = _Box([step.blocks[number] for number in numbers], len(by_level[copies[0]][key]))
                row.boxes.append(box)
                box_of.update(dict.fromkeys(numbers, box))
                row_of_box[id(box)] = len(rows)
            rows.append(row)
        level += repeat.period * repeat.times
    return rows, box_of, row_of_box


def _place(row: _Row, y: float, times: Mapping[str, KindTimes], longest_us: float) -> float:
    """Sets the position and size of a row's boxes. Returns the y at which the next row begins."""
    if row.stayed:
        y += STRIP
    x, height = float(GUTTER), 0.0
    for box in sorted(row.boxes, key=lambda box: box.blocks[0].kind):
        block = box.blocks[0]
        if block.kind == CLUSTER:
            time = times.get(block.name, KindTimes()).fallback_us or 0.0
            share = (time / longest_us) ** 0.5 if longest_us else 0.0
            box.width, box.height = max(MIN_BOX, share * MAX_BOX), BOX
        else:
            box.width, box.height = 20 + 6.4 * len(_product_text(box)), PRODUCT_HEIGHT
        if x + box.width > WIDTH - MARGIN and x > GUTTER:
            x, y, height = float(GUTTER), y + height + GAP, 0.0
        box.x, box.y = x, y
        x += box.width + GAP
        height = max(height, box.height)
    return y + height + ROW_GAP


def _lines(step: StepGraph, box_of: dict[int, _Box], row_of_box: dict[int, int]) -> list[str]:
    drawn: dict[tuple[int, int], str] = {}
    for a, b in step.edges:
        source, target = box_of.get(a), box_of.get(b)
        if source is None or target is None or source is target:
            continue
        span = row_of_box[id(target)] - row_of_box[id(source)]
        if span > MAX_SPAN:
            source.read_far += 1
        if not 0 < span <= MAX_SPAN:
            continue
        x1, y1 = source.x + source.width / 2, source.y + source.height
        x2, y2 = target.x + target.width / 2, target.y
        bend = (y2 - y1) / 2
        drawn[id(source), id(target)] = (
            f'<path d="M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}" '
            'fill="none" stroke="#b4bdc9"/>'
        )
    return list(drawn.values())


def _frame(repeat: Repeat, top: float, bottom: float) -> str:
    top, bottom = top - 8, bottom - ROW_GAP + 8
    text = f"x {repeat.times}"
    tooltip = f"{repeat.period} levels that come {repeat.times} times, drawn once"
    return (
        f'<g><title>{tooltip}</title><rect x="4" y="{top:.0f}" width="{WIDTH - 8}" height="{bottom - top:.0f}" rx="8" fill="none" '
        f'stroke="#8a94a3" stroke-dasharray="5 4"/>'
        f'<rect x="{WIDTH - 58}" y="{top - 9:.0f}" width="44" height="18" rx="9" fill="#1d2530"/>'
        f'<text x="{WIDTH - 36}" y="{top + 4:.0f}" fill="white" font-weight="bold" text-anchor="middle">{text}</text></g>'
    )


def _row_parts(row: _Row, level: int, times: Mapping[str, KindTimes]) -> list[str]:
    parts: list[str] = []
    first = min((box.y for box in row.boxes), default=0.0)
    scope = _shortened(_common([block.scope for box in row.boxes for block in box.blocks[: box.per_copy]]), 24)
    parts.append(f'<text x="{MARGIN}" y="{first + 14:.0f}" fill="#5a6675" font-size="10">{escape(scope)}</text>')
    parts.append(
        f'<text x="{GUTTER - 10}" y="{first + 14:.0f}" fill="#a6afbb" font-size="10" text-anchor="end">{level}</text>'
    )
    if row.stayed:
        parts.append(_strip(row.stayed, first))
    parts += [_cluster(box, times) if box.blocks[0].kind == CLUSTER else _product(box) for box in row.boxes]
    return parts


def _strip(stayed: list[StepBlock], y: float) -> str:
    ops: collections.Counter[str] = collections.Counter()
    lines: list[str] = []
    by_reason: dict[str, collections.Counter[str]] = {}
    for block in stayed:
        ops.update(block.ops)
        by_reason.setdefault(block.reason, collections.Counter()).update(block.ops)
    for reason, counts in by_reason.items():
        lines.append(f"{reason}: {_counts(counts, MAX_LISTED)}")
    names = [f"{block.scope}/{name}".lstrip("/") for block in stayed for name in block.nodes]
    lines += ["", *names[:MAX_LISTED], *([f"and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else [])]
    return (
        f"<g><title>{escape(chr(10).join(['stayed in TensorFlow', *lines]))}</title>"
        f'<rect x="{GUTTER}" y="{y - STRIP:.0f}" width="{WIDTH - GUTTER - MARGIN}" height="{STRIP - 3}" '
        'fill="white" fill-opacity="0"/>'
        f'<text x="{GUTTER}" y="{y - 5:.0f}" fill="#5a6675" font-size="9.5" font-style="italic">'
        f"stayed: {escape(_counts(ops, 5))}</text></g>"
    )


def _cluster(box: _Box, times: Mapping[str, KindTimes]) -> str:
    block = box.blocks[0]
    time = times.get(block.name, KindTimes())
    colour = colour_of(block.name)
    lines = [
        block.name,
        f"{sum(block.ops.values())} operators: {_counts(block.ops, MAX_LISTED)}",
        f"TensorFlow {microseconds(time.fallback_us)}, kernel {microseconds(time.kernel_us)} a call; {time.state or 'never ran'}",
    ]
    filled = 0.0
    slower = False
    if time.fallback_us and time.kernel_us is not None:
        filled = box.width * min(1.0, time.kernel_us / time.fallback_us)
        slower = time.kernel_us > time.fallback_us
    stroke = "#c1443c" if slower else colour
    head = _shortened(label_of(block.name), 22) + _times_text(box.per_copy)
    below = block.name.rpartition("_")[2][:6]
    if time.fallback_us and time.kernel_us is not None:
        below = f"{microseconds(time.fallback_us)} > {microseconds(time.kernel_us)}"
    elif time.state:
        below = time.state
    return (
        f'<g class="cluster"><title>{escape(_tooltip(box, lines))}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.0f}" width="{box.width:.1f}" height="{box.height:.0f}" rx="4" fill="white"/>'
        f'<rect x="{box.x:.1f}" y="{box.y:.0f}" width="{box.width:.1f}" height="{box.height:.0f}" rx="4" fill="{colour}" '
        f'fill-opacity="0.2" stroke="{stroke}"/>'
        f'<rect x="{box.x:.1f}" y="{box.y:.0f}" width="{filled:.1f}" height="{box.height:.0f}" rx="4" fill="{colour}" '
        'fill-opacity="0.55"/>'
        f'<text x="{box.x + 7:.1f}" y="{box.y + 13:.0f}" font-weight="600">{escape(head)}</text>'
        f'<text x="{box.x + 7:.1f}" y="{box.y + 25:.0f}" font-size="9.5">{escape(below)}</text></g>'
    )


def _product(box: _Box) -> str:
    lines = [f"{', '.join(box.blocks[0].ops)}: {box.blocks[0].reason}; TensorFlow's own"]
    return (
        f'<g class="product"><title>{escape(_tooltip(box, lines))}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.0f}" width="{box.width:.1f}" height="{box.height:.0f}" rx="4" '
        'fill="#e3e6ea" stroke="#a6afbb"/>'
        f'<text x="{box.x + 9:.1f}" y="{box.y + 15:.0f}">{escape(_product_text(box))}</text></g>'
    )


def _tooltip(box: _Box, lines: list[str]) -> str:
    names = [block.scope if block.kind == CLUSTER else block.name for block in box.blocks]
    names = [name or "(no name scope)" for name in names]
    more = [f"and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
    far = [f"read {box.read_far} times further below"] if box.read_far else []
    return "\n".join([*lines, *far, "", *names[:MAX_LISTED], *more])


def _product_text(box: _Box) -> str:
    return ", ".join(box.blocks[0].ops).lstrip("_") + _times_text(box.per_copy)


def _times_text(count: int) -> str:
    return f" x {count}" if count > 1 else ""


def microseconds(value: float | None) -> str:
    """A time in microseconds as text with a suitable unit; "not measured" for None."""
    if value is None:
        return "not measured"
    return f"{value / 1e3:.1f} ms" if value >= 1000 else f"{value:.0f} us" if value >= 10 else f"{value:.1f} us"


def _counts(ops: Mapping[str, int], most: int) -> str:
    ordered = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{count} {op}" for op, count in ordered[:most])
    return text + (f" and {len(ordered) - most} kinds more" if len(ordered) > most else "")


def _common(scopes: Sequence[str]) -> str:
    shared: list[str] = []
    for level in zip(*(scope.split("/") for scope in scopes)):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "/".join(shared)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else "..." + text[-most + 3 :]
