"""The market that agents trade: immutable arrays in a folder, named by their content.

Shapes: D sessions, A assets, K asset features, F market features.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import talib

from podracer.errors import MarketDataError
from podracer.files import replacing
from podracer.market import features
from podracer.market.adjustment import adjusted
from podracer.market.features import Feature
from podracer.market.prices import PricePanel
from podracer.market.settings import FeatureSettings

# One money unit is 1e-6 dollars; prices and cash are whole numbers of it.
UNITS_PER_DOLLAR = 1_000_000
OPTIONAL = dict.fromkeys(("index_D", "open_DA", "starts_D", "volume_DA", "hidden_DF"))
NOT_IN_HASH = ("name", "dataset_hash", "largest_rounding", "notes", "adjusted")


@dataclass(frozen=True)
class Market:
    """Prices, masks and features of a universe, on its sessions.

    Attributes:
        dates_D: the session of each bar, datetime64[D].
        starts_D: when each bar starts in UTC, datetime64[s]; None for daily bars.
        volume_DA: shares traded, on the scale of the adjusted prices; None where there are none.
        hidden_DF: the state that drives a made-up market (`hidden_features`), or None.
        price_DA: adjusted closes in whole money units (float64); NaN where there is none.
        open_DA: adjusted opens in the same unit, or None where the data has no opens.
        tradable_DA: the asset traded, and nothing about the cell is in quarantine.
        asset_features_DAK: z-scores across the universe, float32; 0 where not valid.
        feature_valid_DA: the asset has all its features (its own warm-up is over).
        market_features_DF: unscaled, float32; NaN before the warm-up.
        index_D: level of a price index for the report, or None.
        meta: names and provenance; `hash` is the sha256 over all arrays and names.
    """

    dates_D: np.ndarray
    price_DA: np.ndarray
    open_DA: np.ndarray | None
    tradable_DA: np.ndarray
    asset_features_DAK: np.ndarray
    feature_valid_DA: np.ndarray
    market_features_DF: np.ndarray
    index_D: np.ndarray | None
    meta: dict[str, Any]
    starts_D: np.ndarray | None = None
    volume_DA: np.ndarray | None = None
    hidden_DF: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"Market({self.meta['name']!r}, {self.hash[:12]})"

    @property
    def tickers(self) -> tuple[str, ...]:
        """The universe, in the order of the asset axis."""
        return tuple(self.meta["tickers"])

    @property
    def num_assets(self) -> int:
        """A."""
        return len(self.meta["tickers"])

    @property
    def hash(self) -> str:
        """The content hash of everything an agent could see or trade at, whatever it is called."""
        return str(self.meta["hash"])

    def save(self, folder: Path) -> Path:
        """Write the arrays under `folder`, whole or not at all; an equal folder is kept."""
        with suppress(MarketDataError):
            if open_market(folder).meta == self.meta:
                return folder
        with replacing(folder) as part:
            part.mkdir()
            for name, array in _arrays(self).items():
                np.save(part / f"{name}.npy", array, allow_pickle=False)
            (part / "meta.json").write_text(json.dumps(self.meta, indent=1), encoding="utf-8")
        return folder


def open_market(folder: Path) -> Market:
    """Map a saved market into memory and compare its content with its hash.

    Raises:
        MarketDataError: if the folder is no market or its bytes have changed.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        arrays = {p.stem: np.load(p, mmap_mode="r") for p in sorted(folder.glob("*.npy"))}
        known: dict[str, Any] = OPTIONAL | arrays
        market = Market(**known, meta=meta)
    except (OSError, ValueError, TypeError) as error:
        raise MarketDataError(
            f"{folder}: not a readable market ({error}). Delete the folder and ingest again."
        ) from error
    if (found := _hash(market)) != market.hash:
        raise MarketDataError(
            f"{folder}: expected content {market.hash[:12]}…, found {found[:12]}…: the files have "
            f"changed since they were written. Delete the folder and ingest again."
        )
    return market


