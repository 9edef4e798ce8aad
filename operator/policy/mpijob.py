"""`mutate_mpijob(job, policy, admission)`: an MPIJob (kubeflow.org/v2beta1) as it is to be created. Pure, on raw dictionaries.

Its controller gives pods the labels of their templates, not those of the job. So the job's label goes to the templates of launcher
and workers, and with it what both have to have alike: the id of the run, and who submitted it, which a pod's own admission cannot
know.
All else is done to the pods, when they are created.
"""

from __future__ import annotations

import copy

from .launcher import agent_on_command_line
from .names import CONTAINERS, ENABLED, NOT_INJECTED, PYTHON_PATH, RUN_ID, SKIP, USER, Object
from .policy import UNKNOWN, Admission, Policy

_CARRIED = (CONTAINERS, PYTHON_PATH, RUN_ID, USER)
"""Annotations of the job that its pods get, where their template has none."""
_AGENT = (
    "the launcher's command line names a launch agent, which cannot be extended: no rank would have what its pod has"
)


def mutate_mpijob(job: Object, policy: Policy, admission: Admission = UNKNOWN) -> Object:
    """A changed copy. Raises KeyError, TypeError or AttributeError for an object of another shape."""
    changed = copy.deepcopy(job)
    if ((changed.get("metadata") or {}).get("labels") or {}).get(ENABLED) != "true" or policy.opted_out:
        return changed
    mine = changed["metadata"].get("annotations") or {}
    templates = [spec["template"] for spec in changed["spec"]["mpiReplicaSpecs"].values() if spec.get("template")]
    run = mine.get(RUN_ID) or next(filter(None, map(_run_of, templates)), None) or admission.uid
    given = {name: mine[name] for name in _CARRIED if name in mine} | ({RUN_ID: run} if run else {})
    if admission.user and not admission.user.startswith("system:"):
        given.setdefault(USER, admission.user)
    reason = _AGENT if any(map(_names_agent, templates)) else ""
    for template in templates:
        metadata = template["metadata"] = template.get("metadata") or {}
        labels = metadata["labels"] = metadata.get("labels") or {}
        labels.setdefault(ENABLED, "true")
        annotations = metadata["annotations"] = metadata.get("annotations") or {}
        for name, value in given.items():
            annotations.setdefault(name, value)
        if reason:
            annotations.setdefault(SKIP, reason)
    if reason:
        changed["metadata"]["annotations"] = {**mine, NOT_INJECTED: reason}
    return changed


def _run_of(template: Object) -> str | None:
    found = ((template.get("metadata") or {}).get("annotations") or {}).get(RUN_ID)
    return str(found) if found else None


def _names_agent(template: Object) -> bool:
    return any(map(agent_on_command_line, (template.get("spec") or {}).get("containers") or ()))
