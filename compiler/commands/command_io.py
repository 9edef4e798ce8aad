"""What the compiler's commands share: how a user's mistake is reported, and where a result is written."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..check.judge import judge
from ..codegen.cuda.kernel_text import CudaError
from ..hlo.module import HloImportError
from ..ir.graph import Array, Graph
from ..kernel.cache import CacheEntry
from ..ops.infer import GraphError
from ..support.sequences import zip_strict
from ..toolchain.host import ToolchainError


class MistakeError(Exception):
    """The user's input cannot be used; the text is the line to print."""


@contextlib.contextmanager
def mistakes(command: str) -> Iterator[list[int]]:
    """A context manager for the body of `stitchfleet {command}`. It yields a list with the exit code, at first 0. A user's mistake is
    printed on stderr in one line, and the exit code becomes 2."""
    code = [0]
    try:
        yield code
    except (MistakeError, HloImportError, GraphError, ToolchainError, CudaError) as error:
        print(f"stitchfleet {command}: {' '.join(str(error).split())}", file=sys.stderr)
        code[0] = 2
    except BrokenPipeError:
        raise  # the reader of the pipe has gone; the `stitchfleet` command handles it
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"stitchfleet {command}: {where}{error.strerror or error}", file=sys.stderr)
        code[0] = 2


def show_progress(line: str) -> None:
    """Shows a line that the next one overwrites, if stderr is a terminal: planning and building a model's step takes a while."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def emit(text: str, output: Path | None) -> None:
    """Prints `text`, or writes it to `output` if that is given. Raises OSError."""
    if output is None:
        print(text)
    else:
        output.write_text(text + "\n")


def kernel_text(entry: CacheEntry, notes: str) -> str:
    """What a person wants to know of a kernel, with the backend's notes of how it was made."""
    m = entry.metadata
    checked = (
        f"checked on {', '.join(m.check.regimes)} inputs: largest error {m.check.worst_of_allowed:.2f} of what is allowed"
        if m.check.checked
        else "not checked"
    )
    return "\n".join(
        [
            f"kernel {m.symbol}: {m.op_count} ops in {m.phases} phases ({m.parallel_phases} parallel)",
            f"  reads {m.bytes_read} bytes, writes {m.bytes_written}, intermediates {m.intermediate_bytes}",
            f"  {len(entry.library.read_bytes())} bytes of code and data by {m.compiler}",
            *([f"  vector functions: {', '.join(m.vector_symbols) or 'none'}"] if m.launch is None else []),
            *(f"  {line}" for line in notes.splitlines()),
            f"  {checked}",
        ]
    )


def tell_run(graph: Graph, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """Prints the oracle's verdict on a kernel's outputs, and their first elements. Returns whether they are right."""
    verdict = judge(graph, inputs, outputs)
    print(f"run: {verdict} ({100 * verdict.decided:.0f}% of elements decided)")
    for number, (node, value) in enumerate(zip_strict((graph.nodes[i] for i in graph.outputs), outputs)):
        shown = ", ".join(f"{x:.6g}" for x in np.ravel(value).astype(np.float64)[:6])
        print(f"  output {number} {node.type_text}: {shown}{', ...' if node.element_count > 6 else ''}")
    return verdict.ok
