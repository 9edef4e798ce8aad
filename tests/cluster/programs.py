"""The programs that a node is made of: built from their Go modules once, and kept beside the other test caches.

What is kept is named by the content that it is made of: sources, versions and checksums, and the Go release.
A build from nothing takes about five minutes on two cores, one whose packages Go's own cache has takes seconds.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable

from .requirements import what_is_missing

SOURCES = pathlib.Path(__file__).parent / "programs"
KUBERNETES = "1.33.0"
"""A Kubernetes release is a Go module whose staging modules must be replaced by their release (programs/node/go.mod). Not the
checksum of every patch release can be looked up: those of 1.33.0 can. Without the linker's variables the server calls itself
v0.0.0-master, which helm refuses."""
HELM = "helm.sh/helm/v3/cmd/helm@v3.16.4"
_HELM_VARIABLES = " ".join(
    f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
    for package in ("lint/rules", "chartutil")
    for part, number in (("Major", 1), ("Minor", 33))
)
"""Without them it renders charts for Kubernetes 1.20."""
_VERSION = "k8s.io/component-base/version"
_NODE_VARIABLES = f"-X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=33"


class ProgramsError(Exception):
    """The programs cannot be built; the text is one line."""


def cache_folder() -> pathlib.Path:
    """Where programs, images and the node's image store are kept: STITCHFLEET_TEST_CACHE, as for all test caches."""
    given = os.environ.get("STITCHFLEET_TEST_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(given) if given else pathlib.Path(base) / "stitchfleet-tests"


def digest() -> str:
    """Of all that the programs are made of."""
    found = hashlib.sha256(f"{HELM} {_HELM_VARIABLES} {_NODE_VARIABLES} {_run(['go', 'version'])}".encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def are_built() -> bool:
    return not what_is_missing() and (_folder() / "complete").exists()


def _folder() -> pathlib.Path:
    return cache_folder() / "cluster" / f"programs-{digest()}"


def programs(tell: Callable[[str], None]) -> pathlib.Path:
    """The folder with `node`, `coredns`, `helm` and the pause image `pause.tar`, built if it is not there. Raises ProgramsError."""
    folder = _folder()
    if (folder / "complete").exists():
        return folder
    tell("building Kubernetes, CoreDNS and helm from their Go modules: about five minutes, once")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch_name:
        scratch = pathlib.Path(scratch_name)
        _go_build(SOURCES / "node", scratch / "node", _NODE_VARIABLES)
        _go_build(SOURCES / "dns", scratch / "coredns")
        _run(["go", "install", f"-ldflags=-s -w {_HELM_VARIABLES}", HELM], GOBIN=str(scratch))
        _pause_image(scratch)
        (scratch / "complete").touch()
        for old in folder.parent.glob("programs-*"):
            shutil.rmtree(old)
        scratch.rename(folder)
        scratch.mkdir()  # for the end of the temporary folder
    return folder


def _go_build(source: pathlib.Path, output: pathlib.Path, variables: str = "") -> None:
    _run(["go", "build", "-C", str(source), "-mod=readonly", "-ldflags", f"-s -w {variables}", "-o", str(output), "."])


def _pause_image(folder: pathlib.Path) -> None:
    """The image that holds a pod's namespaces open."""
    _run(["gcc", "-static", "-O2", "-o", str(folder / "pause"), str(SOURCES / "pause" / "pause.c")])
    image_of(folder / "pause", "/pause", PAUSE_IMAGE, folder / "pause.tar")


def image_of(program: pathlib.Path, path: str, reference: str, archive: pathlib.Path, user: str = "0:0") -> None:
    """An image with a program that needs no library, as an archive that containerd imports."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="image-", ignore_cleanup_errors=True) as name:
        storage = ["buildah", "--root", f"{name}/storage", "--runroot", f"{name}/run", "--storage-driver", "vfs"]
        container = _run([*storage, "from", "scratch"]).strip()
        _run([*storage, "copy", container, str(program), path])
        _run([*storage, "config", "--user", user, "--entrypoint", f'["{path}"]', container])
        _run([*storage, "commit", container, f"docker-archive:{archive}:{reference}"])


PAUSE_IMAGE = "localhost/stitchfleet-pause:1"


def _run(command: list[str], **variables: str) -> str:
    done = subprocess.run(
        ["nice", "-n", "5", *command], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProgramsError(f"{' '.join(command[:3])} failed: {last}")
    return done.stdout
