"""Where the money of a step went: the terms of its costs, which sum to the difference of cash.

Computed from the positions before and after, not by the backends, so that it checks them too.

Shapes: A assets, E environments, B blocks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from podracer.envs import rule
from podracer.envs.backends import Accounts, table_rows
from podracer.envs.tables import PriceTables, fees

TERMS = ("commission", "half-spread", "slippage", "impact", "rounding")


class CostBreakdown(NamedTuple):
    """Money units: cash after = cash before + interest + sold - bought - all costs.

    Attributes:
        bought_E: notional bought, at the fill prices.
        sold_E: notional sold, at the fill prices; what is closed at an asset's end included.
        costs_CE: one row for each of `TERMS`.
        interest_E: on cash.
    """

    bought_E: np.ndarray
    sold_E: np.ndarray
    costs_CE: np.ndarray
    interest_E: np.ndarray

    @property
    def traded_E(self) -> np.ndarray:
        """Notional bought and sold."""
        traded_E: np.ndarray = self.bought_E + self.sold_E
        return traded_E

    @property
    def cost_E(self) -> np.ndarray:
        """All costs."""
        cost_E: np.ndarray = self.costs_CE.sum(0)
        return cost_E


@dataclass(frozen=True)
class Trade:
    """One step of E accounts; arrays are never changed in place, so that it stays what it was.

    Attributes:
        tables: of the step.
        row_B: rows of the tables at which the orders were decided.
        before: accounts before the step.
        after: accounts after it.
    """

    tables: PriceTables
    row_B: np.ndarray
    before: Accounts
    after: Accounts

    def costs(self) -> CostBreakdown:
        """Return where the money went."""
        before = self.before
        return breakdown(self.tables, self.row_B, before.cash_E, before.lots_AE, self.after.lots_AE)


def breakdown(
    tables: PriceTables,
    row_B: np.ndarray,
    cash_E: np.ndarray,
    lots_AE: np.ndarray,
    new_lots_AE: np.ndarray,
) -> CostBreakdown:
    """Return what the step from the old to the new positions cost.

    Args:
        tables: of the step.
        row_B: rows of the tables at which the orders were decided.
        cash_E: before.
        lots_AE: before.
        new_lots_AE: after.
    """
    row = table_rows(tables, row_B, len(cash_E) // len(row_B))
    change_AE = new_lots_AE.astype(np.float64) - lots_AE
    amount_AE, is_sale = np.abs(change_AE), change_AE < 0
    scenario_E = np.repeat(row_B // tables.num_sessions, len(cash_E) // len(row_B))
    proportional_KAE = amount_AE * _fees_a_lot(tables, row.fill, row.exit, scenario_E)
    notional_AE = amount_AE * row.fill
    commission_AE, impact_AE = rule.charges(np, amount_AE, row)
    # A sale never costs more than it brings.
    brought_AE = np.where(is_sale, np.floor(amount_AE * row.sell), np.inf)
    commission_AE = np.minimum(commission_AE, brought_AE)
    impact_AE = np.minimum(impact_AE, brought_AE - commission_AE)
    paid_AE = np.where(
        is_sale, notional_AE - brought_AE, np.ceil(amount_AE * row.buy) - notional_AE
    )
    rounding_AE = paid_AE - proportional_KAE.sum(0)
    terms = [*proportional_KAE, impact_AE, rounding_AE]
    terms[0] = terms[0] + commission_AE
    interest_E = np.zeros_like(cash_E)
    if row.interest_E is not None:
        interest_E = np.floor(cash_E * row.interest_E)
    return CostBreakdown(
        bought_E=np.where(is_sale, 0.0, notional_AE).sum(0),
        sold_E=np.where(is_sale, notional_AE, 0.0).sum(0),
        costs_CE=np.stack([term.sum(0) for term in terms]),
        interest_E=interest_E,
    )


def _fees_a_lot(
    tables: PriceTables, fill: np.ndarray, is_exit: np.ndarray, scenario_E: np.ndarray
) -> np.ndarray:
    """Return commission, half-spread and slippage of each lot (3, A, E); none where an asset ends."""
    fees_KAE = np.zeros((3, *fill.shape))
    for s, rates_3 in enumerate(tables.rates_S3):
        is_here = scenario_E == s
        price = fill[:, is_here] * tables.lots_per_share
        each = fees(price, rates_3, tables.is_fractional)
        fees_KAE[:, :, is_here] = np.stack(each) / tables.lots_per_share
    return np.where(is_exit, 0.0, fees_KAE)
