"""Resource definitions of others, which the chart can make objects of: out of their projects' Go modules.

Their controllers do not run here: the API server checks objects against the definitions, and no more.
"""

from __future__ import annotations

import json
import pathlib
import subprocess

DEFINITIONS = {
    "github.com/prometheus-operator/prometheus-operator@v0.78.2": (
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    "github.com/cert-manager/cert-manager@v1.16.2": (
        "deploy/crds/crd-certificates.yaml",
        "deploy/crds/crd-issuers.yaml",
        "deploy/crds/crd-clusterissuers.yaml",
    ),
}
"""By module and version, the files in it."""


class ForeignError(Exception):
    """A module cannot be had; the text is one line."""


def definitions() -> list[str]:
    """Each file's YAML. cert-manager's are templates of its chart: lines with an action, all of them labels and annotations, go."""
    found = []
    for module, files in DEFINITIONS.items():
        folder = _folder(module)
        for file in files:
            lines = (folder / file).read_text(encoding="utf-8").splitlines()
            found.append("\n".join(line for line in lines if "{{" not in line))
    return found


def _folder(module: str) -> pathlib.Path:
    done = subprocess.run(["go", "mod", "download", "-json", module], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in answer:
        raise ForeignError(
            f"{module} cannot be downloaded: {answer.get('Error') or done.stderr.strip()}".splitlines()[0]
        )
    return pathlib.Path(answer["Dir"])
