"""A cluster with stitchfleet in it. Where this machine cannot run one, tests are skipped with one line that says what to install."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.images.build import Builder, Image

from . import controllers
from .kubernetes import Kubernetes
from .node import Node
from .programs import cache_folder
from .requirements import what_is_missing
from .sharing import shared_node

CHART = Path(__file__).resolve().parents[2] / "helm" / "stitchfleet"
NAMESPACE = "stitchfleet"


def tell(text: str) -> None:
    """Past pytest's capture: building takes minutes, and nobody is to think that it hangs."""
    print(f"tests/cluster: {text}", file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    if missing := what_is_missing():
        pytest.skip(missing)
    with shared_node(Node(tell)) as running:
        yield running


@pytest.fixture(scope="session")
def kubernetes(node: Node) -> Kubernetes:
    return Kubernetes(node)


@dataclass(frozen=True)
class Images:
    payload: Image
    operator: Image
    demo: Image


@pytest.fixture(scope="session")
def images(node: Node) -> Images:
    """Really built from their Dockerfiles, or kept from a build of the same content, and on the node."""
    builder = Builder(cache_folder() / "images", tell)
    found = Images(*(builder.image(name) for name in ("payload", "operator", "demo")))
    for image in (found.payload, found.operator, found.demo):
        node.load(image.archive, image.reference)
    kept = {found.payload.reference, found.operator.reference, found.demo.reference, builder.reference("horovod")}
    node.forget_images_but(kept)
    return found


@pytest.fixture(scope="session")
def horovod(node: Node, images: Images) -> Image:
    """The training image with Horovod and an ssh server: of the slow tests alone, as its build takes five minutes."""
    image = Builder(cache_folder() / "images", tell).image("horovod")
    node.load(image.archive, image.reference)
    return image


@pytest.fixture(scope="session")
def mpi_operator(node: Node, kubernetes: Kubernetes) -> Iterator[None]:
    """Kubeflow's, with its CRD."""
    built = controllers.built(controllers.MPI, tell)
    kubernetes.apply(*built.manifests)
    with node.beside(built.program, f"--kubeConfig={node.kubeconfig}", "--lock-namespace=default"):
        yield


@dataclass(frozen=True)
class Release:
    """The chart, installed."""

    namespace: str
    server: str
    """Deployment of the ingest server and the database."""
    installed: str
    """When that began, UTC."""


@pytest.fixture(scope="session")
def release(kubernetes: Kubernetes, images: Images) -> Iterator[Release]:
    """With the embedded database, on a volume that ends with its pod."""
    kubernetes.kubectl("delete", "savingsreports", "--all", "--ignore-not-found") if _has_crds(kubernetes) else None
    kubernetes.namespace(NAMESPACE)
    installed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    kubernetes.helm(
        *("upgrade", "--install", "stitchfleet", str(CHART), "--namespace", NAMESPACE, "--wait", "--timeout", "2m"),
        *("--set-json", 'database.embedded.volume={"emptyDir":{}}', "--set", "clusterName=test-cluster"),
        *("--set", "controller.lookSeconds=2", "--set", "webhook.replicas=1"),
        *_image("image", images.operator),
        *_image("payload", images.payload),
    )
    yield Release(NAMESPACE, "deploy/stitchfleet-server", installed)
    kubernetes.helm("uninstall", "stitchfleet", "--namespace", NAMESPACE, "--wait", "--timeout", "2m")
    kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _has_crds(kubernetes: Kubernetes) -> bool:
    return bool(kubernetes.kubectl("get", "crd", "savingsreports.stitchfleet.io", "--ignore-not-found"))


def _image(value: str, image: Image) -> tuple[str, ...]:
    repository, _, tag = image.reference.rpartition(":")
    return ("--set", f"{value}.repository={repository}", "--set-string", f"{value}.tag={tag}")
