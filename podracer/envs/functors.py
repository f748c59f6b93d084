"""What an environment is declared of: observation, reward and termination functors.

A functor is a small class with a typed parameter model, registered under a name. Packages other than
podracer add theirs through entry points (`podracer.observations`, `podracer.rewards`,
`podracer.terminations`); such a module imports this one and `podracer.settings` only. All functors
are vectorised: one call for E accounts.

Shapes: D sessions, A assets, E environments, K features of an asset, F of the market, S of an account.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from podracer.settings import Settings

# Ratios of equity below this count as this: the logarithm of a lost account stays finite.
LEAST_GROWTH = 1e-6


class NoParameters(Settings):
    """A functor without parameters."""


class RewardParameters(Settings):
    """What every reward functor can be told."""

    weight: float = Field(1.0, gt=0, description="Factor of this reward in the sum.")


class Earned:
    """What E accounts earned over a span: close to close in a face, fill to fill in training.

    Attributes:
        before_E: value at the start of the span, money units.
        after_E: value at its end, after costs.
        benchmark_growth_E: growth of one dollar in equal weights over the span.
        initial_value: what every account started with.
    """

    def __init__(
        self,
        before_E: np.ndarray,
        after_E: np.ndarray,
        benchmark_growth_E: np.ndarray,
        initial_value: float,
        traded: Callable[[], np.ndarray],
    ) -> None:
        """Take the values; `traded` gives the notional traded in the span when it is asked for."""
        self.before_E = before_E
        self.after_E = after_E
        self.benchmark_growth_E = benchmark_growth_E
        self.initial_value = initial_value
        self._traded = traded

    @cached_property
    def log_return_E(self) -> np.ndarray:
        """ln(after / before); an account that had nothing earns nothing."""
        growth_E = np.divide(
            self.after_E, self.before_E, out=np.ones_like(self.after_E), where=self.before_E > 0
        )
        log_return_E: np.ndarray = np.log(np.maximum(growth_E, LEAST_GROWTH))
        return log_return_E

    @cached_property
    def turnover_E(self) -> np.ndarray:
        """Notional bought and sold as a fraction of the value before."""
        turnover_E: np.ndarray = self._traded() / np.where(self.before_E > 0, self.before_E, np.inf)
        return turnover_E


class Functor:
    """What rewards and terminations share: parameters, and maybe a state of each environment."""

    Parameters: ClassVar[type[Settings]] = NoParameters

    def __init__(self, parameters: Any, num_envs: int) -> None:
        self.parameters = parameters
        self.num_envs = num_envs

    def reset(self, is_new_E: np.ndarray) -> None:
        """Forget the past of the environments that start anew."""


class Reward(Functor, ABC):
    """A term of the reward. Subclass it, give `Parameters` and `__call__`; keep state by environment."""

    Parameters: ClassVar[type[Settings]] = RewardParameters

    @abstractmethod
    def __call__(self, earned: Earned) -> np.ndarray:
        """Return the reward of each environment (E,); called once a session, in order."""


class AccountView:
    """What E accounts look like after a close.

    Attributes:
        equity_E: money units.
        initial_value: what every account started with.
        previous_AE: what was last decided, 0 at the start of an episode.
    """

    def __init__(
        self,
        weights: Callable[[], np.ndarray],
        equity_E: np.ndarray,
        initial_value: float,
        previous_AE: np.ndarray,
    ) -> None:
        """Take the values; `weights` gives the holdings when they are asked for."""
        self._weights = weights
        self.equity_E = equity_E
        self.initial_value = initial_value
        self.previous_AE = previous_AE

    @cached_property
    def weights_AE(self) -> np.ndarray:
        """Holdings as fractions of equity; the rest is cash."""
        return self._weights()


class Termination(Functor, ABC):
    """A reason to end an episode early. Subclass it, give `Parameters` and `__call__`."""

    @abstractmethod
    def __call__(self, account: AccountView) -> np.ndarray:
        """Return which environments end here (E,); called once a session, in order."""


class Columns(NamedTuple):
    """Columns of an observation: values with a row for each session, and a name for each column."""

    values: np.ndarray
    names: tuple[str, ...]


class Observation:
    """Columns of the observation. Subclass one of the three kinds below.

    Row t may use what is known at the close of t and nothing later; `podracer env audit` checks it.
    """

    Parameters: ClassVar[type[Settings]] = NoParameters
    needs_history: ClassVar[bool] = False

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters


class AssetObservation(Observation, ABC):
    """Columns of each asset, the same for every account; the per-asset head reads them."""

    @abstractmethod
    def columns(self, market: Any) -> Columns:
        """Return (D, A, K) columns of a `podracer.market.market.Market`; 0 where there is nothing."""


class MarketObservation(Observation, ABC):
    """Columns of the market, scaled on the training window unless `is_scaled` is false."""

    is_scaled: ClassVar[bool] = True

    @abstractmethod
    def columns(self, market: Any) -> Columns:
        """Return (D, F) columns of a `podracer.market.market.Market`."""


class AccountObservation(Observation, ABC):
    """Columns of an account after each close, of order one.

    One that reads anything but `weights_AE` says `needs_history = True`: a pod's agents are not told
    the rest.
    """

    @abstractmethod
    def names(self, tickers: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the S columns."""

    @abstractmethod
    def account(self, account: AccountView) -> np.ndarray:
        """Return (S, E)."""
