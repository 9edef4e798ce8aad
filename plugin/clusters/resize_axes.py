"""Where the positions of a resized image's axis lie in the image, as TensorFlow's CPU kernels compute it, in float32.

Source: core/util/image_resizer_state.h, core/kernels/image/resize_bilinear_op.cc and resize_nearest_neighbor_op.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int32]]
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Axis:
    """Where the positions of one axis of the result lie in the image.

    extent: of the image. lower: the position before each, or the nearest. upper: that behind; None for the nearest. part: where
    between them it lies, from 0 to 1.
    """

    extent: int
    lower: Integers
    upper: Integers | None
    part: Floats

    @property
    def repeats(self) -> int | None:
        """How often each position is repeated, one after the other; None if that differs or they are interpolated."""
        times, rest = divmod(len(self.lower), self.extent)
        is_equal = self.upper is None and not rest and (self.lower == np.arange(self.extent).repeat(times)).all()
        return times if is_equal else None

    @property
    def most_taps(self) -> int:
        """The most positions of the result that are made from one of the image."""
        both = self.lower if self.upper is None else np.concatenate([self.lower, self.upper])
        return int(np.bincount(both).max())

    def taps(self) -> tuple[Integers, Floats]:
        """For each position of the image, (the positions of the result that are made from it, their weights), both
        [extent, most_taps]. Those that it lacks are position -1."""
        order = np.arange(len(self.lower), dtype=np.int32)
        one = np.float32(1)
        made = [(self.lower, one - self.part)] if self.upper is not None else [(self.lower, np.ones_like(self.part))]
        if self.upper is not None:
            made.append((self.upper, self.part))
        positions = np.full((self.extent, self.most_taps), -1, np.int32)
        weights = np.zeros(positions.shape, np.float32)
        for source in range(self.extent):
            entries = [(int(i), float(w[i])) for where, w in made for i in order[where == source]]
            for k, (i, weight) in enumerate(sorted(entries, key=lambda entry: entry[0])):
                positions[source, k], weights[source, k] = i, weight
        return positions, weights


def axis_of(image: int, result: int, is_nearest: bool, aligned: bool, centered: bool) -> Axis:
    """Where the positions of a result lie. image, result: extents of the axis. is_nearest: no interpolation. aligned, centered: the
    operator's attributes align_corners and half_pixel_centers."""
    half, scale = np.float32(0.5), np.float32(image) / np.float32(result)
    if aligned and result > 1:
        scale = np.float32(image - 1) / np.float32(result - 1)
    at = (np.arange(result, dtype=np.float32) + half * centered) * scale
    if centered and not is_nearest:
        at -= half
    last = image - 1
    if is_nearest:
        whole = np.floor(at)
        if aligned:
            whole += at - whole >= half  # roundf
        return Axis(image, np.minimum(whole.astype(np.int32), last), None, np.zeros_like(at))
    upper = np.minimum(np.ceil(at).astype(np.int32), last)
    lower = np.minimum(np.maximum(np.floor(at).astype(np.int32), 0), upper)
    return Axis(image, lower, upper, at - np.floor(at))
