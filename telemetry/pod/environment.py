"""The environment variables that say who a training process is and where its records go: one table.

The admission webhook writes a pod's environment from this table, and the recorder and the sender in the pod read theirs from it; a
test compares the two. On a laptop a person may set any of the variables. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One variable. `of_webhook`: the webhook sets it if it knows the value and the pod does not set the variable itself."""

    name: str
    help: str
    of_webhook: bool = False

    def read(self, environment: Mapping[str, str] | None = None) -> str:
        """The variable's value; "" if it is not set. environment: default os.environ."""
        return (os.environ if environment is None else environment).get(self.name, "")


# ---- who the job is ----------------------------------------------------------------------------------------------------------

RUN_ID = Variable("STITCHFLEET_RUN_ID", "the same in all processes of a job; default: a new one for each process", True)
CLUSTER = Variable("STITCHFLEET_CLUSTER", "name of the cluster", True)
NAMESPACE = Variable("STITCHFLEET_NAMESPACE", "namespace; default: what the service account's file says", True)
JOB_NAME = Variable("STITCHFLEET_JOB_NAME", "name of the owning MPIJob, Job or pod", True)
POD_UID = Variable("STITCHFLEET_POD_UID", "uid of the pod", True)
POD_UID_FILE = Variable("STITCHFLEET_POD_UID_FILE", "a downward-API file with the uid, for ranks started by ssh", True)
ATTEMPT = Variable("STITCHFLEET_ATTEMPT", "restarts of the job so far", True)
USER = Variable("STITCHFLEET_USER", "who submitted the job; default: the login name", True)
IMAGE = Variable("STITCHFLEET_IMAGE", "image of the training container", True)
LABELS = Variable("STITCHFLEET_LABELS", "labels as a=b,c=d")
LABELS_FILE = Variable("STITCHFLEET_LABELS_FILE", 'a downward-API file of labels, one a="b" a line', True)
MODEL = Variable("STITCHFLEET_MODEL", "name of the model; default: a fingerprint of its graph, once it is seen")
DEVICE_KIND = Variable("STITCHFLEET_DEVICE_KIND", "cpu, or the GPU's model; default: what the driver's files say")
DEVICE_COUNT = Variable(
    "STITCHFLEET_DEVICE_COUNT", "devices of one process; default: what the driver's files say", True
)
RANK = Variable("STITCHFLEET_RANK", "of this process; default: what Horovod, Open MPI or PMI say")
WORLD_SIZE = Variable("STITCHFLEET_WORLD_SIZE", "processes of the job; default: what Horovod, Open MPI or PMI say")

# ---- where its records go ----------------------------------------------------------------------------------------------------

INGEST = Variable("STITCHFLEET_INGEST", "URL of the fleet's ingest server", True)
INGEST_TOKEN_FILE = Variable("STITCHFLEET_INGEST_TOKEN_FILE", "file with the token; read anew for each post", True)
INGEST_TOKEN = Variable("STITCHFLEET_INGEST_TOKEN", "a static token, if there is no such file")
INGEST_CA_FILE = Variable(
    "STITCHFLEET_INGEST_CA_FILE",
    "PEM of the authority that signed the server's certificate; default: the system's authorities",
    True,
)

IDENTITY = (
    *(RUN_ID, CLUSTER, NAMESPACE, JOB_NAME, POD_UID, POD_UID_FILE, ATTEMPT, USER, IMAGE, LABELS, LABELS_FILE, MODEL),
    *(DEVICE_KIND, DEVICE_COUNT, RANK, WORLD_SIZE),
)
SENDING = (INGEST, INGEST_TOKEN_FILE, INGEST_TOKEN, INGEST_CA_FILE)
VARIABLES = (*IDENTITY, *SENDING)

AUDIENCE = "stitchfleet-ingest"
"""The audience of a pod's token: the webhook asks for it, and the ingest server accepts no other."""
