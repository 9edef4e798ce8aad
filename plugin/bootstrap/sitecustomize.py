"""Python imports this module at start-up if its folder is on PYTHONPATH. It runs the user's own sitecustomize first, then ours.

It must never fail, and take hardly any time: without STITCHFLEET_ENABLED it imports nothing of stitchfleet.
"""

import os
import sys


def _run_users_own() -> None:
    """Executes the sitecustomize that Python would have found without us."""
    import importlib.machinery

    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    import importlib.util

    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _activate() -> None:
    if os.environ.get("STITCHFLEET_ENABLED") not in ("1", "true", "yes", "on"):
        return
    try:
        from stitchfleet.plugin.entry.activation import install_import_hook

        install_import_hook()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name == "stitchfleet":
            why = f"it is not installed for {sys.executable}"
        print(f"stitchfleet: not switched on, the job runs without it: {why}", file=sys.stderr)


try:
    _run_users_own()
finally:
    _activate()
