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


class HiddenRegimeSettings(Settings):
    """A market whose drift has a sign that nobody sees."""

    num_sessions: int = 6000
    volatility: float = 0.01
    drift_over_volatility: float = 0.3
    stay: float = 0.98
    seed: int = 0


def hidden_regime_market(settings: HiddenRegimeSettings) -> Market:
    """Return a market of one asset in two hidden regimes; only its noisy returns are seen.

    The log return of session t is volatility · (drift_over_volatility · s_t + noise), where the sign
    s_t stays as it was with probability `stay`. The one feature of session t is the return of t over
    the volatility; the hidden state is s_t.
    """
    rng = np.random.default_rng(settings.seed)
    num_sessions = settings.num_sessions
    flips_D = rng.random(num_sessions) >= settings.stay
    sign_D = np.where(np.cumsum(flips_D) % 2 == 0, 1.0, -1.0) * rng.choice([-1.0, 1.0])
    seen_D = settings.drift_over_volatility * sign_D + rng.normal(size=num_sessions)
    price_D = 1_000.0 * np.exp(settings.volatility * np.cumsum(seen_D))
    shape = (num_sessions, 1)
    return with_hash(
        Market(
            # Weekdays: no exchange has kept a calendar for as long as a learning study needs.
            dates_D=np.busday_offset("1900-01-01", np.arange(num_sessions), roll="forward"),
            price_DA=np.round(price_D * UNITS_PER_DOLLAR).reshape(shape),
            open_DA=None,
            tradable_DA=np.ones(shape, dtype=bool),
            asset_features_DAK=seen_D.astype(np.float32).reshape(*shape, 1),
            feature_valid_DA=np.ones(shape, dtype=bool),
            market_features_DF=seen_D.astype(np.float32).reshape(shape),
            index_D=None,
            meta={
                "name": "hidden regime",
                "tickers": ["REGIME"],
                "asset_features": ["return"],
                "market_features": ["return"],
                "hidden_features": ["regime"],
                "warmup_bars": WARMUP_BARS,
                "dataset_hash": "hidden regime",
                "planted": settings.model_dump(),
            },
            hidden_DF=sign_D.astype(np.float32).reshape(shape),
        )
    )


def regime_posterior(seen_D: np.ndarray, settings: HiddenRegimeSettings) -> np.ndarray:
    """Return P(s_t = 1 | returns up to t) of every session (D,): the exact Bayes filter.

    Long iff this is above a half is the best policy at any delay of the fill: k sessions later the
    probability has moved towards a half, and not past it.

    Args:
        seen_D: returns over volatility.
        settings: of the market.
    """
    posterior_D = np.empty(len(seen_D))
    probability = 0.5
    drift, stay = settings.drift_over_volatility, settings.stay
    for t, seen in enumerate(seen_D):
        prior = stay * probability + (1.0 - stay) * (1.0 - probability)
        odds = prior / (1.0 - prior) * np.exp(2.0 * drift * float(seen))
        probability = odds / (1.0 + odds)
        posterior_D[t] = probability
    return posterior_D
