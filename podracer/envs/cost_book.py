"""The books of a rollout: what its trades cost, and which buys failed for want of cash.

Steps are collected and worked out many at once, which is some hundred times cheaper than one by one.

Shapes: R daily returns, A assets, E policies, C cost terms, T steps.
"""

from typing import NamedTuple

import numpy as np

from podracer.envs import rule
from podracer.envs.backends import Accounts, Decision, joined_decisions, table_rows
from podracer.envs.costs import TERMS, Trade

CHUNK = 256


class _Noted(NamedTuple):
    day: int
    trade: Trade
    decision: Decision
    weights_AE: np.ndarray


class CostBook:
    """Costs of E policies over a window; money in units.

    Attributes:
        traded_RE: notional bought and sold on each day.
        cost_RE: costs of each day.
        costs_CE: each of `podracer.envs.costs.TERMS`, over the window.
        interest_E: on cash.
        unaffordable_E: buys that were wanted, and not one share of which could be paid.
    """

    def __init__(self, num_returns: int, num_policies: int) -> None:
        self.traded_RE, self.cost_RE = np.zeros((2, num_returns, num_policies))
        self.costs_CE = np.zeros((len(TERMS), num_policies))
        self.interest_E = np.zeros(num_policies)
        self.unaffordable_E = np.zeros(num_policies, dtype=np.int64)
        self._noted: list[_Noted] = []

    def note(self, day: int, trade: Trade, decision: Decision, weights_AE: np.ndarray) -> None:
        """Take in a step.

        Args:
            day: row of the daily returns that its fill belongs to.
            trade: what happened; all policies on one session.
            decision: what was wanted.
            weights_AE: holdings before it, as fractions of equity.
        """
        self._noted.append(_Noted(day, trade, decision, weights_AE))
        if len(self._noted) == CHUNK:
            self.close()

    def close(self) -> None:
        """Work out what was noted; call it at the end."""
        if not self._noted:
            return
        noted, self._noted = self._noted, []
        days_T = np.array([n.day for n in noted])
        num_policies = len(self.interest_E)
        trade = _joined_trades([n.trade for n in noted])
        costs = trade.costs()
        np.add.at(self.traded_RE, days_T, costs.traded_E.reshape(-1, num_policies))
        np.add.at(self.cost_RE, days_T, costs.cost_E.reshape(-1, num_policies))
        self.costs_CE += costs.costs_CE.reshape(len(TERMS), -1, num_policies).sum(1)
        self.interest_E += costs.interest_E.reshape(-1, num_policies).sum(0)
        decision = joined_decisions([n.decision for n in noted])
        weights_AE = np.concatenate([n.weights_AE for n in noted], axis=1)
        failed_E = _unaffordable(trade, decision, weights_AE)
        self.unaffordable_E += failed_E.reshape(-1, num_policies).sum(0)


def _joined_trades(trades: list[Trade]) -> Trade:
    """Return T steps of E accounts as one step of T blocks of E accounts."""

    def accounts(parts: list[Accounts]) -> Accounts:
        return Accounts(
            np.concatenate([p.cash_E for p in parts]),
            np.concatenate([p.lots_AE for p in parts], axis=1),
        )

    return Trade(
        trades[0].tables,
        np.concatenate([t.row_B for t in trades]),
        accounts([t.before for t in trades]),
        accounts([t.after for t in trades]),
    )


def _unaffordable(trade: Trade, decision: Decision, weights_AE: np.ndarray) -> np.ndarray:
    """Count buys of a share or more that bought none for want of cash; also of accounts below a share."""
    row = table_rows(trade.tables, trade.row_B, len(trade.after.cash_E) // len(trade.row_B))
    gap_AE = decision.wanted_AE.astype(np.float64)
    if decision.kind == "weights":
        gap_AE = gap_AE - weights_AE
        gap_AE = np.where(gap_AE >= decision.band_E, gap_AE, 0.0)
    share_AE = row.close * trade.tables.lots_per_share
    equity_E = rule.equity(trade.before.cash_E, trade.before.lots_AE, row.close)
    reaches_AE = (gap_AE * decision.scale_E * equity_E >= share_AE) | (equity_E < share_AE)
    is_wanted_AE = reaches_AE & (gap_AE > 0) & row.visible & row.fillable & ~row.exit
    is_bought_AE = trade.after.lots_AE > trade.before.lots_AE
    is_short_AE = trade.after.cash_E < row.buy * trade.tables.lots_per_share
    unaffordable_E: np.ndarray = (is_wanted_AE & ~is_bought_AE & is_short_AE).sum(0)
    return unaffordable_E