def build_market(panel: PricePanel, settings: FeatureSettings) -> Market:
    """Compute features from a checked price panel, and its prices on the money grid.

    Raises:
        ConfigError: if a feature is unknown or the prices lack a column that it needs.
        MarketDataError: if the panel has no more sessions than the longest look-back.
    """
    on_scale, rounding = _on_money_grid(adjusted(panel))
    filled = _filled(on_scale, settings.fill_bars)
    assets, markets = chosen_features(filled, settings)
    warmup_bars = features.warmup_bars((*assets, *markets), panel.dates_D)
    if len(panel.dates_D) <= warmup_bars:
        longest = max(f.lookback for f in (*assets, *markets))
        raise MarketDataError(
            f"{panel.name}: the features need {longest} sessions to warm up, there are "
            f"{len(np.unique(panel.dates_D))}. Give a longer history or features with a shorter "
            f"look-back."
        )
    raw_DAK = np.stack([features.compute(f, filled) for f in assets], axis=2)
    valid_DA = np.isfinite(raw_DAK).all(2)
    masked_DAK = np.where(valid_DA[:, :, None], raw_DAK, np.nan)
    scores_DAK = np.stack(
        [features.standardise_across_universe(masked_DAK[:, :, k]) for k in range(len(assets))], 2
    )
    columns_DF, column_names = _market_columns(markets, filled, valid_DA)
    prices = on_scale.fields
    market = Market(
        dates_D=panel.dates_D,
        price_DA=np.round(prices["close"] * UNITS_PER_DOLLAR),
        open_DA=np.round(prices["open"] * UNITS_PER_DOLLAR) if "open" in prices else None,
        tradable_DA=panel.tradable_DA,
        asset_features_DAK=np.nan_to_num(scores_DAK).astype(np.float32),
        feature_valid_DA=valid_DA,
        market_features_DF=columns_DF,
        index_D=panel.index_D,
        meta={
            "name": panel.name,
            "tickers": list(panel.tickers),
            "asset_features": list(settings.asset),
            "market_features": column_names,
            "warmup_bars": warmup_bars,
            "dataset_hash": panel.content_hash,
            "talib": talib.__version__,
            "largest_rounding": rounding,
            "notes": list(panel.notes),
            "adjusted": is_adjusted(panel),
        },
        starts_D=panel.starts_D,
        volume_DA=_volume(on_scale),
    )
    return with_hash(market)


def chosen_features(
    panel: PricePanel, settings: FeatureSettings
) -> tuple[list[Feature], list[Feature]]:
    """Return the asset and the market features that the settings name.

    Raises:
        ConfigError: if one is unknown or the prices lack a column that it needs.
    """
    return (
        features.choose(settings.asset, features.ASSET_FEATURES, panel, "features.asset"),
        features.choose(settings.market, features.MARKET_FEATURES, panel, "features.market"),
    )


def with_hash(market: Market) -> Market:
    """Return the market named by the hash of its content."""
    return replace(market, meta=market.meta | {"hash": _hash(market)})


def _arrays(market: Market) -> dict[str, np.ndarray]:
    arrays = {f.name: getattr(market, f.name) for f in fields(market) if f.name != "meta"}
    return {name: array for name, array in arrays.items() if array is not None}


def _hash(market: Market) -> str:
    digest = hashlib.sha256()
    names = {k: v for k, v in market.meta.items() if k not in ("hash", *NOT_IN_HASH)}
    digest.update(json.dumps(names, sort_keys=True).encode())
    for name, array in sorted(_arrays(market).items()):
        if name == "index_D":
            continue  # shown in reports only
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _on_money_grid(panel: PricePanel) -> tuple[PricePanel, float]:
    """Round closes to whole money units; also returns the largest relative change that this made."""
    close_DA = panel.fields["close"]
    on_grid_DA = np.round(close_DA * UNITS_PER_DOLLAR) / UNITS_PER_DOLLAR
    if (on_grid_DA <= 0).any():
        raise MarketDataError(
            f"prices below {1 / UNITS_PER_DOLLAR} dollars cannot be traded in whole money units. "
            f"Scale the prices of the ticker up."
        )
    change = float(np.nanmax(np.abs(on_grid_DA / close_DA - 1.0)))
    return replace(panel, fields=panel.fields | {"close": on_grid_DA}), change


def is_adjusted(panel: PricePanel) -> bool:
    """Tell whether a share of the past is another than one that was traded."""
    close_DA = panel.fields["close"]
    return panel.is_adjusted or not np.array_equal(
        adjusted(panel).fields["close"], close_DA, equal_nan=True
    )


def _volume(panel: PricePanel) -> np.ndarray | None:
    """Return the shares traded, as many as the printed dollars buy at the adjusted close."""
    if "dollar_volume" not in panel.fields:
        return None
    volume_DA: np.ndarray = np.round(panel.fields["dollar_volume"] / panel.fields["close"])
    return volume_DA


def _filled(panel: PricePanel, bars: int) -> PricePanel:
    """Carry values forward over short holes, for features only.

    Also over the first bars after a ticker's end: that it has ended is not known then.
    """
    if not bars:
        return panel
    filled = {
        name: pd.DataFrame(values_DA).ffill(limit=bars).to_numpy()
        for name, values_DA in panel.fields.items()
    }
    return replace(panel, fields=filled)


def _market_columns(
    chosen: list[Feature], panel: PricePanel, valid_DA: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    columns, names = [], []
    for feature in chosen:
        values = features.compute(feature, panel)
        if feature.scope == "market":
            columns.append(values[:, None])
            names.append(feature.name)
        else:
            columns.append(values)
            names += [f"{feature.name}:{ticker}" for ticker in panel.tickers]
    columns.append(valid_DA)
    names += [f"has_features:{ticker}" for ticker in panel.tickers]
    return np.concatenate(columns, axis=1).astype(np.float32), names
