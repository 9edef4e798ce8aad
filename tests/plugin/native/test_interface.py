"""What Python and C++ share by number or by place is in one table (op/interface.def), which both read."""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest

from stitchfleet.plugin.native import library
from stitchfleet.plugin.native.library import KernelDescription, State, TensorFlowBuild, library_path

TABLE = library.SOURCES / "op" / "interface.def"


def test_each_row_of_the_table_is_read() -> None:
    rows = re.findall(r"^(KERNEL_FIELD|SIGNATURE_STATE|TENSOR_KIND)\(", TABLE.read_text(), re.MULTILINE)
    read = (len(KernelDescription._fields_), len(State.NAMES), len(library.TENSOR_KINDS))
    assert read == tuple(rows.count(macro) for macro in ("KERNEL_FIELD", "SIGNATURE_STATE", "TENSOR_KIND"))
    assert list(State.NAMES) == list(range(len(State.NAMES)))
    assert list(library.TENSOR_KINDS) == ["input", "output", "scratch"]


def test_another_table_is_another_library(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = TensorFlowBuild("2.15.1", tmp_path)
    before = library_path(tmp_path, build)
    sources = tmp_path / "native"
    shutil.copytree(library.SOURCES, sources)
    monkeypatch.setattr(library, "SOURCES", sources)
    assert library_path(tmp_path, build) == before
    table = sources / "op" / "interface.def"
    table.write_text(table.read_text().replace("KERNEL_FIELD(int64_t, grid)", "KERNEL_FIELD(int64_t, blocks)"))
    assert library_path(tmp_path, build) != before
