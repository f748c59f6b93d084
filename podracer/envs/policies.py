"""What may be evaluated: anything that turns a session and an account into a decision.

Shapes: D sessions, A assets, E environments.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from podracer.envs.backends import Decision, joined_decisions
from podracer.market.market import Market
from podracer.market.sessions import is_last_of_month

# Keeps a repeated order from trading what float32 made of the other holdings.
ROUNDING_BAND = 1e-5


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
    """Rebalances to a table of targets on chosen sessions and holds in between.

    An order that met a session on which its asset did not trade is given again until it is filled:
    a benchmark that stays in cash because a ticker paused on its first day would be no yardstick.
    """

    num_policies = 1

    def __init__(
        self, target_DA: np.ndarray, rebalance_D: np.ndarray, tradable_DA: np.ndarray | None = None
    ) -> None:
        """Take the tables.

        Args:
            target_DA: wanted fraction of equity in each asset.
            rebalance_D: sessions on which all of it is wanted.
            tradable_DA: which assets trade; every order is filled if None.
        """
        self._target_DA = target_DA.astype(np.float32)
        self._rebalance_D = rebalance_D
        self._tradable_DA = tradable_DA
        self._wanted_A = np.zeros(target_DA.shape[1], dtype=np.float32)
        self._is_open_A = np.zeros(target_DA.shape[1], dtype=bool)
        self._last = -1

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Ask for the session's target on a rebalancing session, else for what is still open."""
        if self._rebalance_D[session]:
            self._wanted_A = self._target_DA[session]
            self._is_open_A = self._trades(session)
            self._last = session
            return Decision(self._wanted_A[:, None], np.ones(1), np.zeros(1))
        self._note_fills(session)
        if not self._is_open_A.any():
            return Decision(self._wanted_A[:, None], np.zeros(1), np.zeros(1))
        held_A = weights_AE[:, 0].astype(np.float32)
        target_A = np.where(self._is_open_A, self._wanted_A, held_A)
        return Decision(target_A[:, None], np.ones(1), np.full(1, ROUNDING_BAND))

    def _trades(self, session: int) -> np.ndarray:
        if self._tradable_DA is None:
            return np.zeros(len(self._wanted_A), dtype=bool)
        return np.array(self._tradable_DA[session])

    def _note_fills(self, session: int) -> None:
        """Close the orders of assets that traded when they were given and when they were filled."""
        if session != self._last + 1:
            self._is_open_A[:] = False  # another rollout
        elif self._is_open_A.any():
            self._is_open_A &= ~(self._trades(session - 1) & self._trades(session))
        self._last = session


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
        if len({decision.kind for decision in decisions}) > 1:
            raise ValueError(
                "policies of different action modes cannot share a rollout; join two rollouts"
            )
        return joined_decisions(decisions)


def equal_weights(market: Market) -> np.ndarray:
    """Return 1/n for each of the n assets that trade on a session (D, A)."""
    tradable_DA = np.asarray(market.tradable_DA)
    shares_DA: np.ndarray = tradable_DA / np.maximum(tradable_DA.sum(1, keepdims=True), 1)
    return shares_DA


def equal_weight_monthly(market: Market, first_session: int) -> ScheduledPolicy:
    """The benchmark of every score: equal weight, rebalanced at the last close of each month."""
    rebalance_D = is_last_of_month(market.dates_D)
    rebalance_D[first_session] = True
    return ScheduledPolicy(equal_weights(market), rebalance_D, np.asarray(market.tradable_DA))
