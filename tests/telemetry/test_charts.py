"""The charts: every mark inside its frame, nothing hidden, names as they are, and nothing in them that a browser would load."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.telemetry import charts
from stitchfleet.telemetry.charts import Bar, TrendPoint
from stitchfleet.telemetry.details import Detail
from stitchfleet.telemetry.recording import PLAIN, STITCHED, UNCOUNTED

HREF = "{http://www.w3.org/1999/xlink}href"


def marks(svg: str) -> list[tuple[float, float, str]]:
    """(x, y, style) of each mark that is no axis tick; fails where one lies outside the drawing."""
    root = ElementTree.fromstring(svg)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    found = []
    for use in root.iter("{http://www.w3.org/2000/svg}use"):
        x, y, style = float(use.get("x", "nan")), float(use.get("y", "nan")), use.get("style", "")
        assert 0 <= x <= width
        assert 0 <= y <= height
        if charts.QUIET not in style and "#8a94a3" not in style:
            found.append((x, y, style))
    return found


values = st.floats(-1e6, 1e6)


@settings(max_examples=15)
@given(st.lists(st.tuples(values, st.floats(0, 1e5), st.floats(0, 1e5)), min_size=1, max_size=6))
def test_the_chart_of_savings_has_a_mark_for_each_in_the_order_of_their_values(
    entries: list[tuple[float, float, float]],
) -> None:
    bars = [Bar(f"job {k}", v, v - below, v + above) for k, (v, below, above) in enumerate(entries)]
    found = sorted(marks(charts.savings_chart(bars, "CPU device-hours", "s")), key=lambda mark: mark[1])
    assert len(found) == len(bars)
    for (x, _, style), bar in zip(found, bars, strict=True):
        loss, gain = charts.LOSS_COLOUR in style, charts.STITCHED_COLOUR in style
        assert (loss, gain) == (bar.high < 0, bar.low > 0)
        assert all(x <= other + 0.01 for (other, *_), more in zip(found, bars, strict=True) if more.value >= bar.value)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1e7, width=32)), max_size=40), st.integers(1, 9))
def test_the_chart_of_iterations_has_a_mark_for_each(entries: list[tuple[int, float]], stride: int) -> None:
    arms, times = [arm for arm, _ in entries], array("f", [time for _, time in entries])
    svg = charts.iterations_chart(Detail([stride * k for k in range(len(arms))], arms, times), "i")
    drawn = [next(arm for arm, colour in charts.ARM_COLOURS.items() if colour in style) for *_, style in marks(svg)]
    assert sorted(drawn) == sorted(arms)


def test_many_iterations_are_thinned_without_hiding_the_rare_long_one() -> None:
    count = 60_000
    times = array("f", [10.0] * count)
    times[43_217] = 900.0
    points = charts.thinned(Detail(list(range(count)), [STITCHED] * count, times))
    assert len(points) <= 9 * charts.MAX_BUCKETS
    assert max(point.duration for point in points) == 900.0


def test_a_week_without_a_measurement_is_a_gap_and_an_open_week_is_hollow() -> None:
    points = [
        TrendPoint("2026-W45", 3.0, 2.0, 4.0, False),
        TrendPoint("2026-W46", None, 0.0, 0.0, False),
        TrendPoint("2026-W47", 5.0, 4.0, 6.0, True),
    ]
    svg = charts.trend_chart(points, "GPU device-hours", "t")
    fills = [charts.STITCHED_COLOUR in style.partition("stroke")[0] for *_, style in sorted(marks(svg))]
    assert fills == [True, False]
    assert "2026-W46" in svg


def test_the_bars_of_coverage_are_as_long_as_their_shares() -> None:
    root = ElementTree.fromstring(charts.coverage_chart([("GPU jobs", 60, 30, 10), ("CPU jobs", 0, 0, 4)], "c"))
    widths = {}
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        numbers = [float(word) for word in path.get("d", "").split() if word not in "MLz"]
        widths.setdefault(path.get("style", ""), []).append(max(numbers[::2]) - min(numbers[::2]))
    measured, unmeasured = (next(w for s, w in widths.items() if c in s) for c in (charts.STITCHED_COLOUR, "#e0b050"))
    # the longest of each colour is the bar; the legend's is shorter
    assert max(measured) == pytest.approx(2 * max(unmeasured), rel=0.01)


@pytest.mark.parametrize(
    "name", ["<b>&amp;", "$\\frac{1}{0}$", "a\nb\x00c", "日本語", "x" * 200, "100% {style}", "]]>"]
)
def test_a_name_is_drawn_as_it_is(name: str, recwarn: pytest.WarningsRecorder) -> None:
    svg = charts.savings_chart([Bar(name, 1.0, 0.5, 1.5)], "GPU device-hours", "n")
    texts = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert charts.label(name) in texts
    assert [str(warning.message) for warning in recwarn] == []


def test_a_chart_is_the_same_each_time_and_shares_no_id_with_another() -> None:
    bars = [Bar("a", 1.0, 0.5, 1.5), Bar("b", 2.0, -1.0, 5.0)]
    one, again = (charts.savings_chart(bars, "GPU device-hours", "one") for _ in range(2))
    assert one == again

    def ids(svg: str) -> list[str]:
        return [element.attrib["id"] for element in ElementTree.fromstring(svg).iter() if "id" in element.attrib]

    other = charts.iterations_chart(Detail([1, 2], [PLAIN, UNCOUNTED], array("f", [1.0, 2.0])), "two")
    assert len(ids(one)) == len(set(ids(one)))
    assert set(ids(one)) & set(ids(other)) == set()
    for element in ElementTree.fromstring(one).iter():
        assert element.get(HREF, "#").startswith("#"), "nothing is loaded from elsewhere"
