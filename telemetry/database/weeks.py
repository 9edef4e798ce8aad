"""ISO weeks in UTC, the periods of the report."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

from ..pod.recording import DAY_NS

_EPOCH = datetime.date(1970, 1, 1)
FIRST_YEAR, LAST_YEAR = 1970, 2261
"""Years in which all nanoseconds since 1970 fit 64-bit integers, as in the database."""


@dataclass(frozen=True, order=True)
class Week:
    """An ISO 8601 week in UTC, from Monday 00:00 to the next Monday 00:00."""

    year: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Week:
        """The week written as YYYY-Www. Raises ValueError, which says what was expected."""
        match = re.fullmatch(r"(\d{4})-?[Ww](\d{2})", text.strip())
        try:
            if match is None or not FIRST_YEAR <= int(match[1]) <= LAST_YEAR:
                raise ValueError
            datetime.date.fromisocalendar(int(match[1]), int(match[2]), 1)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a week; write it as YYYY-Www, like 2026-W07, in the years {FIRST_YEAR} to {LAST_YEAR}"
            ) from None
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def at(cls, time_ns: int) -> Week:
        """The week of a moment, in nanoseconds since 1970."""
        return cls.of_day(time_ns // DAY_NS)

    @classmethod
    def of_day(cls, day: int) -> Week:
        """The week of a day, in days since 1970."""
        calendar = (_EPOCH + datetime.timedelta(days=day)).isocalendar()
        return cls(calendar.year, calendar.week)

    def __str__(self) -> str:
        return f"{self.year:04d}-W{self.number:02d}"

    @property
    def monday(self) -> datetime.date:
        """The week's Monday."""
        return datetime.date.fromisocalendar(self.year, self.number, 1)

    @property
    def first_day(self) -> int:
        """Monday, in days since 1970."""
        return (self.monday - _EPOCH).days

    @property
    def end_day(self) -> int:
        """The next Monday, in days since 1970."""
        return self.first_day + 7

    @property
    def start_ns(self) -> int:
        """The start of Monday, in nanoseconds since 1970."""
        return self.first_day * DAY_NS

    @property
    def end_ns(self) -> int:
        """The start of the next Monday, in nanoseconds since 1970."""
        return self.end_day * DAY_NS

    @property
    def in_words(self) -> str:
        """For example "16 to 22 November 2026"."""
        sunday = self.monday + datetime.timedelta(days=6)
        if sunday.year != self.monday.year:
            return f"{self.monday:%-d %B %Y} to {sunday:%-d %B %Y}"
        if sunday.month != self.monday.month:
            return f"{self.monday:%-d %B} to {sunday:%-d %B %Y}"
        return f"{self.monday.day} to {sunday:%-d %B %Y}"
