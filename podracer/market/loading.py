"""Prices from whichever source the settings name."""

from datetime import UTC, datetime
from typing import Any

from podracer.market.raw import RawPrices
from podracer.market.settings import DataSettings
from podracer.market.snapshot import SNAPSHOTS, newest
from podracer.market.sources import yahoo
from podracer.market.sources.bundled import load_bundled
from podracer.market.sources.file import load_file


def load_raw(settings: DataSettings) -> tuple[RawPrices, dict[str, Any]]:
    """Load prices as the source has them, and what a snapshot's manifest should say of this look.

    Raises:
        MarketDataError: if the source cannot be read or does not deliver.
    """
    if settings.source == "bundled":
        return load_bundled(settings.dataset, settings.tickers), {}
    if settings.source == "file" and settings.path is not None:
        raw = load_file(
            settings.path,
            settings.exchange,
            settings.columns,
            settings.tickers,
            settings.bar,
            settings.decimal,
        )
        return raw, {}
    if settings.tickers is None:
        raise ValueError("source: yahoo needs tickers")
    request = yahoo.Request(settings.tickers, settings.start, settings.exchange, settings.bar)
    raw, changes = yahoo.update(
        newest(SNAPSHOTS, request.key), request, settings.yahoo, datetime.now(UTC)
    )
    return raw, {"request": request.key, "restated": changes.lines() if changes else []}
