"""Termination functors: why an episode ends before its window does.

Shapes: E environments.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from podracer.envs.functors import AccountView, Termination
from podracer.settings import Settings


class Ruin(Termination):
    """Equity has fallen to a fraction of the initial cash."""

    class Parameters(Settings):
        """Where ruin begins."""

        fraction: float = Field(
            0.05, ge=0, lt=1, description="Equity at or below this fraction of the initial cash."
        )

    def __call__(self, account: AccountView) -> np.ndarray:
        """Return which accounts are ruined."""
        ruined_E: np.ndarray = account.equity_E <= self.parameters.fraction * account.initial_value
        return ruined_E


class DrawdownLimit(Termination):
    """Equity has fallen too far below its peak of this episode."""

    class Parameters(Settings):
        """How far is too far."""

        fraction: float = Field(0.2, gt=0, lt=1, description="Drawdown at which an episode ends.")

    def __init__(self, parameters: Parameters, num_envs: int) -> None:
        super().__init__(parameters, num_envs)
        self._peak_E = np.zeros(num_envs)

    def reset(self, is_new_E: np.ndarray) -> None:
        """Forget the peak."""
        self._peak_E = np.where(is_new_E, 0.0, self._peak_E)

    def __call__(self, account: AccountView) -> np.ndarray:
        """Return which accounts are at their limit; the initial cash is the first peak."""
        self._peak_E = np.maximum(np.maximum(self._peak_E, account.initial_value), account.equity_E)
        floor_E = (1.0 - self.parameters.fraction) * self._peak_E
        at_limit_E: np.ndarray = account.equity_E <= floor_E
        return at_limit_E


TERMINATIONS: dict[str, type[Termination]] = {"ruin": Ruin, "drawdown_limit": DrawdownLimit}


class AnyTermination:
    """An episode ends for any of some reasons."""

    def __init__(self, reasons: Sequence[Termination], num_envs: int) -> None:
        self._reasons = reasons
        self._none_E = np.zeros(num_envs, dtype=bool)

    def reset(self, is_new_E: np.ndarray) -> None:
        """Start some environments anew."""
        for reason in self._reasons:
            reason.reset(is_new_E)

    def __call__(self, account: AccountView) -> np.ndarray:
        """Return which environments end."""
        done_E = self._none_E
        for reason in self._reasons:
            done_E = done_E | reason(account)
        return done_E
