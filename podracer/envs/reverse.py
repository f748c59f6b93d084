"""The reverse adapter: any Gymnasium environment, as a batch that pods can train on.

Shapes: E environments, O columns of an observation, N columns of an action.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from podracer.errors import ConfigError


class Transition(NamedTuple):
    """What a step brought to E environments.

    Attributes:
        observation_EO: what is seen now: of the next episode where one has ended.
        final_EO: what the action led to: the true last observation where an episode has ended.
        reward_E: float64.
        terminated_E: the episode has come to its end: what follows is worth nothing.
        truncated_E: it was cut off: bootstrap the value of `final_EO`.
    """

    observation_EO: np.ndarray
    final_EO: np.ndarray
    reward_E: np.ndarray
    terminated_E: np.ndarray
    truncated_E: np.ndarray

    @property
    def done_E(self) -> np.ndarray:
        """Whether an episode has ended, for any reason."""
        done_E: np.ndarray = self.terminated_E | self.truncated_E
        return done_E


class GymnasiumEnvs:
    """E copies of a Gymnasium environment with flat float32 observations.

    Whatever the environment's own autoreset mode, a step gives both the last observation of an episode
    that ended and the first of the next one.

    Attributes:
        num_actions: N for a continuous action space (actions in [-1, 1] are scaled to its bounds), the
            number of choices for a discrete one.
        is_discrete: which of the two.
    """

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]] | str, num_envs: int) -> None:
        """Open the environments.

        Args:
            make: an id, or a function that makes one environment.
            num_envs: E.

        Raises:
            ConfigError: if its observations or actions are of a kind that no agent of ours takes.
        """
        makers = [self._maker(make)] * num_envs
        self._envs: VectorEnv[Any, Any, Any] = SyncVectorEnv(
            makers, autoreset_mode=AutoresetMode.SAME_STEP
        )
        self.num_envs = num_envs
        self.name = make if isinstance(make, str) else getattr(make, "__name__", "environment")
        observation, action = self._envs.single_observation_space, self._envs.single_action_space
        if not isinstance(observation, spaces.Box):
            raise ConfigError(
                f"{self.name}: expected observations in a Box, got {observation}. Flatten them with "
                f"gymnasium.wrappers.FlattenObservation."
            )
        self.observation_width = int(np.prod(observation.shape))
        self.is_discrete = isinstance(action, spaces.Discrete)
        if isinstance(action, spaces.Discrete):
            self.num_actions = int(action.n)
            self._start = int(action.start)
        elif isinstance(action, spaces.Box) and np.isfinite([action.low, action.high]).all():
            self.num_actions = int(np.prod(action.shape))
            self._shape, self._low, self._high = action.shape, action.low, action.high
        else:
            raise ConfigError(
                f"{self.name}: expected Discrete actions or a Box with finite bounds, got {action}. "
                f"Wrap the environment."
            )

    @staticmethod
    def _maker(
        make: Callable[[], gymnasium.Env[Any, Any]] | str,
    ) -> Callable[[], gymnasium.Env[Any, Any]]:
        return (lambda: gymnasium.make(make)) if isinstance(make, str) else make

    def reset(self, seed: int) -> np.ndarray:
        """Begin all episodes; environment i is seeded with `seed` + i. Returns (E, O)."""
        observation, _ = self._envs.reset(seed=seed)
        return self._flat(observation)

    def step(self, action: np.ndarray) -> Transition:
        """Advance every environment.

        Args:
            action: (E,) choices from 0 on for a discrete space, else (E, N) in [-1, 1]; values outside
                are clipped.
        """
        seen, reward_E, terminated_E, truncated_E, info = self._envs.step(self._to_space(action))
        observation_EO = self._flat(seen)
        final_EO = observation_EO
        done_E = terminated_E | truncated_E
        if done_E.any():
            final_EO = observation_EO.copy()
            for e in np.flatnonzero(done_E):
                final_EO[e] = np.asarray(info["final_obs"][e], dtype=np.float32).ravel()
        return Transition(observation_EO, final_EO, reward_E, terminated_E, truncated_E)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _flat(self, observation: np.ndarray) -> np.ndarray:
        return np.asarray(observation, dtype=np.float32).reshape(self.num_envs, -1)

    def _to_space(self, action: np.ndarray) -> np.ndarray:
        if self.is_discrete:
            return np.asarray(action) + self._start
        unit = np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0).reshape(
            self.num_envs, *self._shape
        )
        scaled = self._low + 0.5 * (unit + 1.0) * (self._high - self._low)
        return scaled.astype(self._low.dtype)
