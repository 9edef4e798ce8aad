"""The product, top to bottom: a researcher adds one label to a pod, and the platform's weekly report counts what that saved.

The training image is a plain one (scripts/images/demo): TensorFlow, a script, no C++ compiler, and not a word of stitchfleet.
Everything is real: the API server asks the webhook, the kubelet runs the pod, the kernels are built in it, the records are sent with
a token that the API server vouches for, the controller makes the report.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Images, Release
from .kubernetes import MEASURED_STEPS, Kubernetes, last_step, log_of, volume_of

pytestmark = pytest.mark.costly

TRAINING = "vision"
"""The researcher's namespace."""
LONG, SHORT = 1_000_000, 200
"""Steps. The labelled pod trains until it is asked to end; its twin only has to show what the same steps compute without a label."""
COMPILERS = "g++ c++ gcc cc clang clang++ zig"
TRAINING_SECONDS = 400.0
PAGE = os.environ.get("STITCHFLEET_PAGE")
"""A file for the report's page, of which scripts/pictures makes a picture."""
TRAINED_STEPS = int(os.environ.get("STITCHFLEET_PAGE_STEPS", MEASURED_STEPS))
"""Steps from the first stitched one on. A picture's job is to train for long enough to save more than stitching costs."""

SAVED = """
    WITH blocks AS (
        SELECT process_id, sum(stitched_count) AS stitched, sum(plain_ns + stitched_ns + uncounted_ns) AS ns
        FROM iteration_blocks GROUP BY process_id
    ), pairs AS (
        SELECT p.process_id, count(*) AS pairs, avg(p.mean_ns) - avg(s.mean_ns) AS saved_ns
        FROM arm_blocks AS p JOIN arm_blocks AS s ON s.process_id = p.process_id AND s.pair = p.pair AND s.arm = 1
        WHERE p.arm = 0 GROUP BY p.process_id
    )
    SELECT j.name, j.namespace, j.cluster, j.uid, j.run_id, j.image, j.labels, e.phase, b.stitched, pairs.pairs,
        j.device_count * b.ns / 3600e9 AS device_hours,
        j.device_count * (b.stitched * pairs.saved_ns - e.overhead_ns) / 3600e9 AS saved_hours
    FROM jobs AS j
    JOIN blocks AS b ON b.process_id = j.process_id
    JOIN pairs ON pairs.process_id = j.process_id
    JOIN job_ends AS e ON e.process_id = j.process_id
    WHERE j.uid = '{uid}'
"""
"""From the rows that the pod sent: what an iteration saved on the average of the pairs, times the stitched iterations, less what
stitching cost."""
CLUSTERS = """
    SELECT c.name, c.state FROM clusters AS c JOIN jobs AS j ON j.process_id = c.process_id
    WHERE j.uid = '{uid}' ORDER BY c.name, c.sequence
"""


def training_pod(name: str, image: str, steps: int, **labels: str) -> dict[str, Any]:
    """What the researcher writes. A restricted namespace asks for the security context; only a label is for stitchfleet."""
    script = f"for compiler in {COMPILERS}; do command -v $compiler; done; exec python /app/train.py --steps {steps}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TRAINING, "labels": {"team": "eyes", **labels}},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": ["sh", "-c", script],
                    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def savings_report(name: str, scope: dict[str, str]) -> dict[str, Any]:
    """What somebody creates who wants to know of this week."""
    spec = {"week": time.strftime("%G-W%V", time.gmtime()), "scope": scope}
    return {"apiVersion": "stitchfleet.io/v1alpha1", "kind": "SavingsReport", "metadata": {"name": name}, "spec": spec}


def query(kubernetes: Kubernetes, release: Release, statement: str) -> list[dict[str, Any]]:
    """Rows of the database, read in its pod by nothing of stitchfleet's."""
    program = (
        "import json, sqlite3, sys\n"
        "database = sqlite3.connect('file:/data/stitchfleet.db?mode=ro', uri=True)\n"
        "database.row_factory = sqlite3.Row\n"
        "print(json.dumps([dict(row) for row in database.execute(sys.argv[1])]))"
    )
    return list(json.loads(_in_server(kubernetes, release, "python", "-c", program, statement)))


def _in_server(kubernetes: Kubernetes, release: Release, *command: str) -> str:
    return kubernetes.kubectl("-n", release.namespace, "exec", release.server, "-c", "ingest", "--", *command)


