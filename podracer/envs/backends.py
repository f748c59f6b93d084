"""The backends of the trading rule: NumPy and torch run `rule.py` itself, numba its compiled twin.

Shapes: D sessions, A assets, E environments in B blocks; a block of E / B environments shares its row
of the tables.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from podracer.envs import kernel, rule
from podracer.envs.tables import PriceTables

Kind = Literal["weights", "notional", "shares"]
KINDS = {"weights": kernel.WEIGHTS, "notional": kernel.NOTIONAL, "shares": kernel.SHARES}


class Decision(NamedTuple):
    """What an agent wants after a close.

    Attributes:
        wanted_AE: float32. Kind weights: the fraction of equity to hold in each asset, each column
            summing to <= 1; the rest is cash. Otherwise the order for each asset in [-1, 1], as a
            fraction of the largest one.
        scale_E: float64. Kind weights: the fraction of the way to the target to trade now, in [0, 1].
            Otherwise the largest order: a fraction of equity (notional), or lots (shares).
        band_E: orders below this fraction of equity are left alone, float64; not for kind shares.
        kind: what the numbers mean.
    """

    wanted_AE: np.ndarray
    scale_E: np.ndarray
    band_E: np.ndarray
    kind: Kind = "weights"


def joined_decisions(decisions: Sequence[Decision]) -> Decision:
    """Return decisions of one kind side by side, as one for all their accounts."""
    return Decision(
        np.concatenate([d.wanted_AE for d in decisions], axis=1),
        np.concatenate([d.scale_E for d in decisions]),
        np.concatenate([d.band_E for d in decisions]),
        decisions[0].kind,
    )


@dataclass
class Accounts:
    """The state of E accounts.

    Attributes:
        cash_E: money units, float64.
        lots_AE: whole shares (int32), or millionths of one (float64).
        pending_AE: lots of earlier orders that stay at work, float64; None if none ever do.
    """

    cash_E: np.ndarray
    lots_AE: np.ndarray
    pending_AE: np.ndarray | None = None


Backend = Callable[[np.ndarray, Decision, Accounts, PriceTables], rule.Fill]


def table_rows(tables: PriceTables, row_B: np.ndarray, block: int) -> rule.Row:
    """Return the tables' rows of every environment."""

    def wide(table: np.ndarray | None) -> np.ndarray | None:
        return None if table is None else np.repeat(table[row_B].T, block, axis=-1)

    return rule.Row(*(wide(table) for table in tables.rows))


def numpy_backend(
    row_B: np.ndarray, decision: Decision, accounts: Accounts, tables: PriceTables
) -> rule.Fill:
    """Advance every block by the reference."""
    row = table_rows(tables, row_B, len(accounts.cash_E) // len(row_B))
    lots_AE = accounts.lots_AE.astype(np.float64)
    orders_AE = rule.size_orders(np, accounts.cash_E, lots_AE, row, *decision)
    goes_on_AE = rule.lets_old_orders_go_on(decision.scale_E, row, decision.kind)
    fill = rule.fill(
        np,
        accounts.cash_E,
        lots_AE,
        accounts.pending_AE,
        orders_AE,
        goes_on_AE,
        row,
        tables.is_fractional,
    )
    return fill._replace(lots_AE=fill.lots_AE.astype(accounts.lots_AE.dtype))


def numba_backend(
    row_B: np.ndarray, decision: Decision, accounts: Accounts, tables: PriceTables
) -> rule.Fill:
    """Advance every block by the compiled kernel."""
    num_envs = len(accounts.cash_E)
    pending_AE = accounts.pending_AE
    cash_E, lots_AE = np.empty(num_envs), np.empty_like(accounts.lots_AE)
    new_pending_AE = None if pending_AE is None else np.empty_like(pending_AE)
    value_before_E = np.empty(num_envs)
    counts_2E = np.zeros((2, num_envs), dtype=np.int32)
    kernel.step(
        KINDS[decision.kind],
        row_B,
        tables.rows[: rule.ALWAYS],
        tables.extras,
        True if tables.is_fractional else None,
        decision[:3],
        accounts.cash_E,
        accounts.lots_AE,
        pending_AE,
        cash_E,
        lots_AE,
        new_pending_AE,
        value_before_E,
        counts_2E,
    )
    return rule.Fill(cash_E, lots_AE, new_pending_AE, value_before_E, *counts_2E)
