"""What Grafana makes of a dashboard's queries before it sends them: variables and macros filled in.

Only what our dashboards use is known here; anything else raises, so that a dashboard cannot use what no test has run.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROMETHEUS, POSTGRESQL = "prometheus", "grafana-postgresql-datasource"
_VARIABLE = re.compile(r"\$\{(\w+)(?::(\w+))?\}|\$(\w+)")
_MACRO = re.compile(r"\$(__\w+)\(([^()]*(?:\([^()]*\)[^()]*)*)\)")


@dataclass(frozen=True)
class Query:
    """One query of a panel or of a variable."""

    where: str
    source: str
    text: str
    instant: bool = False


@dataclass(frozen=True)
class View:
    """What somebody looks at: a span of time (seconds since 1970) and the chosen values of the dashboard's variables."""

    start: float
    end: float
    values: Mapping[str, Sequence[str]]
    rate_interval: str = "1m"

    def promql(self, text: str) -> str:
        """With several values chosen, Grafana makes a regular expression of them."""
        known = {
            "__interval": ["15s"],
            "__rate_interval": [self.rate_interval],
            "__range": [f"{self.end - self.start:.0f}s"],
        }
        values = {**self.values, **known}

        def fill(match: re.Match[str]) -> str:
            chosen = values[match[1] or match[3]]
            assert match[2] is None, match[0]
            return chosen[0] if len(chosen) == 1 else f"({'|'.join(chosen)})"

        return _VARIABLE.sub(fill, text)

    def sql(self, text: str) -> str:
        """Macros as the PostgreSQL data source expands them; values as quoted lists."""

        def expand(match: re.Match[str]) -> str:
            name, column = match[1], match[2]
            if name == "__timeFilter":
                return f"{column} BETWEEN '{_iso(self.start)}' AND '{_iso(self.end)}'"
            if name == "__unixEpochNanoFilter":
                return f"{column} >= {self.start * 1e9:.0f} AND {column} <= {self.end * 1e9:.0f}"
            raise KeyError(name)

        def fill(match: re.Match[str]) -> str:
            assert match[2] == "sqlstring", f"{match[0]}: a value could end its quotes"
            return ",".join("'" + value.replace("'", "''") + "'" for value in self.values[match[1]])

        return _VARIABLE.sub(fill, _MACRO.sub(expand, text))


def _iso(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read(path: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that show something, not the rows between them."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def source_of(dashboard: dict[str, Any], named: dict[str, str]) -> str:
    """The kind of data source that a `datasource` entry leads to, by the dashboard's variables of type datasource."""
    choices = {f"${{{v['name']}}}": v["query"] for v in dashboard["templating"]["list"] if v["type"] == "datasource"}
    assert choices[named["uid"]] == named["type"], named
    return named["type"]


def queries(dashboard: dict[str, Any]) -> Iterator[Query]:
    """All queries of the panels and of the variables, as they are written."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = variable["query"]
            text = asked["query"] if isinstance(asked, dict) else asked
            assert variable["definition"] == text, variable["name"]
            yield Query(f"variable {variable['name']}", source_of(dashboard, variable["datasource"]), text)
    for panel in panels(dashboard):
        for target in panel["targets"]:
            source = source_of(dashboard, target["datasource"])
            assert target["datasource"] == panel["datasource"], panel["title"]
            where = f"panel {panel['id']} ({panel['title']}), query {target['refId']}"
            text = target["expr"] if source == PROMETHEUS else target["rawSql"]
            yield Query(where, source, text, bool(target.get("instant")))
