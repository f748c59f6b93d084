"""What agents see of a market and of their account.

Shapes: P agents, D sessions, A assets, K asset features, F market features, E environments,
N actions, S = 1 + A account inputs.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from podracer.agents.networks import Dimensions, Inputs
from podracer.market.market import Market
from podracer.market.scaling import Scaler


@dataclass(frozen=True)
class Observations:
    """Scaled features of every session, and which assets may be bought."""

    asset_DAK: Tensor
    market_DF: Tensor
    visible_DA: Tensor
    cash_action: bool

    @property
    def sizes(self) -> Dimensions:
        """The sizes that a network for this market must have."""
        return Dimensions(
            self.asset_DAK.shape[1],
            self.asset_DAK.shape[2],
            self.market_DF.shape[1],
            self.cash_action,
        )

    def inputs(self, sessions: Tensor, account_PLES: Tensor | None) -> Inputs:
        """Return the network inputs of L sessions."""
        return Inputs(self.asset_DAK[sessions], self.market_DF[sessions], account_PLES)


def observe(market: Market, scaler: Scaler, cash_action: bool) -> Observations:
    """Scale the market's features with a scaler that was fitted on the training window."""
    return Observations(
        torch.from_numpy(np.array(market.asset_features_DAK)),
        torch.from_numpy(scaler.apply(np.asarray(market.market_features_DF))),
        torch.from_numpy(np.array(market.tradable_DA)),
        cash_action,
    )


def account_inputs(weights_AE: np.ndarray) -> Tensor:
    """Return cash and holdings as network inputs (E, S): fractions of equity times A / 2."""
    num_assets = len(weights_AE)
    cash_1E = 1.0 - weights_AE.sum(0, keepdims=True)
    inputs_ES = np.concatenate([cash_1E, weights_AE * (0.5 * num_assets)]).T
    return torch.from_numpy(np.ascontiguousarray(inputs_ES, dtype=np.float32))


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
