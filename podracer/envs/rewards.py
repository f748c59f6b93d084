"""Reward functors, and their weighted sum.

In training an order decided at the close of t is credited from its fill to the next fill: paying it
the return from close t to close t + 1 would pay it for yesterday's holdings.

Shapes: E environments.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from podracer.envs.functors import Earned, Reward, RewardParameters
from podracer.errors import PodracerError


class MeanVariance(Reward):
    """Log return less risk_aversion / 2 times its square."""

    class Parameters(RewardParameters):
        """The weight of risk."""

        risk_aversion: float = Field(10.0, ge=0, description="Weight of the squared return.")

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return r - risk_aversion / 2 · r²."""
        penalty_E = 0.5 * self.parameters.risk_aversion * np.square(earned.log_return_E)
        difference_E: np.ndarray = earned.log_return_E - penalty_E
        return difference_E


class LogReturn(Reward):
    """Log return of the account, net of costs."""

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return ln(after / before)."""
        return earned.log_return_E


class Excess(Reward):
    """Log return less that of equal weights, which pay no costs."""

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return the difference of log returns."""
        excess_E: np.ndarray = earned.log_return_E - np.log(earned.benchmark_growth_E)
        return excess_E


class DeltaEquity(Reward):
    """Change of equity as a fraction of the initial cash."""

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return (after - before) / initial value."""
        change_E: np.ndarray = (earned.after_E - earned.before_E) / earned.initial_value
        return change_E


class DifferentialSharpe(Reward):
    """Derivative of an exponentially weighted Sharpe ratio (Moody and Saffell 1998, eq. 8)."""

    class Parameters(RewardParameters):
        """How fast the past is forgotten."""

        adaptation: float = Field(
            0.01, gt=0, lt=1, description="Weight of the newest session in the moments."
        )

    def __init__(self, parameters: Parameters, num_envs: int) -> None:
        super().__init__(parameters, num_envs)
        self._mean_E, self._square_E = np.zeros((2, num_envs))

    def reset(self, is_new_E: np.ndarray) -> None:
        """Start the moments at 0."""
        self._mean_E = np.where(is_new_E, 0.0, self._mean_E)
        self._square_E = np.where(is_new_E, 0.0, self._square_E)

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return (B ΔA - A ΔB / 2) / (B - A²)^1.5; 0 while the variance is 0."""
        return_E = np.expm1(earned.log_return_E)
        d_mean_E, d_square_E = return_E - self._mean_E, np.square(return_E) - self._square_E
        variance_E = self._square_E - np.square(self._mean_E)
        slope_E = self._square_E * d_mean_E - 0.5 * self._mean_E * d_square_E
        has_moments_E = variance_E > 1e-12
        spread_E = np.power(np.maximum(variance_E, 1e-12), 1.5)
        reward_E = np.where(has_moments_E, slope_E / spread_E, 0.0)
        self._mean_E = self._mean_E + self.parameters.adaptation * d_mean_E
        self._square_E = self._square_E + self.parameters.adaptation * d_square_E
        return reward_E


class DrawdownPenalty(Reward):
    """Minus the growth of the drawdown below the account's peak; 0 while it recovers."""

    def __init__(self, parameters: RewardParameters, num_envs: int) -> None:
        super().__init__(parameters, num_envs)
        self._peak_E = np.zeros(num_envs)

    def reset(self, is_new_E: np.ndarray) -> None:
        """Forget the peak."""
        self._peak_E = np.where(is_new_E, 0.0, self._peak_E)

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return -(drawdown after - drawdown before), at most 0."""
        peak_E = np.maximum(self._peak_E, earned.before_E)
        self._peak_E = np.maximum(peak_E, earned.after_E)
        before_E = 1.0 - earned.before_E / np.maximum(peak_E, 1.0)
        after_E = 1.0 - earned.after_E / np.maximum(self._peak_E, 1.0)
        return np.minimum(before_E - after_E, 0.0)


class TurnoverPenalty(Reward):
    """Minus the notional traded, as a fraction of the account."""

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return -turnover."""
        return -earned.turnover_E


REWARDS: dict[str, type[Reward]] = {
    "mean_variance": MeanVariance,
    "log_return": LogReturn,
    "excess": Excess,
    "delta_equity": DeltaEquity,
    "differential_sharpe": DifferentialSharpe,
    "drawdown_penalty": DrawdownPenalty,
    "turnover_penalty": TurnoverPenalty,
}


class RewardSum:
    """The weighted sum of some rewards."""

    def __init__(self, terms: Sequence[Reward]) -> None:
        self._terms = terms

    def reset(self, is_new_E: np.ndarray) -> None:
        """Start some environments anew."""
        for term in self._terms:
            term.reset(is_new_E)

    def __call__(self, earned: Earned) -> np.ndarray:
        """Return the reward of each environment."""
        first, *others = (term.parameters.weight * _paid(term, earned) for term in self._terms)
        return sum(others, start=first)


def _paid(term: Reward, earned: Earned) -> np.ndarray:
    reward_E = np.asarray(term(earned))
    if reward_E.shape != earned.after_E.shape:
        raise PodracerError(
            f"reward {type(term).__name__}: expected one number an environment, shape "
            f"{earned.after_E.shape}, got {reward_E.shape}. Mend the functor."
        )
    return reward_E
