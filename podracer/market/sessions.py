"""The exchange's calendar: which days a market was open, and which bars a day has."""

from datetime import datetime
from functools import cache

import exchange_calendars
import numpy as np
import pandas as pd

# The library's default start is "20 years ago", which would move the failure date with the clock.
FIRST_SESSION = "1985-01-02"
DAILY = "1d"


@cache
def calendar_of(exchange: str) -> exchange_calendars.ExchangeCalendar:
    """Return an exchange's calendar since 1985, or since it is known."""
    known_from = exchange_calendars.get_calendar(exchange).bound_min()
    first = pd.Timestamp(FIRST_SESSION)
    start = first if known_from is None else max(first, known_from)
    return exchange_calendars.get_calendar(exchange, start=start)


def sessions_of(exchange: str) -> pd.DatetimeIndex:
    """Return every session of an exchange since 1985 as time-zone-free dates."""
    return calendar_of(exchange).sessions


def bars_of(exchange: str, bar: str, first: np.datetime64, last: np.datetime64) -> np.ndarray:
    """Return the bars of the sessions first … last: their dates, or within a day their starts in UTC.

    A session that is no multiple of the bar ends with a shorter one.
    """
    days = np.array([first, last]).astype("datetime64[D]")
    sessions = sessions_of(exchange).to_numpy("datetime64[D]")
    chosen = sessions[(sessions >= days[0]) & (sessions <= days[1])]
    if bar == DAILY or not len(chosen):
        return chosen
    minutes = bar_minutes(bar)
    schedule = calendar_of(exchange).schedule.loc[
        pd.Timestamp(chosen[0]) : pd.Timestamp(chosen[-1])
    ]
    opens, closes = _trading_hours(schedule)
    counts = -(-(closes - opens).astype(int) // (60 * minutes))
    within = np.concatenate([np.arange(n) for n in counts]) * np.timedelta64(60 * minutes, "s")
    starts: np.ndarray = np.repeat(opens, counts) + within
    return starts


def _trading_hours(schedule: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return when trading starts and stops, twice a session where there is a lunch break."""
    opens, closes = _utc_seconds(schedule["open"]), _utc_seconds(schedule["close"])
    has_break = schedule["break_start"].notna().to_numpy()
    stops = _utc_seconds(schedule.loc[has_break, "break_start"])
    resumes = _utc_seconds(schedule.loc[has_break, "break_end"])
    starts = np.concatenate([opens, resumes])
    ends = np.concatenate([closes, closes[has_break]])
    ends[np.flatnonzero(has_break)] = stops
    order = np.argsort(starts)
    return starts[order], ends[order]


def bar_minutes(bar: str) -> int:
    """Return the length of a bar within a day: `15m` → 15, `1h` → 60."""
    number, unit = int(bar[:-1]), bar[-1]
    return number * (60 if unit == "h" else 1)


def session_of_bars(dates_D: np.ndarray, exchange: str, bar: str) -> np.ndarray:
    """Return the session (datetime64[D]) that each bar belongs to."""
    if bar == DAILY or not len(dates_D):
        return dates_D.astype("datetime64[D]")
    opens = _utc_seconds(calendar_of(exchange).opens)
    sessions = sessions_of(exchange).to_numpy("datetime64[D]")
    found: np.ndarray = sessions[np.searchsorted(opens, dates_D, side="right") - 1]
    return found


def bar_ends(dates_D: np.ndarray, exchange: str, bar: str) -> np.ndarray:
    """Return the moment (UTC) at which each bar is over."""
    sessions = pd.DatetimeIndex(session_of_bars(dates_D, exchange, bar))
    closes = _utc_seconds(calendar_of(exchange).closes.loc[sessions])
    if bar == DAILY:
        return closes
    ends = dates_D.astype("datetime64[s]") + np.timedelta64(60 * bar_minutes(bar), "s")
    return np.minimum(ends, closes)


def closed_bars(dates_D: np.ndarray, exchange: str, bar: str = DAILY) -> np.ndarray:
    """Return those of the dates on which the exchange held no session, or that start no bar."""
    if not len(dates_D):
        return dates_D
    known = bars_of(exchange, bar, dates_D.min() - np.timedelta64(1, "D"), dates_D.max())
    return dates_D[~np.isin(dates_D, known.astype(dates_D.dtype))]


def open_bars(dates_D: np.ndarray, exchange: str, bar: str, now: datetime) -> np.ndarray:
    """Return those of the bars that have not ended by `now` (time-zone aware)."""
    return dates_D[bar_ends(dates_D, exchange, bar) > moment(now)]


def last_closed_session(exchange: str, now: datetime) -> np.datetime64:
    """Return the newest session whose close lies before `now`."""
    closes = _utc_seconds(calendar_of(exchange).closes)
    position = int(np.searchsorted(closes, moment(now), side="right")) - 1
    return sessions_of(exchange).to_numpy("datetime64[D]")[position]


def moment(now: datetime) -> np.datetime64:
    """Return an aware time as UTC without a time zone."""
    return pd.Timestamp(now).tz_convert("UTC").tz_localize(None).to_datetime64()


def _utc_seconds(times: pd.Series) -> np.ndarray:
    index = pd.DatetimeIndex(times)
    naive = index.tz_convert("UTC").tz_localize(None) if index.tz is not None else index
    return naive.to_numpy("datetime64[s]")


def session_ends(dates_D: np.ndarray) -> np.ndarray:
    """Mark the last bar of each session, given the session of each bar."""
    ends_D = np.ones(len(dates_D), dtype=bool)
    ends_D[:-1] = dates_D[1:] != dates_D[:-1]
    return ends_D


def is_last_of_month(dates_D: np.ndarray) -> np.ndarray:
    """Mark the last bar of each month but the last one, given the session of each bar.

    The exchange publishes its calendar in advance, so this is known at the session's close.
    """
    month_D = dates_D.astype("datetime64[M]")
    last_D = np.zeros(len(dates_D), dtype=bool)
    last_D[:-1] = month_D[1:] != month_D[:-1]
    return last_D


@cache
def calendar_names() -> frozenset[str]:
    """Return the codes of all known calendars."""
    return frozenset(exchange_calendars.get_calendar_names())
