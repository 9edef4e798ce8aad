"""An operator's day: a slip, a bad spool or a strange database costs one line, and tells nobody a secret."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
import sqlalchemy as sa

from scripts.benchmark.postgres import PostgresServer
from stitchfleet.plugin.command import main
from stitchfleet.telemetry.database import access, partitions, places, schema
from stitchfleet.telemetry.database.errors import DatabaseError
from stitchfleet.telemetry.database.rows import rows_of_segment
from stitchfleet.telemetry.database.store import insert_rows
from stitchfleet.telemetry.ingest import serving
from stitchfleet.telemetry.pod import spool
from stitchfleet.telemetry.pod.recording import JobIdentity, Recorder
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, SHIPPING, Kind, Record, encode
from stitchfleet.telemetry.reports import configuration
from stitchfleet.telemetry.reports.printable import printable, spreadsheet_cell
from stitchfleet.telemetry.shipping import sender, shipper

from ...marks import slow
from ..conftest import query
from ..helpers import identity
from ..servers import TOKEN, ingest_server, post, request
from ..shipping.test_shipper import record_job
from .client import NOW_NS, event, identified, segment, steps, whole_job

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache folder of the user's."""
    for name in ("STITCHFLEET_DATABASE", "STITCHFLEET_CACHE", "STITCHFLEET_DATA", "STITCHFLEET_INGEST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shipper, "step_back", lambda nice: None)
    return tmp_path / "stitchfleet"


def upgraded(url: str) -> sa.Engine:
    engine = access.open_engine(url)
    access.upgrade(engine)
    return engine


def filled(url: str, **job: object) -> sa.Engine:
    engine = upgraded(url)
    rows, _ = rows_of_segment(whole_job(**job))  # type: ignore[arg-type]
    with access.writing(engine) as connection:
        insert_rows(connection, rows)
    return engine


# ---- number 17 and 18: databases that would fail later -----------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_in_another_encoding_is_refused_at_the_upgrade(
    postgres_server: PostgresServer, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"strange_{encoding.lower()}"
    with access.open_engine(postgres_server.url("postgres")).connect() as connection:
        autocommit = connection.execution_options(isolation_level="AUTOCOMMIT")
        autocommit.exec_driver_sql(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    url = postgres_server.url(name)
    for action in ("upgrade", "check"):
        assert main(["db", action, "--database", url]) != 0
        assert "UTF8" in "".join(capsys.readouterr())
    assert sa.inspect(access.open_engine(url)).get_table_names() == []


def test_a_role_that_may_make_no_tables_is_told_so_at_once(
    postgres_server: PostgresServer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = upgraded(postgres_server.new_database())
    with access.writing(owner) as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS writer")
        connection.exec_driver_sql("CREATE ROLE writer LOGIN")
        connection.exec_driver_sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO writer")
    url = owner.url.set(username="writer").render_as_string(False)
    with ingest_server(url, upgrade=False) as served:
        status, _, text = request(served.url, "GET", "/readyz")
        assert status == 503
        assert b"writer" not in text
        assert "the role writer may not make tables" in capsys.readouterr().err
        assert served.metrics()["stitchfleet_ingest_database_up"] == 0
    (tmp_path / "tokens").write_text(TOKEN)
    assert main(["ingest", "--port", "0", "--database", url, "--tokens", str(tmp_path / "tokens")]) == 2
    assert "GRANT" in capsys.readouterr().err
    assert main(["db", "check", "--database", url]) == 1
    with access.writing(owner) as connection:
        connection.exec_driver_sql("GRANT CREATE ON SCHEMA public TO writer")
    with access.open_engine(url).connect() as as_writer, pytest.raises(DatabaseError, match="does not own"):
        partitions.check_rights(as_writer)


# ---- number 19 ---------------------------------------------------------------------------------------------------------------


def test_a_long_name_costs_no_more_than_a_short_one() -> None:
    from stitchfleet.telemetry.totals.weekly import without_counts

    assert without_counts("bert-17") == without_counts("bert_20261121") == without_counts("bert.x7k2p-3") == "bert"
    assert without_counts("bert-large") == "bert-large"
    assert without_counts("-1") == ""
    began = time.perf_counter()
    assert without_counts("-1a" * 84 + "-") == "-1a" * 84 + "-"
    assert without_counts("a-" * 126) == "a-" * 126
    assert time.perf_counter() - began < 1


# ---- number 22: bad spools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "job",
    [{"rank": -1}, {"attempt": 20261124065541}, {"device_count": 3_000_000_000}, {"run_id": ""}, {"labels": [1]}],
    ids=lambda job: next(iter(job)),
)
def test_one_bad_spool_holds_up_none_of_the_others(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str], job: dict[str, object]
) -> None:
    bad = home / "records" / "a-bad-one"
    bad.mkdir(parents=True)
    about = identified(**job)  # type: ignore[arg-type]
    (bad / f"{1:010d}{SEALED}").write_bytes(segment(event(), about=about))
    (bad / f"{2:010d}{SEALED}").write_bytes(spool.MAGIC + encode(Record(Kind.EVENT, 9, b"{}")))
    (bad / spool.IDENTITY).write_bytes(encode(Record(Kind.IDENTITY, 0, about)))
    record_job(home / "records" / "good")
    for command in (["jobs"], ["report"], ["report", "--format", "json"]):
        assert main(command) == 0
        assert "bert-1" in capsys.readouterr().out
    assert not spool.segments(home / "records" / "good", OPEN, SEALED, SHIPPING)
    assert len(list(bad.glob("*.damaged"))) == 2, "kept for a person, and not read again"


def test_a_spool_whose_reading_fails_is_passed_by(home: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stitchfleet.telemetry.database import rows

    for name in ("a", "b", "c"):
        record_job(home / "records" / name, run_id=name)
    real = rows.rows_of_segment

    def fails(data: bytes, fallback: bytes | None = None) -> object:
        if b'"run_id":"b"' in data:
            raise ZeroDivisionError("a bug of ours")
        return real(data, fallback)

    monkeypatch.setattr(rows, "rows_of_segment", fails)
    assert main(["jobs"]) == 0
    assert query(places.database_url(None), "SELECT run_id FROM jobs ORDER BY run_id") == [("a",), ("c",)]
    assert spool.segments(home / "records" / "b", SEALED, SHIPPING), "it stays for a program that can"


VARIABLES = {
    "STITCHFLEET_RANK": "-1",
    "STITCHFLEET_ATTEMPT": "20261124065541",
    "STITCHFLEET_DEVICE_COUNT": "3000000000",
    "STITCHFLEET_WORLD_SIZE": "99999999",
    "STITCHFLEET_JOB_NAME": "n" * 5000,
    "STITCHFLEET_NAMESPACE": "s" * 500,
    "STITCHFLEET_CLUSTER": "c\udce9" + "l" * 500,
    "STITCHFLEET_IMAGE": "i" * 5000,
    "STITCHFLEET_USER": "caf\udce9",
    "STITCHFLEET_LABELS": ",".join(f"k{n}={'v' * 500}\udce9" for n in range(200)),
    "STITCHFLEET_DEVICE_KIND": "d" * 500,
    "STITCHFLEET_MODEL": "m" * 500,
}


@pytest.mark.parametrize("name", [*VARIABLES, None])
def test_what_the_environment_says_is_recorded_so_that_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, name: str | None
) -> None:
    """Innocent slips: the job keeps its measurements."""
    for variable, value in VARIABLES.items():
        if name in (variable, None):
            monkeypatch.setenv(variable, value)
    found = JobIdentity.from_environment("r" * 500)
    assert (found.rank, found.attempt) == (0, 0)
    recorder = Recorder(tmp_path / "spool", found)
    recorder.iteration(0, 0, 10**6)
    recorder.close(timeout_s=60)
    (path,) = spool.segments(tmp_path / "spool", SEALED)
    rows, _ = rows_of_segment(path.read_bytes())
    assert rows.damaged == []
    assert len(rows.tables["iteration_blocks"]) == 1
    body = next(spool.decode(path.read_bytes(), spool.Damage())).body
    assert schema.msgspec.json.decode(body, type=schema.Identity), "as it is, with nothing to mend"
    other = JobIdentity.from_environment("r" * 499)
    assert other.run_id != found.run_id, "cut keys are still different ones"


# ---- number 23: secrets ------------------------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "token", [f"{SECRET}\n{SECRET}", f"{SECRET}\r\nX: y", f"{SECRET} b", f"{SECRET}é", f"{SECRET}\0", SECRET * 2000]
)
def test_a_token_that_is_none_is_not_told(tmp_path: pathlib.Path, nobody: str, token: str) -> None:
    (tmp_path / "token").write_text(token)
    for environment in (
        {"STITCHFLEET_INGEST_TOKEN_FILE": str(tmp_path / "token")},
        {"STITCHFLEET_INGEST_TOKEN_FILE": str(tmp_path / "none"), "STITCHFLEET_INGEST_TOKEN": token},
    ):
        with pytest.raises(sender.SendError) as caught:
            sender.Sender(nobody, environment).post([b""])
        assert SECRET not in str(caught.value)
        assert "one token" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@nowhere.invalid/x?connect_timeout=1",
        f"postgresql://u@nowhere.invalid/x?password={SECRET}&connect_timeout=1",
        f"postgresql://u@nowhere.invalid/x?sslpassword={SECRET}&connect_timeout=1",
        f"postgresql:/u:{SECRET}@nowhere/x",
        f"postgresql:u:{SECRET}@nowhere/x",
        f"//u:{SECRET}@nowhere/x",
        f"postgresql://u:{SECRET}@nowhere:abc/x",
        f"postgresql://u:{SECRET}@nowhere:99999/x",
        f"mysql://u:{SECRET}@nowhere/x",
        f"postgresql://u:{SECRET}@[::1/x",
        f"postgresql://u@h/x?passwrd={SECRET}",
    ],
)
def test_a_database_that_cannot_be_used_tells_no_secret(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / f"{1:010d}{SEALED}").write_bytes(whole_job())
    before = set(tmp_path.rglob("*"))
    for command in (
        ["db", "upgrade", "--database", url], ["db", "check", "--database", url], ["jobs", "--database", url],
        ["report", "--database", url],
    ):  # fmt: skip
        assert main(command) == 2, command
        text = printed(capsys)
        assert SECRET not in text, command
        assert (text.count("\n"), "Traceback" in text) == (1, False), text
    assert shipper.main([str(tmp_path / "spool"), "--database", url]) == 1
    assert SECRET not in printed(capsys)
    new = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert not any(SECRET in name or "nowhere" in name for name in new)


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    shown = access.shown(f"postgresql://u:{SECRET}@h:5432/x?password={SECRET}&sslkey=/k&host=/run&SSLPASSWORD={SECRET}")
    assert SECRET not in shown
    assert all(part in shown for part in ("u:", "@h:5432/x", "host=%2Frun"))


