"""A whole job beside the fleet's ingest server: what it measured arrives, and a server that is not there costs it nothing."""

from __future__ import annotations

import pathlib
import socket

from stitchfleet.plugin.base.settings import read_settings
from stitchfleet.plugin.job.records import shipping_words
from tests.telemetry.conftest import query
from tests.telemetry.servers import TOKEN, ingest_server

from ..conftest import RunJob


def test_a_job_sends_to_the_server_that_its_environment_names(run_job: RunJob, tmp_path: pathlib.Path) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    who = {"STITCHFLEET_NAMESPACE": "vision", "STITCHFLEET_LABELS": "team=eyes", "STITCHFLEET_RUN_ID": "a" * 32}
    with ingest_server(url) as served:
        done = run_job(
            "loop.py",
            "60",
            mode="observe",
            environment={"STITCHFLEET_INGEST": served.url, "STITCHFLEET_INGEST_TOKEN": TOKEN, **who},
        )
        assert served.metrics()["stitchfleet_ingest_rejections_total.token_missing"] == 0
    assert done.code == 0, done.err
    assert "shipper" not in done.err
    assert query(url, "SELECT run_id, namespace, labels FROM jobs") == [("a" * 32, "vision", '{"team": "eyes"}')]
    assert query(url, "SELECT phase <> '' FROM job_ends") == [(1,)], "its last word is there when the command ends"
    ((steps,),) = query(url, "SELECT count(*) FROM iterations")
    assert isinstance(steps, int)
    assert steps > 10
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nowhere = f"http://127.0.0.1:{listener.getsockname()[1]}"
    alone = run_job("loop.py", "60", mode="observe", environment={"STITCHFLEET_INGEST": nowhere})
    assert (alone.code, alone.result) == (0, done.result)
    assert "stitchfleet: shipper: stays in the spool: the ingest server cannot be reached" in alone.err
    assert alone.summary["records"]["lost"] == 0
    assert list(pathlib.Path(alone.summary["records"]["folder"]).glob("*.sealed")), "it stays in the spool"


def test_the_ingest_server_goes_before_the_database() -> None:
    def words(**environment: str) -> tuple[str, ...]:
        return shipping_words(read_settings(environment, print))

    assert words() == ()
    keep = ("--keep-days", "30")
    assert words(STITCHFLEET_DATABASE="x.db") == ("--database", "x.db", *keep)
    assert words(STITCHFLEET_DATABASE="x.db", STITCHFLEET_INGEST="http://i") == ("--ingest", "http://i", *keep)
    assert words(STITCHFLEET_INGEST="http://i", STITCHFLEET_SPOOL_DAYS="0.5")[-1] == "0.5"
