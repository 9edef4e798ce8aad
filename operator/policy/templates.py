"""What an object that makes pods has to pass to its pod templates: controllers give pods the labels of the template, not their own.

Besides the label, these are the id of the run, which all pods of a job share, and who submitted the job, which a pod's own admission
cannot know. Everything else is done to the pods when they are created.
"""

from __future__ import annotations

from collections.abc import Sequence

from .names import CACHE_CLAIM, CONTAINERS, ENABLED, NOT_INJECTED, PYTHON_PATH, RUN_ID, SHELL, SKIP, USER, Object
from .policy import Admission, Policy

_CARRIED = (CACHE_CLAIM, CONTAINERS, PYTHON_PATH, RUN_ID, SHELL, SKIP, USER)
"""Annotations of the job that its pods get, unless their template has its own."""
AGENT = (
    "the launcher's command line names a launch agent, which cannot be extended: no rank would have what its pod has"
)
"""Why the pods of an MPI job, launcher and workers alike, are left alone."""


def asks(job: Object, policy: Policy) -> bool:
    """Whether the job has the label, and its namespace allows injection."""
    return ((job.get("metadata") or {}).get("labels") or {}).get(ENABLED) == "true" and not policy.opted_out


def carried(job: Object, templates: Sequence[Object], admission: Admission) -> Object:
    """The annotations for the job's pods. The id of the run is the job's own, else a template's, else the uid of the admission
    request."""
    mine = job["metadata"].get("annotations") or {}
    run = mine.get(RUN_ID) or next(filter(None, map(_run_of, templates)), None) or admission.uid
    found = {name: mine[name] for name in _CARRIED if name in mine} | ({RUN_ID: run} if run else {})
    if admission.user and not admission.user.startswith("system:"):
        found.setdefault(USER, admission.user)
    return found


def mark(holder: Object, annotations: Object) -> None:
    """Adds label and annotations to a template's metadata, or to another object with both; existing ones are kept."""
    labels = holder["labels"] = holder.get("labels") or {}
    labels.setdefault(ENABLED, "true")
    theirs = holder["annotations"] = holder.get("annotations") or {}
    for name, value in annotations.items():
        theirs.setdefault(name, value)


def bring(job: Object, templates: Sequence[Object], admission: Admission, names_agent: bool) -> None:
    """Puts into the templates what the job's pods must have in common. names_agent: a launcher's command line names a launch agent,
    so all pods are left alone, and the job's annotation says why."""
    brought = carried(job, templates, admission)
    if names_agent:
        brought.setdefault(SKIP, AGENT)
        job["metadata"]["annotations"] = {**(job["metadata"].get("annotations") or {}), NOT_INJECTED: AGENT}
    for template in templates:
        template["metadata"] = template.get("metadata") or {}
        mark(template["metadata"], brought)


def _run_of(template: Object) -> str | None:
    found = ((template.get("metadata") or {}).get("annotations") or {}).get(RUN_ID)
    return str(found) if found else None
