"""`mutate_mpijob(job, policy, admission)`: an MPIJob (kubeflow.org/v2beta1) as it must be created. Pure, on plain dictionaries.

The job's label, and what launcher and workers must have in common, is put into the templates of both (templates.py).
"""

from __future__ import annotations

import copy

from . import templates
from .launcher import agent_on_command_line
from .names import Object
from .policy import UNKNOWN, Admission, Policy


def mutate_mpijob(job: Object, policy: Policy, admission: Admission = UNKNOWN) -> Object:
    """A copy with label and annotations in the pod templates of launcher and workers; equal to `job` if it does not ask for injection
    (templates.asks). If the launcher's command line names a launch agent, the templates and the job get the annotations by which its
    pods are left alone. Raises KeyError, TypeError or AttributeError if a job that asks has not the fields of an MPIJob.
    """
    changed = copy.deepcopy(job)
    if not templates.asks(changed, policy):
        return changed
    found = [spec["template"] for spec in changed["spec"]["mpiReplicaSpecs"].values() if spec.get("template")]
    templates.bring(changed, found, admission, any(map(_names_agent, found)))
    return changed


def _names_agent(template: Object) -> bool:
    return any(map(agent_on_command_line, (template.get("spec") or {}).get("containers") or ()))
