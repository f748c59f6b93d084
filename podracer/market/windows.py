"""Three ordered windows: train, selection (all tournament decisions), lockbox (opened at the end).

A window is a range of bars [start, stop). An agent decides at the closes start … stop - 2; its
orders fill one bar later. The first decision is made at the close of the first session, on daily and
on shorter bars alike; the daily returns are those of the sessions after it, the first of them
measured from the initial capital.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, NonNegativeInt, model_validator

from podracer.errors import ConfigError
from podracer.market.sessions import session_ends
from podracer.settings import Settings

MINIMUM_SESSIONS = 60
_DATES = re.compile(r"(\d{4}-\d\d-\d\d) *\.\. *(\d{4}-\d\d-\d\d)")
_LENGTH = re.compile(r"(\d+) *([ym])")


def _check_span(text: str) -> str:
    if not (_DATES.fullmatch(text) or _LENGTH.fullmatch(text)):
        raise ValueError(
            f"expected dates as '2005-01-01 .. 2012-12-31' or a length as '8y' or '18m', got {text!r}"
        )
    for day in re.findall(r"\d{4}-\d\d-\d\d", text):
        try:
            date.fromisoformat(day)
        except ValueError as error:
            raise ValueError(f"{day} is no date: {error}") from error
    return text


Span = Annotated[str, AfterValidator(_check_span)]


class WindowSettings(Settings):
    """Where training ends, selection happens, and the lockbox begins."""

    train: Span = Field(description="Window the agents are trained on: dates or a length.")
    selection: Span = Field(description="Window of every tournament decision: dates or a length.")
    lockbox: Span = Field(description="Window opened once, after the winner is picked.")
    end: date | Literal["latest"] = Field(
        "latest", description="Last session of windows given as lengths."
    )
    embargo_sessions: NonNegativeInt = Field(
        60, description="Sessions cut from the start of the selection and the lockbox window."
    )

    @model_validator(mode="after")
    def _one_form(self) -> "WindowSettings":
        forms = {bool(_DATES.fullmatch(s)) for s in (self.train, self.selection, self.lockbox)}
        if len(forms) > 1:
            raise ValueError("give all three windows as dates, or all three as lengths")
        return self


@dataclass(frozen=True)
class Window:
    """Bars start … stop - 1 of a market; `start` is the last bar of the window's first session.

    Attributes:
        num_sessions: how many sessions they belong to; every bar is one if None.
    """

    name: str
    start: int
    stop: int
    num_sessions: int | None = None

    @property
    def num_bars(self) -> int:
        """Bars of the window."""
        return self.stop - self.start

    @property
    def num_returns(self) -> int:
        """R, daily returns of the window."""
        return (self.num_sessions or self.num_bars) - 1

    def return_dates(self, dates_D: np.ndarray) -> np.ndarray:
        """Return the sessions of the window's daily returns: all but its first."""
        return np.unique(dates_D[self.start : self.stop])[1:]


@dataclass(frozen=True)
class Windows:
    """The three windows of one run."""

    train: Window
    selection: Window
    lockbox: Window

    def __iter__(self) -> Iterator[Window]:
        return iter((self.train, self.selection, self.lockbox))


def resolve_windows(settings: WindowSettings, dates_D: np.ndarray, warmup_bars: int) -> Windows:
    """Turn dates or lengths into session ranges.

    Args:
        settings: the windows as configured.
        dates_D: the market's sessions.
        warmup_bars: rows that must precede the training window (the longest look-back).

    Raises:
        ConfigError: if a window leaves the data, overlaps the one before, is shorter than
            60 sessions after the embargo, or the training window lacks its warm-up rows.
    """
    spans = _spans(settings, dates_D)
    first_day = next(iter(spans.values()))[0]
    if _LENGTH.fullmatch(settings.train) and first_day < dates_D[0]:
        wanted = f"{settings.train} + {settings.selection} + {settings.lockbox}"
        held = (dates_D[-1] - dates_D[0]).astype(int) / 365.25
        raise ConfigError(
            f"windows: {wanted} before {next(reversed(spans.values()))[1]} start on {first_day}, the "
            f"data on {dates_D[0]}: it has {held:.1f} years, and the features need {warmup_bars} bars "
            f"before the training window. Shorten a window."
        )
    for (name, (_, last)), (later, (first, _)) in pairwise(spans.items()):
        if first <= last:
            raise ConfigError(
                f"windows: {later} starts on {first}, but {name} ends on {last}. "
                f"Order them train < selection < lockbox, without overlap."
            )
    windows = []
    ends = np.flatnonzero(session_ends(dates_D))
    sessions = dates_D[ends]
    for name, (first, last) in spans.items():
        _check_covered(name, first, last, dates_D)
        start, stop = np.searchsorted(sessions, [first, last + np.timedelta64(1, "D")])
        start += 0 if name == "train" else settings.embargo_sessions
        if stop - start < MINIMUM_SESSIONS:
            raise ConfigError(
                f"windows.{name}: {max(0, stop - start)} sessions are left after the embargo, "
                f"at least {MINIMUM_SESSIONS} are needed. Lengthen the window."
            )
        windows.append(Window(name, int(ends[start]), int(ends[stop - 1]) + 1, int(stop - start)))
    if windows[0].start < warmup_bars:
        before = int(np.searchsorted(ends, windows[0].start))
        needed = int(np.searchsorted(ends, min(warmup_bars, len(dates_D) - 1)))
        earliest = dates_D[min(warmup_bars, len(dates_D) - 1)]
        raise ConfigError(
            f"windows.train: the features need {needed} sessions before the first day, there "
            f"are {before}. Start the training window on {earliest} or later, or choose "
            f"features with a shorter look-back."
        )
    return Windows(*windows)


def _spans(
    settings: WindowSettings, dates_D: np.ndarray
) -> dict[str, tuple[np.datetime64, np.datetime64]]:
    texts = {n: getattr(settings, n) for n in ("train", "selection", "lockbox")}
    if match := {n: m for n, t in texts.items() if (m := _DATES.fullmatch(t))}:
        return {n: (np.datetime64(m[1]), np.datetime64(m[2])) for n, m in match.items()}
    end = dates_D[-1] if settings.end == "latest" else np.datetime64(settings.end)
    spans = {}
    for name in ("lockbox", "selection", "train"):
        number, unit = _LENGTH.fullmatch(texts[name]).groups()  # type: ignore[union-attr]
        months = int(number) * (12 if unit == "y" else 1)
        day_of_month = end - end.astype("datetime64[M]").astype("datetime64[D]")
        month = end.astype("datetime64[M]") - np.timedelta64(months, "M")
        last_day = (month + 1).astype("datetime64[D]") - np.timedelta64(1, "D")
        before = min(month.astype("datetime64[D]") + day_of_month, last_day)
        spans[name] = (before + np.timedelta64(1, "D"), end)
        end = before
    return dict(reversed(spans.items()))


def _check_covered(
    name: str, first: np.datetime64, last: np.datetime64, dates_D: np.ndarray
) -> None:
    # A week's grace: the first of January or a weekend is no session and need not be in the data.
    grace = np.timedelta64(7, "D")
    if first > last:
        raise ConfigError(
            f"windows.{name}: it ends on {last}, before its start {first}. Swap them."
        )
    if first < dates_D[0] - grace or last > dates_D[-1] + grace:
        raise ConfigError(
            f"windows.{name}: {first} .. {last} is not inside the data, which spans "
            f"{dates_D[0]} .. {dates_D[-1]}. Choose dates inside it."
        )
