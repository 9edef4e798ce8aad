"""The data that the workloads are fed with: real text, and pictures and behaviours that are what they claim to be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

from .conftest import SCRIPTS


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """scripts/workloads/text.py, which needs no TensorFlow."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield importlib.import_module("text")
    sys.modules.pop("text", None)


def test_words_and_punctuation_are_cut_apart(text: ModuleType) -> None:
    assert text.words_of("Return x[0]; it's 1_000.") == "return x [ 0 ] ; it ' s 1_000 .".split()


def test_the_most_frequent_words_have_numbers_and_the_rest_is_unknown(text: ModuleType) -> None:
    ids = text.number_words("a b a c a b d".split(), vocabulary_size=text.FIRST_WORD + 2)
    assert ids == {"a": text.FIRST_WORD, "b": text.FIRST_WORD + 1}
    tokens = text.tokens_of("b d a".split(), ids)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [text.FIRST_WORD + 1, text.UNKNOWN, text.FIRST_WORD]


def test_windows_are_the_text_in_its_order(text: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "read_words", lambda: list("abcdefg"))
    windows = text.token_windows(100, 3)
    assert windows.shape == (2, 3)  # what does not fill a window is dropped
    assert len(set(windows.ravel().tolist())) == 6


def test_a_docstring_is_told_apart_from_its_code(text: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = '''
class Thing:
    def first(self, x):
        """Adds one.

        Really."""
        y = x + 1
        return y

    def undocumented(self):
        return 2

def only_documented():
    """Nothing else."""
'''
    monkeypatch.setattr(text, "modules", lambda: iter([module]))
    ((documentation, code),) = text.documented_code()
    assert documentation == "Adds one.\n\nReally."
    assert "Adds one" not in code
    assert text.words_of(code) == "def first ( self , x ) : y = x + 1 return y".split()


@pytest.mark.slow
def test_the_standard_library_gives_enough_text(text: ModuleType) -> None:
    found = list(text.documented_code())
    assert len(found) > 1000
    assert len(text.read_words(100_000)) == 100_000
