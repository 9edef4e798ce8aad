"""The step as a small graph, for people: clusters, matrix products, and what else stayed in TensorFlow, from top to bottom.

A step has thousands of operators. Here a cluster is one block, a matrix product or convolution is one block, and the rest are
grouped: one block for each name scope and reason between two levels. A *level* counts the clusters and products on the longest path
from the step's beginning: blocks of one level could run at the same time. What stayed stands as late as it can, before the first
block that reads it: the variables' reads are thus beside their users and not in one heap at the top.

step_blocks.py makes it of a placed graph. It is written beside the job's records at its end; `stitchfleet explain SUMMARY.json` reads
it again (explain_job.py), and needs no TensorFlow for it.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

FORMAT = 1
CLUSTER, PRODUCT_BLOCK, STAYED = "cluster", "product", "stayed"


@dataclass(frozen=True)
class Block:
    """One box of the picture.

    kind: "cluster", "product" or "stayed". name: the cluster's, or the product's node. scope: the name scope that all share.
    ops: operator -> count. nodes: their names without the scope. reason: why they stayed in TensorFlow; "" for a cluster.
    level: from 0; what stayed at level n stands before the clusters and products of level n.
    """

    kind: str
    name: str
    scope: str
    level: int
    ops: dict[str, int]
    nodes: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class StepGraph:
    """blocks: by level, what stayed before the rest.

    edges: (producer, consumer) among them, each pair once; tensors only. A cluster or product that reads another through operators
    that stayed is joined to it as well: the blocks of those hold several operators, and a way through one may be nobody's.
    """

    blocks: tuple[Block, ...] = ()
    edges: tuple[tuple[int, int], ...] = field(default=())

    def write(self, path: pathlib.Path, program: str) -> None:
        """As JSON. Raises OSError."""
        document = {
            "format": FORMAT,
            "program": program,
            "blocks": [asdict(block) for block in self.blocks],
            "edges": self.edges,
        }
        fresh = path.with_name(path.name + ".part")
        fresh.write_text(json.dumps(document, separators=(",", ":")) + "\n")
        fresh.replace(path)


def joined(graphs: Mapping[str, StepGraph]) -> StepGraph:
    """One after the other, from top to bottom. graphs: by the name of the function, which goes before their scopes ("" for none)."""
    blocks: list[Block] = []
    edges: list[tuple[int, int]] = []
    for name, graph in graphs.items():
        first = blocks[-1].level + 1 if blocks else 0
        edges += [(a + len(blocks), b + len(blocks)) for a, b in graph.edges]
        blocks += [
            replace(block, level=first + block.level, scope="/".join(part for part in (name, block.scope) if part))
            for block in graph.blocks
        ]
    return StepGraph(tuple(blocks), tuple(edges))


def read(path: pathlib.Path) -> StepGraph:
    """What `write` wrote. Raises OSError, and ValueError for another file."""
    try:
        document: Any = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise ValueError(f"step graph of format {document['format']}, expected {FORMAT}")
        blocks = tuple(Block(**{**fields, "nodes": tuple(fields["nodes"])}) for fields in document["blocks"])
        edges = tuple((int(a), int(b)) for a, b in document["edges"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a step graph: {error}") from None
    if not all(0 <= end < len(blocks) for edge in edges for end in edge):
        raise ValueError("not a step graph: an edge to a block that is not there")
    return StepGraph(blocks, edges)


def file_name(program: str) -> str:
    """Of the step graph of a program."""
    return f"step-{re.sub(r'[^A-Za-z0-9_.-]', '_', program)}.json"
