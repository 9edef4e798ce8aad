"""What the payload's image has of us when it builds the native library."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from scripts.images.build import ROOT, _native_files


def test_the_library_s_module_needs_no_other_file_of_ours(tmp_path: pathlib.Path) -> None:
    for path in _native_files():
        copy = tmp_path / "stitchfleet" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    words = "import sys; sys.path.insert(0, sys.argv[1]); from stitchfleet.plugin.native import library; print(library.__file__)"
    # -S: without the site's packages, of which the installed stitchfleet is one
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", words, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout
