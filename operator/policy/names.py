"""Labels, annotations, paths and names in a pod. They are an interface: changing one breaks running pods."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as its JSON, never as a typed model, which would drop unknown fields."""

ENABLED = "stitchfleet.io/enabled"
"""Label. The webhook configuration selects pods with the value "true"; the API server calls the webhook for no other pod."""

# Annotations that a user may set.
CONTAINERS = "stitchfleet.io/containers"
"""Names of the containers to inject, separated by commas; default: the first one."""
PYTHON_PATH = "stitchfleet.io/python-path"
"""The PYTHONPATH that the image sets, for containers without a command: the webhook cannot see it. Empty: the image sets none."""
USER = "stitchfleet.io/user"
"""Who submitted the job. The job's admission sets it for its pods, whose own admissions name a controller as the user."""
RUN_ID = "stitchfleet.io/run-id"
"""The id of the run, the same in all pods of a job."""
SHELL = "stitchfleet.io/shell"
"""If its value is NO_SHELL, the image has no /bin/sh, and a starter that needs none starts its pods, also if the payload cannot
be pulled (starter/)."""
NO_SHELL = "none"
CACHE_CLAIM = "stitchfleet.io/cache-claim"
"""A PersistentVolumeClaim of the namespace in which kernels are kept for later jobs. Whoever may write to it can run code in the
jobs that read it."""
SKIP = "stitchfleet.io/skip"
"""Leaves a labelled pod alone. Its value is the reason that is shown to the owner."""

# Annotations that the webhook sets.
INJECTED = "stitchfleet.io/injected"
"""The containers that were injected, separated by commas."""
NOT_INJECTED = "stitchfleet.io/not-injected"
"""Why the pod, or one of the chosen containers, was not injected."""
AUTHORITY = "stitchfleet.io/ingest-authority"
"""PEM of the authority that signs the ingest server's certificate; a downward-API file brings it into the pod without another
object."""
CONTROL = "stitchfleet.io/control"
"""ON or OFF, set by the controller: a downward-API file passes it to the job, which reads it every quarter of a second."""
ON, OFF = "on", "off"
STARTER = "stitchfleet.io/starter"
"""The starter's text. It starts the init container's command, and other commands if no better starter is there; see starter/."""

INIT_CONTAINER = "stitchfleet-payload"
VOLUME = "stitchfleet"
IDENTITY_VOLUME = "stitchfleet-identity"
CACHE_VOLUME = "stitchfleet-cache"

MOUNT = "/opt/stitchfleet"
PAYLOAD = f"{MOUNT}/payload"
CACHE = f"{MOUNT}/cache"
PACKAGES = f"{PAYLOAD}/python"
BOOTSTRAP = f"{PACKAGES}/stitchfleet/plugin/bootstrap"
"""The folder with `sitecustomize`. It must be spelled as the plugin spells it, which removes it from PYTHONPATH for its helpers."""
IDENTITY_MOUNT = "/var/run/secrets/stitchfleet.io/ingest"
POD_UID = "pod-uid"
"""A file in IDENTITY_MOUNT with the pod's uid, for processes that did not inherit the container's environment too."""
CONTROL_FILE = f"{IDENTITY_MOUNT}/control"
START_VOLUME = "stitchfleet-start"
START_MOUNT = "/opt/stitchfleet-start"
START = f"{START_MOUNT}/start"
"""The program that starts commands. The init container puts it there, in memory, so that a full disk does not prevent it."""
STARTER_FILE = f"{IDENTITY_MOUNT}/start"
"""The starter of the annotation, as a file."""
COPY = "/stitchfleet-copy"
"""In the payload's image, this program copies the payload and the starter to the given folders. If the payload's image cannot be
pulled, the controller gives the init container the user's own image, which has no such program."""
TOKEN_SECONDS = 3600
