"""Starts a container's command with a longer PYTHONPATH. The starter becomes the command by exec: the job keeps its process id, its
signals and its exit code. Three files do the same:

starter.S    an x86-64 program of some hundred bytes, which needs nothing of the image. The payload's image contains it, and the
             init container puts it into the pod's START_VOLUME.
starter.sh   a script for /bin/sh, as an annotation, which a downward-API file brings into the pod: it is there without the
             payload. It starts the init container's own command. If the controller gave that container the user's image, because
             the payload's cannot be pulled, it copies itself to where starter.S would be.
starter.txt  starter.S as text, made by pack.py. It replaces the script, and starts the command itself, only if the pod says that
             its image has no shell: JSON does not escape its 0x7f, YAML refuses it, and `kubectl get -o yaml` fails for a pod
             with it.
"""

from __future__ import annotations

import importlib.resources

from ..names import STARTER_FILE

_FILES = importlib.resources.files(__package__)
SCRIPT = _FILES.joinpath("starter.sh").read_text(encoding="ascii")
BINARY = _FILES.joinpath("starter.txt").read_bytes().decode("ascii")


def extending(file: str, first: str, last: str) -> list[str]:
    """The words to put before a command so that it runs with PYTHONPATH extended by `first` at the front and `last` at the end.
    file: path of a starter in the container."""
    return [file, f"PYTHONPATH={first}", f":{last}"]


def trying(command: str, payload: str, start: str) -> list[str]:
    """The init container's command: runs `command PAYLOAD START` with the paths of two folders. It ends with status 0 even if the
    image has no such command, and leaves a starter in the folder `start`."""
    return [STARTER_FILE, "try", command, payload, start]
