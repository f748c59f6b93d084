"""The trading rule on torch tensors, on a CPU or a CUDA device.

No Python branch depends on a value and nothing is read back, so that a step can be captured as a CUDA
graph and compiled without a break.

Shapes: D sessions, A assets, E environments in B blocks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from podracer.envs import rule
from podracer.envs.backends import Accounts, Decision, Kind
from podracer.envs.tables import PriceTables


@dataclass(frozen=True)
class TorchTables:
    """The tables of `rule.Row` as tensors with a row for each session."""

    rows: rule.Row
    is_fractional: bool


class TorchAccounts(NamedTuple):
    """E accounts: cash in money units, lots, and the lots that stay at work; all float64."""

    cash_E: Tensor
    lots_AE: Tensor
    pending_AE: Tensor | None


def torch_tables(tables: PriceTables, device: str | torch.device = "cpu") -> TorchTables:
    """Copy the tables to a device."""

    def tensor(table: np.ndarray | None) -> Tensor | None:
        return None if table is None else torch.as_tensor(np.ascontiguousarray(table)).to(device)

    return TorchTables(rule.Row(*(tensor(table) for table in tables.rows)), tables.is_fractional)


def advance(
    tables: TorchTables,
    row_B: Tensor,
    wanted_AE: Tensor,
    scale_E: Tensor,
    band_E: Tensor,
    kind: Kind,
    accounts: TorchAccounts,
) -> rule.Fill:
    """Size orders at each block's close and fill them; see `rule.size_orders` and `rule.fill`."""
    block = accounts.cash_E.shape[0] // row_B.shape[0]
    row_E = row_B.repeat_interleave(block, output_size=accounts.cash_E.shape[0])
    row = rule.Row(
        *(None if table is None else table[row_E].transpose(0, -1) for table in tables.rows)
    )
    orders_AE = rule.size_orders(
        torch, accounts.cash_E, accounts.lots_AE, row, wanted_AE, scale_E, band_E, kind
    )
    goes_on = rule.lets_old_orders_go_on(scale_E, row, kind)
    return rule.fill(torch, *accounts, orders_AE, goes_on, row, tables.is_fractional)


class TorchBackend:
    """A backend of `TradingEnv`: the step on a device, the accounts in NumPy arrays."""

    def __init__(self, tables: PriceTables, device: str | torch.device = "cpu") -> None:
        self._source, self._tables = tables, torch_tables(tables, device)
        self._device = device

    def __call__(
        self, row_B: np.ndarray, decision: Decision, accounts: Accounts, tables: PriceTables
    ) -> rule.Fill:
        """Advance every block.

        Raises:
            ValueError: if the tables are others than were copied to the device.
        """
        if tables is not self._source:
            raise ValueError(
                "the tables are not those of this backend; make one for each environment"
            )

        def tensor(array: np.ndarray | None) -> Tensor | None:
            return None if array is None else torch.from_numpy(array).to(self._device)

        held = TorchAccounts(
            torch.from_numpy(accounts.cash_E).to(self._device),
            torch.from_numpy(accounts.lots_AE).to(self._device, torch.float64),
            tensor(accounts.pending_AE),
        )
        wanted, scale, band, kind = decision
        row, want, by, least = (
            torch.as_tensor(n, device=self._device) for n in (row_B, wanted, scale, band)
        )
        fill = advance(self._tables, row, want, by, least, kind, held)
        arrays = rule.Fill(*(None if part is None else part.cpu().numpy() for part in fill))
        return arrays._replace(lots_AE=arrays.lots_AE.astype(accounts.lots_AE.dtype))
