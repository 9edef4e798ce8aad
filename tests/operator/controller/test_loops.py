"""The controller's loops: contained, counted, seen when they hang, and no burden to a slow database."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import aiohttp
import kopf
import pytest
from kopf._core.engines.probing import health_reporter
from kubernetes.client.exceptions import ApiException

from stitchfleet.operator.controller import loops
from stitchfleet.operator.controller.command import handlers
from stitchfleet.operator.controller.loops import LONGEST_REST_SECONDS, ControlLoop, for_each
from stitchfleet.operator.controller.metrics import Metrics


def fail(error: Exception) -> Callable[[], None]:
    def look() -> None:
        raise error

    return look


def counted(metrics: Metrics, outcome: str) -> float | None:
    labels = {"loop": "reports", "outcome": outcome}
    return metrics.registry.get_sample_value("stitchfleet_controller_looks_total", labels)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ApiException(403, "Forbidden"), "reports: the API server answered 403 Forbidden"),
        (ZeroDivisionError("why"), "reports: ZeroDivisionError: why"),
    ],
)
def test_a_look_that_fails_is_told_and_counted_and_is_progress(
    error: Exception, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    metrics = Metrics()
    loop = ControlLoop("reports", fail(error), 60.0, 300.0, metrics)
    assert (counted(metrics, "ok"), counted(metrics, "error")) == (0.0, 0.0)
    loop.progress -= 1000
    assert loop.stalled()
    loop.once()
    assert not loop.stalled()
    assert told in capfd.readouterr().err
    assert (counted(metrics, "ok"), counted(metrics, "error")) == (0.0, 1.0)


def test_a_part_of_a_long_look_is_progress() -> None:
    loop = ControlLoop("reports", lambda: None, 60.0, 300.0, Metrics())
    loop.progress -= 1000
    loop.made_progress()
    assert not loop.stalled()


def test_one_look_that_had_to_wait_does_not_put_off_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection had gone silent: the look waited half a minute for it, and made a new one."""
    now, waits = [1000.0], iter([0.5, 30.0, 0.5, 30.0, 30.0, 30.0])
    monkeypatch.setattr(loops.time, "monotonic", lambda: now[0])

    def look() -> None:
        now[0] += next(waits)

    loop = ControlLoop("reports", look, 10.0, 300.0, Metrics())
    rests = []
    for _ in range(6):
        loop.once()
        rests.append(loop.rest)
    assert rests == pytest.approx([10.0, 10.0, 10.0, 10.0, 10.0, LONGEST_REST_SECONDS]), (
        "a slow database is asked less often"
    )


@pytest.mark.parametrize(("took", "rest"), [(0.1, 60.0), (10.0, 90.0), (1000.0, LONGEST_REST_SECONDS)])
def test_a_long_look_is_followed_by_a_long_rest_in_which_nothing_hangs(
    took: float, rest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(loops.time, "monotonic", lambda: now[0])

    def look() -> None:
        now[0] += took

    loop = ControlLoop("reports", look, 60.0, 300.0, Metrics())
    loop.once()
    assert loop.rest == pytest.approx(rest)
    now[0] += rest
    assert not loop.stalled()
    now[0] += 301
    assert loop.stalled()


def test_it_looks_again_at_once_when_asked_and_ends_when_cancelled() -> None:
    looks: list[float] = []

    async def run() -> None:
        loop = ControlLoop("reports", lambda: looks.append(time.monotonic()), 3600.0, 300.0, Metrics())
        loop.look_now()  # before it runs: nothing to wake
        task = asyncio.create_task(loop.run())
        for wanted in (1, 2):
            while len(looks) < wanted:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            loop.look_now()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(run(), 30))


def test_for_each_goes_on_and_raises_the_first_failure() -> None:
    done: list[int] = []

    def act(number: int) -> None:
        done.append(number)
        if number % 2:
            raise ValueError(number)

    with pytest.raises(ValueError, match=r"^1$"):
        for_each(range(5), act)
    assert done == [0, 1, 2, 3, 4]


def test_the_liveness_probe_fails_as_soon_as_one_loop_hangs() -> None:
    """Asked as the kubelet asks, of the server that kopf starts for the probe."""
    working, hanging = (ControlLoop(name, lambda: None, 60.0, 300.0, Metrics()) for name in ("reports", "roster"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/healthz"

    async def answers() -> list[int]:
        ready = asyncio.Event()
        registry = handlers((working, hanging))
        about = {"memo": kopf.Memo(), "indices": {}, "settings": kopf.OperatorSettings()}
        server = asyncio.create_task(health_reporter(url, registry=registry, ready_flag=ready, **about))  # type: ignore[arg-type]
        await ready.wait()
        hanging.progress -= 1000
        found = []
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                async with session.get(url) as answer:
                    found.append(answer.status)
                hanging.made_progress()
        server.cancel()
        await asyncio.wait({server})
        return found

    assert asyncio.run(asyncio.wait_for(answers(), 30)) == [500, 200]
