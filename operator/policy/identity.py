"""The variables that tell the job in a pod who it is and where its records go, written from telemetry's one table.

At admission a pod has no uid and often no name: these come by the downward API. The downward API does not give the owner, so the
owner's name and uid are written as values, if the metadata has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from stitchfleet.telemetry.pod import environment as variables
from stitchfleet.telemetry.pod.environment import Variable

from . import launcher
from .names import CACHE, CONTROL_FILE, IDENTITY_MOUNT, PAYLOAD, POD_UID, RUN_ID, USER, Object
from .policy import Admission, Policy

_JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels by which controllers name the job on its pods; the outermost controller's comes first."""
_ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
_GPU = "nvidia.com/gpu"
_SOUND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""A run id is also the name of a folder in the job's container."""
_COUNT = re.compile(r"[0-9]{1,6}")

Entry = Object | None
"""An entry of a container's env without its name: a value, or a field of the pod; None: the webhook does not know it."""
_Writer = Callable[[Object, Object, Policy, Admission], Entry]


def environment(pod: Object, container: Object, policy: Policy, admission: Admission) -> list[Object]:
    """The env entries of a container besides PYTHONPATH: the switch, the plugin's folders and settings, and the job's identity."""
    found: list[Object] = [
        {"name": "STITCHFLEET_ENABLED", "value": "1"},
        {"name": "STITCHFLEET_PAYLOAD", "value": PAYLOAD},
        {"name": "STITCHFLEET_CACHE", "value": CACHE},
        {"name": "STITCHFLEET_CONTROL_FILE", "value": CONTROL_FILE},
        *({"name": name, "value": value} for name, value in sorted(policy.settings.items())),
    ]
    for variable, write in WRITERS.items():
        entry = write(pod, container, policy, admission)
        if entry is not None:
            found.append({"name": variable.name, **entry})
    return found


def _value(text: str) -> Entry:
    # Kubernetes would replace $(NAME) by a variable's value
    return {"value": text.replace("$(", "$$(")} if text else None


def _field(path: str) -> Entry:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def _metadata(pod: Object, kind: str) -> Object:
    return (pod.get("metadata") or {}).get(kind) or {}


def _owner(pod: Object) -> Object | None:
    """The controller that made the pod."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _run_id(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    owner = _owner(pod)
    for text in (_metadata(pod, "annotations").get(RUN_ID), owner.get("uid") if owner else None):
        if isinstance(text, str) and _SOUND.fullmatch(text):
            return _value(text)
    return _field("metadata.uid")


def _job_name(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    labels, owner = _metadata(pod, "labels"), _owner(pod)
    named = [str(labels[label]) for label in _JOB_LABELS if labels.get(label)]
    if owner and owner.get("name"):
        named.append(str(owner["name"]))
    return _value(named[0]) if named else _field("metadata.name")


def _attempt(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    text = str(_metadata(pod, "labels").get(_ATTEMPT_LABEL, ""))
    return _value(text) if _COUNT.fullmatch(text) else None


def _user(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    named = str(_metadata(pod, "annotations").get(USER, ""))
    # most pods are made by a controller, which is not who submitted the job
    return _value(named or ("" if admission.user.startswith("system:") else admission.user))


def _devices(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    text = str(((container.get("resources") or {}).get("limits") or {}).get(_GPU, ""))
    return _value(text) if _COUNT.fullmatch(text) and int(text) else None


def _pod_uid(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    # a launcher's environment is passed to ranks in other pods
    return None if launcher.is_of_mpi(pod, container) else _field("metadata.uid")


def _namespace(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    return _value(admission.namespace) or _field("metadata.namespace")


def _authority(pod: Object, container: Object, policy: Policy, admission: Admission) -> Entry:
    return _value(f"{IDENTITY_MOUNT}/ca.crt" if policy.ingest_authority else "")


WRITERS: dict[Variable, _Writer] = {
    variables.RUN_ID: _run_id,
    variables.CLUSTER: lambda pod, container, policy, admission: _value(policy.cluster),
    variables.NAMESPACE: _namespace,
    variables.JOB_NAME: _job_name,
    variables.POD_UID: _pod_uid,
    variables.POD_UID_FILE: lambda pod, container, policy, admission: _value(f"{IDENTITY_MOUNT}/{POD_UID}"),
    variables.ATTEMPT: _attempt,
    variables.USER: _user,
    variables.IMAGE: lambda pod, container, policy, admission: _value(str(container.get("image") or "")),
    variables.LABELS_FILE: lambda pod, container, policy, admission: _value(f"{IDENTITY_MOUNT}/labels"),
    variables.DEVICE_COUNT: _devices,
    variables.INGEST: lambda pod, container, policy, admission: _value(policy.ingest_url),
    variables.INGEST_TOKEN_FILE: lambda pod, container, policy, admission: _value(f"{IDENTITY_MOUNT}/token"),
    variables.INGEST_CA_FILE: _authority,
}
"""How each variable that the webhook sets is written; a test compares this with the table."""
