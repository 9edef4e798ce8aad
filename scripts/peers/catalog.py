"""What is compared: some of the workloads, and the other frameworks' compilers beside stitchfleet and what TensorFlow has."""

from __future__ import annotations

import dataclasses
import pathlib
from dataclasses import dataclass
from typing import Final

from ..benchmark.contestants import CONTESTANTS, WORKLOADS, Contestant, Workload
from ..zoo.catalog import KERAS_3
from ..zoo.environments import Environment

JAX: Final = Environment("jax", requires=("jax==0.10.2", "optax==0.2.8"), packages=())
TORCH: Final = Environment("torch", requires=("torch==2.15.0", "numpy"), packages=())
EXPORT: Final = pathlib.Path(__file__).with_name("export.py")
_MODELS: Final = pathlib.Path(__file__).with_name("models")

NAMES: Final = ("bert", "bert-infer", "resnet", "resnet-infer", "sampler")
"""The workloads that have a form in each framework."""
WITHOUT_CHANCE: Final = {"bert": ("--dropout", "0")}
"""Options of a workload's scripts with which all must compute the same losses; none: they do anyway."""


@dataclass(frozen=True)
class Peer:
    """A way of another framework. prefix: of its scripts in models/. arguments: their options. variables: set for them."""

    name: str
    help: str
    prefix: str
    environment: Environment
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


PEERS: Final = (
    Peer("jax", "JAX: the whole step jitted, by JAX's XLA", "jax", JAX),
    Peer("torch", "PyTorch, eager", "torch", TORCH),
    Peer("torch-compile", "PyTorch, torch.compile: TorchInductor", "torch", TORCH, ("--compile", "default")),
    Peer(
        "torch-autotune",
        "the same, mode max-autotune, with a wrapper in C++ and, in inference, frozen weights",
        "torch",
        TORCH,
        ("--compile", "max-autotune"),
        (("TORCHINDUCTOR_CPP_WRAPPER", "1"), ("TORCHINDUCTOR_FREEZING", "1")),
    ),
)
PACKAGES: Final = ("tensorflow-cpu", "keras", "jax", "optax", "torch")
OURS: Final = ("plain", "xla", "stitched")


def workload(name: str) -> Workload:
    """A workload by its name, in the environment of today's TensorFlow."""
    return dataclasses.replace(WORKLOADS[name], environment=KERAS_3)


def contestants(name: str, start: pathlib.Path) -> list[Contestant]:
    """All contestants on the workload `name`, plain first. start: the file that the peers start from."""
    given = workload(name)
    found = [CONTESTANTS[each] for each in OURS]
    for peer in PEERS:
        script = _MODELS / f"{peer.prefix}_{given.script.name}"
        words = (*given.arguments, *peer.arguments, "--start", str(start))
        form = dataclasses.replace(given, script=script, arguments=words, environment=peer.environment)
        found.append(Contestant(peer.name, peer.help, environment=dict(peer.variables), instead=form))
    return found


def versions() -> dict[str, str]:
    """The frameworks' versions."""
    pins = [pin for each in (KERAS_3, JAX, TORCH) for pin in each.requires]
    found = dict(pin.split("==") for pin in pins if "==" in pin)
    return {name: found[name] for name in PACKAGES}
