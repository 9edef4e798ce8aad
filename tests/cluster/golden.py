"""What was changed in an object that the API server admitted, as text: without what differs from one cluster, build or moment to
another, and without what its unlabelled twin has as well. STITCHFLEET_UPDATE_GOLDEN=1 writes the golden files anew."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import Any

import yaml

from .conftest import Images

GOLDEN = Path(__file__).parent / "golden"
IS_UPDATED = bool(os.environ.get("STITCHFLEET_UPDATE_GOLDEN"))


def compare(name: str, shown: Any) -> None:
    """Compares what is shown with the golden file of that name, or writes that."""
    path = GOLDEN / f"{name.replace(' ', '-')}.yaml"
    if IS_UPDATED:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_text(shown))
    assert shown == yaml.safe_load(path.read_text()), f"{path.name}: STITCHFLEET_UPDATE_GOLDEN=1 writes it anew"


def as_text(shown: Any) -> str:
    return str(yaml.dump(shown, Dumper=Readable, sort_keys=False, width=120))


def changes(found: Any, twin: Any, path: str = "") -> dict[str, Any]:
    """What an admitted object has, by path, and its twin has not or differently. A list's entries go by their names."""
    if isinstance(found, dict):
        theirs = twin if isinstance(twin, dict) else {}
        return {
            where: value
            for key in found
            for where, value in changes(found[key], theirs.get(key), f"{path}/{key}" if path else key).items()
        }
    if isinstance(found, list) and found and is_named(found):
        named = {each["name"]: each for each in twin or () if "name" in each}
        return {
            where: value
            for each in found
            for where, value in changes(each, named.get(each["name"]), f"{path}[{each['name']}]").items()
        }
    return {} if found == twin else {path: found}


def by_itself(found: Any, written: Any, twin: Any) -> Any:
    """`found` without what the API server gave the unlabelled twin as well, unless the researcher wrote it."""
    if isinstance(found, dict):
        kept = {}
        for key, value in found.items():
            mine, theirs = (each.get(key) if isinstance(each, dict) else None for each in (written, twin))
            if mine is not None or value != theirs:
                kept[key] = by_itself(value, mine, theirs)
        return kept
    if isinstance(found, list):
        named = (
            [{each["name"]: each for each in some or () if "name" in each} for some in (written, twin)]
            if is_named(found)
            else None
        )
        if named is not None:
            mine, theirs = named
            pairs = [(each, mine.get(each["name"]), theirs.get(each["name"])) for each in found]
            return [by_itself(*pair) for pair in pairs if pair[1] is not None or pair[0] != pair[2]]
    return found


def is_named(found: list[Any]) -> bool:
    return all(isinstance(each, dict) and "name" in each for each in found)


def normalized(pod: dict[str, Any], images: Images) -> dict[str, Any]:
    """Without what differs from one cluster, build or moment to another."""
    pod = copy.deepcopy(pod)
    for key in ("uid", "creationTimestamp", "managedFields", "resourceVersion", "generation"):
        pod["metadata"].pop(key, None)
    pod.pop("status", None)
    text = yaml.safe_dump(pod)
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access-xxxxx", text)
    text = re.sub(r"(stitchfleet.io/run-id: )'?[0-9a-f-]{32,36}'?", r"\1'" + 32 * "0" + "'", text)
    pod = yaml.safe_load(text.replace(images.payload.reference, "stitchfleet/payload:0.1.0"))
    annotations = pod["metadata"].get("annotations") or {}
    if "stitchfleet.io/ingest-authority" in annotations:
        annotations["stitchfleet.io/ingest-authority"] = "-----BEGIN CERTIFICATE-----\n...\n-----END CERTIFICATE-----\n"
    return dict(pod)


class Readable(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Readable.add_representer(str, _text)
