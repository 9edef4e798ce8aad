"""scripts/bench: its figures, its counts, and that it leaves no process behind, however it ends."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.benchmark import machine, processes
from scripts.benchmark.command import Section, evaluate, main, table
from scripts.benchmark.contestants import (
    CONTESTANTS,
    DISTRIBUTED,
    PINNED,
    PLAIN,
    WORKLOADS,
    Files,
    Installed,
    at_ranks,
    command_line,
    environment,
    kernels_of,
)
from scripts.benchmark.figures import (
    Ratio,
    better_of,
    geometric_mean,
    largest_difference,
    paired_ratio,
    slice_figures,
    start_up_seconds,
)
from scripts.benchmark.launches import (
    Launches,
    Traffic,
    count_hlo,
    plain_launches,
    result_bytes,
    stitch_traffic,
    stitched_launches,
)
from scripts.benchmark.race import (
    Limits,
    Outcome,
    Runner,
    Slice,
    is_in_steady_state,
    opening_steps,
    order_of,
    slice_seconds,
    too_slow,
)
from stitchfleet.compiler.kernel.cache import METADATA
from stitchfleet.plugin.base.settings import BOOTSTRAP
from stitchfleet.plugin.graph import tf_ops

from .marks import slow

ROOT = Path(__file__).resolve().parents[1]
STEPPER = ROOT / "tests" / "benchmark" / "stepper.py"
SHORT = ("--rounds", "2", "--seconds", "1", "--no-modules")
"""A slice of 0.4 s was seen to hold fewer than its three steps of 15 ms on a machine that stood still between."""


# ---- figures -----------------------------------------------------------------------------------------------------------------


def test_only_whole_steps_after_the_first_count() -> None:
    starts = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    seconds = [1.0, 0.5, 0.4, 0.3, 0.2, 9.0, 0.1]  # the sixth was stopped in the middle
    window = Slice(0, 0.5, 5.5, cpu_s=10.0)
    figures = slice_figures(window, starts, seconds)
    assert figures is not None
    assert figures.steps == 3  # those from 2.0, 3.0, 4.0: the one from 1.0 is the first whole one
    assert figures.median_s == 0.3
    assert figures.wall_s == pytest.approx((4.2 - 2.0) / 3)
    assert figures.cores == pytest.approx(2.0)
    assert slice_figures(Slice(0, 0.5, 4.1, 0.0), starts, seconds) is None  # two are too few


@given(st.lists(st.floats(0.01, 0.2), min_size=1, max_size=80), st.floats(0.0, 8.0), st.floats(0.1, 8.0))
def test_no_step_that_leaves_the_slice_counts(durations: list[float], begin: float, length: float) -> None:
    starts = [sum(durations[:k]) for k in range(len(durations))]
    window = Slice(0, begin, begin + length, cpu_s=0.0)
    inside = [k for k in range(len(durations)) if starts[k] >= begin and starts[k] + durations[k] <= begin + length]
    figures = slice_figures(window, starts, durations)
    assert (figures.steps if figures else 0) == (len(inside) - 1 if len(inside) >= 4 else 0)
    if figures:
        assert min(durations) <= figures.median_s <= max(durations)


def test_a_ratio_is_the_geometric_mean_of_pairs_with_student_s_interval() -> None:
    ratio = paired_ratio({0: 2.0, 1: 4.0, 2: 2.0, 7: 99.0}, {0: 1.0, 1: 1.0, 2: 2.0, 8: 99.0})
    assert ratio is not None
    assert ratio.pairs == 3
    assert ratio.value == pytest.approx(2.0)  # of 2, 4, 1
    half = 4.302653 * math.log(2.0) / math.sqrt(3)  # t(0.975, 2) from the tables; the logs' deviation is log 2
    assert ratio.low == pytest.approx(2.0 * math.exp(-half), rel=1e-6)
    assert ratio.high == pytest.approx(2.0 * math.exp(half), rel=1e-6)
    assert paired_ratio({0: 1.0}, {0: 1.0}) is None


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=2, max_size=12))
def test_a_ratio_turned_round_is_its_inverse(pairs: list[tuple[float, float]]) -> None:
    one = {k: a for k, (a, _) in enumerate(pairs)}
    other = {k: b for k, (_, b) in enumerate(pairs)}
    forward, backward = paired_ratio(one, other), paired_ratio(other, one)
    assert forward is not None
    assert backward is not None
    assert forward.value == pytest.approx(1.0 / backward.value)
    assert forward.low == pytest.approx(1.0 / backward.high)
    assert forward.low <= forward.value <= forward.high


ratios = st.builds(
    lambda value, spread, pairs: Ratio(value, value / math.exp(spread), value * math.exp(spread), pairs),
    st.floats(0.2, 5.0),
    st.floats(0.001, 0.5),
    st.integers(2, 40),
)


@given(ratios)
def test_the_mean_of_one_ratio_is_itself(ratio: Ratio) -> None:
    mean = geometric_mean([ratio])
    assert mean is not None
    for name in ("value", "low", "high"):
        assert getattr(mean, name) == pytest.approx(getattr(ratio, name), rel=1e-6)


@given(st.lists(ratios, min_size=2, max_size=12))
def test_a_geometric_mean_lies_between_and_is_surer_than_the_least_sure(found: list[Ratio]) -> None:
    mean = geometric_mean(found)
    assert mean is not None
    assert mean.value == pytest.approx(math.prod(ratio.value for ratio in found) ** (1 / len(found)))
    assert mean.low <= mean.value <= mean.high
    assert mean.high / mean.value <= max(ratio.high / ratio.value for ratio in found) * (1 + 1e-9)
    inverse = geometric_mean([Ratio(1 / r.value, 1 / r.high, 1 / r.low, r.pairs) for r in found])
    assert inverse is not None
    assert inverse.value == pytest.approx(1 / mean.value)


def test_without_ratios_there_is_no_mean() -> None:
    assert geometric_mean([]) is None


def test_the_better_one_is_the_one_with_less_wall_time() -> None:
    def outcome(name: str, step_s: float) -> Outcome:
        starts = [k * step_s for k in range(20)]
        window = Slice(0, 0.0, 20 * step_s, cpu_s=1.0)
        return Outcome(CONTESTANTS[name], [window], [1.0] * 20, starts, [step_s / 2] * 20)

    plain, xla, idle = outcome(PLAIN, 0.2), outcome("xla", 0.1), Outcome(CONTESTANTS["idle"])
    assert better_of([plain, xla, idle]) is xla
    assert better_of([idle]) is None


def test_start_up_is_what_the_first_steps_took_beyond_typical_ones() -> None:
    assert start_up_seconds([5.0, 2.0, 1.0, 1.0, 1.0, 1.0]) == pytest.approx(5.0)
    assert start_up_seconds([5.0, 2.0]) == 0.0


def test_losses_are_compared_over_the_steps_both_have() -> None:
    steps, difference = largest_difference([1.0, 2.2], [1.0, 2.0, 3.0])
    assert steps == 2
    assert difference == pytest.approx(0.1)
    assert math.isnan(largest_difference([1.0, math.nan], [1.0, 2.0])[1])
    assert largest_difference([], [1.0]) == (0, 0.0)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_everybody_runs_once_a_round_and_leads_as_often(count: int) -> None:
    rounds = [order_of(number, count) for number in range(2 * count)]
    assert all(sorted(order) == list(range(count)) for order in rounds)
    leads = [order[0] for order in rounds]
    assert {leads.count(k) for k in range(count)} == {2}
    followers = {(order[k], order[k + 1]) for order in rounds for k in range(count - 1)}
    assert all((b, a) in followers for a, b in followers)


# ---- launches ----------------------------------------------------------------------------------------------------------------

MODULE = """HloModule step, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

