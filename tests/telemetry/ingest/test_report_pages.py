"""The weekly report over HTTP: shown to those who may get SavingsReports, to nobody else, and never in the way of batches."""

from __future__ import annotations

import asyncio
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.ingest import report_pages
from stitchfleet.telemetry.ingest.api_server import ApiServer as Client
from stitchfleet.telemetry.ingest.report_pages import MakeReport, PageError, Readers, ReportPages, made_by_process

from .. import synthetic
from ..servers import ApiServer, api_server, ingest_server, post, request
from .test_ingest import event, iterations, segment

WEEK = "2026-W48"
MAY = ("jane", "get", "savingsreports", "2026-w48")


@pytest.fixture
def api(tmp_path: pathlib.Path) -> Iterator[ApiServer]:
    with api_server() as found:
        (tmp_path / "own").write_text(found.own_token)
        found.add_person("janes", "jane")
        found.add_person("joes", "joe")
        found.allowed.add(MAY)
        yield found


def pages(api: ApiServer, tmp_path: pathlib.Path, make: MakeReport) -> ReportPages:
    said: list[str] = []
    return ReportPages(Readers(Client(api.url, tmp_path / "own", None)), make, said.append)


async def made(week: Week, format: str, revision: int | None) -> str:
    return f"{week} as {format}, revision {revision}"


