import gzip
import json
from pathlib import Path

import pytest

from scripts import reference
from scripts.benchmark import markdown


def ratio(value: float) -> dict[str, float]:
    return {"value": value, "low": value / 1.1, "high": value * 1.1, "pairs": 4}


def result(contestant: str, median_ms: float, over: float | None) -> dict[str, object]:
    return {
        "contestant": contestant,
        "figures": {"median_ms": median_ms, "ratio_of_medians": over and ratio(over)},
    }


def race(earlier: bool) -> dict[str, object]:
    """Two workloads, of which XLA ran one."""
    sampler = [result("plain", 0.694, None), result("xla", 0.42, 1.65), result("stitched", 0.347, 2.0)]
    bert = [result("plain", 150.0, None), {"contestant": "xla", "figures": None}, result("stitched", 75.0, 2.0)]
    beside = {"sampler": {"by_median": ratio(1.21)}, "bert": {"by_median": ratio(2.0)}}
    return {
        "workloads": {"sampler": sampler, "bert": bert},
        "beside_the_better_of_plain_and_xla": beside,
        "beside_the_earlier_stitchfleet": {"bert": {"by_median": ratio(1.0)}} if earlier else {},
    }


def test_a_row_for_each_workload_and_the_means() -> None:
    lines = markdown.table(race(earlier=False))
    assert lines[2:] == [
        "| BERT, training | 150.0 | - | 75.0 | 2.00 (1.82 to 2.20) | 2.00 (1.82 to 2.20) |",
        "| Hamiltonian sampler | 0.69 | 0.42 | 0.35 | 2.00 (1.82 to 2.20) | 1.21 (1.10 to 1.33) |",
        "| geometric mean | | | | **2.00 (1.90 to 2.11)** | **1.56 (1.48 to 1.64)** |",
    ]


def test_a_race_beside_an_earlier_checkout_has_a_column_for_it() -> None:
    lines = markdown.table(race(earlier=True))
    assert [line.split("|")[-2].strip() for line in (lines[0], *lines[2:])] == [
        "earlier / stitched",
        "1.00 (0.91 to 1.10)",
        "-",
        "**1.00 (0.91 to 1.10)**",
    ]


def test_a_race_without_xla_has_no_columns_for_it() -> None:
    document = race(earlier=True)
    for results in document["workloads"].values():  # type: ignore[attr-defined]
        results[:] = [result for result in results if result["contestant"] != "xla"]
    lines = markdown.table(document)
    assert lines[0] == "| | plain ms | stitched ms | plain / stitched (95% interval) | earlier / stitched |"
    assert lines[2] == "| BERT, training | 150.0 | 75.0 | 2.00 (1.82 to 2.20) | 1.00 (0.91 to 1.10) |"


def test_a_page_has_the_table_of_the_file_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "race.json.gz").write_bytes(gzip.compress(json.dumps(race(earlier=False)).encode()))
    monkeypatch.setattr(reference, "RESULTS", tmp_path)
    page = "before\n<!-- table of race.json.gz -->\n| BERT, training | 1 |\n<!-- end of table -->\nafter\n"
    written = reference.with_tables(page)
    assert written.splitlines()[:3] == [
        "before",
        "<!-- table of race.json.gz -->",
        markdown.table(race(earlier=False))[0],
    ]
    assert written.splitlines()[-2:] == ["<!-- end of table -->", "after"]
    assert reference.with_tables(written) == written != page
