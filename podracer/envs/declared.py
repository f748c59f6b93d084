"""From the declaration of an environment to its functors.

Shapes: D sessions, A assets, K asset features, F market features, E environments, S account inputs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from podracer.envs.functors import (
    AccountObservation,
    AccountView,
    AssetObservation,
    Columns,
    MarketObservation,
    Observation,
)
from podracer.envs.registry import summary
from podracer.envs.rewards import RewardSum
from podracer.envs.settings import (
    KNOWN,
    KNOWN_OBSERVATIONS,
    KNOWN_REWARDS,
    KNOWN_TERMINATIONS,
    EnvSettings,
)
from podracer.envs.terminations import AnyTermination
from podracer.errors import ConfigError, MarketDataError, PodracerError
from podracer.market.market import Market
from podracer.market.scaling import Scaler, fit_scaler
from podracer.market.windows import Window


def rewards(settings: EnvSettings, num_envs: int) -> RewardSum:
    """Return the declared reward."""
    chosen = settings.rewards.chosen()
    return RewardSum([KNOWN_REWARDS[name](given, num_envs) for name, given in chosen.items()])


def terminations(settings: EnvSettings, num_envs: int) -> AnyTermination:
    """Return the declared reasons to end an episode."""
    chosen = settings.terminations.chosen()
    reasons = [KNOWN_TERMINATIONS[name](given, num_envs) for name, given in chosen.items()]
    return AnyTermination(reasons, num_envs)


def observation_functors(settings: EnvSettings) -> dict[str, Observation]:
    """Return the declared observation functors by name."""
    chosen = settings.observations.chosen()
    return {name: KNOWN_OBSERVATIONS[name](given) for name, given in chosen.items()}


class AccountFunctors(NamedTuple):
    """What agents see of their account."""

    functors: tuple[AccountObservation, ...]

    def names(self, tickers: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name of every column."""
        return tuple(name for functor in self.functors for name in functor.names(tickers))

    def columns(self, view: AccountView) -> np.ndarray:
        """Return what accounts look like (S, E)."""
        parts = [_finite(functor, functor.account(view)) for functor in self.functors]
        columns_SE: np.ndarray = np.concatenate([*parts, np.empty((0, len(view.equity_E)))])
        return columns_SE


def account_functors(settings: EnvSettings) -> AccountFunctors:
    """Return the declared functors of the account."""
    functors = observation_functors(settings).values()
    return AccountFunctors(tuple(f for f in functors if isinstance(f, AccountObservation)))


def _finite(functor: AccountObservation, columns_SE: np.ndarray) -> np.ndarray:
    if not np.isfinite(columns_SE).all():
        raise PodracerError(
            f"observation {type(functor).__name__}: expected numbers, got nan or inf. A functor that reads "
            f"more of an account than its weights must say needs_history = True, and is for faces only."
        )
    return columns_SE


class ObservationTables(NamedTuple):
    """What agents see of a market, before scaling.

    Attributes:
        asset_DAK: float32; K is 0 where no functor gives asset columns.
        market_DF: float32, unscaled.
        is_scaled_F: whether a market column is to be scaled.
        asset_names: K.
        market_names: F.
        account: what is seen of the account.
    """

    asset_DAK: np.ndarray
    market_DF: np.ndarray
    is_scaled_F: np.ndarray
    asset_names: tuple[str, ...]
    market_names: tuple[str, ...]
    account: AccountFunctors

    def names(self, tickers: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name of every column of a flat observation."""
        return (
            *self.account.names(tickers),
            *(f"{name}:{ticker}" for ticker in tickers for name in self.asset_names),
            *self.market_names,
        )

    def fit(self, window: Window) -> Scaler:
        """Return the scaler of the market columns, fitted on a window."""
        fitted = fit_scaler(self.market_DF, window)
        return Scaler(
            np.where(self.is_scaled_F, fitted.mean_F, 0).astype(np.float32),
            np.where(self.is_scaled_F, fitted.std_F, 1).astype(np.float32),
        )


def observation_tables(market: Market, settings: EnvSettings) -> ObservationTables:
    """Compute the declared observations of a market.

    Raises:
        ConfigError: if a hidden state is to be seen that the market does not have.
        MarketDataError: if a functor gives a table of another shape, or a hole in an asset column.
    """
    D, A = market.price_DA.shape
    assets: list[Columns] = []
    markets: list[Columns] = []
    is_scaled: list[bool] = []
    for name, functor in observation_functors(settings).items():
        if isinstance(functor, AssetObservation):
            assets.append(_shaped(name, functor.columns(market), (D, A)))
            _require_numbers(name, assets[-1], market)
        elif isinstance(functor, MarketObservation):
            markets.append(_shaped(name, functor.columns(market), (D,)))
            is_scaled += [functor.is_scaled] * len(markets[-1].names)
    if settings.observability == "full":
        markets.append(_hidden(market))
        is_scaled += [False] * len(markets[-1].names)
    asset = _joined(assets, np.empty((D, A, 0), dtype=np.float32))
    seen = _joined(markets, np.empty((D, 0), dtype=np.float32))
    return ObservationTables(
        asset.values,
        seen.values,
        np.array(is_scaled, dtype=bool),
        asset.names,
        seen.names,
        account_functors(settings),
    )


def _shaped(name: str, columns: Columns, rows: tuple[int, ...]) -> Columns:
    shape = (*rows, len(columns.names))
    if columns.values.shape != shape:
        raise MarketDataError(
            f"env.observations.{name}: expected a table of shape {shape}, got "
            f"{columns.values.shape}. Mend the functor."
        )
    return columns


def _require_numbers(name: str, columns: Columns, market: Market) -> None:
    """A missing market column counts as its mean; a missing column of one asset would poison all."""
    wrong = np.argwhere(~np.isfinite(columns.values))
    if len(wrong):
        d, a, k = wrong[0]
        date = np.asarray(market.dates_D)[d]
        raise MarketDataError(
            f"env.observations.{name}: {columns.names[k]!r} of {market.tickers[a]} is "
            f"{columns.values[d, a, k]} on {date}, expected a number (0 where there is "
            f"none). Mend the functor."
        )


def _hidden(market: Market) -> Columns:
    if market.hidden_DF is None:
        raise ConfigError(
            f"env.observability: full needs a market with a hidden state, which "
            f"{market.meta['name']!r} does not have. Use partial."
        )
    return Columns(np.asarray(market.hidden_DF), tuple(market.meta["hidden_features"]))


def _joined(parts: Sequence[Columns], empty: np.ndarray) -> Columns:
    if len(parts) == 1:
        return Columns(parts[0].values.astype(np.float32, copy=False), parts[0].names)
    values = np.concatenate([empty, *(part.values for part in parts)], axis=-1)
    return Columns(values.astype(np.float32), tuple(n for part in parts for n in part.names))


def weights_only(weights_AE: np.ndarray) -> AccountView:
    """Return the view of accounts of which only the holdings are known; the rest is NaN."""
    num_envs = weights_AE.shape[1]
    unknown_E, unknown_AE = np.full(num_envs, np.nan), np.full(weights_AE.shape, np.nan)
    return AccountView(lambda: weights_AE, unknown_E, np.nan, unknown_AE)


def explain(settings: EnvSettings) -> list[tuple[str, str, dict[str, Any], str]]:
    """Return kind, name, parameters and meaning of every declared functor."""
    return [
        (kind, name, given.model_dump(), summary(functors[name]))
        for kind, functors in KNOWN.items()
        for name, given in getattr(settings, kind).chosen().items()
    ]
