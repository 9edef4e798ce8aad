"""What the compiler's commands share: how a user's mistake is told, and where a result goes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from .cuda import CudaError
from .hlo_module import HloImportError
from .ops import GraphError
from .toolchain import ToolchainError


class MistakeError(Exception):
    """What the user gave cannot be worked with; the text is the line to print."""


@contextlib.contextmanager
def mistakes(command: str) -> Iterator[list[int]]:
    """Runs a command's body: a mistake is printed in one line, and the exit code, in the list, becomes 2."""
    code = [0]
    try:
        yield code
    except (MistakeError, HloImportError, GraphError, ToolchainError, CudaError) as error:
        print(f"stitchfleet {command}: {' '.join(str(error).split())}", file=sys.stderr)
        code[0] = 2
    except BrokenPipeError:
        raise  # a pager that was left; the `stitchfleet` command knows
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"stitchfleet {command}: {where}{error.strerror or error}", file=sys.stderr)
        code[0] = 2


def emit(text: str, output: Path | None) -> None:
    if output is None:
        print(text)
    else:
        output.write_text(text + "\n")
