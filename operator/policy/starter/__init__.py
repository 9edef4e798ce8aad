"""What starts a container's command with a longer PYTHONPATH. It comes as a file of the pod's downward-API volume, whose text is an
annotation: it is there whenever the kubelet can start the container at all, be the payload copied or not, and no object is needed in
the user's namespace.

starter.sh, the usual one, is a script for the image's /bin/sh. An image that has none needs starter.txt, an x86-64 ELF program that
is text: starter.S is its source, pack.py makes the text of it. It is used only if the pod says that its image has no shell: JSON does
not escape its 0x7f, YAML refuses it, and `kubectl get -o yaml` fails on a pod with it.
"""

from __future__ import annotations

import importlib.resources

from ..names import START

_FILES = importlib.resources.files(__package__)
SCRIPT = _FILES.joinpath("starter.sh").read_text(encoding="ascii")
BINARY = _FILES.joinpath("starter.txt").read_bytes().decode("ascii")


def extending(variable: str, first: str, last: str) -> list[str]:
    """What is to stand before a command: it finds `first` before and `last` behind the variable's value. The script knows PYTHONPATH
    alone."""
    return [START, f"{variable}={first}", f":{last}"]


def trying(*command: str) -> list[str]:
    """Runs the command; where there is none, does nothing and ends with 0."""
    return [START, "try", *command]
