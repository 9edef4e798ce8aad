"""What a platform team configures once for all its reports: which labels name a team and a cost centre, and the price of a
device-hour.

One JSON file; every field may be left out:

    {
      "team_label": "team",
      "model_label": "model",
      "cost_centre_label": "team",
      "cost_centres": {"nlp": "CC-1001", "vision": "CC-1002"},
      "currency": "EUR",
      "prices": {"NVIDIA A100-SXM4-40GB": 2.1, "cpu": 0.04}
    }

Prices are by device kind, for one device-hour. Labels are those that the job carried.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

MAX_PRICE = 10**9
VARIABLE = "STITCHFLEET_REPORT_CONFIGURATION"
"""The environment variable that names the file if no option does."""


class ConfigurationError(Exception):
    """A mistake in the file; the text says in one line what was given and what was expected."""


@dataclass(frozen=True)
class Configuration:
    """The defaults hold without a file: teams by the label `team`, no cost centres, no money."""

    team_label: str = "team"
    model_label: str = ""
    """Empty: a model is named by its fingerprint or, if that is unknown, by its job's name."""
    cost_centre_label: str = ""
    """Empty: the team's label."""
    cost_centres: Mapping[str, str] = field(default_factory=dict)
    """Cost centre by the label's value."""
    currency: str = ""
    prices: Mapping[str, float] = field(default_factory=dict)
    """Price of one device-hour, by device kind."""

    @functools.cached_property
    def _price_of(self) -> dict[str, float]:
        return {kind.lower(): price for kind, price in self.prices.items()}

    def price(self, device_kind: str) -> float | None:
        """Price of one device-hour of this kind, ignoring case; None if the file has none."""
        return self._price_of.get(device_kind.lower())

    def cost_centre(self, labels: Mapping[str, str]) -> str | None:
        """The cost centre of a job with these labels; None if the label is missing or its value has no cost centre."""
        return self.cost_centres.get(labels.get(self.cost_centre_label or self.team_label, ""))


def load(given: pathlib.Path | None) -> Configuration:
    """The configuration from the given file, else from the one that VARIABLE names, else the defaults. Raises ConfigurationError."""
    path = given if given is not None else pathlib.Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
    if path is None:
        return Configuration()
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"the configuration {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the configuration {path} is not UTF-8 text") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"the configuration {path}: {error}") from None


def parse(text: str) -> Configuration:
    """The configuration in the file's text. Raises ConfigurationError."""
    try:
        found = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"
        raise ConfigurationError(f"not JSON that can be read ({why})") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{_shown(found)} where a JSON object was expected")
    known = {spec.name for spec in fields(Configuration)}
    for name, value in found.items():
        if name not in known:
            raise ConfigurationError(f"{_shown(name)} is not a field; the fields are {', '.join(sorted(known))}")
        if name in ("cost_centres", "prices"):
            if not isinstance(value, dict):
                raise ConfigurationError(f"{name} is {_shown(value)}; a JSON object was expected")
        elif not isinstance(value, str):
            raise ConfigurationError(f"{name} is {_shown(value)}; a text was expected")
    for name, centre in found.get("cost_centres", {}).items():
        if not isinstance(centre, str) or not centre:
            raise ConfigurationError(f"the cost centre of {_shown(name)} is {_shown(centre)}; a text was expected")
    prices = found.get("prices", {})
    for kind, price in prices.items():
        if isinstance(price, bool) or not isinstance(price, (int, float)) or not 0 <= price <= MAX_PRICE:
            raise ConfigurationError(
                f"the price of {_shown(kind)} is {_shown(price)}; a number from 0 to {MAX_PRICE} was expected"
            )
    if len({kind.lower() for kind in prices}) < len(prices):
        raise ConfigurationError("a device kind has two prices (upper and lower case are one)")
    if prices and not found.get("currency"):
        raise ConfigurationError('there are prices and no currency; add one, like "currency": "EUR"')
    return Configuration(**found)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ConfigurationError(f"{_shown(name)} is there twice")
        found[name] = value
    return found


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
