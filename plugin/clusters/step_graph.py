"""The step as a small graph, for people: clusters, matrix products, and the other operators that stayed in TensorFlow.

A step has thousands of operators. Here a cluster is one block, a matrix product or convolution is one block, and the other operators
are grouped: one block for each name scope and reason between two levels. A *level* is the number of clusters and products on the
longest path from the step's beginning: blocks of one level could run at the same time. Operators that stayed are placed as late as
possible, before the first block that reads them, so that variables' reads are beside their users and not all at the top.

step_blocks.py makes it from a placed graph. It is written beside the job's records at the end of the job;
`stitchfleet explain SUMMARY.json` (explain_job.py) reads it without TensorFlow.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stitchfleet.compiler.support.whole_files import write_whole

FORMAT = 1
CLUSTER, PRODUCT_BLOCK, STAYED = "cluster", "product", "stayed"


@dataclass(frozen=True)
class StepBlock:
    """One box of the picture.

    kind: "cluster", "product" or "stayed". name: the cluster's name, or that of the product's node; "" otherwise. scope: the name
    scope that all operators share. level: from 0; operators that stayed at level n come before the clusters and products of level n.
    ops: operator -> count. nodes: names of the operators, without the scope. reason: why they stayed in TensorFlow; "" for a cluster.
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
    """The blocks of a step and the edges between them.

    blocks: by level; within a level the operators that stayed come first. edges: (producer, consumer) as positions in `blocks`, for
    tensors, each pair once. A cluster or product that reads another one through operators that stayed also has a direct edge from it:
    a block of several such operators may connect blocks that no tensor connects.
    """

    blocks: tuple[StepBlock, ...] = ()
    edges: tuple[tuple[int, int], ...] = field(default=())

    def write(self, path: pathlib.Path, program: str) -> None:
        """Writes the graph as JSON, with the program's name. Raises OSError."""
        document = {
            "format": FORMAT,
            "program": program,
            "blocks": [asdict(block) for block in self.blocks],
            "edges": self.edges,
        }
        write_whole(path, json.dumps(document, separators=(",", ":")) + "\n")


def joined(graphs: Mapping[str, StepGraph]) -> StepGraph:
    """Several step graphs as one, one below the other. graphs: function's name, which is put before its scopes ("" for none) ->
    graph."""
    blocks: list[StepBlock] = []
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
    """Reads the file that `write` has written. Raises OSError, and ValueError if it is not one."""
    try:
        document: Any = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise ValueError(f"step graph of format {document['format']}, expected {FORMAT}")
        blocks = tuple(StepBlock(**{**fields, "nodes": tuple(fields["nodes"])}) for fields in document["blocks"])
        edges = tuple((int(a), int(b)) for a, b in document["edges"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a step graph: {error}") from None
    if not all(0 <= end < len(blocks) for edge in edges for end in edge):
        raise ValueError("not a step graph: an edge to a block that is not there")
    return StepGraph(blocks, edges)


def file_name(program: str) -> str:
    """Name of the file for the step graph of a program."""
    return f"step-{re.sub(r'[^A-Za-z0-9_.-]', '_', program)}.json"