def test_a_label_is_all_it_takes(kubernetes: Kubernetes, images: Images, release: Release) -> None:
    kubernetes.namespace(TRAINING, **{"pod-security.kubernetes.io/enforce": "restricted"})
    image = images.demo.reference
    kubernetes.create(savings_report("vision", {"namespace": TRAINING}))
    kubernetes.create(training_pod("twin", image, SHORT))
    twin = kubernetes.finished("twin", TRAINING, TRAINING_SECONDS)
    created = kubernetes.create(training_pod("train", image, LONG, **{"stitchfleet.io/enabled": "true"}))

    # While it runs: its kernels are built in it, by the payload's compiler. The image has none.
    stitched_from = kubernetes.wait(
        lambda: stitched_step(kubernetes), TRAINING_SECONDS, lambda: kubernetes.why("train", TRAINING)
    )
    kernels = sorted(volume_of(created["metadata"]["uid"]).glob("cache/**/*.so"))
    assert {"LLD" in comment_of(kernel) for kernel in kernels} == {True}
    assert not [line for line in log_of(kubernetes, "train", TRAINING).splitlines() if line.startswith("/")], (
        "the image has a compiler"
    )
    kubernetes.wait(
        lambda: last_step(log_of(kubernetes, "train", TRAINING)) > stitched_from + TRAINED_STEPS,
        TRAINING_SECONDS * TRAINED_STEPS / MEASURED_STEPS,
        "training goes on",
    )
    kubernetes.kubectl("-n", TRAINING, "exec", "train", "-c", "main", "--", "python", "-c", "import os; os.kill(1, 15)")
    pod = kubernetes.finished("train", TRAINING, TRAINING_SECONDS)

    # The pod was changed at its creation, and only as much as it takes; it ran to its end, and so did its twin.
    assert created["metadata"]["annotations"]["stitchfleet.io/injected"] == "main"
    assert [each["name"] for each in created["spec"]["initContainers"]] == ["stitchfleet-payload"]
    assert "stitchfleet.io/injected: main" in kubernetes.kubectl("-n", TRAINING, "get", "pod", "train", "-o", "yaml")
    assert pod["status"]["phase"] == twin["status"]["phase"] == "Succeeded", kubernetes.why("train", TRAINING)
    assert pod["status"]["qosClass"] == twin["status"]["qosClass"] == "Burstable"
    assert "initContainers" not in twin["spec"]

    # It computed what the twin did: the same losses, from the same seed.
    log, twins_log = log_of(kubernetes, "train", TRAINING), log_of(kubernetes, "twin", TRAINING)
    assert len(losses(twins_log)) == 3
    assert losses(log)[:3] == pytest.approx(losses(twins_log), rel=1e-3)

    # It was stitched, and each kernel verified on the job's own tensors before it ran alone.
    (row,) = query(kubernetes, release, SAVED.format(uid=pod["metadata"]["uid"]))
    assert row["phase"] == "stitched", (log, row)
    assert row["pairs"] >= 3
    clusters = {each["name"]: each for each in query(kubernetes, release, CLUSTERS.format(uid=pod["metadata"]["uid"]))}
    assert len(clusters) > 5
    assert {each["state"] for each in clusters.values()} == {"stitched"}, clusters

    # It is known for who it is: by the API server's word in its token, and by what the webhook wrote.
    assert (row["uid"], row["name"], row["namespace"]) == (pod["metadata"]["uid"], "train", TRAINING)
    assert (row["cluster"], row["image"], row["run_id"]) == ("test-cluster", image, row["uid"])
    assert json.loads(row["labels"])["team"] == "eyes"

    # A report of the researcher's namespace counts it as measured, with the very totals that an independent query gives.
    report = kubernetes.wait(
        lambda: measured(kubernetes, "vision"), 60, lambda: kubernetes.kubectl("get", "savingsreports", "-o", "yaml")
    )
    (total,) = report["status"]["totals"]
    assert (total["unit"], total["jobs"]["total"], total["jobs"]["measured"]) == ("CPU", 1, 1)
    assert total["savedHours"] == pytest.approx(row["saved_hours"], rel=1e-9)
    assert total["deviceHours"] == pytest.approx(row["device_hours"], rel=1e-9)
    assert total["savedHoursLow"] < total["savedHours"] < total["savedHoursHigh"]
    assert {each["type"]: each["status"] for each in report["status"]["conditions"]} == {
        "Ready": "True",
        "Closed": "False",
    }

    # The week's report of the whole fleet, which nobody has to ask for, counts it too.
    week = report["spec"]["week"]
    assert kubernetes.wait(lambda: measured(kubernetes, week.lower()), 60, "the week's own report lacks it")

    # So does the page that a manager reads.
    page = _in_server(
        kubernetes,
        release,
        "stitchfleet",
        "report",
        "--database",
        "/data/stitchfleet.db",
        "--week",
        week,
        "--format",
        "html",
    )
    assert page.startswith("<!doctype html>")
    assert ">train<" in page
    assert ">vision<" in page
    if PAGE:
        Path(PAGE).write_text(page)
        print(kubernetes.kubectl("get", "savingsreports"))

    # Of the twin, nobody asked the webhook.
    assert asked_of_webhook(kubernetes, release) == {"train": True, "twin": False}


def stitched_step(kubernetes: Kubernetes) -> int:
    """The first step whose kernels were verified; 0 as long as there is none."""
    found = re.search(
        r"kernels verified on the job's own tensors, stitched from step (\d+)", log_of(kubernetes, "train", TRAINING)
    )
    return int(found[1]) if found else 0


def losses(log: str) -> list[float]:
    return [float(line.rpartition(" ")[2]) for line in log.splitlines() if " loss " in line]


def measured(kubernetes: Kubernetes, name: str) -> dict[str, Any] | None:
    """The SavingsReport, as soon as a measured job is in it."""
    report = kubernetes.get("savingsreport", name)
    totals = (report.get("status") or {}).get("totals") or []
    return report if any(total["jobs"]["measured"] for total in totals) else None


def comment_of(library: Path) -> str:
    """What compiler and linker leave in a library: only the payload's links with LLD."""
    return subprocess.run(
        ["readelf", "-p", ".comment", str(library)], capture_output=True, text=True, check=True
    ).stdout


def asked_of_webhook(kubernetes: Kubernetes, release: Release) -> dict[str, bool]:
    """By pod of the researcher's: whether the API server called our webhook when it was created, as its audit log says."""
    found = {}
    for event in kubernetes.audit(since=release.installed):
        about = event.get("objectRef") or {}
        if (
            event["verb"] == "create"
            and about.get("resource") == "pods"
            and about.get("namespace") == TRAINING
            and not about.get("subresource")
        ):
            found[about["name"]] = "pods.stitchfleet.io" in json.dumps(event.get("annotations") or {})
    return found
