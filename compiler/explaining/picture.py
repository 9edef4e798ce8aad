"""A plan as a picture: one column per level, one box per nest, one line per segment. Arrows are tensors that go through
memory."""

from __future__ import annotations

from html import escape

from ..ir.index_maps import Index
from ..planning.access import trace
from ..planning.mapping import SegmentKind, spans_rows
from ..planning.placement import Nest, mapped_roots, within
from ..planning.plan import Plan

COLUMN, GAP, LINE, PAD, TOP = 380, 70, 16, 10, 64
FILL = {"local": "#eef3f8", "regional": "#e3f1e3", "global": "#fbe6d4", "output": "#e8e4f5"}
MAX_LINES = 24  # segments of a nest that are named; the others are only counted


def draw(plan: Plan) -> str:
    """The plan as SVG text. Colours show schemes; the picture has a legend."""
    boxes: dict[int, tuple[int, int, int]] = {}
    parts: list[str] = []
    height = TOP
    for level, nests in enumerate(plan.levels):
        x, y = PAD + level * (COLUMN + GAP), TOP
        parts.append(_text(x, y - 8, f"level {level}", bold=True))
        for nest in nests:
            body, size = _nest(plan, nest, x, y)
            boxes[nest.number] = (x, y, size)
            parts.extend(body)
            y += size + 18
        height = max(height, y)
    arrows = [_arrow(boxes[source], boxes[target], text) for source, target, text in _edges(plan)]
    width = PAD * 2 + max(1, len(plan.levels)) * (COLUMN + GAP) - GAP
    total = sum(buffer.size_bytes for buffer in plan.intermediates)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 10}" '
        f'viewBox="0 0 {width} {height + 10}" font-family="sans-serif" font-size="11">',
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z" fill="#a0522d"/></marker></defs>',
        f'<rect width="{width}" height="{height + 10}" fill="white"/>',
        _text(PAD, 18, f"{plan.graph.name}: {total} bytes of intermediates go through memory", bold=True),
    ]
    for number, (name, colour) in enumerate(FILL.items()):
        head.append(f'<rect x="{PAD + number * 90}" y="26" width="12" height="12" fill="{colour}" stroke="#888"/>')
        head.append(_text(PAD + 16 + number * 90, 36, name))
    return "\n".join([*head, *arrows, *parts, "</svg>"]) + "\n"


def _nest(plan: Plan, nest: Nest, x: int, y: int) -> tuple[list[str], int]:
    lines: list[tuple[str, str]] = []
    for segment, mapping in nest.placed:
        node = plan.graph.nodes[segment.node]
        verb = {
            SegmentKind.REDUCE: "reduce",
            SegmentKind.SCATTER: "scatter",
            SegmentKind.SCAN: "scan",
            SegmentKind.BASE: "base",
        }.get(segment.kind, "")
        over = " over rows" if spans_rows(segment, mapping) else ""
        lines.append(
            (plan.scheme_of(segment.node).scheme.value, f"{verb}{over} %{segment.node} {node.op} {node.type_text}")
        )
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], ("local", f"and {len(lines) - MAX_LINES} more")]
    execution = plan.executions[nest.number]
    size = (len(lines) + 1) * LINE + 2 * PAD
    parts = [
        f'<rect x="{x}" y="{y}" width="{COLUMN}" height="{size}" rx="6" fill="#fafafa" stroke="#555"/>',
        _text(x + PAD, y + PAD + 8, f"nest {nest.number}: {execution.rows} rows, {execution.tasks} tasks", bold=True),
    ]
    for number, (scheme, text) in enumerate(lines):
        top = y + PAD + (number + 1) * LINE
        parts.append(
            f'<rect x="{x + 6}" y="{top - 2}" width="{COLUMN - 12}" height="{LINE - 2}" fill="{FILL[scheme]}"/>'
        )
        parts.append(_text(x + PAD, top + 9, text.strip()[:62]))
    return parts, size


def _edges(plan: Plan) -> list[tuple[int, int, str]]:
    """Edges between nests: (writer, reader, names of the tensors that go through memory)."""
    found: dict[tuple[int, int], list[str]] = {}
    for nest in plan.nests:
        row = Index.of_var(nest.row)
        for segment, mapping in nest.placed:
            roots = mapped_roots(plan.graph, segment, mapping, row, Index.of_var(within(mapping.inner)))
            for request, _ in trace(plan.graph, roots, plan.placement.stored_in(nest)).loads():
                source = plan.placement.nest_of.get(request.node)
                if source is not None and source is not nest and request.node in plan.placement.hard:
                    found.setdefault((source.number, nest.number), []).append(f"%{request.node}")
    return [(a, b, ", ".join(list(dict.fromkeys(names))[:4])) for (a, b), names in found.items()]


def _arrow(source: tuple[int, int, int], target: tuple[int, int, int], text: str) -> str:
    x1, y1 = source[0] + COLUMN, source[1] + source[2] // 2
    x2, y2 = target[0], target[1] + target[2] // 2
    middle = (x1 + x2) // 2
    return (
        f'<path d="M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}" fill="none" stroke="#a0522d" '
        f'marker-end="url(#head)"/>' + _text(middle - 20, (y1 + y2) // 2 - 4, text)
    )


def _text(x: int, y: int, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}"{weight}>{escape(text)}</text>'
