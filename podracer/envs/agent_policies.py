"""Trained agents as policies: a population side by side, or an ensemble on one account.

Shapes: P agents, A assets, E accounts.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from podracer.agents.algorithms import best_actions
from podracer.agents.memory import remember
from podracer.agents.networks import actor
from podracer.agents.parameters import Dimensions, Parameters
from podracer.envs.backends import Decision
from podracer.envs.observation import Observations, decision, wanted

CHUNK = 256


class ActingAgents(NamedTuple):
    """What is needed of P agents to act: weights, and how scores become trades."""

    algorithm: str
    sizes: Dimensions
    weights: Parameters
    gain_P: Tensor
    speed_P: Tensor


class PopulationPolicy:
    """P agents without exploration noise, each on its own account."""

    def __init__(self, agents: ActingAgents, observations: Observations) -> None:
        self.num_policies = len(agents.weights)
        self._agents = agents
        self._observations = observations
        self._reads_account = "mlp_out" in agents.weights
        self._speed_P = agents.speed_P.double().numpy()
        self._known: tuple[int, np.ndarray] | None = None

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Return every agent's target for its own account."""
        if self._reads_account:
            account = self._observations.account(weights_AE)[:, None, None, :]
            target_AP = self._targets(torch.tensor([session]), account)[0]
        else:
            target_AP = self._chunk(session // CHUNK)[session % CHUNK]
        return decision(target_AP, self._speed_P, self._observations.settings)

    def _chunk(self, number: int) -> np.ndarray:
        """Return the targets of many sessions at once (L, A, P), where no account matters.

        Chunks start at the same sessions whatever the window, so that the bits do too.
        """
        if self._known is None or self._known[0] != number:
            last = min((number + 1) * CHUNK, len(self._observations.visible_DA))
            self._known = number, self._targets(torch.arange(number * CHUNK, last), None)
        return self._known[1]

    def _targets(self, session_L: Tensor, account: Tensor | None) -> np.ndarray:
        with torch.inference_mode():
            weights = self._agents.weights
            bars = weights.layout.memory_bars
            given = self._observations.inputs(session_L[:, None], account, bars)
            inputs = remember(weights, given)
            output, _ = actor(weights, inputs)
            actions_PLN = best_actions(self._agents.algorithm, self._agents.sizes, output[:, :, 0])
            target_PLA = wanted(
                actions_PLN,
                self._agents.gain_P[:, None, None],
                self._observations.visible_DA[session_L],
                self._observations.settings.action,
            )
        return np.ascontiguousarray(target_PLA.permute(1, 2, 0).numpy())


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
        target_A, speed = average_move(wants.wanted_AE, wants.scale_E)
        return Decision(
            target_A[:, None].astype(np.float32),
            np.array([speed]),
            wants.band_E.mean(keepdims=True),
            wants.kind,
        )
