"""Observation functors.

Shapes: D sessions, A assets, E environments.
"""

import numpy as np

from podracer.envs.functors import (
    AccountObservation,
    AccountView,
    AssetObservation,
    Columns,
    MarketObservation,
    Observation,
)
from podracer.market.market import Market


class AssetFeatures(AssetObservation):
    """The features of each asset (`features.asset`), scores across the universe."""

    def columns(self, market: Market) -> Columns:
        """Return (D, A, K)."""
        return Columns(np.asarray(market.asset_features_DAK), tuple(market.meta["asset_features"]))


class MarketFeatures(MarketObservation):
    """The features of the market and of its past (`features.market`), and which assets have theirs."""

    def columns(self, market: Market) -> Columns:
        """Return (D, F)."""
        return Columns(np.asarray(market.market_features_DF), tuple(market.meta["market_features"]))


class Cash(AccountObservation):
    """Cash as a fraction of equity."""

    def names(self, tickers: tuple[str, ...]) -> tuple[str, ...]:
        """Return one name."""
        return ("cash",)

    def account(self, account: AccountView) -> np.ndarray:
        """Return (1, E)."""
        cash_1E: np.ndarray = 1.0 - account.weights_AE.sum(0, keepdims=True)
        return cash_1E


class Holdings(AccountObservation):
    """Each holding as a fraction of equity, times A / 2 so that it is of order one."""

    def names(self, tickers: tuple[str, ...]) -> tuple[str, ...]:
        """Return a name for each ticker."""
        return tuple(f"held:{ticker}" for ticker in tickers)

    def account(self, account: AccountView) -> np.ndarray:
        """Return (A, E)."""
        held_AE: np.ndarray = account.weights_AE * (0.5 * len(account.weights_AE))
        return held_AE


class PreviousAction(AccountObservation):
    """The last action; 0 at the start of an episode."""

    needs_history = True

    def names(self, tickers: tuple[str, ...]) -> tuple[str, ...]:
        """Return a name for each ticker."""
        return tuple(f"last action:{ticker}" for ticker in tickers)

    def account(self, account: AccountView) -> np.ndarray:
        """Return (A, E)."""
        return account.previous_AE


OBSERVATIONS: dict[str, type[Observation]] = {
    "asset_features": AssetFeatures,
    "market_features": MarketFeatures,
    "cash": Cash,
    "holdings": Holdings,
    "previous_action": PreviousAction,
}
