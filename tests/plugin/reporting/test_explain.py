"""`stitchfleet explain SUMMARY.json`: a job's step in words and drawn."""

from __future__ import annotations

import json
import pathlib
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from stitchfleet.plugin.clusters import step_graph
from stitchfleet.plugin.clusters.clusters import find_clusters
from stitchfleet.plugin.clusters.step_blocks import make_step_graph
from stitchfleet.plugin.clusters.step_graph import CLUSTER, PRODUCT_BLOCK, STAYED, StepBlock, StepGraph
from stitchfleet.plugin.command import main
from stitchfleet.plugin.graph.placed_graph import OpDefinitions, PlacedGraph
from stitchfleet.plugin.graph.tf_ops import PRODUCT
from stitchfleet.plugin.job.program import ProgramPhase
from stitchfleet.plugin.reporting.step_picture import Repeat, draw, find_repeats

from ..conftest import RunJob

SVG = "{http://www.w3.org/2000/svg}"


def layered_step(layers: int) -> StepGraph:
    """A product and a gelu in each layer, then a softmax; a read of a variable before each product."""
    blocks: list[StepBlock] = []
    edges = []
    for layer in range(layers):
        scope = f"model/layer_{layer}"
        first = len(blocks)
        blocks += [
            StepBlock(STAYED, "", scope, 2 * layer, {"ReadVariableOp": 1}, ("Read",), "reads or writes a variable"),
            StepBlock(PRODUCT_BLOCK, f"{scope}/MatMul", scope, 2 * layer, {"MatMul": 1}, ("MatMul",), PRODUCT),
            StepBlock(CLUSTER, "gelu_0123456789", scope, 2 * layer + 1, {"Erf": 1, "Mul": 2}, ("a", "b", "c")),
        ]
        edges += [(first, first + 1), (first + 1, first + 2), *([(first - 1, first + 1)] if layer else [])]
    blocks.append(StepBlock(CLUSTER, "softmax_aaaaaaaaaa", "<model>", 2 * layers, {"Softmax": 1}, ("s",)))
    return StepGraph(tuple(blocks), (*edges, (len(blocks) - 2, len(blocks) - 1)))


def executable(fallback_us: float | None, kernel_us: float | None, calls: int, **changed: Any) -> dict[str, Any]:
    facts = {
        "kernel": "stitch_ab",
        "hlo": "/c/hlo/gelu.pb",
        "failure": "",
        "calls": {"fallback": 0, "verify": 0, "stitched": calls},
    }
    return {**facts, "fallback_us": fallback_us, "kernel_us": kernel_us, "error_over_tolerance": 0.25, **changed}


def write_summary(folder: pathlib.Path, step: StepGraph | None) -> pathlib.Path:
    path = folder / "summary.json"
    named = folder / "step-train.json"
    if step is not None:
        step.write(named, "train")
    gelu = {"name": "gelu_0123456789", "ops": {"Erf": 1, "Mul": 2}, "instances": 4, "scopes": [], "state": "stitched"}
    softmax = {"name": "softmax_aaaaaaaaaa", "ops": {"Softmax": 1}, "instances": 1, "scopes": [""], "state": "failed"}
    summary = {
        "format": 1,
        "run_id": "ab" * 16,
        "main": "train",
        "versions": {"tensorflow": "2.15.1"},
        "programs": [
            {
                "name": "train",
                "phase": "stitched",
                "reason": "",
                "steps": 100,
                "steps_stitched": 60,
                "step_graph": str(named),
                "phases": {"baseline": {"steps": 5, "median_ms": 20.0}},
                "saving": {
                    **{"plain_ms": 20.0, "stitched_ms": 10.0, "ratio": 2.0},
                    **{"relative": 0.5, "low": 0.4, "high": 0.6},
                },
            }
        ],
        "clusters": [
            {**gelu, "executables": [executable(100.0, 20.0, 30), executable(200.0, 40.0, 10)]},
            {**softmax, "executables": [executable(None, None, 0, kernel=None, failure="no such op")]},
        ],
        "stayed_out": {PRODUCT: {"MatMul": 4}, "reads or writes a variable": {"ReadVariableOp": 4}},
        "reverts": [],
    }
    path.write_text(json.dumps(summary))
    return path


def drawn_texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        (ProgramPhase.WARM_UP, "the job ended in its first steps"),
        (
            ProgramPhase.COMPILE,
            "the job ended while its kernels were being compiled; those that were done are kept for its next run",
        ),
        (ProgramPhase.VERIFY, "the job ended before its kernels were verified; they are kept for its next run"),
        (ProgramPhase.STITCHED, "too few pairs of plain and stitched blocks"),
    ],
)
def test_why_a_job_is_unmeasured_is_said(
    phase: ProgramPhase, why: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_summary(tmp_path, None)
    summary = json.loads(path.read_text())
    summary["programs"][0].update(phase=phase.value, saving=None)
    path.write_text(json.dumps(summary))
    assert main(["explain", str(path)]) == 0
    assert f"unmeasured ({why})" in capsys.readouterr().out.replace("\n", " ")


def test_a_job_is_explained_in_words(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(write_summary(tmp_path, None))]) == 0
    text = capsys.readouterr().out
    (line,) = (line for line in text.splitlines() if "gelu" in line)
    # 30 calls of 100 and 20 us, 10 of 200 and 40 us; four times a step (125 - 25) us
    assert line.split()[1:] == "4 3 stitched 125 us 25 us 0.40 ms 25.0% stitch_ab".split()
    assert "no such op" in text
    assert "20.00 ms plain, 10.00 ms stitched: 2.000x" in text
    assert "4  matrix product or convolution: 4 MatMul" in text
    assert "baseline" in text


