"""What becomes of the bundle of a comparison that failed: kept where the kernel is at fault and the disk allows, else deleted."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from stitchfleet.plugin import kernels as kernels_module
from stitchfleet.plugin.bundle import read_bundle
from stitchfleet.plugin.kernels import Executable, Kernels
from stitchfleet.plugin.native_library import MismatchReport, State


class Guard:
    """Kernels with an oracle whose word is given, and no job around them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.events: list[str] = []
        self.moves: list[tuple[int, int]] = []
        self.allowed: list[tuple[int, float]] = []
        self.word: dict[str, Any] = {}
        self.waiting: list[MismatchReport] = []
        native = SimpleNamespace(
            statistics=lambda signature: SimpleNamespace(last_good_step=3, verify_calls=2, mismatches=1),
            move=lambda signature, before, after: self.moves.append((signature, after)) or True,
            allow=lambda signature, output, bound: self.allowed.append((output, bound)),
            next_failure=lambda: None,
            next_mismatch=lambda: self.waiting.pop(0) if self.waiting else None,
        )
        client = SimpleNamespace(judge=lambda path, then: then(self.word))
        cluster = SimpleNamespace(cluster=SimpleNamespace(body=b"body"))
        stitcher = SimpleNamespace(clusters={"norm": cluster, "other": cluster})
        records = SimpleNamespace(folder=folder, event=lambda kind, line, **facts: self.events.append(kind))
        parts: Any = (SimpleNamespace(verify_steps=2), native, client, stitcher, records, "run-1")
        self.kernels = Kernels(*parts)
        self.folder = folder / "bundles"

    def differs(self, signature: int, cluster: str, elements: int = 8) -> None:
        self.kernels.executables[signature] = Executable(signature, cluster, [], state="stitched")
        tensors = [np.arange(elements, dtype=np.float32)]
        self.waiting.append(MismatchReport(signature, 0, 7, 1, 1.0, 2.0, 1.0, tensors, tensors, tensors))
        self.kernels.look_at_mismatches()

    @property
    def on_disk(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []


@pytest.fixture
def guard(tmp_path: pathlib.Path) -> Callable[[], Guard]:
    return lambda: Guard(tmp_path)


def test_the_bundle_of_a_wrong_kernel_is_kept_and_named(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.word = {"right": False, "line": "output 0 is wrong", "bounds": {}}
    one.differs(1, "norm")
    assert one.on_disk == ["norm-1-step7"]
    assert [path.name for path in one.kernels.bundles] == ["norm-1-step7"]
    assert one.events == ["reverted"]
    assert (1, State.REVERTED) in one.moves
    assert read_bundle(one.kernels.bundles[0]).facts["last_good_step"] == 3


def test_where_rounding_alone_explains_it_nothing_is_left(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.word = {"right": True, "line": "within the bound", "bounds": {"0": 0.5}}
    for signature in range(20):
        one.differs(signature, "norm")
    assert one.on_disk == []
    assert one.kernels.bundles == []
    assert set(one.events) == {"ill-conditioned"}
    assert one.allowed == [(0, 0.5)] * 20
    assert {after for _, after in one.moves} == {State.VERIFY}


def test_bundles_beyond_the_bound_are_deleted_but_for_the_first(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.word = {"right": False, "line": "wrong", "bounds": {}}
    with mock.patch.object(kernels_module, "MAX_BUNDLE_BYTES", 100_000):
        one.differs(1, "norm", 100_000)
        one.differs(2, "other", 100_000)
    assert one.on_disk == ["norm-1-step7"]
    assert len(one.kernels.bundles) == 1
    assert len(one.kernels.reverts) == 2, "a cluster without a bundle is reverted all the same"


def test_a_disk_that_takes_no_bundle_reverts_the_cluster(tmp_path: pathlib.Path, guard: Callable[[], Guard]) -> None:
    one = guard()
    (tmp_path / "bundles").write_text("in the way")
    one.differs(1, "norm")
    assert one.events == ["reverted"]
    assert "no bundle could be written" in one.kernels.executables[1].failure
