"""What data to use and which features to compute."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from podracer.market.features import ASSET_FEATURES, MARKET_FEATURES
from podracer.settings import Settings


class DataSettings(Settings):
    """Where prices come from."""

    source: Literal["bundled", "file"] = Field("bundled", description="Bundled set or own file.")
    dataset: str = Field("us20", description="Name of a bundled dataset; see `podracer data list`.")
    path: Path | None = Field(None, description="CSV or parquet file, for source: file.")
    columns: dict[str, str] = Field(
        default_factory=dict, description="Our column name to the file's, where it is unusual."
    )
    tickers: tuple[str, ...] | None = Field(
        None, min_length=1, description="Universe; all of the data if null."
    )
    exchange: str = Field("XNYS", description="Calendar of the sessions, for source: file.")

    @model_validator(mode="after")
    def _path_goes_with_file(self) -> "DataSettings":
        if self.source == "file" and self.path is None:
            raise ValueError("source: file needs a path")
        if self.tickers is not None and len(set(self.tickers)) < len(self.tickers):
            twice = next(t for t in self.tickers if self.tickers.count(t) > 1)
            raise ValueError(f"tickers names {twice!r} twice")
        return self


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
