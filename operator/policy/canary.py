"""Which of a namespace's jobs are stitched, if its StitchPolicy wants only a share of them."""

from __future__ import annotations

import hashlib

from .names import RUN_ID, Object
from .policy import Admission, Policy


def is_chosen(pod: Object, policy: Policy, admission: Admission) -> bool:
    """Whether the pod's job is in the share. All pods of a job agree, however often one is recreated; a larger share contains a
    smaller one."""
    if policy.canary_percent >= 100:
        return True
    return _place(_job_of(pod, admission)) < policy.canary_percent


def _job_of(pod: Object, admission: Admission) -> str:
    metadata = pod.get("metadata") or {}
    run = (metadata.get("annotations") or {}).get(RUN_ID)
    owner: Object = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), {})
    return str(run or owner.get("uid") or metadata.get("name") or admission.uid)


def _place(job: str) -> int:
    """A number from 0 to 99 for the job, each equally likely."""
    return int.from_bytes(hashlib.sha256(job.encode()).digest()[:8], "big") % 100