def get(url: str, path: str, token: str = "janes") -> tuple[int, dict[str, str], str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    status, answered, text = request(url, "GET", path, headers=headers)
    return status, dict(answered), text.decode()


def test_who_may_get_the_report_sees_the_page(sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path) -> None:
    """A real one, of a real database."""
    with ingest_server(sqlite_url, pages=pages(api, tmp_path, made_by_process(sqlite_url))) as served:
        assert post(served.url, segment(iterations(), event()))[0] == 200
        week = Week.at(time.time_ns())
        api.allowed.add(("jane", "get", "savingsreports", str(week).lower()))
        status, headers, page = get(served.url, f"/reports/{week}")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert page.startswith("<!doctype html>")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Cache-Control"] == "private, no-store"
        assert get(served.url, f"/reports/{week}?format=json")[2].startswith("{")
        assert get(served.url, f"/reports/{week}?format=table")[2].startswith(f"Week {week}")


@pytest.mark.parametrize(
    ("path", "token", "status", "said"),
    [
        (f"/reports/{WEEK}", "", 401, "Bearer"),
        (f"/reports/{WEEK}", "unknown", 403, "does not know the token"),
        (f"/reports/{WEEK}", "joes", 403, "joe may not get savingsreports"),
        ("/reports/2026-W47", "janes", 403, "jane may not"),
        ("/reports/2026-W60", "janes", 400, "2026-W60"),
        ("/reports/%2e%2e%2fetc", "janes", 400, "week"),
        (f"/reports/{WEEK}?format=pdf", "janes", 400, "format is one of"),
        (f"/reports/{WEEK}?revision=0", "janes", 400, "revision is a number from 1 on"),
        (f"/reports/{WEEK}?revision=1;2", "janes", 400, "revision is a number from 1 on"),
        (f"/reports/{WEEK}?revision=1", "joes", 403, "joe may not get savingsreports"),
    ],
)
def test_nobody_else_sees_anything(
    sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path, path: str, token: str, status: int, said: str
) -> None:
    asked: list[str] = []

    async def make(week: Week, format: str, revision: int | None) -> str:
        asked.append(str(week))
        return "secret"

    with ingest_server(sqlite_url, pages=pages(api, tmp_path, make)) as served:
        answered = get(served.url, path, token)
        assert answered[0] == status
        assert said in answered[2]
    assert asked == []


@pytest.mark.slow
def test_a_revision_has_a_page_of_its_own_and_one_that_is_none_says_so(
    sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path
) -> None:
    engine = access.open_engine(sqlite_url)
    access.upgrade(engine)
    week, before = Week(2026, 48), Week(2026, 47)
    synthetic.fill(engine, week, weeks=2, jobs=5, frozen=1)
    api.allowed.add(("jane", "get", "savingsreports", str(before).lower()))
    with ingest_server(sqlite_url, pages=pages(api, tmp_path, made_by_process(sqlite_url))) as served:
        status, _, text = get(served.url, f"/reports/{before}?format=table&revision=1")
        assert (status, "revision 1)" in text) == (200, True)
        assert get(served.url, f"/reports/{before}?format=table&revision=2")[::2] == (
            404,
            f"{before} has no revision 2: the latest is 1\n",
        )
        assert get(served.url, f"/reports/{week}?format=table&revision=1")[::2] == (
            404,
            f"{week} has no revision 1: it is not frozen yet\n",
        )


def test_a_pods_token_for_ingest_opens_no_page(sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path) -> None:
    """It is for another audience, even if its account may get reports."""
    api.add("pods")
    api.allowed.add(("system:serviceaccount:team:default", "get", "savingsreports", "2026-w48"))
    with ingest_server(sqlite_url, pages=pages(api, tmp_path, made)) as served:
        assert get(served.url, f"/reports/{WEEK}", "pods")[0] == 403


def test_an_api_server_that_is_away_shows_nothing(sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path) -> None:
    api.failing = True
    with ingest_server(sqlite_url, pages=pages(api, tmp_path, made)) as served:
        status, headers, _ = get(served.url, f"/reports/{WEEK}")
        assert (status, headers["Retry-After"]) == (503, "10")


def test_a_right_that_is_taken_away_ends_within_half_a_minute(api: ApiServer, tmp_path: pathlib.Path) -> None:
    clock = [0.0]

    async def scenario() -> None:
        readers = Readers(Client(api.url, tmp_path / "own", None), lambda: clock[0])
        assert await readers.why_not("janes", "2026-w48") == ""
        api.allowed.clear()
        assert await readers.why_not("janes", "2026-w48") == ""
        clock[0] = report_pages.PERMISSION_SECONDS + 1
        assert "may not" in await readers.why_not("janes", "2026-w48")
        await readers.close()

    asyncio.run(scenario())


def test_many_who_want_one_page_wait_for_one_making_and_batches_for_none(
    sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path
) -> None:
    ready, count = threading.Event(), [0]

    async def make(week: Week, format: str, revision: int | None) -> str:
        count[0] += 1
        while not ready.is_set():
            await asyncio.sleep(0.01)
        return "page"

    answers: list[str] = []
    with ingest_server(sqlite_url, pages=pages(api, tmp_path, make)) as served:
        askers = [
            threading.Thread(target=lambda: answers.append(get(served.url, f"/reports/{WEEK}")[2])) for _ in range(5)
        ]
        for asker in askers:
            asker.start()
        assert post(served.url, segment(event()))[0] == 200
        ready.set()
        for asker in askers:
            asker.join()
        assert get(served.url, f"/reports/{WEEK}")[2] == "page"
    assert (answers, count[0]) == (["page"] * 5, 1)


def test_more_pages_than_may_wait_are_refused(
    sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_pages, "MOST_WAITING", 0)
    with ingest_server(sqlite_url, pages=pages(api, tmp_path, made)) as served:
        assert get(served.url, f"/reports/{WEEK}")[0] == 429


def test_a_page_that_cannot_be_made_is_told_in_the_log_and_made_again(
    sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "text.db").write_text("no database at all" * 100)
    found = pages(api, tmp_path, made_by_process(f"sqlite:///{tmp_path}/text.db"))
    with ingest_server(sqlite_url, pages=found) as served:
        assert get(served.url, f"/reports/{WEEK}")[::2] == (
            503,
            "the report cannot be made; the server's log says why\n",
        )
        found._make = made
        assert get(served.url, f"/reports/{WEEK}")[0] == 200


def test_a_page_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_pages, "MAKE_SECONDS", 0.0)
    with pytest.raises(PageError, match="within 0 s"):
        asyncio.run(made_by_process("sqlite://")(Week.parse(WEEK), "html", None))  # type: ignore[arg-type]