add.1 {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

%fused_computation (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %e = f32[8]{0} exponential(f32[8]{0} %p)
  ROOT %n = f32[8]{0} negate(f32[8]{0} %e)
}

fused_product {
  p = f32[8,8]{1,0} parameter(0)
  d = f32[8,8]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[8,8]{1,0} add(d, p)
}

parallel_fusion {
  p = f32[8]{0} parameter(0)
  ROOT f = f32[8]{0} fusion(p), kind=kLoop, calls=fused_computation
}

body {
  state = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8]{0} get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[8]{0} fusion(x), kind=kLoop, calls=fused_computation
  ROOT result = (s32[], f32[8]{0}) tuple(next, y)
}

condition {
  state = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(3)
  ROOT less = pred[] compare(i, limit), direction=LT
}

ENTRY %step (x: f32[8], m: f32[8,8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %m = f32[8,8]{1,0} parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[8]{0}) tuple(zero, x)
  loop = (s32[], /*index=1*/f32[8]{0}) while(start), condition=condition, body=body
  end = f32[8]{0} get-tuple-element(loop), index=1
  product = f32[8,8]{1,0} fusion(m), kind=kOutput, calls=fused_product
  other = f32[8,8]{1,0} custom-call(m, m), custom_call_target="__onednn$matmul"
  flat = f32[64]{0} bitcast(product)
  f0 = f32[] constant(0)
  total = f32[] reduce(flat, f0), dimensions={0}, to_apply=add.1
  wide = f32[8]{0} call(end), to_apply=parallel_fusion
  ROOT last = f32[8]{0} copy(wide)
}
"""


def test_kernels_of_a_module_are_counted_by_hand() -> None:
    # memory: add, fusion and compare of the loop; reduce; the fusion that `call` runs in parallel; copy
    # bytes: add s32, fusion f32[8] and compare of the loop; f32[]; f32[8]; f32[8]
    assert count_hlo(MODULE) == Launches(memory=6, products=2, written_bytes=4 + 32 + 1 + 4 + 32 + 32)


def test_a_loop_whose_turns_the_module_knows_counts_as_often() -> None:
    known = MODULE.replace("body=body\n", 'body=body, backend_config={"known_trip_count":{"n":"3"}}\n')
    assert count_hlo(known) == Launches(memory=3 * 3 + 3, products=2, written_bytes=3 * 37 + 68)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[8,128]{1,0}", 4096),
        ("pred[]", 1),
        ("bf16[3]{0}", 6),
        ("(s32[], f64[2,2]{1,0}, u8[5]{0})", 4 + 32 + 5),
        ("f32[0,4]{1,0}", 0),
        ("token[]", 0),
    ],
)
def test_the_size_of_a_result_is_read_off_its_shape(shape: str, size: int) -> None:
    assert result_bytes(shape) == size


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY"):
        count_hlo("define void @f() {\n  ret void\n}\n")


def _summary(state: str) -> dict[str, Any]:
    return {
        "stayed_out": {
            tf_ops.why_not("MatMul", False): {"MatMul": 7},
            tf_ops.why_not("Switch", False): {"Switch": 3},
            tf_ops.why_not("ReadVariableOp", True): {"ReadVariableOp": 5, "AssignVariableOp": 2},
            "too little work for a kernel of its own": {"Transpose": 4},
        },
        "clusters": [
            {"instances": 3, "op_count": 10, "state": "stitched"},
            {"instances": 2, "op_count": 6, "state": state},
        ],
    }


def test_a_stitched_cluster_is_one_launch_and_a_fallback_all_of_its_members_too() -> None:
    assert plain_launches(_summary("stitched")) == Launches(memory=11 + 30 + 12, products=7)
    assert stitched_launches(_summary("stitched")) == Launches(memory=11 + 3 + 2, products=7)
    assert stitched_launches(_summary("reverted")) == Launches(memory=11 + 3 + 2 * 7, products=7)
    assert plain_launches({"stayed_out": {}, "clusters": []}) is None


def test_what_stitch_ops_must_move_is_of_the_kernels_in_use_and_of_one_step() -> None:
    def kernel(state: str, calls: int) -> dict[str, Any]:
        sizes = {"bytes_read": 1000, "bytes_written": 200, "intermediate_bytes": 30}
        return {"state": state, "calls": {"stitched": calls, "verify": 6, "fallback": 2}, **sizes}

    summary = {
        "main": "train",
        "programs": [{"name": "other", "steps_stitched": 7}, {"name": "train", "steps_stitched": 100}],
        # two instances of a cluster in each of 100 steps; one that was reverted
        "clusters": [{"executables": [kernel("stitched", 192)]}, {"executables": [kernel("reverted", 92)]}],
    }
    assert stitch_traffic(summary) == Traffic(moved_bytes=2 * 1200, scratch_bytes=2 * 30)
    assert stitch_traffic({**summary, "main": None}) is None


# ---- contestants -------------------------------------------------------------------------------------------------------------


def test_only_the_stitched_contestant_is_started_under_stitchfleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHFLEET_ENABLED", "1")
    monkeypatch.setenv("PYTHONPATH", f"{BOOTSTRAP}{os.pathsep}/mine")
    files, bert = Files(Path("/some/folder")), WORKLOADS["bert"]
    for contestant in CONTESTANTS.values():
        words = command_line(contestant, bert, ("--layers", "1"), files, Path("/cache"))
        variables = environment(contestant, files)
        assert "STITCHFLEET_ENABLED" not in variables
        assert variables["PYTHONPATH"] == "/mine"
        assert words[words.index(str(bert.script)) + 1 :][:2] == ["--layers", "1"]
        assert ("stitchfleet.plugin.command" in words) == (contestant.stitchfleet is not None)
        assert ("--xla" in words) == (contestant.name == "xla")


def test_ranks_are_started_by_horovodrun_each_on_a_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    plain, bert = CONTESTANTS[PLAIN], DISTRIBUTED["horovod-bert"]
    two, four = at_ranks([WORKLOADS["bert"], bert], [2, 4])[1:]
    assert (two.name, two.ranks, four.name, four.ranks) == ("horovod-bert/2", 2, "horovod-bert/4", 4)
    files, horovod = Files(tmp_path), tmp_path / "horovod"
    installed = Installed(horovod=horovod)
    words = command_line(plain, four, ("--batch", "2"), files, tmp_path, installed)
    assert words[1:5] == [str(horovod / "bin" / "horovodrun"), "--gloo", "-np", "4"]
    assert words[6] == str(PINNED)
    assert shlex.split(words[7])[:5] == [sys.executable, str(bert.script), "--horovod", "--batch", "2"]
    assert "--log" not in words  # horovodrun would take it for an option of its own
    stitched = command_line(CONTESTANTS["stitched"], four, (), files, tmp_path, installed)
    assert stitched[stitched.index("--") + 2] == str(horovod / "bin" / "horovodrun")
    assert environment(plain, files, installed)["PYTHONPATH"] == f"{horovod}:/mine"


def test_lines_of_rank_0_are_read_behind_what_horovodrun_puts_before_them(tmp_path: Path) -> None:
    runner = Runner(CONTESTANTS["stitched"], DISTRIBUTED["horovod-bert"], "mark/", tmp_path)
    runner.files.folder.mkdir(parents=True)
    runner.files.output.write_text(
        "[1]<stdout>:step 90 loss\n[0]<stdout>:step    40  loss 7.1    10.0 ms\n"
        "[0]<stderr>:stitchfleet: train: all 2 ranks run 21 verified kernels from step 14 on\n"
    )
    assert runner.last_step == 40
    assert runner.state() == "step 40, stitched from step 14"


def test_the_stitched_warm_up_outlasts_the_opening_pairs() -> None:
    from stitchfleet.plugin.arms.schedule import Schedule
    from stitchfleet.plugin.base.settings import Settings

    settings = Settings()
    schedule = Schedule("x", settings.block_steps, settings.pairs, settings.plain_share)
    after = opening_steps()
    assert schedule.slot(after - 1).pair == settings.pairs - 1
    assert schedule.slot(after).pair is None


def test_the_race_begins_when_each_function_has_said_what_its_opening_pairs_measured() -> None:
    stitched = "stitchfleet: {}: 5 kernels verified on the job's own tensors, stitched from step {} on\n".format
    measured = (
        "stitchfleet: {}: a step took 2.00 ms plain and 1.00 ms stitched: 2.000x, saving (6 pairs of blocks)\n".format
    )
    plain = "stitchfleet: {} goes back to plain: stitching does not pay here\n".format
    assert not is_in_steady_state("step 3\n", 3, 100)
    assert not is_in_steady_state(stitched("critic", 7), 150, 100)
    assert is_in_steady_state(stitched("critic", 7) + measured("critic"), 150, 100)
    both = stitched("critic", 7) + stitched("generator", 9) + measured("critic")
    assert not is_in_steady_state(both, 150, 100)
    assert is_in_steady_state(both + measured("generator"), 150, 100)
    assert is_in_steady_state(both + plain("generator"), 150, 100)
    assert not is_in_steady_state(both + plain("generator 2"), 150, 100)
    again = both + measured("generator") + stitched("critic", 140)  # without a cluster that was slower
    assert not is_in_steady_state(again, 150, 100)
    assert not is_in_steady_state(again, 339, 100)
    assert is_in_steady_state(again, 340, 100)


def test_settings_of_a_contestant_decide_how_long_its_opening_is() -> None:
    assert opening_steps({"STITCHFLEET_PAIRS": "1"}) * 6 == opening_steps()


def _warmed(name: str, step_s: float | None, folder: Path) -> Runner:
    runner = Runner(CONTESTANTS[name], WORKLOADS["bert"], "mark/", folder)
    runner.outcome.warm_up_step_s = step_s
    return runner


@pytest.mark.parametrize(
    ("step_s", "races"),
    [
        (6.3, False),  # a slice of 6 s holds none
        (0.9, True),  # slow, but a slice holds enough of them
        (None, True),  # too short a warm-up to tell
    ],
)
def test_one_whose_steps_do_not_fit_into_a_slice_does_not_race(
    step_s: float | None, races: bool, tmp_path: Path
) -> None:
    plain, xla = _warmed(PLAIN, 0.08, tmp_path), _warmed("xla", step_s, tmp_path)
    reason = too_slow(xla, plain, Limits(rounds=8, slice_s=6.0))
    assert (reason == "") == races
    if not races:
        assert reason == "not raced: a step took 6300 ms in the warm-up, 79 times plain's"


@pytest.mark.parametrize(
    ("step_s", "expected"), [(None, 4.0), (0.01, 4.0), (0.4, 4.0), (0.8, 8.0), (5.0, 50.0), (90.0, 60.0)]
)
def test_a_job_of_long_steps_gets_longer_slices(step_s: float | None, expected: float) -> None:
    assert slice_seconds(step_s, 4.0) == pytest.approx(expected)
    assert slice_seconds(step_s, 100.0) == 100.0  # never shorter than asked


def test_when_all_are_slow_nobody_is_left_out(tmp_path: Path) -> None:
    plain, xla = _warmed(PLAIN, 5.0, tmp_path), _warmed("xla", 6.0, tmp_path)
    assert too_slow(xla, plain, Limits(rounds=8, slice_s=6.0)) == ""
    assert too_slow(plain, plain, Limits(rounds=8, slice_s=6.0)) == ""


def test_copying_takes_time() -> None:
    assert 1e8 < machine.copy_bandwidth(repeats=1) < 1e13


def test_a_workload_that_cannot_be_profiled_costs_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no data')\n")
    assert main(["--workloads", str(broken), "--coverage", "--cache", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "broken: ended with exit code 1: RuntimeError: no data" in shown.out
    assert "Traceback" not in shown.err + shown.out


def test_an_outcome_without_enough_steps_has_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(CONTESTANTS[PLAIN], [Slice(0, 0.0, 1.0, 0.0)], [1.0], [0.0], [0.9])
    rows = evaluate([outcome], None)
    assert rows[0].figures is None
    assert "longer --seconds" in capsys.readouterr().err
    assert "no figures" in "\n".join(table({"bert": Section(rows)}, 2, 1.0))


# ---- processes ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}/"
    yield mark
    processes.kill_all(mark)


def _start(mark: str, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(STEPPER), "--steps", "1000000", "--helper", *words]
    return processes.start(command, f"{mark}job", {**os.environ}, folder / "output.txt")


def _until(condition: Any, limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_frozen_job_uses_no_processor_time_and_its_children_stand_still_too(mark: str, tmp_path: Path) -> None:
    _start(mark, tmp_path)
    _until(lambda: len(processes.members(mark)) == 2 and "step" in (tmp_path / "output.txt").read_text())
    processes.freeze(mark)
    assert {process.state for process in processes.members(mark).values()} == {"T"}
    before = processes.cpu_seconds(mark)
    said = (tmp_path / "output.txt").read_text()
    time.sleep(0.3)
    assert processes.cpu_seconds(mark) == before
    assert (tmp_path / "output.txt").read_text() == said
    processes.thaw(mark)
    _until(lambda: processes.cpu_seconds(mark) > before)


def test_stopped_and_deaf_processes_are_ended(mark: str, tmp_path: Path) -> None:
    job = _start(mark, tmp_path, "--deaf")
    _until(lambda: len(processes.members(mark)) == 2)
    processes.freeze(mark)
    processes.kill_all(mark)
    assert processes.members(mark) == {}
    assert job.wait(60) == -signal.SIGKILL


def test_another_s_processes_are_left_alone(mark: str, tmp_path: Path) -> None:
    _start(mark, tmp_path)
    _until(lambda: len(processes.members(mark)) == 2)
    assert processes.members(mark[:-1]) == {}  # the mark itself, not a beginning of it
    assert processes.members("else/") == {}


# ---- whole runs, with a workload that needs no TensorFlow ------------------------------------------------------------------


def _bench(*words: str) -> int:
    return main(["--workloads", str(STEPPER), *SHORT, *words])


def test_a_run_measures_what_is_there_and_writes_it_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    assert _bench("--contestants", "xla", "--arguments", "--slower 3 --helper", "--json", str(out)) == 0
    shown = capsys.readouterr()
    assert "round 2 of 2" in shown.err
    assert "stepper" in shown.out
    plain, slower = json.loads(out.read_text())["workloads"]["stepper"]
    assert plain["figures"]["median_ms"] >= 5.0  # a step takes 5 ms, or 15
    assert slower["figures"]["median_ms"] >= 15.0
    ratio = slower["figures"]["ratio_of_medians"]
    assert ratio["pairs"] == 2
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert 0.05 < plain["figures"]["cores"] <= 1.2  # a thread that is busy for a fifth of the time
    assert plain["losses_beside_plain"]["largest_relative_difference"] == 0.0
    assert plain["peak_bytes"] > 4 << 20
    # no step of one ran while the other had the machine
    for row, other in ((plain, slower), (slower, plain)):
        for window in other["slices"]:
            inside = [s for s, d in zip(row["starts"], row["seconds"]) if s > window["begin"] and s + d < window["end"]]
            assert inside == []
    assert statistics.median(plain["seconds"]) < statistics.median(slower["seconds"])


@pytest.mark.slow
def test_an_earlier_stitchfleet_races_from_its_own_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkout, out = tmp_path / "earlier", tmp_path / "bench.json"
    checkout.mkdir()
    (checkout / ".venv").symlink_to(Path(sys.prefix))
    words = (
        "--workloads",
        "session",
        "--rounds",
        "2",
        "--seconds",
        "4",
        "--no-counts",
        "--cache",
        str(tmp_path / "own"),
    )
    assert main([*words, "--contestants", "stitched", "--earlier", str(checkout), "--json", str(out)]) == 0
    assert "stitched beside the earlier stitchfleet: " in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert [row["contestant"] for row in found["workloads"]["session"]] == ["plain", "stitched", "earlier"]
    assert found["beside_the_earlier_stitchfleet"]["session"]["by_median"]["pairs"] == 2
    caches = tmp_path / "own", kernels_of(checkout)
    own, others = ({path.parent.name for path in cache.rglob(METADATA)} for cache in caches)
    assert own, "stitched made no kernels"
    assert others, "the earlier one made none for itself"


@pytest.mark.slow
def test_a_contestant_that_fails_costs_one_line_and_not_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("--contestants", "xla,plain-again", "--arguments=--fail-with-xla") == 1
    shown = capsys.readouterr()
    assert "xla         failed: ended with exit code 1: this cannot be compiled" in shown.out
    (again,) = (line for line in shown.out.splitlines() if "plain-again" in line)
    assert "(" in again  # has a ratio with its interval
    assert "Traceback" not in shown.err + shown.out


def test_one_that_dies_in_the_race_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("--contestants", "plain-again", "--arguments=--die-at 60") == 1
    assert "failed: ended with exit code -6" in capsys.readouterr().out


@pytest.mark.slow
def test_a_workload_that_fails_altogether_leaves_the_next_one_its_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no data')\n")
    assert main(["--workloads", f"{broken},{STEPPER}", *SHORT, "--contestants", "plain"]) == 1
    shown = capsys.readouterr().out
    assert "failed: ended with exit code 1: RuntimeError: no data" in shown
    assert [line for line in shown.splitlines() if line.startswith("  plain  ") and "failed" not in line]


@pytest.mark.slow
def test_a_job_that_is_never_stitched_is_measured_and_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--contestants", "stitched", "--warm-up-limit", "3", "--cache", str(tmp_path / "cache"))
    assert _bench(*words) == 1  # the stepper never imports TensorFlow
    assert "stitched    failed: was not warm after 3 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("--workloads", "nobody"),
        ("--contestants", "nobody"),
        ("--rounds", "1"),
        ("--rounds", "many"),
        ("--seconds", "0"),
        ("--json", "/no/such/folder/x.json"),
        ("--no-such-option",),
        ("--earlier", "/no/such/checkout"),
        ("--earlier", str(ROOT), "--zoo", "ocr"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("scripts/bench: error: ")


def _marked_by(pid: int) -> dict[int, processes.Process]:
    """Processes of the races of a benchmark with this process id."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if f"{processes.MARK}={pid}-".encode() in Path(f"/proc/{name}/environ").read_bytes():
                    process = processes.members(_mark_of(int(name))).get(int(name))
                    if process is not None:
                        found[int(name)] = process
            except OSError:
                continue
    return found


