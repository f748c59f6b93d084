"""The E-cases: public bug reports about trading environments, as small trials of ours."""

from dataclasses import replace

import numpy as np
import pytest

from podracer.envs import declared
from podracer.envs.backends import Decision, numba_backend, numpy_backend
from podracer.envs.gym import open_face
from podracer.envs.policies import ScheduledPolicy
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.errors import ConfigError, MarketDataError
from podracer.evaluation.metrics import summary
from podracer.market.windows import Window
from tests.conftest import market_of, random_closes, usd

BACKENDS = pytest.mark.parametrize("backend", [numpy_backend, numba_backend])


def env_of(market, settings, backend=numba_backend):
    tables = price_tables(market, settings)
    env = TradingEnv(tables, settings, tables.num_sessions, 1, 1, backend)
    env.reset(np.array([0]))
    return env


def buy(fraction, num_assets=1):
    return Decision(np.full((num_assets, 1), fraction, np.float32), np.ones(1), np.zeros(1))


def shares(number):
    return Decision(
        np.sign([[number]]).astype(np.float32), np.array([abs(number)]), np.zeros(1), "shares"
    )


@BACKENDS
def test_e01_buying_all_leaves_cash_at_or_above_zero_after_the_fee(backend):
    env = env_of(market_of([[100.0]] * 4), EnvSettings(initial_cash=10_000), backend)
    env.step(buy(1.0))
    assert env.lots_AE.tolist() == [[99]]
    assert env.cash_E.tolist() == usd([90.10]).tolist()
    flows = [env.cash_E[0] - usd(10_000)]
    for fraction in (0.3, 0.9):
        before = env.cash_E[0]
        env.step(buy(fraction))
        bill = env.costs()
        assert env.cash_E[0] >= 0
        assert env.cash_E[0] - before == (bill.sold_E - bill.bought_E - bill.cost_E)[0]
        flows.append(env.cash_E[0] - before)
    assert usd(10_000) + sum(flows) == env.cash_E[0]


def test_e02_too_little_cash_for_one_share_is_counted_and_metrics_say_why():
    market = market_of([[1_000.0]] * 80)
    settings = EnvSettings(initial_cash=500)
    always = ScheduledPolicy(np.ones((80, 1)), np.ones(80, dtype=bool))
    result = rollout(always, market, Window("w", 0, 80), settings)
    assert result.has_traded_E.tolist() == [False]
    assert result.unaffordable_E.tolist() == [79]
    metrics = summary(result.returns_RE[:, 0])
    assert metrics["sharpe"].value is None
    assert metrics["sharpe"].reason
    rich = rollout(always, market, Window("w", 0, 80), EnvSettings(initial_cash=50_000))
    assert rich.unaffordable_E.tolist() == [0]


@BACKENDS
@pytest.mark.parametrize("unfilled", ["cancel", "carry"])
@pytest.mark.parametrize("kind", ["whole", "fractional"])
def test_e04_the_volume_cap_fills_a_tenth_and_cancels_or_carries_the_rest(backend, unfilled, kind):
    market = market_of([[10.0]] * 6, volume_DA=[[1_000]] * 6)
    costs = {"commission_bps": 0, "volume_cap": 0.1, "unfilled": unfilled}
    env = env_of(market, EnvSettings(costs=costs, shares=kind), backend)
    one = env.tables.lots_per_share
    step = env.step(shares(250 * one))
    assert env.lots_AE.tolist() == [[100 * one]]
    assert step.cut_E.tolist() == [1]
    held = []
    for _ in range(3):
        step = env.step(shares(0))
        held.append(env.lots_AE[0, 0] / one)
    assert held == ([200, 250, 250] if unfilled == "carry" else [100, 100, 100])
    assert step.cut_E.tolist() == [0]
    # A new order replaces what is left of the old one.
    env = env_of(market, EnvSettings(costs=costs, shares=kind), backend)
    env.step(shares(250 * one))
    env.step(shares(-30 * one))
    assert env.lots_AE.tolist() == [[70 * one]]


