"""Bad input and faults: whatever goes wrong on our side, the job's numbers, output and exit code stay its own."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ...broken_kernels import broken_kernels
from ...marks import slow
from ..conftest import ROOT, SCRIPTS, Finished, RunJob

# Small steps: many of them, so that kernels arrive within the job; phases short. So many pairs that no job of the tests is judged by
# them: on a machine that does other things too, a job of small steps may well be slower for a while, and go back to plain.
QUICK = {
    "STITCHFLEET_BASELINE_STEPS": "8",
    "STITCHFLEET_PAIRS": "24",
    "STITCHFLEET_BLOCK_STEPS": "15",
    "STITCHFLEET_SAMPLE_STRIDE": "20",
}
STEPS = "500"
COLD, WARM = "600", "300"
"""Seconds that a test's job pauses early at most, so that its kernels arrive: new ones, and ones in the cache (fixture `warmed`)."""


def main_program(job: Finished) -> dict[str, object]:
    return next(program for program in job.summary["programs"] if program["name"] == job.summary["main"])


def states(job: Finished) -> set[str]:
    return {entry["state"] for cluster in job.summary["clusters"] for entry in cluster["executables"]}


def relative_difference(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) / max(abs(y), 1e-30) for x, y in zip(a, b))


@pytest.mark.usefixtures("warmed")
def test_a_job_is_stitched_and_its_losses_agree(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("loop.py", STEPS, WARM, environment=QUICK, start=True, quiet=False)
    assert job.code == 0, job.err
    program = main_program(job)
    assert program["phase"] == "stitched", job.err
    assert f"stitched from step {program['stitched_from_step']} on" in job.err
    assert states(job) == {"stitched"}
    calls = job.summary["calls"]
    assert calls["stitched"] > 500
    assert calls["verify"] > 0
    plain = run_plain("loop.py", STEPS)
    assert relative_difference(job.result[:200], plain.result[:200]) < 1e-3


@pytest.mark.parametrize("compiler", ["failing", slow("missing")])
def test_without_a_working_compiler_the_job_runs_plain_and_one_line_says_why(
    run_job: RunJob, run_plain: RunJob, tmp_path: pathlib.Path, cache: pathlib.Path, compiler: str
) -> None:
    """A PATH of its own: nothing on it, or a g++ that tells its version and then fails."""
    fresh, path = tmp_path / "cache", tmp_path / "bin"
    fresh.mkdir()
    path.mkdir()
    (fresh / "native").symlink_to(cache / "native")
    if compiler == "failing":
        (path / "g++").write_text(
            f'#!/bin/sh\ncase "$*" in *version*|*machine*) exec {shutil.which("g++")} "$@";; esac\n'
            'echo "internal compiler error: no" >&2\nexit 1\n'
        )
        (path / "g++").chmod(0o755)
    job = run_job("loop.py", STEPS, COLD, environment={**QUICK, "PATH": str(path), "CXX": ""}, with_cache=fresh)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "plain"
    lines = [line for line in job.err.splitlines() if line.startswith("stitchfleet:")]
    assert len(lines) == 1, job.err
    assert "compiler" in lines[0]
    assert job.result == run_plain("loop.py", STEPS).result


def test_a_kernel_made_wrong_is_caught_before_its_values_reach_the_model(run_job: RunJob, run_plain: RunJob) -> None:
    wrong = {**QUICK, **broken_kernels.environment("add_one_output", unchecked=True)}
    job = run_job("loop.py", STEPS, COLD, COLD, environment=wrong)
    assert job.code == 0, job.err
    assert job.summary["calls"]["stitched"] == 0
    assert states(job) == {"reverted"}
    assert relative_difference(job.result, run_plain("loop.py", STEPS).result) < 1e-3
    assert job.summary["bundles"]
    explained = subprocess.run(
        [sys.executable, "-m", "stitchfleet.plugin.command", "explain", job.summary["bundles"][0]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert explained.returncode == 0, explained.stderr
    assert "wrong" in explained.stdout


@pytest.mark.slow
def test_the_self_check_refuses_a_wrong_kernel_before_any_job_sees_it(run_job: RunJob) -> None:
    job = run_job("loop.py", STEPS, COLD, environment={**QUICK, **broken_kernels.environment("add_one_output")})
    assert job.code == 0, job.err
    assert states(job) == {"failed"}
    assert main_program(job)["phase"] == "plain"


@pytest.mark.slow
def test_a_cluster_without_a_kernel_goes_back_into_the_graph(run_job: RunJob, run_plain: RunJob) -> None:
    """A stitch op that only ever called its fallback would be slower than the operators themselves."""
    environment = {**QUICK, **broken_kernels.environment("add_one_output")}  # those without a float output stay right
    job = run_job("integers_too.py", "400", COLD, environment=environment)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    assert states(job) == {"failed", "stitched"}
    assert "Tanh" in job.summary["stayed_out"]["no kernel could be made for its cluster"]
    assert job.summary["calls"]["stitched"] > 20
    assert job.result == run_plain("integers_too.py", "400").result


@pytest.mark.slow
@pytest.mark.parametrize("script", ["integers_too.py", slow("loop.py")])
def test_a_kernel_slower_than_tensorflows_operators_is_left_out(
    run_job: RunJob, run_plain: RunJob, script: str
) -> None:
    """Of one script a cluster of integers stays, which is not slow; of the other nothing."""
    environment = {**QUICK, **broken_kernels.environment("slow"), "STITCHFLEET_VERIFY_STEPS": "12"}
    job = run_job(script, "400", COLD, environment=environment)
    assert job.code == 0, job.err
    slower = "TensorFlow's own operators are faster than its cluster's kernel"
    assert "Mul" in job.summary["stayed_out"][slower]
    if script == "loop.py":
        assert job.summary["calls"]["stitched"] == 0
    else:
        assert main_program(job)["phase"] == "stitched", job.err
        assert job.summary["calls"]["stitched"] > 20
    assert job.result == run_plain(script, "400").result


@pytest.mark.slow
def test_a_kernel_wrong_on_rare_data_only_is_found_by_sampled_verification(run_job: RunJob) -> None:
    rare = {**QUICK, **broken_kernels.environment("rare", unchecked=True)}
    job = run_job("rare.py", "1500", "600", COLD, environment=rare)  # the oracle needs a second or two for its word
    assert job.code == 0, job.err
    reverted = [
        entry for cluster in job.summary["clusters"] for entry in cluster["executables"] if entry["state"] == "reverted"
    ]
    assert reverted, (job.err, job.summary["stayed_out"], states(job))
    stride, block = int(QUICK["STITCHFLEET_SAMPLE_STRIDE"]), int(QUICK["STITCHFLEET_BLOCK_STEPS"]) + 1
    for entry in reverted:
        assert entry["calls"]["stitched"] > 0
        # within so many stitched steps, among which two plain blocks may lie
        assert 600 - stride - 2 * block <= entry["last_good_step"] < 600
    assert any("last known good step" in line for line in job.summary["reverts"])


@pytest.mark.slow
@pytest.mark.usefixtures("warmed")
def test_a_corrupt_cache_entry_is_rebuilt(run_job: RunJob, cache: pathlib.Path) -> None:
    first = run_job("loop.py", STEPS, WARM, environment=QUICK)
    libraries = {entry["library"] for cluster in first.summary["clusters"] for entry in cluster["executables"]}
    for library in libraries:
        data = pathlib.Path(library).read_bytes()
        pathlib.Path(library).write_bytes(data[: len(data) // 2])
    again = run_job("loop.py", STEPS, COLD, environment=QUICK)
    assert again.code == 0, again.err
    assert main_program(again)["phase"] == "stitched", again.err


@pytest.mark.slow
@pytest.mark.usefixtures("warmed")
def test_a_cache_entry_of_another_user_is_not_loaded(run_job: RunJob) -> None:
    if os.getuid() != 0:
        pytest.fail("this test changes a file's owner and needs root, as CI has")
    first = run_job("loop.py", STEPS, WARM, environment=QUICK)
    libraries = {entry["library"] for cluster in first.summary["clusters"] for entry in cluster["executables"]}
    for library in libraries:
        os.chown(library, 12345, 12345)
    again = run_job("loop.py", STEPS, COLD, environment=QUICK)
    assert main_program(again)["phase"] == "stitched", again.err
    for cluster in again.summary["clusters"]:
        for entry in cluster["executables"]:
            assert os.stat(entry["library"]).st_uid == 0


@pytest.mark.slow
def test_the_compile_service_killed_leaves_the_job_running(
    run_plain: RunJob, cache: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    summary = tmp_path / "summary.json"
    environment = {**os.environ, **QUICK, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [
        *(sys.executable, "-m", "stitchfleet.plugin.command", "run", "--quiet", "--cache", str(cache)),
        *("--summary", str(summary), "--database", f"sqlite:///{tmp_path}/r.db"),
        *("--", sys.executable, str(SCRIPTS / "loop.py"), "500", "6"),
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        killed = 0
        while job.poll() is None:
            for pid in service_processes(job.pid):
                os.kill(pid, signal.SIGKILL)
                killed += 1
            time.sleep(0.1)
        out, err = job.communicate()
    assert killed >= 1
    assert job.returncode == 0, err
    assert json.loads(out.strip().splitlines()[-1]) == run_plain("loop.py", "500").result


def service_processes(job: int) -> list[int]:
    """The compile services that a job has started; another test's job may share the cache."""
    parents, services = {}, []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"stitchfleet.plugin.service.serving" in words:
            services.append(int(folder.name))

    def is_below(pid: int) -> bool:
        while pid and pid != job:
            pid = parents.get(pid, 0)
        return pid == job

    return [pid for pid in services if is_below(pid)]


def test_a_script_that_raises_keeps_its_traceback_and_exit_code(run_job: RunJob) -> None:
    job = run_job("raises.py")
    assert job.code == 1
    theirs = [
        line for line in job.err.splitlines() if not line.startswith("stitchfleet: ")
    ]  # on a busy machine: records are kept
    assert theirs[-1] == "RuntimeError: the user's own error"
    assert job.summary["programs"][0]["steps"] == 20


@pytest.mark.slow
def test_a_script_that_exits_keeps_its_exit_code(run_job: RunJob) -> None:
    assert run_job("raises.py", "37").code == 37


@pytest.mark.slow
def test_a_script_that_forks_and_uses_pools_works(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("forks.py", environment=QUICK)
    assert job.code == 0, job.err
    assert job.result == run_plain("forks.py").result


def test_a_process_that_imported_tensorflow_before_us_is_stitched_all_the_same(
    run_job: RunJob, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'loop.py' in sys.orig_argv[1]:\n    import tensorflow\nprint('the own sitecustomize', file=sys.stderr)\n"
    )
    job = run_job("loop.py", "60", mode="alternate", environment={"PYTHONPATH": str(tmp_path)})
    assert job.code == 0, job.err
    assert "the own sitecustomize" in job.err
    assert main_program(job)["steps_stitched"] != 0


@pytest.mark.slow
def test_two_jobs_may_share_one_cache_at_once(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shared = tmp_path / "cache"
    shared.mkdir()
    (shared / "native").symlink_to(cache / "native")
    environment = {**os.environ, **QUICK, "TF_CPP_MIN_LOG_LEVEL": "3"}
    jobs = []
    for i in range(2):
        command = [
            *(sys.executable, "-m", "stitchfleet.plugin.command", "run", "--quiet", "--cache", str(shared)),
            *("--summary", str(tmp_path / f"{i}.json"), "--database", f"sqlite:///{tmp_path}/r.db"),
            *("--", sys.executable, str(SCRIPTS / "loop.py"), STEPS, COLD),
        ]
        jobs.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    for i, job in enumerate(jobs):
        _, err = job.communicate(timeout=3600)
        assert job.returncode == 0, err
        summary = json.loads((tmp_path / f"{i}.json").read_text())
        assert summary["programs"][0]["phase"] == "stitched", err


@pytest.mark.slow
def test_a_cache_on_a_file_system_that_takes_no_files_is_replaced_for_the_job(
    run_job: RunJob, run_plain: RunJob, tmp_path: pathlib.Path
) -> None:
    """/sys takes no files, not even from root, as a read-only disk does not. The private folder is the job's own."""
    environment = {"TMPDIR": str(tmp_path)}
    job = run_job("loop.py", "40", with_cache=pathlib.Path("/sys/kernel/stitchfleet"), environment=environment)
    assert job.code == 0, job.err
    (line,) = [line for line in job.err.splitlines() if "cannot be written to" in line]
    assert "/sys/kernel/stitchfleet" in line
    assert relative_difference(job.result, run_plain("loop.py", "40").result) < 1e-3


def test_a_database_that_cannot_be_written_does_not_stop_the_job(
    run_plain: RunJob, cache: pathlib.Path, prepared: str
) -> None:
    command = [
        *(sys.executable, "-m", "stitchfleet.plugin.command", "run", "--quiet", "--cache", str(cache)),
        *("--database", "sqlite:////proc/no/such.db", "--", prepared, str(SCRIPTS / "loop.py"), "100"),
    ]
    job = subprocess.run(
        command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, capture_output=True, text=True, check=False
    )
    assert job.returncode == 0, job.stderr
    losses = json.loads(job.stdout.strip().splitlines()[-1])
    assert relative_difference(losses, run_plain("loop.py", "100").result) < 1e-3  # it may have become stitched


@pytest.mark.slow
@pytest.mark.usefixtures("warmed")
def test_a_full_disk_does_not_stop_the_job_and_the_loss_is_counted(run_job: RunJob, run_plain: RunJob) -> None:
    """RLIMIT_FSIZE stands for the disk: every file of the job ends at 4 KiB."""
    job = run_job("loop.py", STEPS, WARM, environment=QUICK, file_size=4096)
    assert job.code == 0, job.err
    assert relative_difference(job.result, run_plain("loop.py", STEPS).result) < 1e-2


@pytest.mark.slow
def test_more_memory_than_plain_near_the_limit_gives_stitching_up(run_job: RunJob) -> None:
    """The job's memory grows while it is stitched, beyond a limit that is set low: stitching ends, the job does not."""
    job = run_job("grows.py", "600", COLD, environment={**QUICK, "STITCHFLEET_MEMORY_LIMIT_BYTES": "200000000"})
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "reverted", job.err
    assert "memory" in str(main_program(job)["reason"])
    assert int(main_program(job)["steps_stitched"]) > 10  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run"], "no command given"),
        (["run", "--", "/no/such/program"], "no such program"),
        (["run", "--no-such-option", "--", "true"], "unrecognized arguments"),
        (["nonsense"], "no command 'nonsense'"),
        (["compile", "/no/such/file.hlo"], "/no/such/file.hlo"),
    ],
)
def test_a_users_mistake_gives_one_clear_line_and_a_non_zero_exit(words: list[str], complaint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stitchfleet.plugin.command", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_users_optimizer_options_are_the_same_before_during_and_after(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("options.py", mode="alternate")
    assert job.result == run_plain("options.py").result
