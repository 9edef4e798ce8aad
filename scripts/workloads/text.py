"""Real text for the language workloads: the sources and documentation of the Python standard library on this machine."""

from __future__ import annotations

import collections
import pathlib
import re
import sysconfig

import numpy as np

PADDING, UNKNOWN, MASK, FIRST_WORD = 0, 1, 2, 3
WORD = re.compile(r"\w+|[^\w\s]")


def read_words(limit: int = 1_500_000) -> list[str]:
    """The first `limit` words and punctuation marks of the standard library's modules, in order of the file names."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    words: list[str] = []
    for path in sorted(root.glob("*.py")):
        words += WORD.findall(path.read_text(encoding="utf-8", errors="replace").lower())
        if len(words) >= limit:
            break
    return words[:limit]


def token_windows(vocabulary_size: int, length: int) -> np.ndarray:
    """Token ids, int32 [windows, length]: the text cut into windows, its most frequent words numbered from FIRST_WORD on."""
    words = read_words()
    frequent = collections.Counter(words).most_common(vocabulary_size - FIRST_WORD)
    ids = {word: i for i, (word, _) in enumerate(frequent, FIRST_WORD)}
    tokens = np.fromiter((ids.get(word, UNKNOWN) for word in words), np.int32, len(words))
    windows = len(tokens) // length
    return tokens[: windows * length].reshape(windows, length)