@BACKENDS
def test_e04_a_real_volume_caps_fractional_shares_too(backend):
    market = market_of([[100.0]] * 4, volume_DA=[[300_000_000]] * 4)
    settings = EnvSettings(costs={"commission_bps": 0, "volume_cap": 0.05}, shares="fractional")
    env = env_of(market, settings, backend)
    env.step(buy(1.0))
    assert env.tables.cap_DA[0, 0] == 15_000_000 * 1_000_000
    assert env.lots_AE[0, 0] == pytest.approx(10_000 * 1_000_000, abs=1)


@BACKENDS
def test_e04_what_is_carried_waits_through_a_pause_and_ends_with_a_new_decision(backend):
    closes = np.full((9, 1), 10.0)
    closes[2:4] = np.nan
    market = market_of(closes, volume_DA=[[1_000]] * 9)
    costs = {"commission_bps": 0, "volume_cap": 0.1, "unfilled": "carry"}
    env = env_of(market, EnvSettings(costs=costs, initial_cash=10_000), backend)
    held = []
    for order in (350, 0, 0, 0, 0):
        env.step(shares(order))
        held.append(int(env.lots_AE[0, 0]))
    assert held == [100, 100, 100, 200, 300]
    env = env_of(market, EnvSettings(costs=costs, initial_cash=10_000), backend)
    env.step(buy(0.5))  # 500 shares, of which 100 are filled
    stay = Decision(np.array([[0.1]], np.float32), np.ones(1), np.zeros(1))
    env.step(stay)
    env.step(stay)
    env.step(stay)
    assert env.lots_AE.tolist() == [[100]]


def test_e04_without_volumes_a_cap_is_refused_by_name():
    for costs, key in (({"volume_cap": 0.1}, "volume_cap"), ({"impact_bps": 5}, "impact_bps")):
        with pytest.raises(
            ConfigError, match=rf"env\.costs\.{key}: market impact and volume caps need"
        ):
            price_tables(market_of([[10.0]] * 3), EnvSettings(costs=costs))


@BACKENDS
def test_d14_a_session_without_volume_fills_nothing_and_impact_stays_finite(backend):
    market = market_of([[10.0]] * 6, volume_DA=[[900], [900], [0], [0], [0], [900]])
    settings = EnvSettings(costs={"commission_bps": 0, "impact_bps": 100}, initial_cash=10_000)
    env = env_of(market, settings, backend)
    env.step(shares(100))
    # A ninth of the volume: 1 % · sqrt(1/9) of 1000 dollars.
    assert env.costs().costs_CE[3].tolist() == pytest.approx(usd([1000 / 300]), abs=1)
    cuts = [env.step(shares(-100)).cut_E[0] for _ in range(3)]
    assert cuts == [1, 1, 1]
    assert env.lots_AE.tolist() == [[100]]
    env.step(shares(-100))
    assert env.lots_AE.tolist() == [[0]]


@pytest.mark.parametrize("fill", ["next_close", "next_open"])
def test_e06_an_oracle_on_todays_close_gains_nothing_from_todays_move(fill):
    closes = [[100.0], [200.0], [200.0]]
    market = market_of(closes, open_DA=[[100.0], [200.0], [200.0]])
    env = env_of(market, EnvSettings(costs={"commission_bps": 0}, fill=fill))
    step = env.step(buy(1.0))
    assert step.equity_E.tolist() == usd([1_000_000]).tolist()
    settings = EnvSettings(costs={"commission_bps": 0}, fill="same_close")
    cheat = env_of(market, settings).step(buy(1.0))
    assert cheat.equity_E.tolist() == usd([2_000_000]).tolist()  # why it is for parity only


