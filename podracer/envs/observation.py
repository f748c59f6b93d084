"""What agents see of a market and of their account, and what their scores mean as actions.

Shapes: P agents, D sessions, A assets, K asset features, F market features, E environments,
N actions, S account inputs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from podracer.agents.networks import Inputs
from podracer.agents.parameters import Dimensions
from podracer.envs.backends import Decision
from podracer.envs.declared import (
    AccountFunctors,
    ObservationTables,
    account_functors,
    observation_tables,
    weights_only,
)
from podracer.envs.settings import ActionSettings, EnvSettings
from podracer.envs.tables import LOTS_PER_FRACTIONAL_SHARE
from podracer.market.market import Market
from podracer.market.scaling import Scaler

CHOICES = ("sell", "hold", "buy")


@dataclass(frozen=True)
class Observations:
    """Scaled features of every session, and which assets may be bought."""

    asset_DAK: Tensor
    market_DF: Tensor
    visible_DA: Tensor
    tables: ObservationTables
    settings: EnvSettings

    @property
    def sizes(self) -> Dimensions:
        """The sizes that a network for this market must have."""
        _, A, K = self.asset_DAK.shape
        return dimensions(self.settings, A, K, self.market_DF.shape[1])

    def inputs(
        self, session_CT: Tensor, account_PLES: Tensor | None, memory_bars: int = 1
    ) -> Inputs:
        """Return the network inputs of L = C·T sessions.

        Args:
            session_CT: stretches of consecutive sessions.
            account_PLES: what accounts look like, or None where nothing reads it.
            memory_bars: sessions that a memory reaches back, with the present one; before the first
                of the market it sees zeros, as of average features.
        """
        session_L = session_CT.flatten()
        past_CQF = None
        if memory_bars > 1:
            before_K = torch.arange(1 - memory_bars, 0)
            rows_CQ = torch.cat([session_CT[:, :1] + before_K, session_CT], dim=1)
            past_CQF = self.market_DF[rows_CQ.clamp(min=0)] * (rows_CQ >= 0)[..., None]
        return Inputs(self.asset_DAK[session_L], self.market_DF[session_L], account_PLES, past_CQF)

    def account(self, weights_AE: np.ndarray) -> Tensor:
        """Return what accounts look like as network inputs (E, S)."""
        return account_inputs(self.tables.account, weights_AE)


def observe(market: Market, scaler: Scaler, settings: EnvSettings) -> Observations:
    """Scale the declared observations with a scaler that was fitted on the training window."""
    tables = observation_tables(market, settings)
    return Observations(
        torch.from_numpy(np.array(tables.asset_DAK)),
        torch.from_numpy(scaler.apply(np.asarray(tables.market_DF))),
        torch.from_numpy(np.array(market.tradable_DA)),
        tables,
        settings,
    )


def observation_spec(market: Market, tables: ObservationTables) -> dict[str, Any]:
    """Return what a checkpoint must agree with before it may be used on a market."""
    return {
        "tickers": list(market.tickers),
        "asset_features": list(tables.asset_names),
        "market_features": list(tables.market_names),
    }


def account_inputs(account: AccountFunctors, weights_AE: np.ndarray) -> Tensor:
    """Return what accounts of given holdings look like as network inputs (E, S)."""
    inputs_SE = account.columns(weights_only(weights_AE))
    return torch.from_numpy(np.ascontiguousarray(inputs_SE.T, dtype=np.float32))


def dimensions(
    settings: EnvSettings, num_assets: int, num_asset_features: int, num_market_features: int
) -> Dimensions:
    """Return the sizes that a network for such a market must have."""
    action = settings.action
    return Dimensions(
        num_assets,
        num_asset_features,
        num_market_features,
        account_width(account_functors(settings), num_assets),
        num_assets + int(action.cash_action and action.mode == "weights"),
        len(CHOICES) if action.mode == "discrete" else 0,
    )


def account_width(account: AccountFunctors, num_assets: int) -> int:
    """Return S."""
    return len(account.names(("",) * num_assets))


def wanted(scores: Tensor, gain: Tensor, visible: Tensor, action: ActionSettings) -> Tensor:
    """Turn scores (…, N) into what a decision wants of each asset (…, A).

    Mode weights: see `target_weights`. Modes notional and shares: gain · score within [-1, 1]. Mode
    discrete: the scores are numbers of `CHOICES`.
    """
    if action.mode == "discrete":
        return (scores - CHOICES.index("hold")) * visible
    if action.mode == "weights":
        return target_weights(scores, gain, visible)
    return (scores * gain).clamp(-1.0, 1.0) * visible


def decision(wanted_AE: np.ndarray, speed_E: np.ndarray, settings: EnvSettings) -> Decision:
    """Return the decision of agents that want this and move at that speed (mode weights)."""
    action = settings.action
    num_assets, num_envs = wanted_AE.shape
    if action.mode == "weights":
        band = action.no_trade_band / num_assets
        return Decision(wanted_AE, speed_E, np.full(num_envs, band), "weights")
    nothing_E = np.zeros(num_envs)
    if action.mode == "shares":
        lots = LOTS_PER_FRACTIONAL_SHARE if settings.shares == "fractional" else 1
        largest = np.full(num_envs, action.max_trade_shares * lots)
        return Decision(wanted_AE, largest, nothing_E, "shares")
    largest = np.full(num_envs, action.max_trade_fraction)
    return Decision(wanted_AE, largest, nothing_E, "notional")


def target_weights(scores: Tensor, gain: Tensor, visible: Tensor) -> Tensor:
    """Turn scores (…, N) into target weights (…, A): softmax(gain · score).

    Assets that do not trade get 0. A score more than assets is cash, whose weight is left out, so
    the targets then sum to less than 1.

    Args:
        scores: one for each asset, and maybe one for cash.
        gain: broadcastable to the scores.
        visible: which assets trade, broadcastable to (…, A).
    """
    num_assets = visible.shape[-1]
    scaled = scores * gain
    assets = scaled[..., :num_assets].masked_fill(~visible, -torch.inf)
    if scores.shape[-1] > num_assets:
        weights = torch.softmax(torch.cat([assets, scaled[..., num_assets:]], dim=-1), dim=-1)
        return weights[..., :num_assets]
    # With no asset to buy the softmax is 0/0; the target is then all cash.
    return torch.nan_to_num(torch.softmax(assets, dim=-1))
