"""Prices from a CSV or parquet file of the user's."""

from pathlib import Path

import pandas as pd

from podracer.errors import MarketDataError
from podracer.market.prices import PricePanel, panel_from_frame
from podracer.market.quality import check_frame

# What the columns are called in files that people have; compared without case, blanks and "_".
USUAL_NAMES = {
    "date": "date",
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
}


def load_file(
    path: Path,
    exchange: str,
    columns: dict[str, str] | None = None,
    tickers: tuple[str, ...] | None = None,
) -> PricePanel:
    """Load and check a CSV or parquet file in long form, one row a (date, ticker).

    Args:
        path: a `.csv` (also compressed) or `.parquet` file.
        exchange: the calendar's code, e.g. XNYS.
        columns: our name → the file's name, where it is none of the usual ones.
        tickers: the universe; every ticker of the file if None.

    Raises:
        MarketDataError: if the file cannot be read or fails `podracer.market.quality.check_frame`.
    """
    frame = _rename(_read(path), columns or {}, str(path))
    if "date" in frame:
        dates = pd.to_datetime(frame["date"], errors="coerce")
        if dates.isna().any():
            row = int(dates.isna().to_numpy().argmax())
            raise MarketDataError(
                f"{path}: {frame['date'].iloc[row]!r} in data row {row + 1} is not a date. "
                f"Write dates as YYYY-MM-DD."
            )
        frame["date"] = dates
    return panel_from_frame(check_frame(frame, str(path), exchange), str(path), tickers)


def _read(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise MarketDataError(f"{path}: there is no such file. Correct data.path in params.yaml.")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        # Text first: a ticker "0005" stays what it is; prices become numbers in the quality gate.
        return pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
    except (ValueError, OSError) as error:
        raise MarketDataError(
            f"{path}: not readable as {path.suffix or 'CSV'} ({error}). "
            f"Give a .csv or .parquet file."
        ) from error


def _rename(frame: pd.DataFrame, columns: dict[str, str], source: str) -> pd.DataFrame:
    if absent := [theirs for theirs in columns.values() if theirs not in frame.columns]:
        raise MarketDataError(
            f"{source}: data.columns names {', '.join(map(repr, absent))}, which the file does not "
            f"have; it has {', '.join(map(repr, map(str, frame.columns)))}."
        )
    names = {theirs: ours for ours, theirs in columns.items()}
    for theirs in frame.columns:
        usual = USUAL_NAMES.get(str(theirs).lower().replace(" ", "").replace("_", ""))
        if usual and theirs not in names and usual not in names.values():
            names[theirs] = usual
    return frame.rename(columns=names)
