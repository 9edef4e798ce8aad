"""Shapes that never settle: which clusters are better left out of the stitched graph.

Each new shape of a cluster asks the compile service for a kernel; from the third on shapes share a binary
(codegen/cpu/many_shapes), so that a job whose batches change in length settles after some dozens. A cluster whose calls bring a new
shape nearly every time never does: the native registry stops asking (native/op/registry.h), and what is left is the cost of a call
that ends in the fallback. Such a cluster is left out by the next graph of the stitched arm; a program that has no others goes back to
plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..native.library import NativeLibrary

MOST_WITHOUT_KERNEL = 0.5
"""Share of a cluster's calls without a kernel to ask for, beyond which it is left out."""


def unsettled(native: NativeLibrary, signatures: Mapping[str, Iterable[int]]) -> set[str]:
    """The clusters to leave out. signatures: by cluster, those that it has asked kernels for."""
    found = set()
    for name, known in signatures.items():
        unsigned, gave_up, _ = native.cluster_statistics(name)
        if not gave_up:
            continue
        served = 0
        for signature in known:
            seen = native.statistics(signature)
            served += seen.fallback_calls + seen.verify_calls + seen.stitched_calls
        if unsigned > MOST_WITHOUT_KERNEL * (unsigned + served):
            found.add(name)
    return found
