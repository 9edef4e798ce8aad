"""What becomes of the bundle of a comparison that failed: kept where the kernel is at fault and the disk allows, else deleted."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from stitchfleet.plugin.guard import kernels as kernels_module
from stitchfleet.plugin.guard.kernels import Executable, Kernels
from stitchfleet.plugin.native.library import MismatchReport, State
from stitchfleet.plugin.service.bundle import read_bundle
from stitchfleet.plugin.service.messages import Answer, CompileRequest, Failed, Judged


class Guard:
    """Kernels with an oracle whose word is given, and no job around them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.events: list[str] = []
        self.moves: list[tuple[int, int]] = []
        self.states: dict[int, int] = {}
        self.allowed: list[tuple[int, float]] = []
        self.word: Answer = Failed("nobody was asked")
        self.waiting: list[MismatchReport] = []
        self.postponed: list[int] = []
        self.is_judge_late = False
        self.late: list[Callable[[], None]] = []
        """Judgements that have not been answered yet."""
        self.seen = SimpleNamespace(last_good_step=3, verify_calls=2, mismatches=1)
        native = SimpleNamespace(
            statistics=lambda signature: self.seen,
            state=lambda signature: self.states[signature],
            move=self._move,
            allow=lambda signature, output, bound: self.allowed.append((output, bound)),
            next_failure=lambda: None,
            next_postponed=lambda: self.postponed.pop(0) if self.postponed else None,
            next_mismatch=lambda: self.waiting.pop(0) if self.waiting else None,
        )
        self.asked: list[CompileRequest] = []
        client = SimpleNamespace(judge=self._judge, compile=lambda request, answered: self.asked.append(request))
        cluster = SimpleNamespace(cluster=SimpleNamespace(body=b"body", fallback=b"body", handles=()))
        stitcher = SimpleNamespace(clusters={"norm": cluster, "other": cluster})
        records = SimpleNamespace(folder=folder, event=lambda kind, line, **facts: self.events.append(kind))
        parts: Any = (
            SimpleNamespace(verify_steps=2, quiet=False, only_switches=False),
            native,
            client,
            stitcher,
            records,
            "run-1",
        )
        self.kernels = Kernels(*parts)
        self.folder = folder / "bundles"

    def _move(self, signature: int, before: int, after: int) -> bool:
        self.moves.append((signature, after))
        is_moved = before in (-1, self.states[signature])
        if is_moved:
            self.states[signature] = after
        return is_moved

    def _judge(self, folder: pathlib.Path, then: Callable[[Any], None]) -> None:
        if self.is_judge_late:
            self.late.append(lambda: then(self.word))
        else:
            then(self.word)

    def differs(self, signature: int, cluster: str, elements: int = 8, expected: float = 1.0) -> None:
        self.kernels.executables[signature] = Executable(signature, cluster, ())
        self.states[signature] = State.SUSPECT
        tensors = [np.arange(elements, dtype=np.float32)]
        self.waiting.append(MismatchReport(signature, 0, 7, 1, expected, 2.0, 1.0, tensors, tensors, tensors))
        self.kernels.look_at_mismatches()

    @property
    def on_disk(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []


@pytest.fixture
def guard(tmp_path: pathlib.Path) -> Callable[[], Guard]:
    return lambda: Guard(tmp_path)


def test_the_bundle_of_a_wrong_kernel_is_kept_and_named(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.word = Judged(False, "output 0 is wrong")
    one.differs(1, "norm")
    assert one.on_disk == ["norm-1-step7"]
    assert [path.name for path in one.kernels.bundles] == ["norm-1-step7"]
    assert one.events == ["reverted"]
    assert (1, State.REVERTED) in one.moves
    assert read_bundle(one.kernels.bundles[0]).facts["last_good_step"] == 3


def test_where_rounding_alone_explains_it_nothing_is_left(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.word = Judged(True, "within the bound", {0: 0.5})
    for signature in range(20):
        one.differs(signature, "norm")
    assert one.on_disk == []
    assert one.kernels.bundles == []
    assert set(one.events) == {"ill-conditioned"}
    assert one.allowed == [(0, 0.5)] * 20
    assert {after for _, after in one.moves} == {State.VERIFY}


def test_bundles_beyond_the_bound_are_deleted_but_for_the_first(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.word = Judged(False, "wrong")
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


def test_what_lies_before_the_oracle_is_bounded_and_the_rest_waits(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.is_judge_late, one.word = True, Judged(True, "within the bound")
    with mock.patch.object(kernels_module, "MAX_BUNDLE_BYTES", 1_000_000):
        for signature in range(4):
            one.differs(signature, "norm", 50_000)  # 600 KB each
        assert len(one.on_disk) == len(one.late) == 2
        assert [path.name for path in one.kernels.bundles] == one.on_disk, "the job may end before they are judged"
        assert len(one.waiting) == 2
        one.is_judge_late = False
        for answer in one.late:
            answer()
        one.kernels.look_at_mismatches()
    assert one.waiting == one.on_disk == one.kernels.bundles == []
    assert "nobody has judged it yet" not in "".join(one.kernels.suspicions.values())


def test_a_cluster_that_was_suspected_says_so_once_and_in_the_summary(
    guard: Callable[[], Guard], capsys: pytest.CaptureFixture[str]
) -> None:
    one = guard()
    one.is_judge_late, one.word = True, Judged(True, "2 outputs right")
    one.differs(1, "norm", expected=float("nan"))
    one.differs(2, "norm", expected=float("nan"))
    one.differs(3, "other")
    assert "nobody has judged it yet" in one.kernels.suspicions["norm"]
    for answer in one.late:
        answer()
    assert list(one.kernels.suspicions) == ["norm", "other"], "rounding is in the summary, but in no line"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "stitchfleet: norm differed at step 7: output 0[1] is 2, TensorFlow has nan: either is right"
    )


def test_a_verdict_after_the_cluster_was_reverted_changes_nothing(guard: Callable[[], Guard]) -> None:
    """Two shapes of one cluster before the oracle at once: the first is wrong, the second is not."""
    one = guard()
    one.is_judge_late, one.word = True, Judged(False, "wrong")
    one.differs(1, "norm")
    one.differs(2, "norm")
    one.late.pop(0)()
    one.word = Judged(True, "within the bound")
    one.late.pop(0)()
    assert [one.states[signature] for signature in (1, 2)] == [State.REVERTED] * 2
    assert one.on_disk == ["norm-1-step7"]
    one.states[2] = State.SUSPECT
    one.waiting.append(MismatchReport(2, 0, 9, 1, 1.0, 2.0, 1.0, [], [], []))
    one.kernels.look_at_mismatches()
    assert one.states[2] == State.REVERTED


def test_a_kernel_whose_failed_comparison_was_not_kept_is_judged_by_the_next_or_not_used(
    guard: Callable[[], Guard],
) -> None:
    one = guard()
    for signature in (1, 2):
        one.kernels.executables[signature] = Executable(signature, f"c{signature}", ())
        one.states[signature] = State.VERIFY
        one.kernels.stitcher.clusters[f"c{signature}"] = one.kernels.stitcher.clusters["norm"]
    one.postponed = [1, 2]
    one.kernels.look_at_mismatches()
    first, second = (one.kernels.executables[signature] for signature in (1, 2))
    assert [one.kernels.state_of(each) for each in (first, second)] == ["verify", "verify"]
    one.word = Judged(True, "within the bound")
    one.states[1] = State.SUSPECT
    one.waiting.append(MismatchReport(1, 0, 9, 1, 1.0, 2.0, 1.0, [], [], []))
    one.kernels.look_at_mismatches()
    one.seen = SimpleNamespace(last_good_step=3, verify_calls=10, mismatches=2)
    one.kernels.move_states([])
    assert [one.kernels.state_of(each) for each in (first, second)] == ["stitched", "verify"]
    one.seen = SimpleNamespace(last_good_step=3, verify_calls=200, mismatches=2)
    one.kernels.move_states([])
    assert one.kernels.state_of(second) == "reverted"
    assert (2, State.REVERTED) in one.moves
    assert "no memory left to keep it" in one.kernels.reverts[0]


def test_a_cluster_that_was_reverted_stays_so_at_shapes_that_come_later(guard: Callable[[], Guard]) -> None:
    one = guard()
    one.states.update({5: State.FALLBACK, 6: State.FALLBACK, 7: State.FALLBACK})
    one.kernels.forward({"signature": 5, "cluster": "norm", "inputs": []})
    one.word = Judged(False, "wrong")
    one.differs(1, "norm")
    assert one.states[5] == State.REVERTED, "its kernel is still being made, and will not be used"
    one.kernels.forward({"signature": 6, "cluster": "norm", "inputs": []})
    one.kernels.forward({"signature": 7, "cluster": "other", "inputs": []})
    assert [request.cluster for request in one.asked] == ["norm", "other"]
    assert (one.states[6], one.states[7]) == (State.REVERTED, State.FALLBACK)
    assert one.kernels.are_verified({"norm"}), "nobody waits for it"
