"""The Python part of scripts/demo, which prepares the environment first: two stitched runs and a plain one from the same seed, a
comparison of their losses, and the report."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "demo-output"
CACHE = ROOT / ".cache" / "stitchfleet"
STITCHFLEET = [sys.executable, "-m", "stitchfleet.plugin.command"]


def say(text: str) -> None:
    print(f"\n[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def run(command: list[str]) -> None:
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code != 0:
        sys.exit(f"demo: this command failed with exit code {code}: {' '.join(command)}")


def train(steps: int, log: pathlib.Path) -> list[str]:
    return [sys.executable, "scripts/workloads/bert.py", "--steps", str(steps), "--log", str(log)]


LOSS_TOLERANCE = 1e-3
"""Largest relative difference of the losses at the plain run's last step. Rounding can grow to less than that."""


def stitched_from(summary: pathlib.Path) -> int | None:
    """The first step of a job's stitched phase, read from its summary (a JSON file); None if it had none."""
    found = json.loads(summary.read_text())
    return next((p["stitched_from_step"] for p in found["programs"] if p["name"] == found["main"]), None)


def compare_losses(plain: pathlib.Path, stitched: pathlib.Path, first_stitched: int | None) -> None:
    """Prints the losses of two runs from the same seed side by side, read from their step logs (JSON files). Exits if the last ones
    differ by more than LOSS_TOLERANCE. first_stitched: the step to mark in the table, or None."""
    ours, theirs = json.loads(stitched.read_text())["losses"], json.loads(plain.read_text())["losses"]
    difference = 0.0
    print("  step      plain        stitched     relative difference")
    shown = {0, 9, 99, first_stitched or 0, len(theirs) * 3 // 4, len(theirs) - 1}
    for step in sorted({step for step in shown if step < len(theirs)}):
        difference = abs(ours[step] - theirs[step]) / abs(theirs[step])
        note = "   stitched from here on" if step == first_stitched else ""
        print(f"  {step:4d}   {theirs[step]:.7f}   {ours[step]:.7f}     {difference:.1e}{note}")
    if difference > LOSS_TOLERANCE:
        sys.exit(f"demo: the losses part by {difference:.1e}, more than {LOSS_TOLERANCE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = int(os.environ.get("STEPS", "640"))
    parser.add_argument("--steps", type=int, default=default, help=f"steps of each stitched run (default {default})")
    parser.add_argument(
        "--plain-steps",
        type=int,
        default=80,
        help="steps of the plain run after the first stitched one, to compare the losses (default 80)",
    )
    arguments = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    database = f"sqlite:///{OUT}/stitchfleet.db"

    def stitched(name: str) -> int | None:
        """Runs the job under stitchfleet, and returns its first stitched step."""
        summary = OUT / f"summary-{name}.json"
        job = ["run", "--cache", str(CACHE), "--database", database, "--summary", str(summary)]
        run([*STITCHFLEET, *job, "--", *train(arguments.steps, OUT / f"{name}.json")])
        return stitched_from(summary)

    say(f"1/5  {arguments.steps} steps of BERT under `stitchfleet run`, which compiles its kernels beside the job")
    first_stitched = stitched("first")

    say("2/5  the same once more: its kernels are there")
    again_stitched = stitched("second")

    known = [step for step in (first_stitched, again_stitched) if step is not None]
    steps = min(max(known, default=0) + arguments.plain_steps, arguments.steps)
    say(f"3/5  {steps} steps of the same script as it is")
    run(train(steps, OUT / "plain.json"))

    say("4/5  from the same seed, the same losses")
    compare_losses(OUT / "plain.json", OUT / "first.json", first_stitched)
    print("  and of the second run:")
    compare_losses(OUT / "plain.json", OUT / "second.json", again_stitched)

    say("5/5  the report")
    run([*STITCHFLEET, "report", "--database", database])
    run([*STITCHFLEET, "report", "--database", database, "--format", "html", "--output", str(OUT / "report.html")])
    print(f"\n  as a page with pictures:  {OUT / 'report.html'}")
    print(f"  the jobs' summaries:      {OUT / 'summary-first.json'}, {OUT / 'summary-second.json'}")


if __name__ == "__main__":
    main()
