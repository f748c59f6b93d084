"""What data to use and which features to compute."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from podracer.market.features import ASSET_FEATURES, MARKET_FEATURES
from podracer.market.findings import QualitySettings
from podracer.market.sessions import DAILY, calendar_names
from podracer.market.sources.yahoo import KEPT_DAYS, YahooSettings
from podracer.settings import Settings

Bar = Literal["1d", "1h", "30m", "15m", "5m", "1m"]


class DataSettings(Settings):
    """Where prices come from."""

    source: Literal["bundled", "file", "yahoo"] = Field(
        "bundled", description="Bundled set, own file, or Yahoo Finance."
    )
    dataset: str = Field("us20", description="Name of a bundled dataset; see `podracer data list`.")
    path: Path | None = Field(None, description="CSV or parquet file, for source: file.")
    columns: dict[str, str] = Field(
        default_factory=dict, description="Our column name to the file's, where it is unusual."
    )
    decimal: Literal[".", ","] = Field(".", description="Decimal mark of a text file.")
    tickers: tuple[str, ...] | None = Field(
        None, min_length=1, description="Universe; all of the data if null."
    )
    start: date | None = Field(
        None,
        description="First day to fetch, for source: yahoo. For bars within a day it may be left open: "
        "all that Yahoo still keeps is then added to what is stored.",
    )
    bar: Bar = Field("1d", description="Length of a bar; bars within a day are stamped in UTC.")
    exchange: str = Field("XNYS", description="Calendar of the sessions, for file and yahoo.")
    quality: QualitySettings = Field(
        default_factory=QualitySettings, description="How strict the gate is."
    )
    yahoo: YahooSettings = Field(
        default_factory=YahooSettings, description="How patiently to ask Yahoo."
    )

    @field_validator("exchange")
    @classmethod
    def _has_calendar(cls, code: str) -> str:
        if code not in calendar_names():
            raise ValueError(f"there is no exchange calendar {code!r}; New York is XNYS")
        return code

    @model_validator(mode="after")
    def _source_has_what_it_needs(self) -> "DataSettings":
        if self.source == "file" and self.path is None:
            raise ValueError("source: file needs a path")
        if self.tickers is not None and len(set(self.tickers)) < len(self.tickers):
            twice = next(t for t in self.tickers if self.tickers.count(t) > 1)
            raise ValueError(f"tickers names {twice!r} twice")
        if self.source == "bundled" and self.bar != DAILY:
            raise ValueError(f"bundled datasets are daily, not {self.bar}")
        if self.source == "yahoo":
            self._check_yahoo()
        return self

    def _check_yahoo(self) -> None:
        kept = KEPT_DAYS.get(self.bar)
        if self.tickers is None or (self.start is None and kept is None):
            raise ValueError("source: yahoo needs tickers and a start")
        if self.start is None:
            return
        oldest = datetime.now(UTC).date() - timedelta(days=kept or 0)
        if kept is not None and self.start < oldest:
            raise ValueError(
                f"Yahoo keeps {self.bar} bars for {kept} days, so start must be {oldest} or later, "
                f"got {self.start}; leave it open to keep what is stored and add to it"
            )


class FeatureSettings(Settings):
    """Names of the features, in the order of the columns."""

    asset: tuple[str, ...] = Field(
        tuple(ASSET_FEATURES),
        min_length=1,
        description="Features of each asset, standardised across the universe: the head's input.",
    )
    market: tuple[str, ...] = Field(
        tuple(n for n, f in MARKET_FEATURES.items() if not f.needs),
        description="Features scaled on the training window: input of the MLP and of the critic.",
    )
    fill_bars: NonNegativeInt = Field(
        5,
        description="A missing price is carried forward over at most this many bars, for features "
        "only; it is never traded at.",
    )
