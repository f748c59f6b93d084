"""What may be evaluated: anything that turns a session and an account into a decision.

Shapes: D sessions, A assets, E environments.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from podracer.envs.trading import Decision
from podracer.market.market import Market
from podracer.market.sessions import is_last_of_month


class Policy(Protocol):
    """E deterministic policies, each running its own account."""

    num_policies: int

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Return what each policy wants after the close of `session`.

        Args:
            session: row of the market.
            weights_AE: holdings as fractions of equity at that close; the rest is cash.
        """
        ...


class ScheduledPolicy:
    """Rebalances to a table of targets on chosen sessions and holds in between."""

    num_policies = 1

    def __init__(self, target_DA: np.ndarray, rebalance_D: np.ndarray) -> None:
        self._target_DA = target_DA.astype(np.float32)
        self._rebalance_D = rebalance_D

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Ask for the session's target on a rebalancing session, for nothing on any other."""
        return Decision(
            target_AE=self._target_DA[session][:, None],
            speed_E=np.array([1.0 if self._rebalance_D[session] else 0.0]),
            band_E=np.zeros(1),
        )


class SideBySide:
    """Several policies in one rollout, each on its own accounts."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._policies = policies
        ends = np.cumsum([p.num_policies for p in policies])
        self.num_policies = int(ends[-1])
        self._slices = [
            slice(end - p.num_policies, end) for end, p in zip(ends, policies, strict=True)
        ]

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Return all decisions, in the order of the policies."""
        decisions = [
            policy.decide(session, weights_AE[:, part])
            for policy, part in zip(self._policies, self._slices, strict=True)
        ]
        return Decision(*(np.concatenate(parts, axis=-1) for parts in zip(*decisions, strict=True)))


def equal_weights(market: Market) -> np.ndarray:
    """Return 1/n for each of the n assets that trade on a session (D, A)."""
    tradable_DA = np.asarray(market.tradable_DA)
    shares_DA: np.ndarray = tradable_DA / np.maximum(tradable_DA.sum(1, keepdims=True), 1)
    return shares_DA


def equal_weight_monthly(market: Market, first_session: int) -> ScheduledPolicy:
    """The benchmark of every score: equal weight, rebalanced at the last close of each month."""
    rebalance_D = is_last_of_month(market.dates_D)
    rebalance_D[first_session] = True
    return ScheduledPolicy(equal_weights(market), rebalance_D)
