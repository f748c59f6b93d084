"""The gate that every price frame passes before anything is trained on it."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from podracer.errors import MarketDataError
from podracer.market.prices import FIELDS
from podracer.market.sessions import closed_days, missing_sessions

REQUIRED = ("date", "tic", "close")


def check_frame(frame: pd.DataFrame, source: str, exchange: str) -> pd.DataFrame:
    """Return the frame sorted by (date, tic), or refuse it naming the first bad cell.

    Args:
        frame: columns `date`, `tic`, `close` and any of open, high, low, adj_close, volume.
        source: what to call the data in messages, e.g. its file name.
        exchange: the calendar's code, e.g. XNYS.

    Raises:
        MarketDataError: on a missing column, an empty frame, a duplicate (date, tic), a missing,
            non-finite, zero or negative price, a date without a session, or a hole in a ticker.
    """
    if missing := [c for c in REQUIRED if c not in frame.columns]:
        raise MarketDataError(
            f"{source}: column {', '.join(map(repr, missing))} is missing; the file has "
            f"{', '.join(map(repr, map(str, frame.columns)))}. "
            f"Name its columns date, tic and close (or map them in data.columns)."
        )
    if frame.empty:
        raise MarketDataError(f"{source}: there is no row. Give a file with prices.")
    ordered = frame[[c for c in (*REQUIRED[:2], *FIELDS) if c in frame.columns]]
    ordered = ordered.sort_values(["date", "tic"], kind="stable").reset_index(drop=True)
    for find in (_duplicates, _bad_prices, _closed_days, _holes):
        if problem := next(find(ordered, exchange), None):
            raise MarketDataError(f"{source}: {problem}")
    return ordered


def _where(row: pd.Series) -> str:
    return f"{row['tic']} on {pd.Timestamp(row['date']).date()}"


def _duplicates(frame: pd.DataFrame, exchange: str) -> Iterator[str]:
    twice = frame[frame.duplicated(["date", "tic"], keep=False)]
    if len(twice):
        values = ", ".join(str(v) for v in twice["close"].iloc[:2])
        yield (
            f"{_where(twice.iloc[0])} stands twice (closes {values}). Keep one row per date and tic."
        )


def _bad_prices(frame: pd.DataFrame, exchange: str) -> Iterator[str]:
    def unusable(values: pd.Series) -> pd.Series:
        return ~(np.isfinite(values) & (values > 0))

    def not_a_count(values: pd.Series) -> pd.Series:
        return ~(np.isfinite(values) & (values >= 0))

    rules: dict[str, tuple[Callable[[pd.Series], pd.Series], str]] = {
        name: (not_a_count, "a number of 0 or more")
        if name == "volume"
        else (unusable, "a positive number")
        for name in FIELDS
        if name in frame.columns
    }
    for name, (is_bad, expected) in rules.items():
        values = pd.to_numeric(frame[name], errors="coerce")
        bad = frame[is_bad(values)]
        if len(bad):
            yield (
                f"{len(bad)} values of {name} are not {expected}, the first is "
                f"{bad.iloc[0][name]} for {_where(bad.iloc[0])}. Fix the row or drop the ticker."
            )


def _closed_days(frame: pd.DataFrame, exchange: str) -> Iterator[str]:
    dates = frame["date"].to_numpy("datetime64[D]")
    closed = closed_days(np.unique(dates), exchange)
    if len(closed):
        row = frame[dates == closed[0]].iloc[0]
        yield (
            f"{len(closed)} dates are not sessions of {exchange}, the first row is {_where(row)}. "
            f"Remove them or set data.exchange to the market's calendar."
        )


def _holes(frame: pd.DataFrame, exchange: str) -> Iterator[str]:
    for tic, dates in frame.groupby("tic")["date"]:
        missing = missing_sessions(dates.to_numpy("datetime64[D]"), exchange)
        if len(missing):
            yield (
                f"{tic} has no price on {len(missing)} sessions of {exchange} inside its own span, "
                f"the first is {missing[0]}. Add the rows or drop the ticker."
            )
