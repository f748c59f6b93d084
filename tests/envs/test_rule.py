"""The trading rule, by hand and by its invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podracer.envs import rule
from podracer.envs.backends import Decision, table_rows
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.errors import ConfigError, PodracerError
from tests.conftest import market_of, random_closes, usd


def fill(cash, shares, wanted, price, fee_bps, fillable=None):
    market = market_of(np.array([price, price]))
    tables = price_tables(market, EnvSettings(costs={"commission_bps": fee_bps}))
    row = table_rows(tables, np.array([0]), 1)
    if fillable is not None:
        row = row._replace(fillable=np.array(fillable)[:, None])
    lots = np.array(shares, dtype=np.float64)
    orders = np.array(wanted, dtype=np.float64)
    return rule.fill(np, usd(cash), lots, None, orders, True, row, False)


def test_the_fee_is_charged_on_buys_and_on_sells():
    done = fill([5_000, 5_000], [[0, 8]], [[10, -5]], [100], fee_bps=10)
    # By hand: buy 10 at 100.10, so 5000 - 1001; sell 5 at 99.90, so 5000 + 499.50.
    assert done.cash_E.tolist() == usd([3_999, 5_499.5]).tolist()
    assert done.lots_AE.tolist() == [[10, 3]]


def test_ten_thousand_dollars_buy_99_shares_of_100_with_a_fee_of_10_bp():
    done = fill([10_000], [[0]], [[100]], [100], fee_bps=10)
    # 99 x 100.10 = 9909.90; a hundredth share would need 10010.
    assert done.lots_AE.tolist() == [[99]]
    assert done.cash_E.tolist() == usd([90.10]).tolist()


def test_sells_pay_for_buys_and_short_cash_scales_all_buys_alike():
    done = fill([0], [[10], [0], [0]], [[-10], [8], [4]], [100, 100, 50], fee_bps=0)
    # 1000 of proceeds against 800 + 200: enough. Half of it: 500 against 1000, so half of each.
    assert done.lots_AE.tolist() == [[0], [8], [4]]
    done = fill([0], [[5], [0], [0]], [[-5], [8], [4]], [100, 100, 50], fee_bps=0)
    # Each buy is first clipped to what cash alone pays for: 5 of 8; 5 x 100 + 4 x 50 = 700,
    # 500/700: floor(3.57) = 3 and floor(2.86) = 2.
    assert done.lots_AE.tolist() == [[0], [3], [2]]
    assert done.cash_E.tolist() == usd([100]).tolist()


def test_a_sell_is_limited_to_what_is_held():
    assert fill([0], [[3]], [[-9]], [10], fee_bps=0).lots_AE.tolist() == [[0]]


def test_an_order_for_a_name_that_does_not_trade_is_dropped_and_counted():
    done = fill([1_000], [[5], [0]], [[-5], [3]], [10, 10], fee_bps=0, fillable=[False, True])
    assert done.lots_AE.tolist() == [[5], [3]]
    assert done.dropped_E.tolist() == [1]


def test_orders_move_the_fraction_speed_of_the_gap_and_leave_small_gaps_alone():
    tables = price_tables(market_of([[10, 20], [10, 20]]), EnvSettings())
    orders = rule.size_orders(
        np,
        usd([1_000, 1_000, 1_000]),
        np.zeros((2, 3)),
        table_rows(tables, np.array([0]), 3),
        np.array([[0.5, 0.5, 0.03125], [0.5, 0.5, 0.75]], dtype=np.float32),
        np.array([1.0, 0.1, 1.0]),
        np.array([0.0, 0.0, 0.05]),
        "weights",
    )
    # 500 dollars are 50 shares at 10 and 25 at 20; a tenth; 3.1 % is inside the band.
    assert orders.tolist() == [[50, 5, 0], [25, 2, 37]]


def test_the_fee_is_rounded_against_the_trader_to_the_last_unit():
    tables = price_tables(
        market_of([[0.000007], [0.000007]]),
        EnvSettings(costs={"commission_bps": 10}, initial_cash=0.001),
    )
    # 7 units, 0.1 %: 0.007 of a unit is charged as one whole unit.
    assert tables.buy_DA[0].tolist() == [8]
    assert tables.sell_DA[0].tolist() == [6]


def env_on(closes, settings, num_envs=1, **names):
    market = market_of(closes, **names)
    return TradingEnv(price_tables(market, settings), settings, len(closes), 1, num_envs)


def all_in(weights, num_envs=1):
    target = np.repeat(np.array(weights, dtype=np.float32)[:, None], num_envs, axis=1)
    return Decision(target, np.ones(num_envs), np.zeros(num_envs))


def test_an_oracle_on_todays_close_gains_nothing_from_todays_move(free_trading):
    env = env_on([[100], [200], [200]], free_trading)
    env.reset(np.array([0]))
    step = env.step(all_in([1.0]))
    # Decided at 100 after the close of session 0, filled at 200: 5000 shares, no gain.
    assert env.lots_AE.tolist() == [[5_000]]
    assert step.equity_E.tolist() == usd([1_000_000]).tolist()


def test_orders_fill_at_the_next_open_when_asked_to():
    settings = EnvSettings(
        costs={"commission_bps": 0}, action={"no_trade_band": 0}, fill="next_open"
    )
    env = env_on([[100], [125], [125]], settings, open_DA=[[100], [50], [125]])
    env.reset(np.array([0]))
    step = env.step(all_in([1.0]))
    # 10,000 shares were sized at 100 and filled at 50; the other half stays cash; mark at 125.
    assert env.lots_AE.tolist() == [[10_000]]
    assert step.equity_E.tolist() == usd([500_000 + 1_250_000]).tolist()


def test_fills_at_opens_are_refused_by_name_where_there_are_none():
    with pytest.raises(
        ConfigError, match="next_open needs opening prices, which dataset 'made up'"
    ):
        price_tables(market_of([[1.0], [1.0]]), EnvSettings(fill="next_open"))


def test_a_fee_on_a_price_outside_exact_money_is_refused():
    with pytest.raises(ConfigError, match="leaves the range of exact money"):
        price_tables(market_of([[1e10], [1e10]]), EnvSettings(costs={"commission_bps": 999}))


def test_the_end_of_the_data_truncates_and_a_finished_episode_is_not_stepped(free_trading):
    env = env_on([[100], [100], [2]], free_trading)
    env.reset(np.array([0]))
    first = env.step(all_in([1.0]))
    assert first.truncated_E.tolist() == [False]
    last = env.step(all_in([1.0]))
    assert last.truncated_E.tolist() == [True]
    with pytest.raises(ValueError, match="an episode has ended"):
        env.step(all_in([1.0]))


def test_wrong_shapes_and_sessions_are_refused(free_trading):
    env = env_on([[100], [100], [100]], free_trading)
    with pytest.raises(ValueError, match="an order needs a session to fill in"):
        env.reset(np.array([2]))
    env.reset(np.array([0]))
    with pytest.raises(ValueError, match="wanted_AE must be"):
        env.step(all_in([0.5, 0.5]))


def test_accounts_that_outgrow_exact_money_are_refused():
    env = env_on([[1], [1], [1e6]], EnvSettings(initial_cash=1e8, costs={"commission_bps": 0}))
    env.reset(np.array([0]))
    env.step(all_in([1.0]))
    with pytest.raises(PodracerError, match="leaves the range of exact money"):
        env.step(all_in([1.0]))
    env = env_on([[0.001], [0.001], [0.001]], EnvSettings(initial_cash=1e8))
    with pytest.raises(PodracerError, match=r"more than 2,147,483,648 shares"):
        env.reset(np.array([0]))


def test_two_policies_give_two_equities(free_trading):
    closes = random_closes(50, 2)
    equities = []
    for weights in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0]):
        env = env_on(closes, free_trading)
        env.reset(np.array([0]))
        for _ in range(49):
            env.step(all_in(weights))
        equities.append(float(env.equity_E[0]))
    assert len(set(equities)) == 3


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0, 200))
def test_money_is_conserved_to_the_last_unit_whatever_is_ordered(seed, num_assets, fee_bps):
    rng = np.random.default_rng(seed)
    closes = random_closes(12, num_assets, seed, volatility=0.1)
    closes[:4, -1] = np.nan
    closes[8:, 0] = np.nan if num_assets > 1 else closes[8:, 0]
    if num_assets == 1:
        closes[:4, 0] = 50.0
    conf = EnvSettings(
        costs={"commission_bps": fee_bps}, action={"no_trade_band": 0.0}, initial_cash=20_000
    )
    env = env_on(closes, conf, num_envs=5)
    tables = env.tables
    env.reset(np.array([0]))
    for t in range(11):
        raw = rng.exponential(size=(num_assets, 5)) * (rng.random((num_assets, 5)) < 0.6)
        target = (raw / np.maximum(raw.sum(0), 1.0)).astype(np.float32)
        before, held = env.equity_E.copy(), env.lots_AE.copy()
        step = env.step(Decision(target, rng.choice([0.1, 1.0], 5), np.zeros(5)))
        assert (env.cash_E >= 0).all()
        assert (env.lots_AE >= 0).all()
        # Fills are at the marks of t + 1, so only what was held before earned the move.
        move_A = tables.close_DA[t + 1] - tables.close_DA[t]
        assert np.array_equal(
            step.equity_E - before, (held * move_A[:, None]).sum(0) - env.costs().cost_E
        )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_the_result_does_not_depend_on_the_order_of_the_tickers(seed):
    rng = np.random.default_rng(seed)
    closes = random_closes(10, 5, seed, volatility=0.05)
    order = rng.permutation(5)
    conf = EnvSettings(costs={"commission_bps": 25}, initial_cash=5_000)
    one, other = env_on(closes, conf, 4), env_on(closes[:, order], conf, 4)
    one.reset(np.array([0]))
    other.reset(np.array([0]))
    for _ in range(9):
        target = rng.dirichlet(np.ones(5), size=4).T.astype(np.float32)
        speed = np.full(4, 0.7)
        one.step(Decision(np.ascontiguousarray(target), speed, np.zeros(4)))
        other.step(Decision(np.ascontiguousarray(target[order]), speed, np.zeros(4)))
        assert np.array_equal(one.cash_E, other.cash_E)
        assert np.array_equal(one.lots_AE[order], other.lots_AE)
