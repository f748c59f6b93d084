"""Prices from a CSV or parquet file of the user's."""

from pathlib import Path
from typing import Literal

import pandas as pd

from podracer.errors import MarketDataError
from podracer.market.raw import (
    HINDSIGHT,
    RawPrices,
    choose_tickers,
    empty_as_missing,
    value_columns,
)

# What the columns are called in files that people have; compared without case, blanks and "_".
USUAL_NAMES = {
    "date": "date",
    "datetime": "date",
    "timestamp": "date",
    "tic": "tic",
    "ticker": "tic",
    "symbol": "tic",
    "open": "open",
    "high": "high",
    "low": "low",
    "close": "close",
    "adjclose": "adj_close",
    "adjustedclose": "adj_close",
    "volume": "volume",
    "dividend": "dividend",
    "dividends": "dividend",
    "split": "split",
    "splits": "split",
    "stocksplits": "split",
}
Decimal = Literal[".", ","]


def load_file(
    path: Path,
    exchange: str,
    columns: dict[str, str] | None = None,
    tickers: tuple[str, ...] | None = None,
    bar: str = "1d",
    decimal: Decimal = ".",
) -> RawPrices:
    """Read a CSV or parquet file in long form, one row a (date, ticker).

    Args:
        path: a `.csv` (also compressed) or `.parquet` file.
        exchange: the calendar's code, e.g. XNYS.
        columns: our name → the file's name, where it is none of the usual ones.
        tickers: the universe; every ticker of the file if None.
        bar: `1d`, or the length of a bar within a day.
        decimal: the mark before the decimals of a text file.

    Raises:
        MarketDataError: if the file cannot be read, a cell is no date or number, or a ticker is
            not there.
    """
    frame = _rename(_read(path), columns or {}, str(path))
    if len(twice := frame.columns[frame.columns.duplicated()]):
        raise MarketDataError(
            f"{path}: two columns mean {twice[0]!r}. Drop one, or name the right one in data.columns."
        )
    if "date" in frame:
        frame["date"] = _dates(frame["date"], str(path), bar)
    for name in value_columns(frame):
        frame[name] = _numbers(frame[name], str(path), name, decimal)
    if "tic" not in frame:
        return RawPrices(frame, path.name, exchange, bar)
    frame["tic"] = frame["tic"].fillna("").astype(str).str.strip()
    kept = [c for c in ("date", "tic", *value_columns(frame)) if c in frame]
    chosen, universe = choose_tickers(frame[kept], tickers, str(path))
    return RawPrices(chosen, path.name, exchange, bar, requested=universe, notes=(HINDSIGHT,))


def _read(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise MarketDataError(f"{path}: there is no such file. Correct data.path in params.yaml.")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        separator = max(
            ",;\t", key=lambda s: pd.read_csv(path, sep=s, nrows=0, encoding="utf-8-sig").shape[1]
        )
        # Text first: a ticker "0005" stays what it is.
        return pd.read_csv(
            path, sep=separator, dtype=str, encoding="utf-8-sig", keep_default_na=False
        )
    except (ValueError, OSError) as error:
        raise MarketDataError(
            f"{path}: not readable as {path.suffix or 'CSV'} ({str(error).splitlines()[0]}). "
            f"Give a .csv or .parquet file."
        ) from error


def _rename(frame: pd.DataFrame, columns: dict[str, str], source: str) -> pd.DataFrame:
    if absent := [theirs for theirs in columns.values() if theirs not in frame.columns]:
        raise MarketDataError(
            f"{source}: data.columns names {', '.join(map(repr, absent))}, which the file does not "
            f"have; it has {', '.join(map(repr, map(str, frame.columns)))}."
        )
    names = {theirs: ours for ours, theirs in columns.items()}
    # A column of the file that a mapping displaces is not read.
    frame = frame.drop(columns=[c for c in frame.columns if c in columns and c not in names])
    for theirs in frame.columns:
        usual = USUAL_NAMES.get(str(theirs).lower().replace(" ", "").replace("_", ""))
        if usual and theirs not in names and usual not in columns:
            names[theirs] = usual
    return frame.rename(columns=names)


def _dates(texts: pd.Series, source: str, bar: str) -> pd.Series:
    """Read dates; a moment with a time zone becomes the day there, or UTC for bars within a day."""
    if pd.api.types.is_integer_dtype(texts):
        texts = texts.astype(str)  # 20200102
    if bar == "1d" and not pd.api.types.is_datetime64_any_dtype(texts):
        # The day is the one that is written, whatever hour and zone follow.
        days = texts.astype(str).str.strip()
        texts = days.where(~days.str.match(r"\d{4}-\d\d-\d\d"), days.str[:10])
    dates = pd.to_datetime(texts, errors="coerce", utc=bar != "1d")
    if dates.isna().any():
        row = int(dates.isna().to_numpy().argmax())
        raise MarketDataError(
            f"{source}: {texts.iloc[row]!r} in data row {row + 1} is not a date. "
            f"Write dates as YYYY-MM-DD."
        )
    if dates.dt.tz is not None:
        dates = dates.dt.tz_localize(None)
    return dates.dt.normalize() if bar == "1d" else dates


def _numbers(values: pd.Series, source: str, name: str, decimal: Decimal) -> pd.Series:
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    texts = values.fillna("").astype(str)
    plain = texts.str.replace(decimal, ".", regex=False) if decimal != "." else texts
    numbers = pd.to_numeric(plain.str.strip(), errors="coerce")
    unreadable = numbers.isna().to_numpy() & ~empty_as_missing(texts.to_numpy())
    if unreadable.any():
        row = int(unreadable.argmax())
        hint = " or set data.decimal to ','" if "," in texts.iloc[row] else ""
        raise MarketDataError(
            f"{source}: {texts.iloc[row]!r} in data row {row + 1} of column {name} is not a number. "
            f"Correct it{hint}."
        )
    return numbers.astype(float)
