"""A cluster with stitchfleet in it. Where this machine cannot run one, tests are skipped with one line that says what to install."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from scripts.images import build
from scripts.images.build import TRAINED_WITH, Builder, Image

from . import controllers
from .kubernetes import Kubernetes
from .node import STATE, Node
from .programs import cache_folder
from .requirements import what_is_missing
from .sharing import shared_node

CHART = Path(__file__).resolve().parents[2] / "helm" / "stitchfleet"
NAMESPACE = "stitchfleet"
PASSWORD = "only-for-the-test"
"""Of the database in a pod."""


def tell(text: str) -> None:
    """Past pytest's capture: building takes minutes, and nobody is to think that it hangs."""
    print(f"tests/cluster: {text}", file=sys.__stderr__, flush=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A cluster with its images takes a quarter of an hour on a fast machine (tests/pace.py)."""
    item.add_marker(pytest.mark.costly(from_pace=4), append=not item.get_closest_marker("costly"))


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


SECRET_MARK = "# a build secret of the tests: 5d1f0c0e7c6a4f1c9d0a3be7f2a8d641"
"""A line of every build secret, also on machines that need none."""


def builder(say: Callable[[str], None] = tell, prebuilt: Sequence[str] = (TRAINED_WITH,), **options: Any) -> Builder:
    """Of the images of these tests, in the cache. options: as Builder's."""
    return Builder(cache_folder() / "images", say, prebuilt=prebuilt, **options)


def built_images(*names: str, made_by: Builder | None = None) -> list[Image]:
    """The images, from build secrets with SECRET_MARK in them if they have to be built."""
    authority = next((os.environ[name] for name in build.AUTHORITIES if os.environ.get(name)), "")
    settings = os.environ.get("PIP_CONFIG_FILE") or "/etc/pip.conf"
    with tempfile.TemporaryDirectory(prefix="stitchfleet-secrets-") as folder:
        marked = {}
        for name, source in {"PIP_CONFIG_FILE": settings, build.AUTHORITIES[0]: authority}.items():
            path = Path(folder, name)
            known = Path(source).read_text() if os.path.exists(source) else ""
            path.write_text(f"{known}\n{SECRET_MARK}\n")
            if known or name == "PIP_CONFIG_FILE":  # without authorities of its own a machine has the public ones
                marked[name] = str(path)
        with mock.patch.dict(os.environ, marked):
            made_by = made_by or builder()
            return [made_by.image(name) for name in names]


@pytest.fixture(scope="session")
def images(node: Node) -> Images:
    """Really built from their Dockerfiles, or kept from a build of the same content, and on the node."""
    found = Images(*built_images("payload", "operator", "demo"))
    for image in (found.payload, found.operator, found.demo):
        node.load(image.archive, image.reference)
    node.forget_images_but({builder().reference(name) for name in build.NAMES})
    return found


@pytest.fixture(scope="session")
def postgres(node: Node) -> Image:
    (image,) = built_images("postgres")
    node.load(image.archive, image.reference)
    return image


@pytest.fixture(scope="session")
def horovod(node: Node, images: Images) -> Image:
    """The training image with Horovod and an ssh server: of the slow tests alone, as its build takes five minutes."""
    (image,) = built_images("horovod")
    node.load(image.archive, image.reference)
    return image


@pytest.fixture(scope="session")
def mpi_operator(node: Node, kubernetes: Kubernetes) -> Iterator[None]:
    """Kubeflow's, with its CRD."""
    built = controllers.built(controllers.MPI, tell)
    kubernetes.apply(*built.manifests)
    with node.beside(built.program, f"--kubeConfig={node.kubeconfig}", "--lock-namespace=default"):
        yield


@pytest.fixture(scope="session")
def trainer(node: Node, kubernetes: Kubernetes, images: Images) -> Iterator[None]:
    """Kubeflow's Trainer v2 on JobSet: pods, rights and webhooks as a cluster has them, and its runtime torch-distributed."""
    parts = [controllers.built(each, tell) for each in (controllers.JOBSET, controllers.TRAINER)]
    for part in parts:
        _run_in_pods(node, kubernetes, part)
    runtimes = [manifest for part in parts for manifest in part.manifests]
    kubernetes.apply(*runtimes)
    yield
    for text in runtimes:  # while its controller is there, which takes its finalizer away
        kubernetes.kubectl("delete", "trainjobs,trainingruntimes", "-A", "--all", "--timeout=100s")
        kubernetes.kubectl("delete", "--timeout=60s", "-f", "-", stdin=text)
    for part in reversed(parts):
        kubernetes.kubectl("delete", "--wait=false", "-f", "-", stdin=_list_of(part))


@pytest.fixture
def kueue(node: Node, kubernetes: Kubernetes, images: Images) -> Iterator[None]:
    """Kueue, for pods too. For a test alone: nobody creates a pod here that its webhooks have not seen."""
    part = controllers.built(controllers.KUEUE, tell)
    for each in part.objects:
        for name, text in (each.get("data") or {}).items() if each["kind"] == "ConfigMap" else ():
            each["data"][name] = text.replace('#  - "pod"\n', '  - "pod"\n')
        if each["kind"] == "Deployment":  # without the server of queues' contents, which would be a part of the API
            each["spec"]["template"]["spec"]["containers"][0]["args"].append("--feature-gates=VisibilityOnDemand=false")
    _run_in_pods(node, kubernetes, part)
    yield
    kubernetes.kubectl("delete", "workloads,localqueues,clusterqueues,resourceflavors", "-A", "--all", "--timeout=60s")
    kubernetes.kubectl("delete", "--wait=false", "-f", "-", stdin=_list_of(part))


def _run_in_pods(node: Node, kubernetes: Kubernetes, part: controllers.Built) -> None:
    """Installs a controller, and waits until it runs."""
    node.load(part.archive, part.image)
    kubernetes.apply(_list_of(part))
    for each in part.objects:
        if each["kind"] == "Deployment":
            space, name = each["metadata"]["namespace"], each["metadata"]["name"]
            kubernetes.kubectl("-n", space, "rollout", "status", f"deploy/{name}", "--timeout=110s")


def _list_of(part: controllers.Built) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": part.objects})


@pytest.fixture
def registry(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty registry of images on this machine, as HOST:PORT: buildah writes to it, the node pulls from it, neither by TLS."""
    with _registry(node, tmp_path, monkeypatch) as address:
        yield address


REGISTRY_USER, REGISTRY_PASSWORD = "somebody", "open sesame"


@pytest.fixture
def closed_registry(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same, for who knows REGISTRY_USER and REGISTRY_PASSWORD; buildah does."""
    (tmp_path / "htpasswd").write_text(
        f"{REGISTRY_USER}:$2b$04$eYvEI6sV.zvYdStk9WDjeegt29jaK8Rp4R4fB.ZNoJzhzB3GCuZ52\n"
    )
    asks = {"auth": {"htpasswd": {"realm": "tests", "path": str(tmp_path / "htpasswd")}}}
    with _registry(node, tmp_path, monkeypatch, **asks) as address:
        known = {
            "auths": {address: {"auth": base64.b64encode(f"{REGISTRY_USER}:{REGISTRY_PASSWORD}".encode()).decode()}}
        }
        (tmp_path / "auth.json").write_text(json.dumps(known))
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
        yield address


@contextlib.contextmanager
def _registry(node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Iterator[str]:
    """more: of its settings."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    settings = {"version": 0.1, "log": {"level": "warn"}, "storage": storage, "http": {"addr": address}, **more}
    (node.state / "registry.yml").write_text(json.dumps(settings))
    (folder / "registries.conf").write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(folder / "registries.conf"))
    built = controllers.built(controllers.REGISTRY, tell)
    with node.beside(built.program, "serve", str(node.state / "registry.yml")):
        Kubernetes.wait(lambda: _answers(f"http://{address}/v2/"), 30, "the registry does not answer")
        yield address


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError as error:
        return error.code == 401  # it asks who wants to know
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Release:
    """The chart, installed."""

    namespace: str
    server: str
    """Deployment of the ingest server."""
    installed: str
    """When that began, UTC."""


class Releases:
    """The one release that the cluster has: another set of values takes the place of what is installed."""

    def __init__(self, kubernetes: Kubernetes, images: Images) -> None:
        self._kubernetes, self._images = kubernetes, images
        self._values: tuple[str, ...] = ()
        self._release: Release | None = None

    def with_values(self, server: str, *values: str) -> Release:
        """Installed if it is not there."""
        if self._release is None or self._values != values:
            self.uninstall()
            if self._kubernetes.kubectl("get", "crd", "savingsreports.stitchfleet.io", "--ignore-not-found"):
                self._kubernetes.kubectl("delete", "savingsreports", "--all")
            if not self._kubernetes.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found"):
                self._kubernetes.namespace(NAMESPACE)
            self._release = Release(NAMESPACE, server, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            self._values = values
            self.upgrade()
        return self._release

    def upgrade(self, *more: str) -> None:
        """To the same values, and more."""
        # helm makes the kinds of objects once, and never changes them: a person applies them before an upgrade
        self._kubernetes.apply(*(path.read_text() for path in sorted((CHART / "crds").glob("*.yaml"))))
        self._kubernetes.helm(
            *("upgrade", "--install", "stitchfleet", str(CHART), "--namespace", NAMESPACE, "--wait", "--timeout", "3m"),
            *("--set", "clusterName=test-cluster", "--set", "controller.lookSeconds=2"),
            *_image("image", self._images.operator),
            *_image("payload", self._images.payload),
            *self._values,
            *more,
        )

    def uninstall(self) -> None:
        """As a person does. Nothing happens if there is none."""
        if self._release is not None:
            self._release = None
            self._kubernetes.helm("uninstall", "stitchfleet", "--namespace", NAMESPACE, "--wait", "--timeout", "2m")


@pytest.fixture(scope="session")
def releases(kubernetes: Kubernetes, images: Images) -> Iterator[Releases]:
    found = Releases(kubernetes, images)
    yield found
    found.uninstall()
    kubernetes.kubectl(
        "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=100s"
    )  # the next run makes it again


@pytest.fixture
def release(releases: Releases) -> Release:
    """With the embedded database, on a volume that ends with its pod."""
    values = ("--set-json", 'database.embedded.volume={"emptyDir":{}}', "--set", "webhook.replicas=1")
    return releases.with_values("deploy/stitchfleet-server", *values)


@pytest.fixture
def external(kubernetes: Kubernetes, releases: Releases, postgres: Image) -> Release:
    """The release with PostgreSQL beside it, which is started once."""
    if not kubernetes.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found"):
        kubernetes.namespace(NAMESPACE)
    if not kubernetes.kubectl("-n", NAMESPACE, "get", "deploy", "postgres", "--ignore-not-found"):
        folder = STATE / "postgres"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        for each in _database(postgres.reference):
            kubernetes.create(each)
    kubernetes.kubectl("-n", NAMESPACE, "rollout", "status", "deploy/postgres", "--timeout=90s")
    return releases.with_values("deploy/stitchfleet-ingest", "--set", "database.external.secretName=fleet-database")


def _database(image: str) -> list[dict[str, Any]]:
    """A PostgreSQL whose data outlive its pod, its service, and the Secret that the chart's values name."""
    about = {"namespace": NAMESPACE, "labels": {"app": "postgres"}}
    container = {
        "name": "postgres",
        "image": image,
        "env": [{"name": "POSTGRES_PASSWORD", "value": PASSWORD}],
        "readinessProbe": {
            "exec": {"command": ["pg_isready", "-h", "127.0.0.1", "-U", "stitchfleet"]},
            "periodSeconds": 1,
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    folder = STATE / "postgres"
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "fleet-database", **about},
            "stringData": {"url": f"postgresql://stitchfleet:{PASSWORD}@postgres.{NAMESPACE}/stitchfleet"},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "postgres", **about},
            "spec": {"selector": {"app": "postgres"}, "ports": [{"port": 5432}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "postgres", **about},
            "spec": {
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": {"app": "postgres"}},
                "template": {
                    "metadata": {"labels": {"app": "postgres"}},
                    "spec": {
                        "containers": [container],
                        "volumes": [{"name": "data", "hostPath": {"path": str(folder), "type": "Directory"}}],
                    },
                },
            },
        },
    ]


def _image(value: str, image: Image) -> tuple[str, ...]:
    repository, _, tag = image.reference.rpartition(":")
    return ("--set", f"{value}.repository={repository}", "--set-string", f"{value}.tag={tag}")
