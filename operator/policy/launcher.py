"""How the ranks of an MPI job get the environment of their pods.

Ranks run under an ssh server, which passes on nothing of the container's environment. What mpirun starts on each node is its launch
agent, `orted` or `prted`, whose environment the ranks inherit. So the launcher's agent is set to `env NAME=VALUE ... orted`. Every
image that has an ssh server's shell has `env`, and the worker needs nothing of ours: a worker that was left alone starts as before.

OMPI_MCA_mca_base_env_list must not be used: with it, mpirun fails at once if the user exports a variable with -x, which most do.
"""

from __future__ import annotations

import re

from stitchfleet.telemetry.pod import environment as variables

from .names import BOOTSTRAP, PACKAGES, Object
from .refusals import LeftAloneError

AGENTS = {"OMPI_MCA_orte_launch_agent": "orted", "PRTE_MCA_prte_launch_agent": "prted"}
"""For Open MPI 4 and 5: the variable, and the default agent."""
_ON_COMMAND_LINE = re.compile(r"(?<![\w-])--?launch-agent\b|\b(?:orte|prte)_launch_agent\b")
_ROLE_LABEL = "training.kubeflow.org/job-role"
_ROLE_VARIABLE = "K_MPI_JOB_ROLE"
_HOST_FILES = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
"""Variables that controllers (Kubeflow's MPI operator and its Trainer) set on a launcher of Open MPI, and on no other container."""
_SOUND = re.compile(r"[A-Za-z0-9._:/@=,+-]*")
"""Values that need no quoting: neither mpirun, which splits the agent at blanks, nor the remote shell changes them."""
_PYTHONPATH = f"PYTHONPATH={BOOTSTRAP}${{PYTHONPATH:+:$PYTHONPATH}}:{PACKAGES}"
"""Expanded by the shell on the worker: what its profile sets stays between our two folders. An explicit `mpirun -x PYTHONPATH` takes
precedence, and contains ours too, because the launcher's own PYTHONPATH is extended."""
_OF_ONE_POD = (variables.IMAGE.name,)
"""Variables that may differ between launcher and workers, and are not passed to the ranks."""


def is_launcher(pod: Object, container: Object) -> bool:
    """Whether the container starts mpirun for ranks elsewhere."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    given = {entry.get("name"): entry.get("value") for entry in container.get("env") or ()}
    if labels.get(_ROLE_LABEL) == "worker" or given.get(_ROLE_VARIABLE) == "worker":
        return False
    return (
        labels.get(_ROLE_LABEL) == "launcher"
        or given.get(_ROLE_VARIABLE) == "launcher"
        or any(name in given for name in _HOST_FILES)
    )


def is_of_mpi(pod: Object, container: Object) -> bool:
    """Whether the container is a launcher or a worker of an MPI job."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    named = any(entry.get("name") == _ROLE_VARIABLE for entry in container.get("env") or ())
    return named or _ROLE_LABEL in labels or is_launcher(pod, container)


def agent_on_command_line(container: Object) -> bool:
    """Whether mpirun's command line names another launch agent, which takes precedence over the environment."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return any(_ON_COMMAND_LINE.search(str(word)) for word in words)


def check(container: Object) -> None:
    """Raises LeftAloneError if a launcher's agent cannot be changed: half of a job's ranks must not differ from the others."""
    name = container.get("name")
    if agent_on_command_line(container):
        raise LeftAloneError(f"{name}: its command line names a launch agent, which cannot be extended from outside")
    for entry in container.get("env") or ():
        if entry.get("name") in AGENTS and "valueFrom" in entry:
            raise LeftAloneError(
                f"{name}: its {entry['name']} comes from elsewhere (valueFrom), which cannot be extended"
            )


def bring_to_ranks(container: Object) -> None:
    """Sets the launch agents in a launcher's environment, which must hold our variables already. `check` must have been called."""
    environment: list[Object] = container["env"]
    brought = [
        f"{entry['name']}={entry['value']}"
        for entry in environment
        if str(entry.get("name", "")).startswith("STITCHFLEET_")
        and entry["name"] not in _OF_ONE_POD
        and _SOUND.fullmatch(str(entry.get("value", "\0")))
    ]
    words = " ".join(("env", _PYTHONPATH, *brought))
    for variable, default in AGENTS.items():
        given = next((entry for entry in reversed(environment) if entry.get("name") == variable), None)
        if given is not None:
            given["value"] = f"{words} {given.get('value') or default}"
        else:
            environment.append({"name": variable, "value": f"{words} {default}"})
