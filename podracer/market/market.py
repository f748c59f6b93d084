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
import talib

from podracer.errors import MarketDataError
from podracer.files import replacing
from podracer.market import features
from podracer.market.features import Feature
from podracer.market.prices import PricePanel
from podracer.market.settings import FeatureSettings

# One money unit is 1e-6 dollars; prices and cash are whole numbers of it.
UNITS_PER_DOLLAR = 1_000_000
NOT_IN_HASH = ("name", "largest_rounding")


@dataclass(frozen=True)
class Market:
    """Prices, masks and features of a universe, on its sessions.

    Attributes:
        dates_D: sessions, datetime64[D].
        price_DA: adjusted closes in whole money units (float64); NaN where there is none.
        open_DA: adjusted opens in the same unit, or None where the data has no opens.
        tradable_DA: a price exists.
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

    @property
    def feature_spec(self) -> dict[str, Any]:
        """What a checkpoint must agree with before it may be used on this market."""
        return {k: self.meta[k] for k in ("tickers", "asset_features", "market_features")}

    def save(self, folder: Path) -> Path:
        """Write the arrays under `folder`, whole or not at all; an equal folder is kept."""
        with suppress(MarketDataError):
            if open_market(folder).hash == self.hash:
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
        market = Market(**{"index_D": None, "open_DA": None} | arrays, meta=meta)
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


def build_market(panel: PricePanel, settings: FeatureSettings, name: str) -> Market:
    """Compute masks and features from a checked price panel.

    Raises:
        ConfigError: if a feature is unknown or the prices lack a column that it needs.
        MarketDataError: if the panel has no more sessions than the longest look-back.
    """
    adjusted, rounding = _adjusted(panel)
    assets, markets = chosen_features(adjusted, settings)
    warmup_bars = max(f.lookback_bars for f in (*assets, *markets))
    if len(panel.dates_D) <= warmup_bars:
        raise MarketDataError(
            f"{name}: the features need {warmup_bars} sessions to warm up, there are "
            f"{len(panel.dates_D)}. Give a longer history or features with a shorter look-back."
        )
    raw_DAK = np.stack([f.compute(adjusted) for f in assets], axis=2)
    valid_DA = np.isfinite(raw_DAK).all(2)
    masked_DAK = np.where(valid_DA[:, :, None], raw_DAK, np.nan)
    scores_DAK = np.stack(
        [features.standardise_across_universe(masked_DAK[:, :, k]) for k in range(len(assets))], 2
    )
    columns_DF, column_names = _market_columns(markets, adjusted, valid_DA)
    market = Market(
        dates_D=panel.dates_D,
        price_DA=np.round(adjusted.fields["close"] * UNITS_PER_DOLLAR),
        open_DA=np.round(adjusted.fields["open"] * UNITS_PER_DOLLAR)
        if "open" in adjusted.fields
        else None,
        tradable_DA=np.isfinite(adjusted.fields["close"]),
        asset_features_DAK=np.nan_to_num(scores_DAK).astype(np.float32),
        feature_valid_DA=valid_DA,
        market_features_DF=columns_DF,
        index_D=panel.index_D,
        meta={
            "name": name,
            "tickers": list(panel.tickers),
            "asset_features": list(settings.asset),
            "market_features": column_names,
            "warmup_bars": warmup_bars,
            "dataset_hash": panel.content_hash,
            "talib": talib.__version__,
            "largest_rounding": rounding,
        },
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


def _adjusted(panel: PricePanel) -> tuple[PricePanel, float]:
    """Scale open, high, low and close by one factor to the adjusted close, on the money grid.

    Also returns the largest relative change that rounding to whole money units made.
    """
    fields_ = dict(panel.fields)
    volume_DA = fields_.get("volume")
    if volume_DA is not None:
        fields_["dollar_volume"] = volume_DA * fields_["close"]
    adjusted_DA = fields_.pop("adj_close", fields_["close"])
    factor_DA = adjusted_DA / fields_["close"]
    for name in ("open", "high", "low"):
        if name in fields_:
            fields_[name] = fields_[name] * factor_DA
    on_grid_DA = np.round(adjusted_DA * UNITS_PER_DOLLAR) / UNITS_PER_DOLLAR
    if (on_grid_DA <= 0).any():
        raise MarketDataError(
            f"prices below {1 / UNITS_PER_DOLLAR} dollars cannot be traded in whole money units. "
            f"Scale the prices of the ticker up."
        )
    fields_["close"] = on_grid_DA
    return replace(panel, fields=fields_), float(np.nanmax(np.abs(on_grid_DA / adjusted_DA - 1.0)))


def _market_columns(
    chosen: list[Feature], panel: PricePanel, valid_DA: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    columns, names = [], []
    for feature in chosen:
        values = feature.compute(panel)
        if feature.scope == "market":
            columns.append(values[:, None])
            names.append(feature.name)
        else:
            columns.append(values)
            names += [f"{feature.name}:{ticker}" for ticker in panel.tickers]
    columns.append(valid_DA)
    names += [f"has_features:{ticker}" for ticker in panel.tickers]
    return np.concatenate(columns, axis=1).astype(np.float32), names
