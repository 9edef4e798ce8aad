"""Other people's controllers and a registry of images, built from their Go modules as Kubernetes itself is.

Each folder of controllers/ pins one. Kubeflow's MPI operator runs beside the node, as its other parts do. Kubeflow's Trainer v2 and
JobSet, which the Trainer stands on, have webhooks whose certificates they make themselves: they run in pods, as a cluster has them,
by the manifests in their modules. The proxy of Go modules lists no versions of these two, so their go.mod names one.
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
from typing import Any

import yaml

from .programs import ProgramsError, cache_folder, image_of

KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.5.0"
"""Debian's kubectl brings one that is too old for these manifests."""
SOURCES = pathlib.Path(__file__).parent / "controllers"


@dataclass(frozen=True)
class Controller:
    """folder: of SOURCES. module, package: what is built. manifests: in the module, for the API server. kustomization: a folder of
    the module that makes all objects of an installation; its parts that contain `without` are left out."""

    folder: str
    module: str
    package: str
    manifests: tuple[str, ...] = ()
    kustomization: str = ""
    without: str = "\0"


MPI = Controller(
    "mpi",
    "github.com/kubeflow/mpi-operator",
    "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
    ("manifests/base/kubeflow.org_mpijobs.yaml",),
)
JOBSET = Controller("jobset", "sigs.k8s.io/jobset", "sigs.k8s.io/jobset", kustomization="config/default")
TRAINER = Controller(
    "trainer",
    "github.com/kubeflow/trainer/v2",
    "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
    ("manifests/base/runtimes/torch_distributed.yaml",),
    kustomization="manifests/overlays/manager",
    without="third-party/jobset",  # from the network; it is installed by itself
)
KUEUE = Controller(
    "kueue", "sigs.k8s.io/kueue", "sigs.k8s.io/kueue/cmd/kueue", kustomization="config/default", without="visibility"
)
REGISTRY = Controller(
    "registry", "github.com/distribution/distribution/v3", "github.com/distribution/distribution/v3/cmd/registry"
)


@dataclass(frozen=True)
class Built:
    """program: the binary. manifests: of each, its text. objects: of an installation in pods, whose image is `image` in `archive`."""

    program: pathlib.Path
    manifests: tuple[str, ...]
    objects: tuple[dict[str, Any], ...]
    image: str
    archive: pathlib.Path


def built(controller: Controller, tell: Callable[[str], None]) -> Built:
    """Kept by the content of go.mod and go.sum, beside the node's programs. Raises ProgramsError."""
    source = SOURCES / controller.folder
    found = hashlib.sha256(_run(["go", "version"], source).encode() + repr(controller).encode())
    for path in sorted(source.iterdir()):
        found.update(f"{path.name}\0".encode() + path.read_bytes())
    base = cache_folder() / "cluster"
    tag = found.hexdigest()[:16]
    folder, image = base / f"controller-{controller.folder}-{tag}", f"localhost/stitchfleet-{controller.folder}:{tag}"
    if not (folder / "complete").exists():
        tell(f"building {controller.module} from its Go module: a minute or two, once")
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base, prefix="building-") as name:
            scratch = pathlib.Path(name) / "new"
            scratch.mkdir()
            program = str(scratch / controller.folder)
            _run(["go", "build", "-mod=readonly", "-ldflags", "-s -w", "-o", program, controller.package], source)
            listed = _run(["go", "list", "-m", "-mod=readonly", "-json", controller.module], source)
            module = pathlib.Path(json.loads(listed)["Dir"])
            for number, manifest in enumerate(controller.manifests):
                shutil.copyfile(module / manifest, scratch / f"manifest-{number}.yaml")
            if controller.kustomization:
                image_of(scratch / controller.folder, "/manager", image, scratch / "image.tar", "65532:65532")
                (scratch / "objects.yaml").write_text(_objects(controller, module, pathlib.Path(name)))
            (scratch / "complete").touch()
            for old in base.glob(f"controller-{controller.folder}-*"):
                shutil.rmtree(old)
            scratch.rename(folder)
    texts = tuple((folder / f"manifest-{number}.yaml").read_text() for number in range(len(controller.manifests)))
    objects = []
    if controller.kustomization:
        objects = [each for each in yaml.safe_load_all((folder / "objects.yaml").read_text()) if each]
        for each in objects:
            if each["kind"] == "Deployment":
                each["spec"]["template"]["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "IfNotPresent"}
    return Built(folder / controller.folder, texts, tuple(objects), image, folder / "image.tar")


def _objects(controller: Controller, module: pathlib.Path, scratch: pathlib.Path) -> str:
    """YAML of an installation, of a copy of the module's manifests."""
    top = controller.kustomization.partition("/")[0]
    shutil.copytree(module / top, scratch / top, copy_function=shutil.copyfile)
    for folder in (scratch / top, *(path for path in (scratch / top).rglob("*") if path.is_dir())):
        folder.chmod(0o755)  # the module's are read-only
    main = scratch / controller.kustomization / "kustomization.yaml"
    main.write_text("\n".join(line for line in main.read_text().splitlines() if controller.without not in line))
    _run(["go", "install", KUSTOMIZE], scratch, GOBIN=str(scratch))
    return _run([str(scratch / "kustomize"), "build", str(main.parent)], scratch)


def _run(command: list[str], folder: pathlib.Path, **variables: str) -> str:
    # without C: what runs in an image of its own has no libraries there
    environment = {**os.environ, "GOFLAGS": "", "CGO_ENABLED": "0", **variables}
    done = subprocess.run(
        ["nice", "-n", "5", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProgramsError(f"{' '.join(command[:3])} failed: {last}")
    return done.stdout
