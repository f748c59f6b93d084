"""Planted markets: made-up prices with a signal of known worth, to see whether agents find it.

Shapes: D sessions, A assets.
"""

import numpy as np

from podracer.market.market import UNITS_PER_DOLLAR, Market, with_hash
from podracer.market.sessions import sessions_of
from podracer.settings import Settings

WARMUP_BARS = 0


class PlantedSettings(Settings):
    """Size and strength of a planted market; volatilities and drift are a session's."""

    num_sessions: int = 4400
    num_assets: int = 10
    correlation: float = 0.3
    idiosyncratic_volatility: float = 0.015
    market_volatility: float = 0.008
    drift: float = 0.0
    permuted: bool = False
    seed: int = 0


def planted_market(settings: PlantedSettings) -> Market:
    """Return a market whose one asset feature foretells the next earnable return.

    The feature of session t correlates with the asset's idiosyncratic return between the fill of an
    order decided at close t (close t + 1) and the next fill (close t + 2). It is exogenous: made
    before the prices, so it is public at t and does not look ahead. With `permuted` its sessions are
    shuffled, which keeps its distribution and removes its worth.
    """
    rng = np.random.default_rng(settings.seed)
    shape = (settings.num_sessions, settings.num_assets)
    noise_DA = rng.normal(size=shape)
    market_D1 = settings.market_volatility * rng.normal(size=(settings.num_sessions, 1))
    returns_DA = settings.drift + market_D1 + settings.idiosyncratic_volatility * noise_DA
    price_DA = np.round(100.0 * np.exp(np.cumsum(returns_DA, axis=0)) * UNITS_PER_DOLLAR)
    rho = settings.correlation
    signal_DA = rng.normal(size=shape)
    signal_DA[:-2] = rho * noise_DA[2:] + np.sqrt(1.0 - rho**2) * signal_DA[:-2]
    if settings.permuted:
        signal_DA = rng.permutation(signal_DA, axis=0)
    tickers = [f"PLANTED{a:02d}" for a in range(settings.num_assets)]
    sessions = sessions_of("XNYS")
    return with_hash(
        Market(
            dates_D=sessions[: settings.num_sessions].to_numpy("datetime64[D]"),
            price_DA=price_DA,
            open_DA=None,
            tradable_DA=np.ones(shape, dtype=bool),
            asset_features_DAK=signal_DA[:, :, None].astype(np.float32),
            feature_valid_DA=np.ones(shape, dtype=bool),
            market_features_DF=signal_DA.astype(np.float32),
            index_D=None,
            meta={
                "name": "planted",
                "tickers": tickers,
                "asset_features": ["signal"],
                "market_features": [f"signal:{t}" for t in tickers],
                "warmup_bars": WARMUP_BARS,
                "dataset_hash": "planted",
                "planted": settings.model_dump(),
            },
        )
    )