def test_the_page_stands_alone_and_has_the_picture(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, picture = tmp_path / "p.html", tmp_path / "p.svg"
    summary = write_summary(tmp_path, layered_step(4))
    assert main(["explain", str(summary), "--html", str(page), "--svg", str(picture)]) == 0, capsys.readouterr().err
    html = page.read_text()
    assert picture.read_text().strip() in html
    assert not re.search(r"<script|<link|<img|src=|@import", html)
    assert "&lt;model&gt;" in html, "names are escaped"
    assert "<model>" not in html


def test_layers_that_repeat_are_drawn_once() -> None:
    texts = drawn_texts(draw(layered_step(4), {}))
    assert texts.count("gelu") == 1
    assert "x 4" in texts
    assert texts.count("softmax") == 1
    assert "stayed: 4 ReadVariableOp" in texts


def test_the_picture_tells_of_each_box() -> None:
    titles = [element.text or "" for element in ET.fromstring(draw(layered_step(2), {})).iter(f"{SVG}title")]
    (gelu,) = (title for title in titles if title.startswith("gelu"))
    assert "2 Mul" in gelu
    assert "model/layer_0" in gelu
    assert "model/layer_1" in gelu
    assert any("reads or writes a variable: 2 ReadVariableOp" in title for title in titles)


def test_an_empty_step_is_a_picture() -> None:
    assert drawn_texts(draw(StepGraph(), {})) == []


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("abcabcabcd", [Repeat(0, 3, 3)]),
        ("xababyabcabc", [Repeat(1, 2, 2), Repeat(6, 3, 2)]),
        ("aab", []),
        ("aaaa", [Repeat(0, 1, 4)]),
        ("", []),
    ],
)
def test_repeats_are_found(rows: str, found: list[Repeat]) -> None:
    assert find_repeats(rows) == found


def test_a_step_graph_is_read_back_as_it_was_written(tmp_path: pathlib.Path) -> None:
    layered_step(3).write(tmp_path / "s.json", "train")
    assert step_graph.read(tmp_path / "s.json") == layered_step(3)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent.json", None, "No such file"),
        ("other.json", '{"a": 1}', "JSON of something else"),
        ("cut.json", '{"format": 1, ', "not JSON"),
        ("newer.json", '{"format": 9, "programs": [], "clusters": [], "stayed_out": {}}', "format 9"),
        ("poor.json", '{"format": 1, "programs": [{}], "clusters": [], "stayed_out": {}}', "something missing"),
    ],
)
def test_a_foreign_file_is_one_line(
    name: str, text: str | None, words: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main(["explain", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_picture_without_a_step_graph_is_one_line(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(write_summary(tmp_path, None)), "--html", str(tmp_path / "p.html")]) == 2
    assert "step-train.json is not there" in capsys.readouterr().err
    assert not (tmp_path / "p.html").exists()


def test_a_step_graph_has_clusters_products_and_what_stayed() -> None:
    import tensorflow as tf

    with tf.Graph().as_default() as graph, tf.device("/device:CPU:0"):
        x = tf.compat.v1.placeholder(tf.float32, [4, 4], name="x")
        weights = tf.compat.v1.placeholder(tf.float32, [4, 4], name="weights")
        with tf.name_scope("layer"):
            turned = tf.math.angle(tf.complex(x, x), name="angle")
            y = tf.exp(turned) * tf.tanh(turned) + 1.0
        product = tf.matmul(tf.reshape(y, [4, 4]), weights, name="product")
        tf.stop_gradient(tf.nn.relu(product) * tf.exp(product) - 2.0, name="result")
    placed = PlacedGraph(graph.as_graph_def())
    plan = find_clusters(placed, OpDefinitions(), {"result"})
    step = make_step_graph(placed, plan, plan.clusters)
    kinds = [block.kind for block in step.blocks if block.kind != STAYED]
    assert kinds == [CLUSTER, PRODUCT_BLOCK, CLUSTER]
    upper, product_block, lower = (n for n, block in enumerate(step.blocks) if block.kind != STAYED)
    assert {(upper, product_block), (product_block, lower)} <= set(step.edges)
    assert (upper, lower) not in step.edges
    assert [step.blocks[n].level for n in (upper, product_block, lower)] == [0, 1, 2]
    names = {name for cluster in plan.clusters for name in (placed.nodes[i].name for i in cluster.members)}
    assert names.isdisjoint(plan.left_out_nodes)
    assert names | plan.left_out_nodes.keys() == {node.name for node in placed.nodes}, "each node has a place"
    stayed = [block for block in step.blocks if block.kind == STAYED]
    assert any("Angle" in block.ops and block.level == 0 and block.scope == "layer" for block in stayed)


@pytest.mark.slow
def test_a_real_job_can_be_explained_and_drawn(
    run_job: RunJob, warmed: None, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = run_job("loop.py", "60", "240")
    assert job.code == 0, job.err
    path, page = tmp_path / "copy.json", tmp_path / "p.html"
    path.write_text(json.dumps(job.summary))
    assert main(["explain", str(path), "--html", str(page)]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    program = job.summary["programs"][0]
    step = step_graph.read(pathlib.Path(program["step_graph"]))
    drawn = [block.name for block in step.blocks if block.kind == CLUSTER]
    assert len(drawn) == program["clusters"]
    for name in drawn:
        assert name in text
        assert name in page.read_text()