@pytest.mark.parametrize(
    "url", [f"ftp://u:{SECRET}@h", f"http://h:{SECRET}", SECRET, f"https://u:{SECRET}@", f"http://h/{SECRET} x"]
)
def test_an_ingest_url_that_is_none_is_not_told(
    tmp_path: pathlib.Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shipper.main([str(tmp_path), "--ingest", url]) == 2
    text = printed(capsys)
    assert SECRET not in text
    assert "is no URL of an ingest server" in text


def test_a_file_whose_name_has_a_colon_can_be_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert places.database_url("./a:b.db") == "sqlite:///./a:b.db"
    assert places.database_url("/x/y@z.db") == "sqlite:////x/y@z.db"


# ---- number 24, 27: mistakes are one line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "99999"], "65535"),
        (["--port", "-1"], "65535"),
        (["--tls-key", "/k"], "--tls-certificate"),
        (["--tls-certificate", "/nowhere"], "No such file"),
        (["--pending-bytes", "5"], "one body"),
        (["--database", "postgresql://u@h:abc/x"], "not a database URL"),
    ],
)
def test_a_slip_with_the_server_is_one_line(
    tmp_path: pathlib.Path, sqlite_url: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    upgraded(sqlite_url).dispose()
    (tmp_path / "tokens").write_text(TOKEN)
    assert main(["ingest", "--database", sqlite_url, "--tokens", str(tmp_path / "tokens"), *words]) == 2
    err = capsys.readouterr().err
    assert (said in err, err.count("\n")) == (True, 1), err


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    with open("/dev/full", "wb") as full:
        return subprocess.run(
            [sys.executable, "-m", "stitchfleet.plugin.command", *words],
            stdout=full if environment.pop("FULL", "") else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )


def test_output_that_cannot_be_written_is_one_line(sqlite_url: str) -> None:
    filled(sqlite_url).dispose()
    for command in (["jobs"], ["report"], ["report", "--format", "csv"]):
        done = run(*command, "--database", sqlite_url, FULL="1")
        assert done.returncode == 2
        assert (done.stderr.count(b"\n"), b"No space left" in done.stderr) == (1, True), done.stderr


@pytest.mark.slow
def test_under_an_ascii_locale_documents_are_utf_8_and_tables_readable(sqlite_url: str, tmp_path: pathlib.Path) -> None:
    filled(sqlite_url, name="größe", started=NOW_NS).dispose()
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    page = run("report", "--database", sqlite_url, "--format", "html", **ascii_only)
    assert page.stderr == b""
    assert "größe" in page.stdout.decode("utf-8")
    table = run("report", "--database", sqlite_url, **ascii_only)
    assert (table.returncode, table.stderr) == (0, b"")
    assert b"gr??e" in table.stdout
    out = tmp_path / "page.html"
    assert (
        run("report", "--database", sqlite_url, "--format", "html", "--output", str(out), **ascii_only).returncode == 0
    )
    assert "größe" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("price", ["1" * 400, "1" * 5000, "1e999", "NaN", "-1", "true", "1e10"])
def test_a_price_that_is_none_is_one_line(price: str) -> None:
    with pytest.raises(configuration.ConfigurationError) as caught:
        configuration.parse(f'{{"currency": "EUR", "prices": {{"cpu": {price}}}}}')
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("named", ["abc", "", "0004x", "-1", "٣"])
def test_a_version_that_is_none_is_one_line(url: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    engine = upgraded(url)
    with access.writing(engine) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :named"), {"named": named})
    for command in (["db", "check"], ["db", "upgrade"], ["report"], ["db", "prune"]):
        assert main([*command, "--database", url]) != 0
        text = printed(capsys)
        assert (text.count("\n"), "not stitchfleet's" in text) == (1, True), text


def test_a_long_past_is_not_walked_through(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    filled(sqlite_url, started=0).dispose()
    assert main(["report", "--database", sqlite_url, "--trend-weeks", "1000000"]) == 2
    assert "520" in capsys.readouterr().err


# ---- number 25 ---------------------------------------------------------------------------------------------------------------


def test_names_reach_no_terminal_raw(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\x1b]52;c;eA==\x07a\nb\r\u202ec\u2066\x9b1m\u0085"
    engine = filled(
        sqlite_url, name=evil, namespace=evil, user=evil, device_kind=evil, labels={"team": evil}, run_id=evil
    )
    rows, _ = rows_of_segment(
        segment(event("plain", evil), event("reverted", evil), first=500, run_id="other", name=evil)
    )
    with access.writing(engine) as connection:
        insert_rows(connection, rows)
    for command in (
        ["jobs"],
        ["report"],
        ["report", "--format", "html"],
        ["report", "--format", "json"],
        ["jobs", "--json"],
    ):
        assert main([*command, "--database", sqlite_url]) == 0
        text = printed(capsys)
        assert not any(sign in text for sign in "\x1b\x07\r\u202e\u2066\x9b\u0085"), command
    assert main(["report", "--database", sqlite_url]) == 0
    lines = printed(capsys).splitlines()
    assert not any(line.startswith("b") and "c" in line[:4] for line in lines), "no line is of somebody's making"


def test_whoever_wrote_a_reason_writes_no_line_of_a_log(
    tmp_path: pathlib.Path, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    upgraded(sqlite_url).dispose()
    (tmp_path / "spool").mkdir()
    bad = tmp_path / "spool" / f"{1:010d}{SEALED}"
    bad.write_bytes(segment(event(), about=identified(rank=-1)))
    shipper.main([str(tmp_path / "spool"), "--database", sqlite_url])
    assert all(line.startswith("shipper: ") for line in printed(capsys).splitlines())


FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=cmd|' /c calc'!A0",
    " =1+1",
    "\u00a0=1",
    "＝1+1",
    "＋1",
    "－1",
    "＠a",
    "\x00=1",
    "\u200b=1",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text: str, sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert spreadsheet_cell(text) == f"'{text}"
    assert spreadsheet_cell(f"a{text}") == f"a{text}"
    filled(sqlite_url, name=text, started=NOW_NS).dispose()
    assert main(["report", "--database", sqlite_url, "--format", "csv"]) == 0
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""))
    assert line["name"].startswith("'" if "\0" not in text else "\ufffd"), (
        "a NUL is mended, and then no sign of a formula is first"
    )


def test_what_is_printable_stays() -> None:
    assert printable("größe 日本語 a-b_c") == "größe 日本語 a-b_c"
    assert printable("x" * 500, 10) == "x" * 9 + "…"


# ---- number 26 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_database_that_is_away_tells_nobody_where_it_is(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "PROBE_SECONDS", 0.0)
    url = postgres_server.new_database()
    with ingest_server(url) as served:
        assert post(served.url, segment(steps()))[0] == 200
        postgres_server.stop()
        try:
            texts = [
                request(served.url, "GET", "/readyz")[2].decode(),
                json.dumps(post(served.url, segment(steps()))[1]),
            ]
        finally:
            postgres_server.start()
        for text in texts:
            assert not any(
                word in text for word in (str(postgres_server.folder), "socket", "5432", "postgres", "connection")
            )
        assert str(postgres_server.folder) in capsys.readouterr().err, "the log says it"


# ---- number 28 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement", ["DROP TABLE events", "DROP VIEW weekly_savings", "ALTER TABLE events RENAME COLUMN kind TO sort"]
)
def test_a_missing_table_is_not_good(url: str, statement: str, capsys: pytest.CaptureFixture[str]) -> None:
    engine = upgraded(url)
    assert main(["db", "check", "--database", url]) == 0
    with access.writing(engine) as connection:
        connection.exec_driver_sql(statement)
    capsys.readouterr()
    assert main(["db", "check", "--database", url]) == 1
    out = capsys.readouterr().out
    assert "lacks" in out
    assert any(name in out for name in ("events", "weekly_savings"))


READ_ONLY = """
set -e
mount -t tmpfs none "$1"
cp "$2"/* "$1"
mount -o remount,ro "$1"
"$3" -m stitchfleet.plugin.command report --database "$1/telemetry.db"
"$3" -m stitchfleet.plugin.command jobs --database "$1/telemetry.db"
"$3" -m stitchfleet.plugin.command db check --database "$1/telemetry.db"
STITCHFLEET_DATABASE="$1/telemetry.db" "$3" -m stitchfleet.plugin.command report
"""


@pytest.mark.parametrize("closed_cleanly", [True, False])
def test_a_report_is_made_from_a_disk_that_cannot_be_written_to(tmp_path: pathlib.Path, closed_cleanly: bool) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "disk").mkdir()
    url = f"sqlite:///{tmp_path}/from/telemetry.db"
    engine = filled(url, started=NOW_NS)
    if closed_cleanly:
        engine.dispose()
    else:
        keeps_the_log = engine.connect()
        keeps_the_log.exec_driver_sql("SELECT count(*) FROM jobs").all()
        with access.writing(engine) as connection:
            connection.exec_driver_sql("UPDATE jobs SET host = 'x'")
    try:
        if subprocess.run(["unshare", "--mount", "true"]).returncode:
            pytest.skip("nothing can be mounted here")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    words = ["unshare", "--mount", "--propagation", "private", "bash", "-c", READ_ONLY, "bash"]
    done = subprocess.run(
        [*words, str(tmp_path / "disk"), str(tmp_path / "from"), sys.executable], capture_output=True, text=True
    )
    if closed_cleanly:
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("bert-1") >= 3
        assert "records in spools stay there" in done.stderr
    else:
        assert done.returncode == 2
        assert (done.stderr.count("\n"), "-wal" in done.stderr) == (1, True), done.stderr
        keeps_the_log.close()


