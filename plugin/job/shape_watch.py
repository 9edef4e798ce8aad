"""Finds clusters whose shapes never settle; they are better left out of the stitched graph.

Each new shape of a cluster requests a kernel from the compile service. From the third shape on, shapes share a binary
(codegen/cpu/many_shapes), so a job whose batches change in length settles after some dozens of shapes. A cluster that gets a new
shape at nearly every call never settles: the native registry stops requesting kernels (native/op/registry.h), and each call only
pays for reaching the fallback. The next graph of the stitched arm leaves such a cluster out; a program that has no other clusters
goes back to plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..native.library import NativeLibrary

MOST_WITHOUT_KERNEL = 0.5
"""A cluster is left out if more than this share of its calls requested no kernel."""


def unsettled(native: NativeLibrary, signatures: Mapping[str, Iterable[int]]) -> set[str]:
    """The names of the clusters to leave out. signatures: cluster name -> the signatures for which it has requested kernels."""
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