def _mark_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return next(v.split("=", 1)[1] for v in variables if v.startswith(f"{processes.MARK}="))


@pytest.mark.costly
@pytest.mark.parametrize(
    "number", [signal.SIGINT, slow(signal.SIGTERM), signal.SIGKILL], ids=lambda number: number.name
)
def test_nothing_is_left_when_the_benchmark_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "bench.py"), "--workloads", str(STEPPER), "--rounds", "500"]
    command += ["--contestants", "xla", "--seconds", "0.3", "--arguments=--helper --deaf"]
    # A shell that runs tests in the background has them ignore Ctrl-C, and what they start inherits it.
    bench = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # a killed one's folder stays
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert bench.stderr is not None
    for line in bench.stderr:
        if "round 1 " in line:
            break
    assert len(_marked_by(bench.pid)) == 4
    bench.send_signal(number)
    code = bench.wait(120)
    bench.stderr.close()
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    _until(lambda: _marked_by(bench.pid) == {})


@pytest.mark.slow
def test_a_small_bert_is_compared_in_all_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    small = "--layers 1 --hidden 64 --inner 128 --vocabulary 500 --length 32 --dropout 0"
    words = ["--rounds", "2", "--seconds", "3", "--arguments", small, "--json", str(out), "--cache", str(tmp_path)]
    assert main(words) == 0, capsys.readouterr().err
    everything = json.loads(out.read_text())
    plain, xla, fusible, stitched = everything["workloads"]["bert"]
    assert stitched["note"] is None
    assert stitched["summary"]["programs"][0]["phase"] == "stitched"
    assert stitched["new_kernels"] > 0
    assert stitched["compile_s"] > 0
    assert xla["figures"]["start_up_s"] > 0
    assert 0 < stitched["launches"]["memory"] < plain["launches"]["memory"]
    assert 0 < xla["launches"]["memory"] < plain["launches"]["memory"]
    assert stitched["losses_beside_plain"]["steps"] > 50
    assert stitched["losses_beside_plain"]["largest_relative_difference"] < 1e-3
    assert all(row["figures"]["ratio_of_medians"]["pairs"] == 2 for row in (xla, fusible, stitched))
    assert xla["launches"]["written_bytes"] > 0
    coverage, floor = everything["coverage"]["bert"], everything["floors"]["bert"]
    assert 0.0 < coverage["share"] <= 1.0
    assert coverage["stitched"]["stitch_launches"] > 0
    assert coverage["plain"]["stitch_launches"] == 0
    assert coverage["stitched"]["product_launches"] == coverage["plain"]["product_launches"]
    assert any("RandomUniform" not in row["op"] for row in coverage["outside"])
    assert floor["stitch_moved_bytes"] > 0
    assert floor["copy_bytes_per_s"] > 1e8
    assert everything["beside_the_better_of_plain_and_xla"]["bert"]["by_wall"]["pairs"] == 2
