"""The job's kernels: sends the op's requests to the compile service and installs the answers, moves each executable (a cluster at
given shapes) from state to state, and runs the guard if a kernel disagrees with TensorFlow.

    requested -> ready -> verify -> stitched        or failed, if no kernel could be made
    verify or stitched -> suspect                   a comparison failed; its bundle is sent to the oracle
    suspect -> verify, or reverted                  rounding alone explains the difference, or does not
    verify or stitched -> verify                    a comparison failed, but its tensors could not be kept: the next failure is judged

Called on the job's own thread, on the client's and, to move states, on the trainer's.
"""

from __future__ import annotations

import collections
import hashlib
import math
import pathlib
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

from ..base.containment import say
from ..base.event_log import EventLog
from ..base.settings import Settings
from ..graph.to_hlo import Argument
from ..native.library import MismatchReport, NativeLibrary, State
from ..service import bundle
from ..service.client import CompileClient
from ..service.messages import Answer, Compiled, CompileRequest, Failed, Judged, Sample
from ..stitching.stitcher import Stitcher

MAX_BUNDLE_BYTES = 1 << 30
"""Limit in bytes on a job's kept bundles beyond the first, and on those waiting for the oracle: their tensors are as large as the
model's."""
UNJUDGED_CALLS = 10
"""Further comparisons, as a multiple of those that a kernel needs, after one that failed and could not be kept. If none of them
fails, the kernel cannot be judged, and it is not used."""
TIMED_CALLS = 8
"""Timed comparisons of a cluster after which it is decided whether its kernels pay."""
MOST_CALLS = 0.75
"""A cluster is left out if its kernels took a quarter longer than TensorFlow's operators in more than this share of them."""


@dataclass
class Executable:
    """One signature (a cluster at given shapes) for which the op requested a kernel. The op holds its state (`Kernels.state_of`).

    is_failed: no kernel could be made or loaded, for the reason `failure`. None was ever installed, so for the op the signature is in
    its first state, FALLBACK, as one whose kernel has not arrived yet. good_at_step: step of the latest comparison that agreed, noted
    at a failed one; -1 if there is none. verify_target: number of comparisons that must agree before the kernel is used. calls_seen:
    calls by the latest `Kernels.are_verified`.
    """

    signature: int
    cluster: str
    inputs: tuple[Argument, ...]
    is_failed: bool = False
    kernel: Compiled | None = None
    failure: str = ""
    good_at_step: int = -1
    verify_target: int = 0
    calls_seen: int = 0
    is_verified: bool = False
    """In a job of several ranks: whether it has been compared often enough. The kernel then waits in READY, and TensorFlow's
    operators compute, until the ranks have agreed on its cluster. In a job of one process it stays False: the kernel goes straight to
    STITCHED."""
    idle_steps: int = 0
    """Number of steps of the verify phase since its last call."""
    unjudged: bool = False
    """Whether a comparison failed whose tensors could not be kept, and no kept one has been judged since."""


def _is_rare(report: MismatchReport) -> bool:
    """Whether two results differ by more than rounding can explain: in a NaN, an infinity or an integer."""
    are_numbers = math.isfinite(report.actual_value) and math.isfinite(report.expected_value)
    return not are_numbers or any(
        tensor.dtype.kind in "iub" for tensor in report.expected[report.output : report.output + 1]
    )


