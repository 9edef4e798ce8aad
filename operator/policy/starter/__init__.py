"""A program that starts a container's command with a longer PYTHONPATH, in any image: it needs no shell, nor anything else there.

It comes as a file of the pod's downward-API volume, whose text is an annotation: it is there whenever the kubelet can start the
container at all, be the payload copied or not, and no object is needed in the user's namespace. starter.S is its source and says what
it does; pack.py makes of it an x86-64 ELF program that is text; starter.txt is the result.
"""

from __future__ import annotations

import importlib.resources

from ..names import START

TEXT = importlib.resources.files(__package__).joinpath("starter.txt").read_bytes().decode("ascii")


def extending(variable: str, first: str, last: str) -> list[str]:
    """What is to stand before a command: it finds `first` before and `last` behind the variable's value."""
    return [START, f"{variable}={first}", f":{last}"]


def trying(*command: str) -> list[str]:
    """Runs the command; where there is none, does nothing and ends with 0."""
    return [START, "try", *command]
