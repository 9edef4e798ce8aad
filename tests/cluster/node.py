"""Starts and stops a one-node Kubernetes on this machine: root only, one at a time, as its addresses are fixed.

The state lies in one folder, which goes with the node; containerd's images stay in the cache, so that the next node has them at once.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from . import machine
from .programs import PAUSE_IMAGE, cache_folder, programs
from .requirements import what_is_missing

STATE = pathlib.Path("/run/stitchfleet-cluster")
ADDRESS = "10.88.0.1"
API = f"https://{ADDRESS}:16443"
TOKEN = "admin-token"
"""Of the person who runs the tests, on an address that only this machine reaches."""
ETCD = "http://127.0.0.1:23790"
READY_SECONDS = 120.0
NODE = "node-1"


class NodeError(Exception):
    """The node cannot be started; the text is one line."""


class Node:
    """The node's state on this machine, running or not."""

    def __init__(self, tell: Callable[[str], None] = lambda text: None) -> None:
        self.state, self._tell = STATE, tell
        self.store = cache_folder() / "cluster" / "containerd"
        self.socket = STATE / "containerd.sock"
        self.kubeconfig = STATE / "admin.kubeconfig"
        self.audit_log = STATE / "audit.log"

    @property
    def is_running(self) -> bool:
        return bool(machine.processes_of(self.state, "kube-apiserver"))

    @property
    def cache_in_use(self) -> str:
        """The cache folder of the node that is there; empty if there is none."""
        try:
            return (self.state / "cache").read_text()
        except OSError:
            return ""

    @property
    def helm(self) -> pathlib.Path:
        return programs(self._tell) / "helm"

    def start(self) -> None:
        """Starts it and waits until the node is Ready. Raises NodeError and ProgramsError; then nothing of it is left."""
        if missing := what_is_missing():
            raise NodeError(missing)
        built = programs(self._tell)
        if machine.runs_another_kubernetes():
            raise NodeError("another Kubernetes runs on this machine; its firewall rules would be mixed with ours")
        self.state.mkdir(parents=True, mode=0o700)
        try:
            (self.state / "cache").write_text(str(cache_folder()))
            machine.note(self.state)
            self._start_all(built)
        except BaseException:
            logs = self._last_words()
            self.stop()
            if logs:
                self._tell(logs)
            raise

    def stop(self) -> list[str]:
        """Ends it, its containers included, and undoes what it changed on the machine. Returns what is left of it nevertheless."""
        for part in ("coredns", "kube-proxy", "kube-scheduler", "kube-controller-manager", "kubelet"):
            machine.end(self.state, part)
        self._end_containers()
        machine.end(self.state, "containerd")
        machine.end(self.state)
        for link in pathlib.Path("/var/log/containers").glob("*"):
            if link.is_symlink() and str(link.readlink()).startswith(str(self.state)):
                link.unlink()
        machine.undo(self.state)
        left = machine.leftovers(self.state)
        shutil.rmtree(self.state, ignore_errors=True)
        return left

    @contextlib.contextmanager
    def beside(self, program: pathlib.Path, *words: str) -> Iterator[None]:
        """Runs somebody's controller beside the node's own parts. Its words must name the state folder, by which `stop` finds it."""
        self._start(program.name, str(program), *words)
        try:
            yield
        finally:
            machine.end(self.state, str(program))

    def restart_api_server(self) -> None:
        """Ends it at once, as a crash does, and waits until the new one is ready."""
        machine.end(self.state, "kube-apiserver", signal.SIGKILL)
        self._start_api_server(str(programs(self._tell) / "node"))
        self._wait("the API server", self._api_is_ready)

    def load(self, archive: pathlib.Path, reference: str) -> None:
        """Brings an image to the node, unless it is there."""
        if reference not in self._ctr("images", "ls", "-q").split():
            done = subprocess.run(
                [*self._ctr_words(), "images", "import", str(archive)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise NodeError(f"the image {reference} cannot be imported: {done.stderr.strip()[-300:]}")

    def forget_images_but(self, wanted: set[str]) -> None:
        """Removes images of earlier builds from the node's store, which knows each by its digest too."""
        listed = [line.split() for line in self._ctr("images", "ls").splitlines()[1:]]
        targets = {words[0]: words[2] for words in listed}
        kept = {targets.get(name) for name in (*wanted, PAUSE_IMAGE)}
        old = [name for name, target in targets.items() if target not in kept]
        if old:
            self._ctr("images", "rm", "--sync", *old)

    # ---- parts -------------------------------------------------------------------------------------------------------------

    def _start_all(self, built: pathlib.Path) -> None:
        machine.add_bridge(ADDRESS)
        self._write_files()
        self._start("containerd", "containerd", "--config", str(self.state / "containerd.toml"))
        part = str(built / "node")
        state = str(self.state)
        admin = f"--kubeconfig={self.kubeconfig}"
        self._start("etcd", part, "etcd", f"{state}/etcd", ETCD)
        self._start_api_server(part)
        self._wait("the API server", self._api_is_ready)
        self._start(
            "kubelet",
            *(part, "kubelet", f"--config={state}/kubelet.yaml", admin, f"--root-dir={state}/kubelet"),
            *(f"--hostname-override={NODE}", f"--node-ip={ADDRESS}", f"--cert-dir={state}/kubelet-certs"),
        )
        self._start(
            "kube-controller-manager",
            *(part, "kube-controller-manager", admin, "--leader-elect=false"),
            *(f"--service-account-private-key-file={state}/sa.key", f"--root-ca-file={state}/certs/apiserver.crt"),
            *("--use-service-account-credentials=true", f"--cert-dir={state}/controller-certs"),
        )
        scheduler = ("kube-scheduler", admin, "--leader-elect=false", f"--cert-dir={state}/scheduler-certs")
        self._start("kube-scheduler", part, *scheduler)
        self._start(
            "kube-proxy",
            *(part, "kube-proxy", admin, f"--hostname-override={NODE}", "--proxy-mode=iptables"),
            *("--cluster-cidr=10.88.0.0/16", "--conntrack-max-per-core=0"),
        )
        self._start("coredns", str(built / "coredns"), "-conf", f"{state}/Corefile")
        self._wait("containerd", lambda: bool(self._ctr("version")))
        self.load(built / "pause.tar", PAUSE_IMAGE)
        self._wait("the node", self._node_is_ready)

    def _start_api_server(self, part: str) -> None:
        state = str(self.state)
        self._start(
            "kube-apiserver",
            *(part, "kube-apiserver", f"--etcd-servers={ETCD}", f"--bind-address={ADDRESS}"),
            *(f"--advertise-address={ADDRESS}", "--secure-port=16443", f"--cert-dir={state}/certs"),
            *(f"--token-auth-file={state}/tokens.csv", "--authorization-mode=Node,RBAC"),
            *("--service-account-issuer=https://kubernetes.default.svc.cluster.local",),
            *(f"--service-account-key-file={state}/sa.key", f"--service-account-signing-key-file={state}/sa.key"),
            *("--service-cluster-ip-range=10.96.0.0/16", "--kubelet-preferred-address-types=InternalIP"),
            # the API server reaches a webhook's pods directly, by the service's endpoints
            *("--enable-aggregator-routing=true", "--allow-privileged=true"),
            *(f"--audit-policy-file={state}/audit-policy.yaml", f"--audit-log-path={self.audit_log}"),
            "--audit-log-mode=blocking",
        )

    def _start(self, name: str, *command: str) -> None:
        """As a process of its own session, that outlives this one until `stop`."""
        with open(self.state / f"{name}.log", "ab") as log:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _wait(self, what: str, is_ready: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_SECONDS
        while not is_ready():
            if time.monotonic() > until:
                raise NodeError(f"{what} was not ready within {READY_SECONDS:.0f} s")
            time.sleep(0.1)

    def _api_is_ready(self) -> bool:
        request = urllib.request.Request(f"{API}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            context = ssl.create_default_context(cafile=str(self.state / "certs" / "apiserver.crt"))
            context.check_hostname = False
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def _node_is_ready(self) -> bool:
        words = ("kubectl", "--kubeconfig", str(self.kubeconfig), "get", "node", NODE, "-o", "json")
        try:
            conditions = json.loads(machine.output(*words) or "{}")["status"]["conditions"]
        except KeyError:
            return False
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _last_words(self) -> str:
        """The end of each part's log, for whoever has to find out why it did not start."""
        logs = sorted(self.state.glob("*.log"))
        return "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-4:]) for log in logs
        )

    # ---- containers --------------------------------------------------------------------------------------------------------

    def _ctr_words(self) -> list[str]:
        return ["ctr", "-a", str(self.socket), "-n", "k8s.io"]

    def _ctr(self, *words: str) -> str:
        return machine.output(*self._ctr_words(), *words)

    def _end_containers(self) -> None:
        for name in self._ctr("tasks", "ls", "-q").split():
            self._ctr("tasks", "kill", "-s", "KILL", name)
        until = time.monotonic() + 10
        while "RUNNING" in self._ctr("tasks", "ls") and time.monotonic() < until:
            time.sleep(0.1)
        for name in self._ctr("tasks", "ls", "-q").split():
            self._ctr("tasks", "rm", "-f", name)
        for name in self._ctr("containers", "ls", "-q").split():
            self._ctr("containers", "rm", name)

    # ---- files -------------------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        state = self.state
        self.store.mkdir(parents=True, exist_ok=True)
        subprocess.run(["openssl", "genrsa", "-out", str(state / "sa.key"), "2048"], check=True, capture_output=True)
        (state / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
        (state / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        (state / "Corefile").write_text(
            f".:53 {{\n  bind {ADDRESS}\n  errors\n"
            f"  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {self.kubeconfig} local\n  }}\n}}\n"
        )
        (state / "cni").mkdir()
        files = {
            "cni/10-pods.conflist": _pod_network(state),
            "admin.kubeconfig": _kubeconfig(state),
            "kubelet.yaml": _kubelet(state),
            "audit-policy.yaml": _AUDIT_POLICY,
        }
        for name, content in files.items():
            (state / name).write_text(json.dumps(content))  # JSON is YAML
        self.kubeconfig.chmod(0o600)
        (state / "containerd.toml").write_text(_CONTAINERD.format(state=state, store=self.store, pause=PAUSE_IMAGE))


_CONTAINERD = """version = 2
root = "{store}"
state = "{state}/containerd"
[grpc]
  address = "{state}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # without CAP_SYS_RESOURCE, as on many test machines, a container's score cannot be lowered
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    # the node's own parts are left out: what is looked at is what stitchfleet, and who creates pods, does
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*", "/version"]},
        {"level": "Metadata"},
    ],
}


def _pod_network(state: pathlib.Path) -> dict[str, object]:
    addresses = {"subnet": "10.88.0.0/16", "rangeStart": "10.88.0.10"}
    bridge = {
        "type": "bridge",
        "bridge": machine.BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(state / "addresses"),
            "ranges": [[addresses]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": machine.NETWORK, "plugins": [bridge]}


def _kubeconfig(state: pathlib.Path) -> dict[str, object]:
    cluster = {"server": API, "certificate-authority": str(state / "certs" / "apiserver.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
        "current-context": "local",
    }


def _kubelet(state: pathlib.Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{state}/containerd.sock",
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "100Mi"},
        # 100: off. A machine whose disk is nearly full would lose the images that a test is about to use, the pause image among them.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "resolvConf": str(state / "resolv.conf"),
        "podLogsDir": str(state / "pod-logs"),
    }
