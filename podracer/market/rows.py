"""The gate's look at rows: columns and numbers, order, twins, sessions, and bars that are not final."""

from datetime import datetime

import numpy as np
import pandas as pd
import pandera.pandas as pa

from podracer.errors import MarketDataError, NotFinalError
from podracer.market.findings import Findings, day
from podracer.market.raw import KEYS, RawPrices, value_columns
from podracer.market.sessions import closed_bars, open_bars, session_of_bars, sessions_of

LATE_SESSIONS = 6
UNFINISHED = "a bar that has ended"


def with_numbers(raw: RawPrices) -> pd.DataFrame:
    """Return the frame with numbers as float64, or refuse a wrong column or cell by name."""
    frame = raw.frame.reset_index(drop=True)
    if missing := [c for c in (*KEYS, "close") if c not in frame.columns]:
        raise MarketDataError(
            f"{raw.name}: column {', '.join(map(repr, missing))} is missing; there are "
            f"{', '.join(map(repr, map(str, frame.columns)))}. "
            f"Name the columns date, tic and close (or map them in data.columns)."
        )
    if frame.empty:
        raise MarketDataError(f"{raw.name}: there is no row. Give prices.")
    columns = {
        "date": pa.Column("datetime64[ns]"),
        "tic": pa.Column(str, pa.Check.str_length(min_value=1)),
    }
    columns |= {name: pa.Column(float, nullable=True) for name in value_columns(frame)}
    schema = pa.DataFrameSchema(columns, coerce=True, strict="filter")
    try:
        return schema.validate(frame, lazy=True)
    except pa.errors.SchemaErrors as error:
        first = error.failure_cases.iloc[0]
        where = "" if pd.isna(first["index"]) else f" in row {int(first['index']) + 1}"
        raise MarketDataError(
            f"{raw.name}: {first['failure_case']!r}{where} of column {first['column']} is not what it "
            f"should be ({first['check']}). Correct the value."
        ) from error


def settled_rows(
    raw: RawPrices, frame: pd.DataFrame, now: datetime, findings: Findings
) -> pd.DataFrame:
    """Sort the rows, and drop twins and bars that have not ended."""
    keys = list(KEYS)
    ordered = frame.sort_values(keys, kind="stable").reset_index(drop=True)
    is_moved = (ordered[keys] != frame[keys]).any(axis=1)
    if is_moved.any() and not frame["date"].is_monotonic_increasing:
        first_back = frame[frame["date"].diff() < np.timedelta64(0)].head(1)
        findings.add_rows("unsorted", first_back, "date", "dates in order", "sorted")
    ordered = _without_twins(raw.name, ordered, findings)
    ordered = _without_empty_end(ordered, findings)
    dates = ordered["date"].to_numpy("datetime64[s]")
    first = sessions_of(raw.exchange)[0]
    if ordered["date"].iloc[0] < first:
        raise MarketDataError(
            f"{raw.name}: the calendar of {raw.exchange} begins on {first.date()}, the prices on "
            f"{day(ordered['date'].iloc[0])}. Drop the rows before."
        )
    closed = closed_bars(np.unique(dates), raw.exchange, raw.bar)
    if len(closed):
        row = ordered[dates == closed[0]].iloc[0]
        raise MarketDataError(
            f"{raw.name}: {len(closed)} dates are not sessions of {raw.exchange}, the first row is "
            f"{row['tic']} on {day(row['date'])}. "
            f"Remove them or set data.exchange to the market's calendar."
        )
    is_open = np.isin(dates, open_bars(np.unique(dates), raw.exchange, raw.bar, now))
    findings.add_rows("unfinished_bar", ordered[is_open], "close", UNFINISHED, "dropped")
    ordered = ordered[~is_open].reset_index(drop=True)
    _require_final(raw, ordered)
    return ordered


def _without_twins(name: str, frame: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Drop a row that repeats its twin or has no close; two that differ are refused."""
    keys = list(KEYS)
    is_twin = frame.duplicated(keys, keep=False)
    if not is_twin.any():
        return frame
    twins = frame[is_twin]
    kept = twins.dropna(subset="close").drop_duplicates()
    conflict = kept[kept.duplicated(keys, keep=False)]
    if len(conflict):
        row = conflict.iloc[0]
        both = conflict[(conflict["date"] == row["date"]) & (conflict["tic"] == row["tic"])]
        shown = " and ".join(
            ", ".join(f"{c} {r[c]:g}" for c in value_columns(frame)) for _, r in both.iterrows()
        )
        raise MarketDataError(
            f"{name}: {row['tic']} on {day(row['date'])} stands twice with different values: "
            f"{shown}. Keep one row per date and tic."
        )
    gone = twins.drop(index=kept.index)
    findings.add_rows("twin_row", gone, "close", "one row per date and tic", "dropped")
    return frame.drop(index=gone.index).reset_index(drop=True)


def _without_empty_end(frame: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """Drop the newest bars if no ticker has a price or a volume on them yet."""
    has_any = frame["close"].notna() | (frame.get("volume", 0) > 0)
    if not has_any.any():
        return frame
    is_empty = frame["date"] > frame.loc[has_any, "date"].max()
    findings.add_rows("unfinished_bar", frame[is_empty], "close", UNFINISHED, "dropped")
    return frame[~is_empty].reset_index(drop=True)


def _require_final(raw: RawPrices, frame: pd.DataFrame) -> None:
    """Refuse a newest bar that has volume but no price yet, or a session that a live source left out.

    A ticker without a price for five sessions or more has ended, one for fewer is late, unless the
    source itself says why it did not deliver.
    """
    last = frame["date"].max()
    newest = frame[frame["date"] == last]
    late = list(newest.loc[newest["close"].isna() & (newest.get("volume", 0) > 0), "tic"])
    if raw.asof is not None:
        days = session_of_bars(frame["date"].to_numpy("datetime64[s]"), raw.exchange, raw.bar)
        has = frame["close"].notna().to_numpy()
        recent = days >= np.unique(days)[-LATE_SESSIONS:][0]
        here = set(frame.loc[has & (days == days.max()), "tic"]) | {f.tic for f in raw.failures}
        late += sorted(set(frame.loc[has & recent, "tic"]) - here)
    if late:
        raise NotFinalError(
            f"{raw.name}: data not final for {day(last)}: {late[0]} has no price yet. "
            f"Run again later; nothing was changed."
        )
