"""Trained agents from their checkpoints: one agent, or an ensemble that acts as one.

Shapes: M agents, A assets, K asset features, F market features, X rows of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from podracer.agents import checkpoint
from podracer.agents.algorithms import best_actions
from podracer.agents.memory import remember
from podracer.agents.networks import Inputs, actor
from podracer.agents.parameters import Anatomy, Dimensions, Parameters, layout
from podracer.agents.settings import NetworkSettings
from podracer.envs.agent_policies import (
    ActingAgents,
    EnsemblePolicy,
    PopulationPolicy,
    average_move,
)
from podracer.envs.declared import account_functors
from podracer.envs.observation import (
    account_inputs,
    observation_spec,
    observe,
    wanted,
)
from podracer.envs.settings import EnvSettings
from podracer.errors import CheckpointError
from podracer.market.market import Market
from podracer.market.scaling import Scaler

# What agents of an ensemble must have in common.
ALIKE = ("algorithm", "network", "sizes", "anatomy", "features", "market_hash")


@dataclass(frozen=True)
class FrozenAgents:
    """M agents of one market, with all they need to act."""

    acting: ActingAgents
    scaler: Scaler
    features: dict[str, Any]
    settings: EnvSettings

    def policy(self, market: Market) -> EnsemblePolicy:
        """Return the agents' average as a policy on a market.

        Raises:
            CheckpointError: if the market has other tickers or features than they were trained on.
        """
        observations = observe(market, self.scaler, self.settings)
        found = observation_spec(market, observations.tables)
        if found != self.features:
            wrong = [k for k, v in found.items() if v != self.features[k]]
            raise CheckpointError(
                f"the agents were trained on other {', '.join(wrong).replace('_', ' ')} than market "
                f"{market.meta['name']!r} has. Use the market they were trained on, or train anew."
            )
        return EnsemblePolicy(PopulationPolicy(self.acting, observations))

    def desired_weights(self, observation_XO: np.ndarray) -> np.ndarray:
        """Return the weights (X, A) that the agents order: held weights moved as they want.

        Gaps inside the no-trade band are left alone. Every asset is taken to trade; fills, whole
        shares and costs are the market's.


        Args:
            observation_XO: one row an account: cash and holdings as fractions of equity (1 + A),
                the asset features (A·K, asset by asset) and the unscaled market features (F) of as many
                sessions as the agents remember, the present one last.
        """
        A = self.acting.sizes.num_assets
        rows_XO = np.asarray(observation_XO, dtype=np.float32)
        held_XA = rows_XO[:, 1 : 1 + A]
        wants_XAM = self._wants(rows_XO, held_XA)
        speed_M = self.acting.speed_P.double().numpy()
        if self.settings.action.mode == "weights":
            target_XA, speed = average_move(wants_XAM, speed_M)
            gap_XA = target_XA - held_XA
            trades_XA = np.abs(gap_XA) >= self.settings.action.no_trade_band / A
            move_XA = speed * gap_XA * trades_XA
        else:
            move_XA = wants_XAM.mean(-1) * self.settings.action.max_trade_fraction
        moved_XA: np.ndarray = np.maximum(held_XA + move_XA, 0.0).astype(np.float32)
        return moved_XA

    def _wants(self, rows_XO: np.ndarray, held_XA: np.ndarray) -> np.ndarray:
        """Return what each agent wants (X, A, M)."""
        A, K = self.acting.sizes[:2]
        M = len(self.acting.weights)
        asset_XAK = torch.from_numpy(rows_XO[:, 1 + A : 1 + A + A * K].reshape(-1, A, K).copy())
        bars = self.acting.weights.layout.memory_bars
        past_XQF = rows_XO[:, 1 + A + A * K :].reshape(len(rows_XO), bars, -1)
        market_XQF = torch.from_numpy(self.scaler.apply(past_XQF))
        account_XS = account_inputs(account_functors(self.settings), held_XA.T.astype(np.float64))
        account_MX1S = account_XS[None, :, None, :].expand(M, -1, 1, -1)
        with torch.inference_mode():
            given = Inputs(
                asset_XAK, market_XQF[:, -1], account_MX1S, market_XQF if bars > 1 else None
            )
            output, _ = actor(self.acting.weights, remember(self.acting.weights, given))
            actions = best_actions(self.acting.algorithm, self.acting.sizes, output[:, :, 0])
            everything = torch.ones(A, dtype=torch.bool)
            gain_M11 = self.acting.gain_P.view(M, 1, 1)
            wants_MXA = wanted(actions, gain_M11, everything, self.settings.action)
        return wants_MXA.permute(1, 2, 0).numpy()


def load_agents(stems: Sequence[Path]) -> FrozenAgents:
    """Load agents that were trained on the same market with the same network.

    Raises:
        CheckpointError: if a checkpoint is missing or damaged, or they do not belong together.
    """
    loaded = [checkpoint.load(stem) for stem in stems]
    facts = loaded[0][1]
    for (_, other), stem in zip(loaded, stems, strict=True):
        if any(other[k] != facts[k] for k in ALIKE):
            raise CheckpointError(
                f"{stem}: trained on another market or with another network than {stems[0]}; "
                f"an ensemble needs agents of one tournament."
            )
    features = facts["features"]
    settings = EnvSettings(**facts["env"])
    sizes = Dimensions(**facts["sizes"])
    anatomy = Anatomy(**facts["anatomy"])
    hyper = [other["hyperparameters"] for _, other in loaded]
    acting = ActingAgents(
        facts["algorithm"],
        sizes,
        Parameters(
            torch.stack([tensors["weights"] for tensors, _ in loaded]),
            layout(NetworkSettings(**facts["network"]), sizes, anatomy),
        ),
        torch.tensor([h["gain"] for h in hyper]),
        torch.tensor([h["speed"] for h in hyper]),
    )
    tensors = loaded[0][0]
    scaler = Scaler(tensors["scaler_mean"].numpy(), tensors["scaler_std"].numpy())
    return FrozenAgents(acting, scaler, features, settings)
