"""Our environment against FinRL's and ElegantRL's own, as they ship; `make peers` installs them.

Each is stepped with random actions on made-up prices of 30 stocks and 8 indicators. Nothing is adapted
but what keeps them from running: ElegantRL's environment reads a file that it does not ship, so its
arrays are set from outside.
"""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.env_pairs import SESSIONS, E, targets, walk, with_volume
from benchmarks.pairs import Ratio, arguments, run
from podracer.envs.backends import Decision
from podracer.envs.finrl import FinrlEnv
from podracer.envs.settings import ActionSettings, EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.market.market import Market
from podracer.market.synthetic import PlantedSettings, planted_market

A, K, DAYS, FINRL_STEPS = 30, 8, 600, 20
VECTOR = 1024


def load(package: str, path: str) -> ModuleType:
    """Import one file of an installed package, without the imports of the package itself."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; run `make peers` first")
    file = Path(found.submodule_search_locations[0]) / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finrl_env(market: Market) -> Any:
    """FinRL's pandas environment on a market."""
    module = load("finrl", "meta/env_stock_trading/env_stocktrading.py")
    names = [f"i{k}" for k in range(K)]
    frames = []
    for a, ticker in enumerate(market.tickers):
        frame = pd.DataFrame(market.asset_features_DAK[:, a], columns=names)
        dates = pd.Series(market.dates_D.astype(str))
        frames.append(frame.assign(date=dates, tic=ticker, close=market.price_DA[:, a] / 1e6))
    table = pd.concat(frames).sort_values(["date", "tic"], ignore_index=True)
    table.index = table["date"].factorize()[0]
    return module.StockTradingEnv(
        df=table, stock_dim=A, hmax=100, initial_amount=1_000_000, num_stock_shares=[0] * A,
        buy_cost_pct=[0.001] * A, sell_cost_pct=[0.001] * A, reward_scaling=1e-4,
        state_space=1 + 2 * A + K * A, action_space=A, tech_indicator_list=names, print_verbosity=10**9,
    )  # fmt: skip


def finrl(market: Market) -> Callable[[], None]:
    """Some steps of FinRL's environment."""
    env = finrl_env(market)
    actions = np.random.default_rng(0).uniform(-1, 1, (FINRL_STEPS, A))

    def steps() -> None:
        env.reset()
        for action in actions:
            env.step(action)

    return steps


def compare_with_finrl(market: Market) -> str:
    """Walk FinRL's environment and our parity environment side by side; say where they part.

    No two orders are equal: FinRL serves equal ones in the order that its sort leaves them in, ours by
    ticker.
    """
    cents = replace(market, price_DA=np.round(market.price_DA / 1e4) * 1e4)
    theirs, ours = finrl_env(cents), FinrlEnv(cents, cents.asset_features_DAK, EnvSettings())
    theirs.reset()
    ours.reset()
    rng = np.random.default_rng(1)
    off = 0.0
    for t in range(DAYS - 2):
        action = rng.permutation(np.linspace(-0.405, 0.995, A)).astype(np.float32)
        theirs.step(action)
        ours.step(action[None])
        state = theirs.state
        if not np.array_equal(state[1 + A : 1 + 2 * A], ours.shares_AE[:, 0]):
            return f"FinRL and its parity environment hold other shares from session {t} on"
        equity = state[0] + np.dot(state[1 : 1 + A], state[1 + A : 1 + 2 * A])
        off = max(off, abs(equity / ours.equity_E[0] - 1))
    return f"FinRL and its parity environment: equal shares on {DAYS - 2} sessions, equity to {off:.0e}"


def elegantrl(market: Market, num_envs: int) -> Callable[[], None]:
    """ElegantRL's vector environment; its step replaces the action by ones, as shipped."""
    module = load("elegantrl", "envs/StockTradingEnv.py")

    class Env(module.StockTradingVecEnv):  # type: ignore[misc, name-defined]
        def load_data_from_disk(self, tech_id_list: object = None) -> tuple[np.ndarray, np.ndarray]:
            return market.price_DA / 1e6, market.asset_features_DAK.reshape(DAYS, -1)

    env = Env(beg_idx=0, end_idx=DAYS, num_envs=num_envs, gpu_id=-1)
    action = torch.rand(num_envs, A) * 2 - 1

    def steps() -> None:
        env.reset()
        for _ in range(SESSIONS):
            env.step(action)

    return steps


def main() -> None:
    """Time them."""
    options = arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    market = with_volume(planted_market(PlantedSettings(num_sessions=DAYS, num_assets=A)))
    if not options.json:
        print(compare_with_finrl(market))
    settings = EnvSettings(action=ActionSettings(no_trade_band=0.0))
    tables = price_tables(market, settings)
    decision = Decision(targets(E), np.ones(E), np.zeros(E))
    ours = walk(TradingEnv(tables, settings, DAYS, 1, E), decision)
    run(
        {
            "ours": (ours, SESSIONS * E),
            "ElegantRL vector, 1024": (elegantrl(market, VECTOR), SESSIONS * VECTOR),
            "ElegantRL vector, 4096": (elegantrl(market, E), SESSIONS * E),
            "FinRL pandas": (finrl(market), FINRL_STEPS),
        },
        [
            Ratio("ours", "ElegantRL vector, 4096", 0.0, 80.0),
            Ratio("ours", "ElegantRL vector, 1024", 0.0, 80.0),
            Ratio("ours", "FinRL pandas", 0.0, 50_000.0),
        ],
        repeats=3 if options.quick else 7,
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
