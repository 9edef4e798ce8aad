"""The report's configuration: what it means, and one clear line for each mistake in it."""

from __future__ import annotations

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.telemetry.reports import configuration
from stitchfleet.telemetry.reports.configuration import Configuration, ConfigurationError, load, parse


def test_without_a_file_teams_go_by_their_label_and_nothing_has_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(configuration.VARIABLE, raising=False)
    assert load(None) == Configuration() == parse("{}")
    assert load(None).team_label == "team"
    assert load(None).price("cpu") is None


def test_the_option_goes_before_the_environment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("given", "environment"):
        (tmp_path / name).write_text(f'{{"team_label": "{name}"}}')
    monkeypatch.setenv(configuration.VARIABLE, str(tmp_path / "environment"))
    assert load(None).team_label == "environment"
    assert load(tmp_path / "given").team_label == "given"


def test_prices_are_of_a_device_kind_in_whatever_case() -> None:
    found = parse('{"currency": "EUR", "prices": {"NVIDIA A100": 2.5, "cpu": 0}}')
    assert found.price("nvidia a100") == 2.5
    assert found.price("CPU") == 0.0
    assert found.price("NVIDIA A10") is None


def test_a_cost_centre_goes_by_its_own_label_or_the_teams() -> None:
    centres = '"cost_centres": {"nlp": "CC-1", "4711": "CC-2"}'
    assert parse(f"{{{centres}}}").cost_centre({"team": "nlp", "project": "4711"}) == "CC-1"
    assert (
        parse(f'{{{centres}, "cost_centre_label": "project"}}').cost_centre({"team": "nlp", "project": "4711"})
        == "CC-2"
    )
    assert parse(f"{{{centres}}}").cost_centre({"team": "other"}) is None
    assert parse(f"{{{centres}}}").cost_centre({}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1, column 1: not JSON"),
        ('{"team_label": "x",}', "not JSON"),
        ("[1]", "[1] where a JSON object was expected"),
        ('{"team": "x"}', '"team" is not a field; the fields are cost_centre_label, cost_centres, currency'),
        ('{"team_label": 3}', "team_label is 3; a text was expected"),
        ('{"prices": [2]}', "prices is [2]; a JSON object was expected"),
        ('{"cost_centres": {"nlp": 1001}}', 'the cost centre of "nlp" is 1001; a text was expected'),
        (
            '{"currency": "EUR", "prices": {"cpu": -1}}',
            'the price of "cpu" is -1; a number from 0 to 1000000000 was expected',
        ),
        ('{"currency": "EUR", "prices": {"cpu": NaN}}', 'the price of "cpu" is NaN'),
        ('{"currency": "EUR", "prices": {"cpu": "2"}}', 'the price of "cpu" is "2"'),
        ('{"currency": "EUR", "prices": {"cpu": true}}', 'the price of "cpu" is true'),
        ('{"currency": "EUR", "prices": {"cpu": 1, "CPU": 2}}', "a device kind has two prices"),
        ('{"currency": "EUR", "prices": {"cpu": 1, "cpu": 2}}', '"cpu" is there twice'),
        ('{"prices": {"cpu": 1}}', "there are prices and no currency"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_mistake_says_what_was_given_and_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"team_label": "\xe9"}')
    (tmp_path / "bad").write_text("{")
    for name, said in (("missing", "No such file"), ("", "directory"), ("latin", "not UTF-8"), ("bad", "not JSON")):
        with pytest.raises(ConfigurationError, match=said) as caught:
            load(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.dictionaries(st.text(), inner))
)
def test_whatever_json_it_is_the_answer_is_a_configuration_or_one_line(found: object) -> None:
    for document in (found, {"prices": found}, {"cost_centres": found, "currency": found}):
        try:
            parse(json.dumps(document))
        except ConfigurationError as error:
            assert "\n" not in str(error)  # noqa: PT017