def test_e07_an_observation_is_of_its_own_session_and_rewards_are_fractions():
    features = np.arange(60, dtype=float)[:, None, None] * np.ones((1, 2, 1)) / 100
    market = market_of(random_closes(60, 2), features)
    seen = {"observations": {"asset_features": {}}, "episode": {"start": "first"},
            "rewards": {"delta_equity": {}}}  # fmt: skip
    face = open_face(market, seen, Window("w", 3, 50))
    face.reset(np.ones(1, dtype=bool), [np.random.default_rng(0)])
    for t in range(3, 40):
        assert face.observation[0] == pytest.approx([t / 100] * 2, abs=1e-6)
        before = face.equity_E[0]
        reward = face.step(np.ones((1, 2))).reward_E
        assert reward[0] == pytest.approx((face.equity_E[0] - before) / 1e6)


def test_e09_a_hole_in_a_feature_is_named_before_anything_trains():
    features = np.random.default_rng(0).normal(size=(80, 3, 2))
    market = market_of(random_closes(80, 3), features)
    holed = market.asset_features_DAK.copy()
    holed[40, 1, 1] = np.nan
    damaged = replace(market, asset_features_DAK=holed)
    with pytest.raises(
        MarketDataError, match=r"env\.observations\.asset_features: 'f1' of T1 is nan on"
    ):
        declared.observation_tables(damaged, EnvSettings())
    # A missing value of the market's columns counts as their mean.
    columns = market.market_features_DF.copy()
    columns[50, 0] = np.nan
    gap = declared.observation_tables(replace(market, market_features_DF=columns), EnvSettings())
    scaled = gap.fit(Window("train", 0, 60)).apply(gap.market_DF)
    assert scaled[50, 0] == 0
    assert np.isfinite(scaled).all()


def test_per_share_costs_and_share_orders_are_refused_on_adjusted_prices():
    market = market_of([[10.0]] * 4)
    adjusted = replace(market, meta=market.meta | {"adjusted": True})
    for settings, key in (
        (EnvSettings(costs={"commission_per_share": 0.01}), "costs.commission_per_share"),
        (EnvSettings(action={"mode": "shares"}), "action.mode"),
    ):
        price_tables(market, settings)
        with pytest.raises(
            ConfigError, match=rf"env\.{key}: the prices of dataset 'made up' are adjusted"
        ):
            price_tables(adjusted, settings)


def test_interest_is_credited_on_cash_by_session_and_not_between_bars_of_one():
    market = market_of([[10.0]] * 4)
    env = env_of(market, EnvSettings(cash_rate=0.05, initial_cash=1_000))
    for _ in range(3):
        env.step(buy(0.0))
    assert env.cash_E[0] == pytest.approx(1e9 * 1.05 ** (3 / 252), abs=3)
    assert env.costs().interest_E[0] > 0
    one_day = replace(market, dates_D=np.repeat(market.dates_D[:1], 4))
    env = env_of(one_day, EnvSettings(cash_rate=0.05, initial_cash=1_000))
    env.step(buy(0.0))
    assert env.cash_E[0] == 1e9


def test_a_minimum_commission_is_charged_once_an_order_and_never_more_than_a_sale_brings():
    market = market_of([[10.0, 1.0]] * 4)
    costs = {"commission_bps": 0, "commission_per_share": 0.01, "commission_minimum": 5.0}
    env = env_of(market, EnvSettings(costs=costs, initial_cash=10_000, action={"mode": "shares"}))
    order = Decision(
        np.array([[1.0], [0.002]], np.float32), np.array([900.0]), np.zeros(1), "shares"
    )
    env.step(order)
    # 900 shares at a cent each are 9 dollars; 1 share pays the minimum of 5.
    assert env.costs().costs_CE[0].tolist() == usd([14.0]).tolist()
    assert env.cash_E.tolist() == usd([10_000 - 9_001 - 14]).tolist()
    env.step(
        Decision(np.array([[0.0], [-1.0]], np.float32), np.array([1.0]), np.zeros(1), "shares")
    )
    assert env.costs().costs_CE[0].tolist() == usd([1.0]).tolist()  # all that the sale brought
    assert env.cash_E.tolist() == usd([985]).tolist()
