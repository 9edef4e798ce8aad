"""How Python finds stitchfleet: our bootstrap folder is first on PYTHONPATH, our packages last, and what the user or image set
between.

A PYTHONPATH that only the image sets is invisible at admission, and a value in the container's environment would replace it: the job
would lose its own modules. So if the container sets none, the starter extends the value at run time, if there is a command to start.
"""

from __future__ import annotations

from . import starter
from .names import BOOTSTRAP, NO_SHELL, PACKAGES, PYTHON_PATH, SHELL, START, STARTER_FILE, Object
from .refusals import LeftAloneError

VARIABLE = "PYTHONPATH"


def extend(container: Object, annotations: Object) -> None:
    """Changes the container's environment or command. If that is not possible, raises LeftAloneError and changes nothing."""
    name = container.get("name")
    environment = container.get("env") or []
    given = next((entry for entry in reversed(environment) if entry.get("name") == VARIABLE), None)
    if given is not None and "valueFrom" in given:
        raise LeftAloneError(f"{name}: its PYTHONPATH comes from elsewhere (valueFrom), which cannot be extended")
    if given is not None:
        given["value"] = extended(str(given.get("value") or ""))
    elif container.get("command"):
        odd = next((entry for entry in environment if not str(entry.get("name", "")).isidentifier()), None)
        if odd is not None and annotations.get(SHELL) != NO_SHELL:
            raise LeftAloneError(
                f"{name}: a shell would not hand on the variable {odd.get('name')}; name PYTHONPATH in its env"
            )
        file = STARTER_FILE if annotations.get(SHELL) == NO_SHELL else START
        container["command"] = [*starter.extending(file, BOOTSTRAP, PACKAGES), *container["command"]]
    elif PYTHON_PATH in annotations:
        container["env"] = [*environment, {"name": VARIABLE, "value": extended(str(annotations[PYTHON_PATH]))}]
    else:
        raise LeftAloneError(
            f"{name}: it has no command, and what PYTHONPATH its image sets cannot be seen; give it a command, or the annotation "
            f'{PYTHON_PATH} with the image\'s PYTHONPATH ("" if it sets none)'
        )


def extended(path: str) -> str:
    """The user's or the image's PYTHONPATH, with our folders around it."""
    return ":".join((BOOTSTRAP, *((path,) if path else ()), PACKAGES))