# ---- number 29 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [f"{1:010d}{SEALED}", *map(slow, (spool.IDENTITY, f"{1:010d}{OPEN}", "shipper.lock", "owner.lock"))]
)
def test_a_pipe_in_a_spool_is_not_waited_for(home: pathlib.Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = home / "records" / "bad"
    record_job(bad)
    (bad / name).unlink(missing_ok=True)
    os.mkfifo(bad / name)
    record_job(home / "records" / "good", name="good-job")
    done = subprocess.run(
        [sys.executable, "-m", "stitchfleet.plugin.command", "jobs"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "good-job" in done.stdout


@pytest.mark.parametrize("name", ["shipper.lock", "owner.lock", spool.IDENTITY, f"{1:010d}.open", f"{1:010d}{SEALED}"])
def test_a_link_in_a_spool_makes_and_changes_nothing_elsewhere(
    home: pathlib.Path, tmp_path: pathlib.Path, name: str
) -> None:
    folder = home / "records" / "linked"
    folder.mkdir(parents=True)
    for target in ("missing", "there"):
        (tmp_path / "there").write_bytes(b"precious")
        (folder / name).symlink_to(tmp_path / target)
        try:
            Recorder(folder, identity()).close(timeout_s=60)
        except OSError:
            pass
        shipper.ship_all(home / "records", upgraded(places.database_url(None)))
        assert not (tmp_path / "missing").exists()
        assert (tmp_path / "there").read_bytes() == b"precious"
        shutil.rmtree(folder)
        folder.mkdir()
