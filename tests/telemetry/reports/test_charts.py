"""The charts: every mark inside its frame, nothing hidden, names as they are, and nothing in them that a browser would load."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.telemetry.pod.recording import PLAIN, STITCHED, UNCOUNTED
from stitchfleet.telemetry.reports import charts, thinning
from stitchfleet.telemetry.reports.charts import Bar, TrendPoint
from stitchfleet.telemetry.reports.thinning import Curve, Thinner

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


def curve(steps: list[int], arms: list[int], times: array[float], block: int = 1) -> Curve:
    """The curve of iterations, whose blocks have each so many; times in milliseconds."""
    thinner = Thinner(len(steps), charts.round_steps(steps[0], steps[-1]) if steps else ())
    for first in range(0, len(steps), block):
        mine = slice(first, first + block)
        runs = [[index, 1, arm] for index, arm in enumerate(arms[mine])]
        thinner.add(
            steps[first],
            1 if len(steps) < 2 else steps[1] - steps[0],
            runs,
            np.array(times[mine], "f4") * np.float32(1e3),
        )
    return thinner.finish()


def in_ms(time: float) -> float:
    """What is left of it after it was microseconds."""
    return float(np.float32(time) * np.float32(1e3) / np.float32(1e3))


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
    svg = charts.iterations_chart(curve([stride * k for k in range(len(arms))], arms, times), "i")
    drawn = [next(arm for arm, colour in charts.ARM_COLOURS.items() if colour in style) for *_, style in marks(svg)]
    assert sorted(drawn) == sorted(arms)


def test_many_iterations_are_thinned_without_hiding_the_rare_long_one() -> None:
    count = 60_000
    times = array("f", [10.0] * count)
    times[43_217] = 900.0
    found = curve(list(range(count)), [STITCHED] * count, times, block=4096)
    assert len(found.points) <= 9 * thinning.MAX_BUCKETS
    assert max(point.duration for point in found.points) == 900.0
    assert (found.above(thinning.edge(12.0)), found.above(thinning.edge(1000.0)), found.longest_ms) == (1, 0, 900.0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1e6, width=32)), min_size=1, max_size=40),
    st.integers(1, 200),
    st.integers(1, 500),
)
def test_thinning_keeps_what_a_sort_of_each_stretch_would(
    entries: list[tuple[int, float]], repeat: int, block: int
) -> None:
    entries = entries * repeat
    arms, times = [arm for arm, _ in entries], array("f", [time for _, time in entries])
    found = curve(list(range(len(arms))), arms, times, block)
    buckets = min(len(arms), thinning.MAX_BUCKETS) if len(arms) > 3 * thinning.MAX_BUCKETS else len(arms)
    expected = set[int]()
    for bucket in range(buckets):
        inside = range(bucket * len(arms) // buckets, (bucket + 1) * len(arms) // buckets)
        for arm in (PLAIN, STITCHED, UNCOUNTED):
            if members := sorted((k for k in inside if arms[k] == arm), key=lambda k: in_ms(times[k])):
                expected |= {members[0], members[len(members) // 2], members[-1]}
    assert {point.position for point in found.points} == expected
    high = thinning.edge(max(times) / 2 + 1)
    assert found.above(high) == sum(in_ms(time) > high for time in times)
    assert found.count == len(arms)


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
    # of a glyph that no font has, say; a ResourceWarning is of what another test left, which the garbage collector finds here
    assert [str(warning.message) for warning in recwarn if warning.category is not ResourceWarning] == []


def test_a_chart_is_the_same_each_time_and_shares_no_id_with_another() -> None:
    bars = [Bar("a", 1.0, 0.5, 1.5), Bar("b", 2.0, -1.0, 5.0)]
    one, again = (charts.savings_chart(bars, "GPU device-hours", "one") for _ in range(2))
    assert one == again

    def ids(svg: str) -> list[str]:
        return [element.attrib["id"] for element in ElementTree.fromstring(svg).iter() if "id" in element.attrib]

    other = charts.iterations_chart(curve([1, 2], [PLAIN, UNCOUNTED], array("f", [1.0, 2.0])), "two")
    assert len(ids(one)) == len(set(ids(one)))
    assert set(ids(one)) & set(ids(other)) == set()
    for element in ElementTree.fromstring(one).iter():
        assert element.get(HREF, "#").startswith("#"), "nothing is loaded from elsewhere"
