"""Disjoint sets."""

from __future__ import annotations


class UnionFind:
    """Disjoint sets of 0..n-1 with path halving."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, i: int) -> int:
        """The representative of the set of i."""
        parent = self._parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def union(self, i: int, j: int) -> int:
        """Joins the sets of i and j. Returns the representative of the joined set: the smaller of the two old ones."""
        i, j = self.find(i), self.find(j)
        if j < i:
            i, j = j, i
        self._parent[j] = i
        return i