class Kernels:
    """The kernels of one process. on_revert(cluster, message): called when a cluster's kernels are switched off for good."""

    def __init__(
        self,
        settings: Settings,
        native: NativeLibrary,
        client: CompileClient,
        stitcher: Stitcher,
        records: EventLog,
        run_id: str,
    ) -> None:
        self.settings, self.native, self.client = settings, native, client
        self.stitcher, self.records, self.run_id = stitcher, records, run_id
        self.executables: dict[int, Executable] = {}
        """By signature."""
        self._kept: list[pathlib.Path] = []
        self._kept_bytes = 0
        self._judged_now: dict[pathlib.Path, int] = {}
        """Bundle that the oracle is judging -> its size in bytes."""
        self.reverts: list[str] = []
        self.suspicions: dict[str, str] = {}
        """Cluster -> text about its latest failed comparison that did not revert it."""
        self.needs_agreement = False
        """In a job of several ranks: kernels run without TensorFlow's operators only in clusters that the ranks have agreed on."""
        self._agreed: set[str] = set()
        self.on_revert: Callable[[str, str], None] = lambda cluster, message: None
        self._reverted: set[str] = set()
        """Clusters that are no longer stitched. It holds for each cluster as a whole: a signature with new shapes that comes later
        gets no kernel either."""
        self._reported: set[str] = set()
        """Clusters for which a line about a failed comparison that did not revert them was already printed."""

    def of(self, clusters: Collection[str]) -> list[Executable]:
        """The executables of the clusters with these names. Programs with equal clusters share them."""
        return [executable for executable in list(self.executables.values()) if executable.cluster in clusters]

    def state_of(self, executable: Executable) -> str:
        """ "failed"; "requested" until there is a kernel; then the op's state: ready, verify, stitched, suspect or reverted."""
        if executable.is_failed:
            return "failed"
        state = State.NAMES[self.native.state(executable.signature)]
        return "requested" if state == "fallback" else state

    @property
    def bundles(self) -> list[pathlib.Path]:
        """Folders of the bundles on disk: kept after a revert, or still with the oracle."""
        return [*self._kept, *self._judged_now]

    # ---- from the op to the service and back ---------------------------------------------------------------------------------

    def forward(self, request: dict[str, Any]) -> None:
        """Registers the executable of an op's request (NativeLibrary.next_request) and requests its kernel from the compile
        service. A cluster that was reverted gets none."""
        signature, name = int(request["signature"]), str(request["cluster"])
        known = self.stitcher.clusters.get(name)
        if known is None:
            return
        inputs = tuple(Argument.from_json(described) for described in request["inputs"])
        executable = Executable(signature, name, inputs)
        self.executables[signature] = executable
        if name in self._reverted:
            self.native.move(signature, -1, State.REVERTED)
            return
        if self.settings.only_switches:
            return
        cluster = known.cluster
        asked = CompileRequest(
            name,
            cluster.body,
            inputs,
            bool(request.get("changing")),
            request.get("device"),
            tuple(Sample.of(described) for described in request.get("samples", ())),
            b"" if cluster.handles or cluster.fallback == cluster.body else cluster.fallback,
        )
        self.client.compile(asked, lambda answer: self._answered(executable, answer))

    def _answered(self, executable: Executable, answer: Answer) -> None:
        """Handles the service's answer to a compile request, on the client's thread."""
        if not isinstance(answer, Compiled):
            executable.is_failed, executable.failure = True, answer.line
            if isinstance(answer, Failed):
                self.stitcher.excluded_ops.update(answer.ops)
            self.records.event("no-kernel", executable.failure, cluster=executable.cluster)
            return
        executable.kernel = answer
        types = self.stitcher.clusters[executable.cluster].cluster.all_result_types
        try:
            self.native.install(executable.signature, answer.library, answer.metadata, answer.kernel_inputs, types)
        except OSError as error:
            executable.is_failed, executable.failure = True, f"the kernel cannot be loaded: {error}"
            self.records.event("no-kernel", executable.failure, cluster=executable.cluster)

    # ---- states --------------------------------------------------------------------------------------------------------------

    def move_states(self, wanted: Collection[str]) -> None:
        """Moves READY -> VERIFY for the clusters `wanted`, and VERIFY -> STITCHED after enough comparisons that agreed."""
        for executable in list(self.executables.values()):
            state = self.state_of(executable)
            if state == "ready" and executable.cluster in wanted and not executable.is_verified:
                executable.verify_target = self.settings.verify_steps
                self.native.move(executable.signature, State.READY, State.VERIFY)
            elif state == "verify":
                seen = self.native.statistics(executable.signature)
                enough = seen.verify_calls - seen.mismatches >= executable.verify_target
                if enough and executable.unjudged:
                    self._revert_unjudged(executable)
                elif enough:
                    executable.is_verified = self.needs_agreement
                    may_run = not self.needs_agreement or executable.cluster in self._agreed
                    self.native.move(executable.signature, State.VERIFY, State.STITCHED if may_run else State.READY)

    def are_verified(self, clusters: Collection[str], every: int = 1) -> bool:
        """Whether every kernel of these clusters that the job still calls has been compared often enough. Call it once in each
        step of a verify phase, since it counts steps. every: of `every` consecutive steps, at least one runs all the clusters
        (a job that accumulates gradients runs its optimizer in only one of them).

        A shape that occurred once (a length, the number of distinct words of a batch) may never occur again, and a suspect kernel
        starts again each time. Neither delays the others; they are verified later, in the stitched phase.
        """
        waiting = False
        for executable in self.of(clusters):
            if executable.is_verified or self.state_of(executable) not in ("ready", "verify"):
                continue
            seen = self.native.statistics(executable.signature)
            calls = seen.fallback_calls + seen.verify_calls
            executable.idle_steps = 0 if calls != executable.calls_seen else executable.idle_steps + 1
            executable.calls_seen = calls
            waiting |= executable.idle_steps < every * self.settings.verify_steps
        return not waiting

    def verified(self, clusters: Collection[str]) -> list[str]:
        """ "CLUSTER:DIGEST" of each verified kernel of these clusters. Two ranks have equal texts if their kernels compute the
        same to the last bit."""
        found = []
        for executable in self.of(clusters):
            if (
                executable.is_verified
                and executable.kernel is not None
                and self.state_of(executable) in ("ready", "stitched")
            ):
                about = executable.kernel.metadata
                text = repr((about.symbol, about.parameters, about.launch))
                found.append(f"{executable.cluster}:{hashlib.sha256(text.encode()).hexdigest()[:12]}")
        return found

    def agree(self, clusters: Collection[str]) -> None:
        """Lets the verified kernels of these clusters run without a comparison from this step on. Called in the step on which all
        ranks have agreed."""
        self._agreed |= set(clusters)
        for executable in self.of(clusters):
            if executable.is_verified:
                self.native.move(executable.signature, State.READY, State.STITCHED)

    def disagree(self) -> None:
        """Withdraws the ranks' agreement: verified kernels wait for a new one, and TensorFlow's operators compute meanwhile."""
        self._agreed.clear()
        for executable in list(self.executables.values()):
            if executable.is_verified:
                self.native.move(executable.signature, State.STITCHED, State.READY)

    def slower(self, clusters: Collection[str]) -> set[str]:
        """The clusters whose kernels took a quarter longer than TensorFlow's operators in more than MOST_CALLS of at least
        TIMED_CALLS comparisons.

        It counts calls instead of adding up their times, since one call in which a thread was stopped would dominate the sum.
        """
        timed, slower = collections.Counter[str](), collections.Counter[str]()
        for executable in self.of(clusters):
            seen = self.native.statistics(executable.signature)
            timed[executable.cluster] += seen.timed_calls
            slower[executable.cluster] += seen.slower_calls
        return {name for name, calls in timed.items() if calls >= TIMED_CALLS and slower[name] > MOST_CALLS * calls}

    # ---- the guard -----------------------------------------------------------------------------------------------------------

    def look_at_mismatches(self) -> None:
        """Sends a bundle of each comparison that failed since the last call to the oracle. Reverts kernels that a device refused.

        If the bundles that the oracle is judging reach MAX_BUNDLE_BYTES, the remaining mismatches wait in the op.
        """
        while (refused := self.native.next_failure()) is not None:
            self._refused(*refused)
        while (signature := self.native.next_postponed()) is not None:
            self._postponed(signature)
        while sum(list(self._judged_now.values())) < MAX_BUNDLE_BYTES:
            mismatch = self.native.next_mismatch()
            if mismatch is None:
                return
            self._mismatch(mismatch)

    def _postponed(self, signature: int) -> None:
        """Handles a failed comparison whose tensors could not be kept beside those that wait: comparisons go on until one can be."""
        executable = self.executables.get(signature)
        if executable is None or self.state_of(executable) == "reverted":
            return
        executable.unjudged = True
        seen = self.native.statistics(signature)
        patience = UNJUDGED_CALLS * max(1, self.settings.verify_steps)
        executable.verify_target = seen.verify_calls - seen.mismatches + patience

    def _mismatch(self, report: MismatchReport) -> None:
        executable = self.executables.get(report.signature)
        if executable is None or executable.cluster in self._reverted:
            self.native.move(report.signature, State.SUSPECT, State.REVERTED)
            return
        statistics = self.native.statistics(report.signature)
        executable.good_at_step = statistics.last_good_step
        known = self.stitcher.clusters[executable.cluster]
        folder = self.records.folder / "bundles" / f"{executable.cluster}-{report.signature}-step{report.step}"
        try:
            bundle.write_bundle(
                folder,
                executable.cluster,
                known.cluster.body,
                executable.inputs,
                report,
                executable.kernel.library if executable.kernel else None,
                {
                    "kernel": asdict(executable.kernel.metadata) if executable.kernel else {},
                    "run_id": self.run_id,
                    "last_good_step": executable.good_at_step,
                },
                pathlib.Path(executable.kernel.hlo) if executable.kernel and executable.kernel.hlo else None,
            )
        except OSError as error:
            bundle.delete_bundle(folder)
            self._revert(executable, report, f"{error}; no bundle could be written", None)
            return
        self.suspicions[executable.cluster] = (
            f"{self._difference(executable, report)}: TensorFlow's operators have computed it since, and nobody has judged it yet"
        )
        self._judged_now[folder] = bundle.size_of(folder)
        self.client.judge(folder, lambda answer: self._judged(executable, report, folder, answer))

    def _refused(self, signature: int, reason: str) -> None:
        """Handles a kernel that a device refused to run: TensorFlow's own operators compute the signature from now on."""
        executable = self.executables.get(signature)
        if executable is None:
            return
        executable.failure = reason
        message = f"{executable.cluster} reverted: {reason}"
        say(message)
        self.reverts.append(message)
        self.on_revert(executable.cluster, message)
        self.records.event("revert", message, cluster=executable.cluster)

    def _judged(self, executable: Executable, report: MismatchReport, folder: pathlib.Path, answer: Answer) -> None:
        """Handles the oracle's judgment of a mismatch, on the client's thread."""
        self._judged_now.pop(folder, None)
        if executable.cluster in self._reverted:  # because of other shapes, or of another comparison
            bundle.delete_bundle(folder)
            return
        if not isinstance(answer, Judged) or not answer.right:
            kept = folder if self._keep(folder) else None
            line = (
                answer.line if isinstance(answer, (Judged, Failed)) else "the service has misunderstood what was asked"
            )
            self._revert(executable, report, line, kept)
            return
        bundle.delete_bundle(folder)  # neither side is wrong; a job with many such comparisons must not fill the disk
        for output, bound in answer.bounds.items():
            self.native.allow(executable.signature, output, bound)
        message = f"{self._difference(executable, report)}: either is right ({answer.line})"
        self.suspicions[executable.cluster] = message
        if executable.cluster not in self._reported and _is_rare(report) and not self.settings.quiet:
            self._reported.add(executable.cluster)
            say(message)
        self.records.event("ill-conditioned", message, cluster=executable.cluster)
        executable.unjudged = False
        if executable.cluster in self._agreed:
            # Verified again, it would run alone from a step that the ranks have not agreed on: TensorFlow's operators compute it.
            self.native.move(executable.signature, State.SUSPECT, State.READY)
            return
        executable.verify_target = (
            self.native.statistics(executable.signature).verify_calls + self.settings.verify_steps
        )
        self.native.move(executable.signature, State.SUSPECT, State.VERIFY)

    def _keep(self, folder: pathlib.Path) -> bool:
        """Keeps a bundle on disk, or deletes it if the kept bundles would exceed MAX_BUNDLE_BYTES; the first is always kept. Returns
        whether it was kept."""
        size = bundle.size_of(folder)
        if self._kept and self._kept_bytes + size > MAX_BUNDLE_BYTES:
            bundle.delete_bundle(folder)
            return False
        self._kept_bytes += size
        return True

    @staticmethod
    def _difference(executable: Executable, report: MismatchReport) -> str:
        return (
            f"{executable.cluster} differed at step {report.step}: output {report.output}[{report.index}] is "
            f"{report.actual_value:.9g}, TensorFlow has {report.expected_value:.9g}"
        )

    def _revert(self, executable: Executable, report: MismatchReport, line: str, folder: pathlib.Path | None) -> None:
        good = (
            f"last known good step {executable.good_at_step}"
            if executable.good_at_step >= 0
            else "found before it ran alone"
        )
        message = (
            f"{executable.cluster} reverted at step {report.step}: output {report.output}[{report.index}] is "
            f"{report.actual_value:.9g}, TensorFlow has {report.expected_value:.9g} ({good})"
        )
        if folder is not None:
            self._kept.append(folder)
        self._switch_off(executable, message, line, folder, step=report.step, last_good_step=executable.good_at_step)

    def _revert_unjudged(self, executable: Executable) -> None:
        """Reverts a kernel that cannot be judged: a comparison failed, its tensors were not kept, and all later ones agreed."""
        message = f"{executable.cluster} reverted: a comparison of its kernel failed while there was no memory left to keep it"
        self._switch_off(executable, message, "nobody could judge a comparison that failed", None)

    def _switch_off(
        self, executable: Executable, message: str, line: str, folder: pathlib.Path | None, **facts: int
    ) -> None:
        """Switches off a cluster's kernels for good, at all shapes."""
        self._reverted.add(executable.cluster)
        for other in list(self.executables.values()):
            if other.cluster == executable.cluster:
                self.native.move(other.signature, -1, State.REVERTED)
        executable.failure = line
        say(message + (f"; to look at it: stitchfleet explain {folder}" if folder else ""))
        self.reverts.append(message)
        self.suspicions.pop(executable.cluster, None)
        self.on_revert(executable.cluster, message)
        self.records.event("reverted", message, cluster=executable.cluster, verdict=line, **facts)
