"""What the accounts of a rollout earn, credited from fill to fill.

Shapes: T decisions, E environments.
"""

import numpy as np

from podracer.envs.declared import rewards, terminations
from podracer.envs.functors import AccountView, Earned
from podracer.envs.settings import EnvSettings
from podracer.envs.trading import TradingEnv


class Earnings:
    """The rewards of T decisions, each known one fill after its own, and which episodes are open.

    Attributes:
        reward_TE: 0 once an episode has ended early.
        is_open_TE: (T + 1, E): the episode had not ended before decision t, or after the last.
    """

    def __init__(self, env: TradingEnv, settings: EnvSettings, growth_TE: np.ndarray) -> None:
        """Start with the accounts of `env`.

        Args:
            env: has just been reset.
            settings: name rewards and terminations.
            growth_TE: of equal weights, from the fill of each decision to the next fill.
        """
        num_decisions, num_envs = growth_TE.shape
        self.reward_TE = np.empty((num_decisions, num_envs))
        self.is_open_TE = np.ones((num_decisions + 1, num_envs), dtype=bool)
        self._env = env
        self._growth_TE = growth_TE
        self._reward = rewards(settings, num_envs)
        self._termination = terminations(settings, num_envs)
        self._value_E = env.equity_E
        self._trade = env.trade

    def note(self, t: int, value_E: np.ndarray, wanted_AE: np.ndarray) -> None:
        """Take in a step of the environment.

        Args:
            t: its decision.
            value_E: the accounts at its fill prices, before its orders.
            wanted_AE: what was decided.
        """
        if t > 0:
            self._credit(t - 1, value_E)
        self._value_E, self._trade = value_E, self._env.trade
        env = self._env
        view = AccountView(env.weights_AE, env.equity_E, env.initial_value, wanted_AE)
        self.is_open_TE[t + 1] = self.is_open_TE[t] & ~self._termination(view)

    def finish(self) -> None:
        """Credit the last decision up to the next fill."""
        self._credit(len(self.reward_TE) - 1, self._env.next_fill_value_E())

    def _credit(self, t: int, value_E: np.ndarray) -> None:
        trade = self._trade
        earned = Earned(
            self._value_E,
            value_E,
            self._growth_TE[t],
            self._env.initial_value,
            lambda: trade.costs().traded_E,
        )
        self.reward_TE[t] = self._reward(earned) * self.is_open_TE[t]
