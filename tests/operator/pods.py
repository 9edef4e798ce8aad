"""Pods, as the API server hands them to a webhook: some by hand, some at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from stitchfleet.operator.policy import names
from stitchfleet.operator.policy.policy import Policy

Object = dict[str, Any]
POLICY = Policy(
    payload_image="example.org/payload:1",
    cluster="prod-7",
    ingest_url="https://ingest.stitchfleet.svc:8475",
    ingest_authority="-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n",
)


def pod(*containers: Object, annotations: Object | None = None, **spec: Any) -> Object:
    """A labelled pod. Without containers: one with a command."""
    found = list(containers) or [container()]
    metadata: Object = {"name": "train", "namespace": "vision", "labels": {names.ENABLED: "true"}}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": found, **spec}}


def container(name: str = "main", **fields: Any) -> Object:
    return {"name": name, "image": "example.org/training:3", "command": ["python", "train.py"], **fields}


def listed(name: str, uid: str, reason: str = "", phase: str = "Succeeded", **metadata: Any) -> Object:
    """A pod with the label, as the API server lists it. reason: why it was not injected; empty: it was."""
    annotations = {names.NOT_INJECTED: reason} if reason else {names.INJECTED: "main"}
    about = {"name": name, "namespace": "vision", "uid": uid, "annotations": annotations} | metadata
    started = "2026-11-24T10:00:00Z"
    return {"metadata": about, "spec": {"containers": [container()]}, "status": {"phase": phase, "startTime": started}}


_NAMES = st.sampled_from(["main", "side", "log-shipper", names.INIT_CONTAINER])
_TEXTS = st.text(alphabet="ab$(){}\"'`:/\\ \n%é", max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS, inner, max_size=2),
    max_leaves=4,
)
_UNKNOWN = st.dictionaries(st.sampled_from(["fieldOfTomorrow", "restartPolicy", "resizePolicy"]), _VALUES, max_size=2)
_ENVIRONMENT = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["PYTHONPATH", "A", "spring.config", "STITCHFLEET_USER", "STITCHFLEET_ENABLED"])},
        optional={"value": _TEXTS},
    )
    | st.just({"name": "PYTHONPATH", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
    max_size=3,
)
_MOUNTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("data"), "mountPath": st.sampled_from(["/data", names.MOUNT, f"{names.MOUNT}/x/"])}
    ),
    max_size=2,
)
_AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"]),
    st.sampled_from(["1", "2Gi", "100Mi", "odd"]),
)


@st.composite
def _containers(draw: st.DrawFn, name: str) -> Object:
    found: Object = {"name": name, **draw(_UNKNOWN)}
    options = {
        "image": st.just("example.org/training:3"),
        "command": st.lists(_TEXTS, max_size=3),
        "args": st.lists(_TEXTS, max_size=2),
        "env": _ENVIRONMENT,
        "volumeMounts": _MOUNTS,
        "resources": st.fixed_dictionaries({}, optional={"limits": _AMOUNTS, "requests": _AMOUNTS}),
        "securityContext": st.fixed_dictionaries(
            {}, optional={"runAsUser": st.just(0), "privileged": st.booleans(), "runAsNonRoot": st.booleans()}
        ),
    }
    for field in draw(st.sets(st.sampled_from(sorted(options)))):
        found[field] = draw(options[field])
    return found


@st.composite
def pods(draw: st.DrawFn) -> Object:
    """Pods of any shape, those that are to be left alone among them."""
    containers = [draw(_containers(name)) for name in draw(st.lists(_NAMES, min_size=1, max_size=3, unique=True))]
    metadata: Object = {"labels": draw(st.dictionaries(st.sampled_from(["team", "job-name", names.ENABLED]), _TEXTS))}
    keys = st.sampled_from(
        [names.CONTAINERS, names.PYTHON_PATH, names.RUN_ID, names.USER, names.INJECTED, names.NOT_INJECTED]
    )
    if draw(st.booleans()):
        metadata["annotations"] = draw(st.none() | st.dictionaries(keys, _TEXTS | st.just("main,side")))
    if draw(st.booleans()):
        metadata["ownerReferences"] = [{"controller": True, "kind": "Job", "name": draw(_TEXTS), "uid": draw(_TEXTS)}]
    spec: Object = {"containers": containers, **draw(_UNKNOWN)}
    if draw(st.booleans()):
        spec["volumes"] = draw(st.lists(st.sampled_from([{"name": "data"}, {"name": names.VOLUME}]), max_size=2))
    if draw(st.booleans()):
        spec["initContainers"] = draw(st.none() | st.lists(_containers("setup"), max_size=1))
    return {"metadata": metadata, "spec": spec, **draw(_UNKNOWN)}
