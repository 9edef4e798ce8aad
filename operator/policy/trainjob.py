"""`mutate_trainjob` and `mutate_jobset`: a TrainJob of Kubeflow's Trainer v2, and a JobSet, as they must be created.

A TrainJob names no pod template; its runtime, another object, does. Its `spec.labels` and `spec.annotations` are copied to the
JobSet that its controller makes, and no further. So there are two steps: the label goes to the JobSet and, at the JobSet's own
admission, to its pod templates. A JobSet that a person labels takes only the second step.
"""

from __future__ import annotations

import copy

from . import templates
from .launcher import agent_on_command_line, is_launcher
from .names import Object
from .policy import UNKNOWN, Admission, Policy

_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_INITIALIZERS = ("dataset-initializer", "model-initializer")
"""Values of the label _STEP in the replicated jobs that fetch data or a model, and do not train."""


def mutate_trainjob(job: Object, policy: Policy, admission: Admission = UNKNOWN) -> Object:
    """A copy of a TrainJob (trainer.kubeflow.org/v1alpha1) with label and annotations in its spec, which its controller copies to the
    JobSet; equal to `job` if it does not ask for injection (templates.asks). Raises KeyError, TypeError or AttributeError if a job
    that asks has not the fields of a TrainJob."""
    changed = copy.deepcopy(job)
    if templates.asks(changed, policy):
        templates.mark(changed["spec"], templates.carried(changed, (), admission))
    return changed


def mutate_jobset(job: Object, policy: Policy, admission: Admission = UNKNOWN) -> Object:
    """A copy of a JobSet (jobset.x-k8s.io/v1alpha2) with label and annotations in the pod templates of its replicated jobs, except
    those that only fetch data or a model; equal to `job` if it does not ask for injection (templates.asks). If a launcher's command
    line names a launch agent, the templates and the JobSet get the annotations by which its pods are left alone. Raises KeyError,
    TypeError or AttributeError if a job that asks has not the fields of a JobSet."""
    changed = copy.deepcopy(job)
    if not templates.asks(changed, policy):
        return changed
    found = [each["template"]["spec"]["template"] for each in changed["spec"]["replicatedJobs"] if _trains(each)]
    templates.bring(changed, found, admission, any(map(_names_agent, found)))
    return changed


def _trains(replicated_job: Object) -> bool:
    labels = ((replicated_job["template"].get("metadata") or {}).get("labels")) or {}
    return labels.get(_STEP) not in _INITIALIZERS


def _names_agent(template: Object) -> bool:
    containers = (template.get("spec") or {}).get("containers") or ()
    return any(is_launcher(template, container) and agent_on_command_line(container) for container in containers)
