"""Labels, annotations, paths and names that stand in a pod. Changing one breaks pods that run: they are an interface."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
"""A Kubernetes object, as its JSON: never a typed model, which would drop the fields that it does not know."""

ENABLED = "stitchfleet.io/enabled"
"""Label. The webhook configuration selects pods with the value "true"; the API server asks us of no other pod."""

# Annotations that a user may set.
CONTAINERS = "stitchfleet.io/containers"
"""Names of containers, separated by commas; default: the first."""
PYTHON_PATH = "stitchfleet.io/python-path"
"""The PYTHONPATH that the image sets, for containers without a command: the webhook cannot see it. Empty: the image sets none."""
USER = "stitchfleet.io/user"
RUN_ID = "stitchfleet.io/run-id"
SHELL = "stitchfleet.io/shell"
"""NO_SHELL: the image has no /bin/sh, and its pods are to start even if the payload cannot be pulled (starter/)."""
NO_SHELL = "none"
CACHE_CLAIM = "stitchfleet.io/cache-claim"
"""A PersistentVolumeClaim of the namespace in which kernels are kept, for the next job to find. Whoever may write to it runs code in
the jobs that read it."""
SKIP = "stitchfleet.io/skip"
"""Leaves a pod alone that has the label; its value is the reason that is shown."""

# Annotations that the webhook sets.
INJECTED = "stitchfleet.io/injected"
"""The containers that were injected, separated by commas."""
NOT_INJECTED = "stitchfleet.io/not-injected"
"""Why the pod, or one of the chosen containers, was not."""
AUTHORITY = "stitchfleet.io/ingest-authority"
"""PEM of who signs the ingest server's certificate; a downward-API file brings it to the job without an object in its namespace."""
CONTROL = "stitchfleet.io/control"
"""ON or OFF, which the controller sets: a downward-API file tells the job, which reads it every quarter of a second."""
ON, OFF = "on", "off"
STARTER = "stitchfleet.io/starter"
"""What starts the init container's command, and others where there is no better one; see starter/."""

INIT_CONTAINER = "stitchfleet-payload"
VOLUME = "stitchfleet"
IDENTITY_VOLUME = "stitchfleet-identity"
CACHE_VOLUME = "stitchfleet-cache"

MOUNT = "/opt/stitchfleet"
PAYLOAD = f"{MOUNT}/payload"
CACHE = f"{MOUNT}/cache"
PACKAGES = f"{PAYLOAD}/python"
BOOTSTRAP = f"{PACKAGES}/stitchfleet/plugin/bootstrap"
"""Holds `sitecustomize`, and must be written as the plugin itself writes its path, which it takes off PYTHONPATH for its helpers."""
IDENTITY_MOUNT = "/var/run/secrets/stitchfleet.io/ingest"
POD_UID = "pod-uid"
"""A file beside it: whose pod it is, also for a process that did not get the container's environment."""
CONTROL_FILE = f"{IDENTITY_MOUNT}/control"
START_VOLUME = "stitchfleet-start"
START_MOUNT = "/opt/stitchfleet-start"
START = f"{START_MOUNT}/start"
"""What starts commands. The init container puts it there, in memory: a full disk keeps it from nothing."""
STARTER_FILE = f"{IDENTITY_MOUNT}/start"
"""The annotation's starter, as a file."""
COPY = "/stitchfleet-copy"
"""In the payload's image it copies the payload and the starter to the folders named. The user's own image, which the controller gives
the init container if the payload's cannot be pulled, has no such program."""
AUDIENCE = "stitchfleet-ingest"
TOKEN_SECONDS = 3600
