"""The backends are one rule: numba and torch equal the NumPy reference bit for bit."""

import numpy as np
import pytest
import torch

from podracer.envs.backends import Decision, numba_backend, numpy_backend
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.torch_backend import TorchAccounts, TorchBackend, advance, torch_tables
from podracer.envs.trading import TradingEnv
from tests.conftest import market_of, random_closes

FIELDS = ("value_before_E", "equity_E", "dropped_E", "cut_E")
WITHOUT_IMPACT = {
    "commission_bps": 3.5,
    "commission_per_share": 0.005,
    "commission_minimum": 1.0,
    "half_spread_bps": 2.25,
    "slippage_bps": 1.5,
    "volume_cap": 0.07,
}
EVERYTHING = WITHOUT_IMPACT | {"impact_bps": 80}


def random_decision(rng, num_assets, num_envs, kind="weights", lots=1):
    some = rng.random((num_assets, num_envs)) < 0.7
    speed = rng.choice([0.05, 0.3, 1.0], num_envs)
    band = rng.choice([0.0, 0.05 / num_assets], num_envs)
    if kind == "weights":
        raw = rng.exponential(size=some.shape) * some
        target = raw / np.maximum(raw.sum(0), 1e-9) * rng.uniform(0.2, 1.0, num_envs)
        return Decision(target.astype(np.float32), speed, band)
    orders = (rng.uniform(-1, 1, some.shape) * some).astype(np.float32)
    return Decision(orders, 0.3 * speed if kind == "notional" else 500.0 * lots * speed, band, kind)


def random_market(num_sessions, num_assets, rng, seed=0):
    """Late starts, deaths, pauses, opens, and volumes that bind."""
    closes = random_closes(num_sessions, num_assets, seed)
    closes[: num_sessions // 8, 2] = np.nan  # starts late
    closes[num_sessions // 2 :, 3] = np.nan  # dies while held
    closes[num_sessions // 3 : num_sessions // 3 + 9, 4] = np.nan  # pauses
    opens = closes * np.round(1 + 0.01 * rng.normal(size=closes.shape), 4)
    volumes = rng.integers(0, 40_000, closes.shape) * (rng.random(closes.shape) < 0.95)
    return market_of(closes, open_DA=opens, volume_DA=volumes)


def backends(tables):
    return numpy_backend, numba_backend, TorchBackend(tables)


def require_equal_walks(market, settings, num_steps, blocks, kind="weights", with_torch=True):
    tables = price_tables(market, settings)
    rng = np.random.default_rng(1)
    num_envs = 128 * len(blocks)
    envs = [
        TradingEnv(tables, settings, tables.num_sessions, len(blocks), 128, backend)
        for backend in backends(tables)[: 3 if with_torch else 2]
    ]
    for env in envs:
        env.reset(np.array(blocks))
    for _ in range(num_steps):
        decision = random_decision(rng, tables.num_assets, num_envs, kind, tables.lots_per_share)
        reference, *others = (env.step(decision) for env in envs)
        for other, env in zip(others, envs[1:], strict=True):
            for name in FIELDS:
                assert np.array_equal(getattr(other, name), getattr(reference, name)), name
            assert np.array_equal(env.cash_E, envs[0].cash_E)
            assert np.array_equal(env.lots_AE, envs[0].lots_AE)
        assert (envs[0].cash_E >= 0).all()
        assert (envs[0].lots_AE >= 0).all()
    return envs[0]


@pytest.mark.parametrize("fill", ["next_close", "next_open", "same_close"])
def test_the_whole_share_rule_is_equal_bit_for_bit_over_1500_sessions_and_512_environments(fill):
    settings = EnvSettings(costs={"commission_bps": 12.5}, fill=fill, delisting_haircut=0.3)
    market = random_market(1801, 12, np.random.default_rng(1))
    require_equal_walks(market, settings, 1_500, [0, 100, 200, 299])


@pytest.mark.parametrize("kind", ["weights", "notional", "shares"])
@pytest.mark.parametrize("unfilled", ["cancel", "carry"])
def test_all_costs_caps_and_interest_are_equal_bit_for_bit(kind, unfilled):
    market = random_market(301, 7, np.random.default_rng(2))
    for costs, with_torch in ((WITHOUT_IMPACT, True), (EVERYTHING, False)):
        settings = EnvSettings(
            costs=costs | {"unfilled": unfilled}, cash_rate=0.03, initial_cash=200_000
        )
        env = require_equal_walks(market, settings, 250, [0, 30], kind, with_torch)
        assert (env.costs().costs_CE[:3].sum(1) > 0).all()


def test_torch_charges_market_impact_to_the_unit():
    # Its square root on a CPU is not correctly rounded, so the charge may be a unit off.
    settings = EnvSettings(costs=EVERYTHING, initial_cash=200_000)
    tables = price_tables(random_market(301, 7, np.random.default_rng(2)), settings)
    envs = [
        TradingEnv(tables, settings, 301, 1, 64, b) for b in (numpy_backend, TorchBackend(tables))
    ]
    rng = np.random.default_rng(1)
    for t in range(250):
        same = rng.dirichlet(np.ones(7), size=64).T
        decision = random_decision(rng, 7, 64)
        for env in envs:
            env.reset(np.array([t]), same)
            env.step(decision)
        assert np.abs(envs[0].cash_E - envs[1].cash_E).max() <= 7
        assert np.array_equal(envs[0].lots_AE, envs[1].lots_AE)


@pytest.mark.parametrize("kind", ["weights", "notional"])
def test_fractional_shares_are_equal_within_rounding(kind):
    settings = EnvSettings(costs=EVERYTHING, shares="fractional", initial_cash=3_000)
    market = random_market(301, 7, np.random.default_rng(3))
    tables = price_tables(market, settings)
    rng = np.random.default_rng(1)
    envs = [TradingEnv(tables, settings, 301, 1, 64, b) for b in backends(tables)]
    for env in envs:
        env.reset(np.array([0]))
    for _ in range(250):
        decision = random_decision(rng, 7, 64, kind, tables.lots_per_share)
        for env in envs:
            env.step(decision)
        assert (envs[0].cash_E >= 0).all()
        for env in envs[1:]:
            assert env.equity_E == pytest.approx(envs[0].equity_E, rel=1e-9)


def test_the_torch_step_compiles_as_one_graph_and_reads_nothing_back():
    settings = EnvSettings(costs=EVERYTHING | {"unfilled": "carry"}, cash_rate=0.03)
    tables = price_tables(random_market(50, 6, np.random.default_rng(2)), settings)
    on_device = torch_tables(tables)
    rng = np.random.default_rng(0)
    # backend "eager": what is tested is that the step is one graph, not inductor.
    compiled = torch.compile(advance, fullgraph=True, backend="eager")
    held = TorchAccounts(torch.full((8,), 1e12).double(), *torch.zeros(2, 6, 8).double())
    for kind in ("weights", "notional", "shares"):
        wanted, *rest = random_decision(rng, 6, 8, kind)[:3]
        numbers = [torch.from_numpy(n) for n in (wanted, *rest)]
        for row in (3, 4):
            row_B = torch.tensor([row, row + 7])
            once = compiled(on_device, row_B, *numbers, kind, held)
            again = advance(on_device, row_B, *numbers, kind, held)
            assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    with torch.device("meta"):  # a tensor without data: reading one back raises
        meta = torch_tables(tables, "meta")
        empty = TorchAccounts(*(torch.empty_like(t, device="meta") for t in held))
        advance(meta, row_B.to("meta"), *(n.to("meta") for n in numbers), "weights", empty)
