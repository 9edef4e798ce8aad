"""Breaks the kernels of a job and of its compile service as the environment says (broken_kernels.py)."""

import importlib.abc
import importlib.util
import os
import sys

import broken_kernels

COMPILER = "stitchfleet.compiler.pipeline.cpu"


class _Breaker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_break(module):  # type: ignore[no-untyped-def]
            run(module)
            kind, unchecked = os.environ.get(broken_kernels.BREAK, ""), broken_kernels.UNCHECKED in os.environ
            broken_kernels.break_kernels(module, kind, unchecked)

        spec.loader.exec_module = run_and_break
        return spec


sys.meta_path.insert(0, _Breaker())
