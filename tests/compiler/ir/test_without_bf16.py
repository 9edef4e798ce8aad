"""TensorFlow 2.13 brings no ml_dtypes: without it everything but bf16 is compiled."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["ml_dtypes"] = None
import stitchfleet.plugin.service.bundle
from stitchfleet.compiler.hlo.importer import UnsupportedHloError, import_hlo_text
from stitchfleet.compiler.ir.graph import BFLOAT16, DType
from stitchfleet.compiler.hlo import proto
from stitchfleet.plugin.native.library import numpy_dtype

assert BFLOAT16 is None and not DType.BF16.is_available and DType.F32.is_available
text = "HloModule m\\nENTRY e {\\n  x = TYPE[8] parameter(0)\\n  one = TYPE[] constant(1)\\n" \\
    "  ones = TYPE[8] broadcast(one), dimensions={}\\n  ROOT y = TYPE[8] add(x, ones)\\n}\\n"
assert import_hlo_text(text.replace("TYPE", "f32")).graph is not None
try:
    import_hlo_text(text.replace("TYPE", "bf16")).graph
except UnsupportedHloError as error:
    print(error)
try:
    numpy_dtype(14)
except KeyError:
    print("no kernel has it")
"""


def test_only_bf16_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "element type bf16, which needs the package ml_dtypes" in done.stdout
    assert "no kernel has it" in done.stdout
