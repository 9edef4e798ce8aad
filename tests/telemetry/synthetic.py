"""A made-up fleet's weeks, through the house's own rows: for tests of the report, and to look at one.

python -m tests.telemetry.synthetic fleet.db --weeks 6 --jobs 120
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import time
from array import array
from collections.abc import Iterator

import sqlalchemy as sa

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.rows import rows_of_segment
from stitchfleet.telemetry.database.store import insert_rows
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS, PLAIN, STITCHED, UNCOUNTED
from stitchfleet.telemetry.pod.spool import MAGIC, Iterations, Kind, Record, encode
from stitchfleet.telemetry.totals.freezing import freeze

from .helpers import identity

# name, namespace, team, typical saving, milliseconds a plain step
MODELS = (
    ("bert-large-pretrain", "nlp-prod", "nlp", 0.24, 310),
    ("bert-finetune", "nlp-research", "nlp", 0.19, 95),
    ("transformer-mt", "nlp-prod", "translation", 0.21, 180),
    ("dien-ctr", "ads", "ads-ranking", 0.17, 42),
    ("wide-deep", "ads", "ads-ranking", 0.02, 18),
    ("asr-conformer", "speech", "speech", 0.12, 220),
    ("crnn-ocr", "vision", "vision", 0.06, 75),
    ("resnet50", "vision", "vision", -0.01, 130),
    ("forecast", "supply", "", 0.09, 12),
)
KINDS = (
    ("NVIDIA A100-SXM4-80GB", (8, 16, 64)),
    ("Tesla V100-SXM2-32GB", (1, 4, 8)),
    ("Tesla T4", (1,)),
    ("cpu", (1, 2)),
)


def segment(about: dict[str, object], records: list[tuple[Kind, bytes]]) -> bytes:
    entries = [(Kind.IDENTITY, json.dumps(about).encode()), *records]
    return MAGIC + b"".join(encode(Record(kind, number, body)) for number, (kind, body) in enumerate(entries))


def job(choice: random.Random, week: Week, number: int) -> bytes:
    """One job's segment: warm-up, pairs, some thousand iterations, an end in nine of ten."""
    name, namespace, team, typical, plain_ms = choice.choices(MODELS, weights=(9, 14, 8, 22, 12, 6, 9, 5, 8))[0]
    kind, counts = choice.choices(KINDS, weights=(5, 6, 4, 3))[0]
    saving = typical + choice.gauss(0.0, 0.02)
    step_ns = plain_ms * 1e6 * choice.uniform(0.8, 1.3) * (9 if kind == "cpu" else 1)
    started = week.start_ns + choice.randrange(5 * DAY_NS)
    fate = choice.choices(("measured", "short", "plain", "reverted", "gives up"), weights=(80, 8, 5, 4, 3))[0]
    about = {
        "format": 1, "process": "p", "pid": 1, "host": "node", "started_ns": started,
        "job": identity(
            f"{week}-{number:05d}-{choice.getrandbits(64):016x}", name=f"{name}-{choice.randrange(36**5):x}", namespace=namespace,
            labels={"team": team, "app": name} if team else {"app": name}, device_kind=kind, device_count=choice.choice(counts),
            model_fingerprint="", user=f"user{choice.randrange(20)}",
        ).to_json(),
    }  # fmt: skip
    now, step = float(started), 0
    records: list[tuple[Kind, bytes]] = []

    def run(count: int, mean_ns: float, arm: int) -> list[float]:
        nonlocal now, step
        times = [mean_ns * choice.lognormvariate(0.0, 0.05) for _ in range(count)]
        begun, now = now, now + sum(times)
        if int(now) // DAY_NS != int(begun) // DAY_NS:
            begun = now  # no block crosses midnight
        block = Iterations(step, 1, int(begun), int(now), [(0, count, arm)], array("f", (each / 1e3 for each in times)))
        records.append((Kind.ITERATIONS, block.encode()))
        step += count
        return times

    def say(kind: Kind, /, **facts: object) -> None:
        records.append((kind, json.dumps({"time_ns": int(now), **facts}).encode()))

    run(6, 3.0 * step_ns, UNCOUNTED)
    run(30, step_ns, PLAIN)
    stitched_ns = step_ns * (1 - saving)
    if fate != "plain":
        say(Kind.EVENT, kind="stitched", message=f"stitched from step {step} on", facts={"kernels": 31})
        for pair in range(1 if fate == "short" else choice.randrange(4, 24)):
            for arm, mean in choice.sample([(PLAIN, step_ns), (STITCHED, stitched_ns)], 2):
                times = run(12, mean, arm)[1:]
                say(Kind.ARM_BLOCK, pair=pair, arm=arm, first_step=step, durations_ns=[round(each) for each in times])
            run(40 if fate == "short" else 150, stitched_ns, STITCHED)
    reason, phase = "", "stitched"
    if fate == "plain":
        phase, reason = "plain", "no operators to stitch in its graph"
        say(Kind.EVENT, kind="plain", message=reason, facts={})
    if fate == "gives up":
        phase, reason = "plain", "stitching does not pay here: the saving lies between -0.4% and +0.9%"
        say(Kind.EVENT, kind="does-not-pay", message=reason, facts={})
    if fate == "reverted":
        message = f"softmax_1a2b reverted at step {step}: output 0[17] is 0.9999, TensorFlow has 1.0001"
        say(Kind.EVENT, kind="reverted", message=message, facts={"cluster": "softmax_1a2b", "step": step})
    executable = {"kernel": "k_softmax", "largest_error": 1e-7, "error_over_tolerance": 0.25}
    for cluster, ops in (
        ("softmax_1a2b", {"Exp": 1, "Sum": 1, "RealDiv": 1}),
        ("gelu_77c0", {"Erf": 1, "Mul": 3, "AddV2": 1}),
    ):
        facts = {"ops": ops, "state": "stitched", "instances": 12, "executables": [executable]}
        say(Kind.CLUSTER, name=cluster, facts=facts)
    if choice.random() < 0.9:
        say(Kind.JOB_END, facts={"overhead_ns": int(choice.uniform(1, 8) * 1e9), "phase": phase, "reason": reason})
    return segment(about, records)


def weeks_before(week: Week, count: int) -> Iterator[Week]:
    """`count` weeks, oldest first, the last of which is `week`."""
    return (Week.of_day(week.first_day - 7 * back) for back in range(count - 1, -1, -1))


def fill(engine: sa.Engine, last: Week, weeks: int, jobs: int, frozen: int) -> None:
    """`jobs` jobs in each of `weeks` weeks up to `last`, of which the first `frozen` are frozen."""
    choice = random.Random(7)
    for number, week in enumerate(weeks_before(last, weeks)):
        with access.writing(engine) as connection:
            for index in range(round(jobs * (0.6 + 0.4 * (number + 1) / weeks))):
                insert_rows(connection, rows_of_segment(job(choice, week, index))[0])
            if number < frozen:
                freeze(connection, week.end_day)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--weeks", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=120)
    arguments = parser.parse_args()
    engine = access.open_engine(f"sqlite:///{arguments.file}")
    access.upgrade(engine)
    fill(engine, Week.at(time.time_ns() - 7 * DAY_NS), arguments.weeks, arguments.jobs, arguments.weeks - 3)


if __name__ == "__main__":
    main()
