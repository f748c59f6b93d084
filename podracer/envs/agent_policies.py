"""Trained agents as policies: a population side by side, or an ensemble on one account.

Shapes: P agents, A assets, E accounts, W weights of one agent.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from podracer.agents.networks import Parameters, action_means, reads_account
from podracer.envs.observation import Observations, account_inputs, target_weights
from podracer.envs.trading import Decision


class ActingAgents(NamedTuple):
    """What is needed of P agents to act: weights, and how scores become trades."""

    weights_PW: Tensor
    shapes: dict[str, tuple[int, ...]]
    gain_P: Tensor
    speed_P: Tensor


class PopulationPolicy:
    """P agents without exploration noise, each on its own account."""

    def __init__(
        self, agents: ActingAgents, observations: Observations, no_trade_band: float
    ) -> None:
        self.num_policies = len(agents.weights_PW)
        self._parameters = Parameters(agents.weights_PW, agents.shapes)
        self._agents = agents
        self._observations = observations
        self._reads_account = reads_account(self._parameters)
        self._speed_P = agents.speed_P.double().numpy()
        band = no_trade_band / observations.sizes.num_assets
        self._band_P = np.full(self.num_policies, band)

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Return every agent's target for its own account."""
        account = account_inputs(weights_AE)[:, None, None, :] if self._reads_account else None
        with torch.inference_mode():
            inputs = self._observations.inputs(torch.tensor([session]), account)
            scores_PN = action_means(self._parameters, inputs)[:, 0, 0]
            target_PA = target_weights(
                scores_PN, self._agents.gain_P[:, None], self._observations.visible_DA[session]
            )
        return Decision(np.ascontiguousarray(target_PA.numpy().T), self._speed_P, self._band_P)


def average_move(target_AE: np.ndarray, speed_E: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the target (A,) and the speed whose move is the average of E agents' moves.

    Each agent would move the portfolio w by speed · (target - w). The average of these moves is
    again a target and a speed: the speed-weighted mean target, and the mean speed.
    """
    target_A = (target_AE.astype(np.float64) * (speed_E / speed_E.sum())).sum(-1)
    return target_A, float(speed_E.mean())


class EnsemblePolicy:
    """The average of what M agents want, on one account; an ensemble of one is that agent."""

    num_policies = 1

    def __init__(self, members: PopulationPolicy) -> None:
        self._members = members

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Return the average decision of the members for the shared account."""
        num_members = self._members.num_policies
        wants = self._members.decide(session, np.repeat(weights_AE, num_members, axis=1))
        target_A, speed = average_move(wants.target_AE, wants.speed_E)
        return Decision(
            target_A[:, None].astype(np.float32),
            np.array([speed]),
            wants.band_E.mean(keepdims=True),
        )
