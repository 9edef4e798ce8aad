"""What a node changes on the machine, and how each change is undone: processes, mounts, networks, firewall rules, cgroups, settings.

Everything is found by what it is, not by a list that a killed test run would not have written: a process by the state folder in its
command line, a mount by its path, a firewall rule by not having been there before.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time
from typing import Any

BRIDGE = "stitchfleet0"
NETWORK = "stitchfleet"
"""Names of the bridge and of the pods' network: the container network's plugins keep files under the latter."""
_CNI_FILES = pathlib.Path("/var/lib/cni")
_SHARED_FOLDERS = (
    *("/var/lib/cni/results", "/var/lib/cni", "/var/log/containers", "/var/log/pods", "/run/netns"),
    *("/run/containerd/runc/k8s.io", "/run/containerd/runc", "/run/containerd/s", "/run/containerd"),
)
"""Where programs of a node put files whatever they are told; each goes if nobody else has something in it."""
_RULES = re.compile(rf"KUBE-|CNI-|{BRIDGE}")
_SETTINGS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
)
"""Below /proc/sys: what kubelet and kube-proxy set."""
ENDING_SECONDS = 20.0


def output(*command: str, text: str | None = None, seconds: float = 60.0) -> str:
    """What a command prints; empty if it fails or is not there."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
        return done.stdout if done.returncode == 0 else ""
    return ""


def runs_another_kubernetes() -> bool:
    """Whether rules of a Kubernetes stand in the firewall: one more would take them for its own."""
    return "KUBE-SERVICES" in output("iptables-save")


# ---- before ------------------------------------------------------------------------------------------------------------------


def note(folder: pathlib.Path) -> None:
    """Writes down what `undo` has to bring back."""
    before = {
        "rules": {tables: output(f"{tables}-save").splitlines() for tables in ("iptables", "ip6tables")},
        "settings": {name: text for name in _SETTINGS if (text := _setting(name)) is not None},
        "files": _shared_files(),
    }
    (folder / "machine.json").write_text(json.dumps(before))


def _setting(name: str) -> str | None:
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc/sys", name).read_text().strip()
    return None


def add_bridge(address: str) -> None:
    """The bridge that API server, DNS and node answer on stands before any of them does."""
    if not pathlib.Path("/sys/class/net", BRIDGE).exists():
        subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
    subprocess.run(["ip", "addr", "replace", f"{address}/16", "dev", BRIDGE], check=True)
    subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


# ---- after -------------------------------------------------------------------------------------------------------------------


def processes_of(folder: pathlib.Path, part: str = "") -> list[int]:
    """Processes that have the folder in their command line, and `part` too."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                if f"{folder}/" in words and part in words:
                    found.append(int(entry.name))
    return found


def end(folder: pathlib.Path, part: str = "", first: signal.Signals = signal.SIGTERM) -> None:
    """Ends these processes: asked first, killed if they are there after a while. Waits until they are gone."""
    until = time.monotonic() + ENDING_SECONDS
    number = first
    while pids := processes_of(folder, part):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if time.monotonic() > until:
            number = signal.SIGKILL
        time.sleep(0.05)


def undo(folder: pathlib.Path) -> None:
    """Removes what a node whose processes have ended left on the machine. It may be called twice."""
    _unmount(folder)
    _remove_networks()
    before = _noted(folder)
    for tables, rules in before["rules"].items():
        _remove_rules(tables, set(rules))
    for name, text in before["settings"].items():
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/sys", name).write_text(text)
    _remove_cgroups()
    for path in _SHARED_FOLDERS:
        with contextlib.suppress(OSError):
            os.rmdir(path)


def leftovers(folder: pathlib.Path) -> list[str]:
    """What is there yet of a node that was stopped, a line each; to be asked before its folder goes."""
    before = _noted(folder)
    found = [f"process {pid}" for pid in processes_of(folder)]
    found += [f"mount {path}" for path in mounts_below(folder)]
    found += [f"link {BRIDGE}"] if pathlib.Path("/sys/class/net", BRIDGE).exists() else []
    found += [f"network file {path}" for path in (_CNI_FILES / "results").glob(f"{NETWORK}-*")]
    found += [f"control group {path}" for path in pathlib.Path("/sys/fs/cgroup").glob("**/kubepods*")]
    for tables, rules in before["rules"].items():
        now = output(f"{tables}-save").splitlines()
        found += [f"{tables} rule {line}" for line in now if line not in set(rules) and _RULES.search(line)]
    found += [f"setting {name}" for name, text in before["settings"].items() if _setting(name) != text]
    # /run/netns names the pods' network namespaces, with which the links go that lead into them
    found += [f"file {path}" for path in sorted({*_shared_files()} - {*before["files"]})]
    return found


def _shared_files() -> list[str]:
    """What lies in the shared folders, on any level."""
    return sorted({str(path) for folder in _SHARED_FOLDERS for path in pathlib.Path(folder).rglob("*")})


def _noted(folder: pathlib.Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / "machine.json").read_text()))
    except (OSError, ValueError):
        return {"rules": {}, "settings": {}, "files": _shared_files()}


def mounts_below(folder: pathlib.Path) -> list[str]:
    lines = pathlib.Path("/proc/mounts").read_text().splitlines()
    paths = [line.split()[1] for line in lines]
    return sorted((path for path in paths if path.startswith(f"{folder}/")), reverse=True)


def _unmount(folder: pathlib.Path) -> None:
    for path in mounts_below(folder):
        output("umount", "--lazy", path)


def _remove_networks() -> None:
    """The namespaces and addresses that the pods' network holds, and its links."""
    for cached in (_CNI_FILES / "results").glob(f"{NETWORK}-*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(cached.read_text())
            for interface in found["result"]["interfaces"]:
                if sandbox := interface.get("sandbox"):
                    output("ip", "netns", "del", pathlib.Path(sandbox).name)
            (cached.parent / f"cni-loopback-{found['containerId']}-lo").unlink(missing_ok=True)
        cached.unlink(missing_ok=True)
    for line in output("ip", "-o", "link", "show", "master", BRIDGE).splitlines():
        output("ip", "link", "del", line.split(": ")[1].split("@")[0])
    output("ip", "link", "del", BRIDGE)


def _remove_rules(tables: str, before: set[str]) -> None:
    """Removes what came to the firewall since `before` and is a Kubernetes' or a pod network's."""
    now = output(f"{tables}-save").splitlines()
    kept = [line for line in now if line in before or not _RULES.search(line)]
    if kept != now:
        subprocess.run([f"{tables}-restore"], input="\n".join(kept) + "\n", text=True, check=False, capture_output=True)


def _remove_cgroups() -> None:
    """Pods' control groups are empty by now; those within come first."""
    for root in pathlib.Path("/sys/fs/cgroup").glob("**/kubepods*"):
        for folder, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        with contextlib.suppress(OSError):
            root.rmdir()
