"""The environment: our kernel against plain torch-eager and pandas implementations of its rule.

Both peers trade the same orders on the same market and end with the same cash, which is checked
before anything is timed (torch to the unit, pandas to a cent). "Full observation" is the face's flat
301-wide vector, written for every account after every step.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from benchmarks.pairs import Ratio, arguments, run
from podracer.envs.backends import Decision
from podracer.envs.declared import observation_tables
from podracer.envs.faces import StockTrading, flat_observations
from podracer.envs.settings import ActionSettings, CostSettings, EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.market.market import Market
from podracer.market.synthetic import PlantedSettings, planted_market
from podracer.market.windows import Window

A, E, SESSIONS = 30, 4096, 20
# 0.8 of the medians in benchmarks/results/env_pairs.md.
FLOORS = {"eager": 2.9, "pandas": 20_000.0, "full": 0.9, "costs": 0.55}


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


class TorchEagerFull(TorchEager):
    """The same with the observation of FinRL's shape: cash, closes, holdings, indicators."""

    def __init__(
        self, tables: object, num_envs: int, cash: float, indicators: torch.Tensor
    ) -> None:
        super().__init__(tables, num_envs, cash)
        self.indicators = indicators

    def step(self, t: int, target: torch.Tensor) -> torch.Tensor:
        """Advance one session; returns what the accounts see."""
        super().step(t, target)
        close = self.tables["close_DA"][t + 1].float()
        num_envs = len(self.cash)
        return torch.cat(
            [
                self.cash.float()[:, None] * 1e-12,
                (close * 1e-8).expand(num_envs, -1),
                self.shares.float().T * 1e-3,
                self.indicators[t + 1].expand(num_envs, -1),
            ],
            dim=1,
        )


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


ALL_COSTS = {
    "commission_bps": 10,
    "commission_per_share": 0.005,
    "commission_minimum": 1.0,
    "half_spread_bps": 2,
    "slippage_bps": 1,
    "impact_bps": 50,
    "volume_cap": 0.1,
}


def with_volume(market: Market) -> Market:
    """The market with volumes that bind now and then, and 8 indicators a stock."""
    rng = np.random.default_rng(1)
    shape = market.price_DA.shape
    volume_DA = rng.integers(10_000, 2_000_000, shape).astype(float)
    features_DAK = rng.normal(size=(*shape, 8)).astype(np.float32)
    meta = market.meta | {"asset_features": [f"f{k}" for k in range(8)]}
    return replace(market, volume_DA=volume_DA, asset_features_DAK=features_DAK, meta=meta)


Case = Callable[[], object]


def walk(env: TradingEnv, decision: Decision) -> Callable[[], TradingEnv]:
    """Some sessions of our environment."""

    def steps() -> TradingEnv:
        env.reset(np.array([0]))
        for _ in range(SESSIONS):
            env.step(decision)
        return env

    return steps


def full_observation(market: Market) -> tuple[Case, int]:
    """Some sessions of the face, and the width of what it shows."""
    settings = EnvSettings(episode={"start": "first"})
    window = Window("all", 0, len(market.dates_D))
    tables = observation_tables(market, settings)
    face = StockTrading(
        market, settings, window, flat_observations(tables, tables.fit(window)), E, 1
    )
    generators = [np.random.default_rng(0)]
    actions = np.random.default_rng(0).uniform(-1, 1, (E, A)).astype(np.float32)

    def steps() -> None:
        face.reset(np.ones(E, dtype=bool), generators)
        for _ in range(SESSIONS):
            face.step(actions)

    return steps, face.observation.shape[1]


def stepped(make: Callable[[], TorchEager | Pandas], target: object) -> Case:
    """Some sessions of a peer."""

    def steps() -> TorchEager | Pandas:
        peer = make()
        for t in range(SESSIONS):
            peer.step(t, target)  # type: ignore[arg-type]
        return peer

    return steps


def main() -> None:
    """Check that all three agree, then time them."""
    options = arguments()
    torch.set_num_threads(1)
    market = with_volume(planted_market(PlantedSettings(num_sessions=600, num_assets=A)))
    plain = EnvSettings(action=ActionSettings(no_trade_band=0.0))
    costly = plain.model_copy(update={"costs": CostSettings(**ALL_COSTS)})
    tables = price_tables(market, plain)
    target = targets(E)
    decision = Decision(target, np.ones(E), np.zeros(E))
    target_torch = torch.from_numpy(target)
    frame = pd.DataFrame(market.price_DA / 1e6, columns=market.tickers)
    series = pd.Series(target[:, 0].astype(np.float64), index=frame.columns)
    indicators = torch.from_numpy(market.asset_features_DAK.reshape(600, -1))

    ours = walk(TradingEnv(tables, plain, 600, 1, E), decision)
    with_costs = walk(TradingEnv(price_tables(market, costly), costly, 600, 1, E), decision)
    full, width = full_observation(market)
    eager = stepped(lambda: TorchEager(tables, E, 1e12), target_torch)
    eager_full = stepped(lambda: TorchEagerFull(tables, E, 1e12, indicators), target_torch)
    pandas = stepped(lambda: Pandas(frame, 0.001, 1e6), series)

    cash_E = ours().cash_E
    if not np.array_equal(cash_E, eager().cash.numpy()):  # type: ignore[attr-defined]
        raise SystemExit("the torch peer does not trade our rule")
    if abs(pandas().cash - cash_E[0] / 1e6) > 0.01:  # type: ignore[attr-defined]
        raise SystemExit("the pandas peer does not trade our rule")
    if not options.json:
        state = cash_E.nbytes + ours().lots_AE.nbytes
        print(
            f"an environment takes {state / E:.0f} B, its observation of {width} {4 * width} B more"
        )
    run(
        {
            "ours": (ours, SESSIONS * E),
            "ours, all costs": (with_costs, SESSIONS * E),
            "ours, full observation": (full, SESSIONS * E),
            "torch eager": (eager, SESSIONS * E),
            "torch eager, full observation": (eager_full, SESSIONS * E),
            "pandas": (pandas, SESSIONS),
        },
        [
            Ratio("ours", "torch eager", FLOORS["eager"], 30.0),
            Ratio("ours", "pandas", FLOORS["pandas"], 5_000.0),
            Ratio("ours, full observation", "torch eager, full observation", FLOORS["full"], 30.0),
            Ratio("ours, all costs", "ours", FLOORS["costs"], 1 / 1.5),
        ],
        repeats=5 if options.quick else 15,
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
