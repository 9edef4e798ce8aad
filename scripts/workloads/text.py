"""Real text for the language workloads: the sources and documentation of the Python standard library on this machine."""

from __future__ import annotations

import ast
import collections
import pathlib
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

PADDING, UNKNOWN, MASK, FIRST_WORD = 0, 1, 2, 3
WORD = re.compile(r"\w+|[^\w\s]")


def modules() -> Iterator[str]:
    """The sources of the standard library's modules, in order of the file names."""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text, in lower case."""
    return WORD.findall(text.lower())


def read_words(limit: int = 1_500_000) -> list[str]:
    """The first `limit` words and punctuation marks of the modules."""
    words: list[str] = []
    for module in modules():
        words += words_of(module)
        if len(words) >= limit:
            break
    return words[:limit]


def number_words(words: Iterable[str], vocabulary_size: int) -> dict[str, int]:
    """The most frequent words -> numbers from FIRST_WORD to at most vocabulary_size - 1, the most frequent first."""
    frequent = collections.Counter(words).most_common(vocabulary_size - FIRST_WORD)
    return {word: i for i, (word, _) in enumerate(frequent, FIRST_WORD)}


def tokens_of(words: Sequence[str], ids: dict[str, int]) -> np.ndarray:
    """The numbers of words, int32 [words]; UNKNOWN for a word without a number."""
    return np.fromiter((ids.get(word, UNKNOWN) for word in words), np.int32, len(words))


def token_windows(vocabulary_size: int, length: int) -> np.ndarray:
    """Token ids, int32 [windows, length]: the text of `read_words` cut into windows of `length` words, without overlap."""
    words = read_words()
    tokens = tokens_of(words, number_words(words, vocabulary_size))
    windows = len(tokens) // length
    return tokens[: windows * length].reshape(windows, length)


def padded_functions(vocabulary_size: int, length: int, shortest: int = 8) -> np.ndarray:
    """Token ids, int32 [functions, length]: the code of each documented function of at least `shortest` words, cut or padded to
    `length`. Half of the functions have fewer than 50 words: at a length of 128, half of all positions are padding."""
    found = [words for _, code in documented_code() if len(words := words_of(code)) >= shortest]
    ids = number_words((word for words in found for word in words), vocabulary_size)
    rows = np.full([len(found), length], PADDING, np.int32)
    for row, words in zip(rows, found):
        row[: len(words)] = tokens_of(words[:length], ids)
    return rows


def documented_code() -> Iterator[tuple[str, str]]:
    """(docstring, source without it) of each documented function."""
    for module in modules():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old escapes in the library's own strings
            tree = ast.parse(module)
        lines = module.splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or len(node.body) < 2:
                continue
            documentation = ast.get_docstring(node)
            if documentation:
                head, body = (
                    lines[node.lineno - 1 : node.body[0].lineno - 1],
                    lines[node.body[0].end_lineno : node.end_lineno],
                )
                yield documentation, "\n".join(head + body)
