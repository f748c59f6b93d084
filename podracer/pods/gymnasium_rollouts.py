"""Rollouts of a population in any Gymnasium environment; episodes go on from one to the next.

Shapes: P agents, T decisions, E environments of an agent, O columns of an observation (the account
inputs of the networks), N actions.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from podracer.agents.networks import Inputs, actor, observed
from podracer.agents.parameters import Dimensions
from podracer.envs.reverse import GymnasiumEnvs
from podracer.pods.experience import Experience, Explorers


class GymnasiumRollouts:
    """E copies of an environment for each agent.

    Attributes:
        finished_P: returns of the episodes that each agent has finished, in order.
    """

    has_cohorts = False

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]] | str,
        num_agents: int,
        envs_per_agent: int,
        horizon: int,
        seed: int,
    ) -> None:
        """Open the environments and begin their episodes.

        Args:
            make: an id, or a function that makes one environment.
            num_agents: P.
            envs_per_agent: E.
            horizon: T.
            seed: of the first environment; the others follow.
        """
        self._envs = GymnasiumEnvs(make, num_agents * envs_per_agent)
        self._shape = (num_agents, horizon, envs_per_agent)
        self.steps = horizon * envs_per_agent
        self.sizes = sizes_of(self._envs)
        self._now = self._by_agent(self._envs.reset(seed))
        self._return_PE = np.zeros((num_agents, envs_per_agent))
        self.finished_P: list[list[float]] = [[] for _ in range(num_agents)]

    def inputs(self, session_CT: Tensor, account_PLES: Tensor | None) -> Inputs:
        """Return what networks see: the observation alone."""
        if account_PLES is None:
            raise ValueError("an environment without a market is seen by its observations alone")
        return observed(account_PLES.flatten(1, 2))

    def collect(self, agents: Explorers) -> Experience:
        """Let all agents act for T steps."""
        P, T, E = self._shape
        noise = agents.noise((1, T, E), is_paired=False)
        account = torch.zeros(P, 1, T + 1, E, self.sizes.num_account_inputs)
        final = torch.zeros(P, 1, T, E, self.sizes.num_account_inputs)
        reward, ended, done = (torch.zeros(P, 1, T, E) for _ in range(3))
        outputs, actions = [], []
        for t in range(T):
            account[:, 0, t] = self._now
            output, _ = actor(agents.weights, observed(self._now))
            outputs.append(output[:, :, None])
            drawn = agents.exploration.draw(
                outputs[-1], noise[:, :, t : t + 1], agents.weights, agents.steps + t * E
            )
            actions.append(drawn)
            step = self._envs.step(self._to_envs(drawn))
            final[:, 0, t] = self._by_agent(step.final_EO)
            reward[:, 0, t] = torch.from_numpy(step.reward_E).view(P, E)
            ended[:, 0, t] = torch.from_numpy(step.terminated_E).view(P, E)
            done[:, 0, t] = torch.from_numpy(step.done_E).view(P, E)
            self._note(step.reward_E.reshape(P, E), step.done_E.reshape(P, E))
            self._now = self._by_agent(step.observation_EO)
        account[:, 0, T] = self._now
        return Experience(
            torch.zeros(1, T, dtype=torch.int64),
            noise,
            torch.cat(outputs, dim=2),
            torch.cat(actions, dim=2),
            account,
            final,
            reward,
            torch.ones_like(reward),
            1.0 - ended,
            1.0 - done,
        )

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _to_envs(self, action_PCTEN: Tensor) -> np.ndarray:
        action_XN: np.ndarray = action_PCTEN.flatten(0, -2).numpy()
        return action_XN[:, 0].astype(np.int64) if self.sizes.num_choices else action_XN

    def _by_agent(self, values_EO: np.ndarray) -> Tensor:
        P, _, E = self._shape
        return torch.from_numpy(values_EO).view(P, E, -1)

    def _note(self, reward_PE: np.ndarray, done_PE: np.ndarray) -> None:
        self._return_PE += reward_PE
        for p, e in np.argwhere(done_PE):
            self.finished_P[p].append(float(self._return_PE[p, e]))
            self._return_PE[p, e] = 0.0


def sizes_of(envs: GymnasiumEnvs) -> Dimensions:
    """Return what networks for an environment must fit."""
    num_actions = 1 if envs.is_discrete else envs.num_actions
    num_choices = envs.num_actions if envs.is_discrete else 0
    return Dimensions(0, 0, 0, envs.observation_width, num_actions, num_choices)
