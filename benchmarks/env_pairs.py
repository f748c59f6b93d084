"""The trading rule: our kernel against plain torch-eager and pandas implementations of it.

Both peers trade the same orders on the same market and end with the same cash, which is checked
before anything is timed (torch to the unit, pandas to a cent).
"""

import numpy as np
import pandas as pd
import torch

from benchmarks.pairs import Ratio, arguments, run
from podracer.envs.backends import Decision
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.market.synthetic import PlantedSettings, planted_market

A, E, SESSIONS, PANDAS_SESSIONS = 30, 4096, 20, 20


def targets(num_envs: int) -> np.ndarray:
    """Random portfolios (A, E)."""
    drawn = np.random.default_rng(0).dirichlet(np.ones(A), size=num_envs).T
    return np.ascontiguousarray(drawn, dtype=np.float32)


class TorchEager:
    """The rule as one would write it in torch: whole tensors, one operation after the other."""

    def __init__(self, tables: object, num_envs: int, cash: float) -> None:
        self.tables = {
            name: torch.from_numpy(getattr(tables, name))
            for name in ("close_DA", "fill_DA", "buy_DA", "sell_DA")
        }
        self.cash = torch.full((num_envs,), cash, dtype=torch.float64)
        self.shares = torch.zeros(A, num_envs, dtype=torch.float64)

    def step(self, t: int, target: torch.Tensor) -> None:
        """Advance one session."""
        close, _, buy, sell = (table[t][:, None] for table in self.tables.values())
        equity = self.cash + (self.shares * close).sum(0)
        wanted = torch.trunc((target.double() * equity - self.shares * close) / close)
        sold = torch.minimum((-wanted).clamp(min=0), self.shares)
        cash = self.cash + (sold * sell).sum(0)
        wished = torch.minimum(wanted.clamp(min=0), torch.floor(cash / buy))
        needed = (wished * buy).sum(0)
        share = torch.where(needed > cash, cash / needed.clamp(min=1), torch.ones_like(cash))
        bought = torch.floor(wished * share)
        self.cash = cash - (bought * buy).sum(0)
        self.shares = self.shares - sold + bought


class Pandas:
    """The rule for one account on a frame of prices, a Series of holdings, session by session."""

    def __init__(self, close: pd.DataFrame, fee: float, cash: float) -> None:
        self.close, self.fee, self.cash = close, fee, cash
        self.shares = pd.Series(0.0, index=close.columns)

    def step(self, t: int, target: pd.Series) -> None:
        """Advance one session."""
        now, fill = self.close.iloc[t], self.close.iloc[t + 1]
        equity = self.cash + (self.shares * now).sum()
        wanted = np.trunc((target * equity - self.shares * now) / now)
        sold = (-wanted).clip(lower=0).clip(upper=self.shares)
        self.cash += (sold * fill * (1 - self.fee)).sum()
        price = fill * (1 + self.fee)
        wished = wanted.clip(lower=0).clip(upper=np.floor(self.cash / price))
        needed = (wished * price).sum()
        bought = np.floor(wished * min(1.0, self.cash / needed)) if needed > 0 else wished
        self.cash -= (bought * price).sum()
        self.shares += bought - sold


def main() -> None:
    """Check that all three agree, then time them."""
    options = arguments()
    torch.set_num_threads(1)
    market = planted_market(PlantedSettings(num_sessions=600, num_assets=A))
    settings = EnvSettings(action={"no_trade_band": 0.0})
    tables = price_tables(market, settings)
    target, ones = targets(E), np.ones(E)
    env = TradingEnv(tables, settings, 600, 1, E)
    decision = Decision(target, ones, np.zeros(E))
    target_torch = torch.from_numpy(target)
    frame = pd.DataFrame(market.price_DA / 1e6, columns=market.tickers)
    target_series = pd.Series(target[:, 0].astype(np.float64), index=frame.columns)

    def ours() -> TradingEnv:
        env.reset(np.array([0]))
        for _ in range(SESSIONS):
            env.step(decision)
        return env

    def eager() -> TorchEager:
        peer = TorchEager(tables, E, 1e12)
        for t in range(SESSIONS):
            peer.step(t, target_torch)
        return peer

    def pandas() -> Pandas:
        peer = Pandas(frame, 0.001, 1e6)
        for t in range(PANDAS_SESSIONS):
            peer.step(t, target_series)
        return peer

    if not np.array_equal(ours().cash_E, eager().cash.numpy()):
        raise SystemExit("the torch peer does not trade our rule")
    if abs(pandas().cash - env.cash_E[0] / 1e6) > 0.01:
        raise SystemExit("the pandas peer does not trade our rule")
    run(
        {
            "ours": (ours, SESSIONS * E),
            "torch eager": (eager, SESSIONS * E),
            "pandas": (pandas, PANDAS_SESSIONS),
        },
        [Ratio("ours", "torch eager", 4.0, 30.0), Ratio("ours", "pandas", 20_000.0, 5_000.0)],
        repeats=5 if options.quick else 15,
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
