"""Ablations: fewer rules move more bytes, and are as right."""

from __future__ import annotations

import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.planning.plan import Plan, plan_graph
from stitchfleet.compiler.planning.rules import BY_NAME
from stitchfleet.compiler.targets.targets import V100

from ..emulated import SMALL, build_all
from ..library import LIBRARY, adam, layer_norm, layer_norm_gradient, softmax

TOLD = ("softmax", "layer_norm_gradient", "cross_entropy", "batch_norm", "adam", "argmax_rows", "crossed_rows")


def moved(plan: Plan) -> int:
    return sum(cost.bytes_read + cost.bytes_written for cost in plan.costs)


@pytest.mark.parametrize("name", LIBRARY)
def test_each_rule_adds_nothing_to_what_is_moved(name: str) -> None:
    plans = [plan_graph(LIBRARY[name](), V100, rules) for rules in BY_NAME.values()]
    bytes_moved = [moved(plan) for plan in plans]
    assert bytes_moved == sorted(bytes_moved, reverse=True)


def test_hierarchy_keeps_rows_on_the_chip_and_merging_reads_them_once() -> None:
    alone, stitched, merged = (plan_graph(softmax(64, 512), V100, rules) for rules in BY_NAME.values())
    assert (len(alone.levels), len(stitched.levels), len(merged.levels)) == (3, 1, 1)
    assert moved(merged) < 0.6 * moved(alone)
    gradient = [plan_graph(layer_norm_gradient(512, 256), V100, rules) for rules in BY_NAME.values()]
    assert moved(gradient[2]) < 0.5 * moved(gradient[1])  # rows and columns of the same tensors in one pass
    update = [plan_graph(adam([(64, 64), (64, 64)]), V100, rules) for rules in BY_NAME.values()]
    assert moved(update[2]) < 0.5 * moved(update[1])
    assert len(plan_graph(layer_norm(64, 256), V100, BY_NAME["all"]).nests) == 1


@pytest.mark.parametrize("rules", ["mapping", "hierarchy"])
def test_kernels_planned_with_fewer_rules_agree_with_the_oracle(rules: str) -> None:
    graphs = [LIBRARY[name]() for name in TOLD]
    for one in build_all(graphs, SMALL, rules=BY_NAME[rules]):
        assert one.complaint(Regime.NORMAL, seed=5) is None, one.graph.name
