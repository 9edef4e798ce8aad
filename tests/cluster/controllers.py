"""Other people's controllers, built from their Go modules as Kubernetes itself is, and run beside the node as its other parts are.

Each folder of controllers/ pins one: Kubeflow's MPI operator, its Trainer v2, and JobSet, which the Trainer stands on. The proxy of
Go modules lists no versions of the last two, so their go.mod names one.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from .programs import ProgramsError, cache_folder

SOURCES = pathlib.Path(__file__).parent / "controllers"


@dataclass(frozen=True)
class Controller:
    """folder: of SOURCES. module, package: what is built. manifests: in the module, for the API server."""

    folder: str
    module: str
    package: str
    manifests: tuple[str, ...]


MPI = Controller(
    "mpi",
    "github.com/kubeflow/mpi-operator",
    "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
    ("manifests/base/kubeflow.org_mpijobs.yaml",),
)


@dataclass(frozen=True)
class Built:
    """program: the binary. manifests: of each, its text."""

    program: pathlib.Path
    manifests: tuple[str, ...]


def built(controller: Controller, tell: Callable[[str], None]) -> Built:
    """Kept by the content of go.mod and go.sum, beside the node's programs. Raises ProgramsError."""
    source = SOURCES / controller.folder
    found = hashlib.sha256(_run(["go", "version"], source).encode() + repr(controller).encode())
    for path in sorted(source.iterdir()):
        found.update(f"{path.name}\0".encode() + path.read_bytes())
    base = cache_folder() / "cluster"
    folder = base / f"controller-{controller.folder}-{found.hexdigest()[:16]}"
    if not (folder / "complete").exists():
        tell(f"building {controller.module} from its Go module: a minute or two, once")
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base, prefix="building-") as name:
            scratch = pathlib.Path(name) / "new"
            scratch.mkdir()
            program = str(scratch / controller.folder)
            _run(["go", "build", "-mod=readonly", "-ldflags", "-s -w", "-o", program, controller.package], source)
            module = json.loads(_run(["go", "list", "-m", "-mod=readonly", "-json", controller.module], source))["Dir"]
            for number, manifest in enumerate(controller.manifests):
                shutil.copyfile(pathlib.Path(module) / manifest, scratch / f"manifest-{number}.yaml")
            (scratch / "complete").touch()
            for old in base.glob(f"controller-{controller.folder}-*"):
                shutil.rmtree(old)
            scratch.rename(folder)
    texts = tuple((folder / f"manifest-{number}.yaml").read_text() for number in range(len(controller.manifests)))
    return Built(folder / controller.folder, texts)


def _run(command: list[str], folder: pathlib.Path) -> str:
    environment = {**os.environ, "GOFLAGS": ""}
    done = subprocess.run(
        ["nice", "-n", "5", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProgramsError(f"{' '.join(command[:3])} failed: {last}")
    return done.stdout
