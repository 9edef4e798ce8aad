"""What this machine lacks for a node, in one line for whoever is told that tests were skipped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "iptables-save": "iptables",
    "ip": "iproute2",
    "kubectl": "kubernetes-client",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "gcc": "gcc",
    "openssl": "openssl",
}
"""Debian's package of each program that is needed; scripts/environment installs those that are missing, where it may."""
OLDEST_GO = (1, 24)


def what_is_missing() -> str:
    """One line that says what to install, or an empty text if nothing is missing."""
    wanted = []
    if os.geteuid() != 0:
        wanted.append("root")
    if (found := _go_version()) is None or found < OLDEST_GO:
        wanted.append(f"Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or later")
    wanted += _rights()
    packages = sorted({package for program, package in PACKAGES.items() if not _is_there(program)})
    if packages:
        wanted.append(f"Debian's {', '.join(packages)}")
    return f"a cluster on this machine needs {', '.join(wanted)} (tests/cluster/README.md)" if wanted else ""


CONTROL_GROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")
"""Where pods get theirs: version 1, else 2."""


def _rights() -> list[str]:
    """What root may not do here: in a container without privileges it mounts nothing and changes no network."""
    found = []
    if subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode != 0:
        found.append("the right to mount and to make networks")
    if not os.access(next(filter(os.path.exists, CONTROL_GROUPS), CONTROL_GROUPS[-1]), os.W_OK):
        found.append("control groups that can be written to")
    return found


def _is_there(program: str) -> bool:
    return os.path.exists(program) if program.startswith("/") else shutil.which(program) is not None


def _go_version() -> tuple[int, int] | None:
    try:
        said = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    found = re.search(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None
