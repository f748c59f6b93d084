"""Rewards, policies and the evaluator, against hand values and scalar loops."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from podracer.agents.parameters import Anatomy, Parameters, initial_weights, layout
from podracer.agents.settings import NetworkSettings
from podracer.envs.agent_policies import ActingAgents, EnsemblePolicy, PopulationPolicy
from podracer.envs.backends import Decision, numba_backend, numpy_backend
from podracer.envs.equal_weight import close_growth, fill_growth
from podracer.envs.observation import observe, target_weights
from podracer.envs.policies import ScheduledPolicy, SideBySide, equal_weight_monthly, equal_weights
from podracer.envs.rollout import joined, rollout
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.market.findings import QualitySettings
from podracer.market.market import build_market
from podracer.market.prices import PricePanel
from podracer.market.quality import check
from podracer.market.raw import RawPrices
from podracer.market.scaling import fit_scaler
from podracer.market.sessions import sessions_of
from podracer.market.settings import FeatureSettings
from podracer.market.windows import Window
from tests.conftest import market_of, random_closes

DATA = Path(__file__).parents[1] / "data"


def test_equal_weight_grows_by_the_mean_of_what_is_held_through_pauses_and_ends():
    closes = [[10, 10], [20, 10], [30, np.nan], [30, 40]]
    growth_D = fill_growth(price_tables(market_of(closes), EnvSettings()))
    # Fills of session t are at t + 1: 20 -> 30 and a pause at 10, then 30 -> 30 and 10 -> 40.
    assert growth_D.tolist() == pytest.approx([1.25, 2.5, 1.0, 1.0])
    ends = price_tables(
        market_of([[10, 10], [20, 10], [30, np.nan], [30, np.nan]]),
        EnvSettings(delisting_haircut=0.5),
    )
    # The second is closed at half of 10 at the fill of session 1, and then there is one asset.
    assert fill_growth(ends).tolist() == pytest.approx([(1.5 + 0.5) / 2, 1.0, 1.0, 1.0])
    assert close_growth(ends).tolist() == pytest.approx([1.5, (1.5 + 0.5) / 2, 1.0, 1.0])


def test_returns_of_buy_and_hold_are_those_of_the_price_after_the_first_fill(free_trading):
    closes = np.array([[100.0], [50.0], [75.0], [60.0]])
    market = market_of(closes)
    once_D = np.array([True, False, False, False])
    result = rollout(
        ScheduledPolicy(np.ones((4, 1)), once_D), market, Window("w", 0, 4), free_trading
    )
    # Sized at 100, filled at 50: 10,000 shares for half of the cash.
    assert result.returns_RE[:, 0] == pytest.approx([0, 0.25, -150_000 / 1_250_000])
    assert result.weights_RAE[0, 0, 0] == pytest.approx(0.5)
    assert result.turnover_RE[:, 0] == pytest.approx([0.5, 0, 0])
    assert result.dates_R.tolist() == market.dates_D[1:4].tolist()


def test_the_benchmark_rebalances_at_the_first_close_and_at_the_last_of_each_month():
    market = market_of(random_closes(60, 3), first="2010-01-04")
    result = rollout(equal_weight_monthly(market, 0), market, Window("w", 0, 60), EnvSettings())
    traded = market.dates_D[1:][result.turnover_RE[:, 0] > 0]
    # Fills are one session after the decisions of 4 January, 29 January and 26 February.
    assert traded.astype(str).tolist() == ["2010-01-05", "2010-02-01", "2010-03-01"]


def test_policies_side_by_side_equal_each_alone():
    market = market_of(random_closes(40, 3))
    rules = [ScheduledPolicy(equal_weights(market), np.arange(40) % n == 0) for n in (1, 7)]
    window = Window("w", 2, 40)
    together = rollout(SideBySide(rules), market, window, EnvSettings())
    for i, policy in enumerate(rules):
        alone = rollout(policy, market, window, EnvSettings(), numpy_backend)
        assert np.array_equal(together.returns_RE[:, i], alone.returns_RE[:, 0])


def population(market, num_agents, settings):
    scaler = fit_scaler(market.market_features_DF, Window("train", 0, 30))
    observations = observe(market, scaler, EnvSettings())
    made = layout(settings, observations.sizes, Anatomy(spread="one"))
    weights = [
        initial_weights(made, torch.Generator().manual_seed(i), 0.5) * 30 for i in range(num_agents)
    ]
    gain_P = torch.linspace(0.5, 2.0, num_agents)
    parameters = Parameters(torch.stack(weights), made)
    agents = ActingAgents("ppo", observations.sizes, parameters, gain_P, gain_P / 2)
    return agents, observations


def test_a_head_policy_is_the_softmax_of_its_scores():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 3, 2))
    market = market_of(random_closes(40, 3), features)
    agents, observations = population(market, 2, NetworkSettings())
    decision = PopulationPolicy(agents, observations).decide(5, np.zeros((3, 2)))
    for p in range(2):
        linear = agents.weights["head_linear"][p, :, 0].numpy()
        scores = features[5].astype(np.float32) @ linear * float(agents.gain_P[p])
        expected = np.exp(scores) / np.exp(scores).sum()
        assert decision.wanted_AE[:, p] == pytest.approx(expected, rel=1e-5)


def test_an_ensemble_of_one_is_that_agent():
    rng = np.random.default_rng(0)
    market = market_of(random_closes(80, 3), rng.normal(size=(80, 3, 2)))
    agents, observations = population(market, 1, NetworkSettings(mlp_hidden=8))
    member = PopulationPolicy(agents, observations)
    window = Window("w", 0, 80)
    alone = rollout(member, market, window, EnvSettings())
    ensemble = rollout(EnsemblePolicy(member), market, window, EnvSettings())
    assert np.array_equal(alone.returns_RE, ensemble.returns_RE)


def test_an_ensemble_moves_by_the_average_of_its_members_moves():
    rng = np.random.default_rng(1)
    market = market_of(random_closes(40, 3), rng.normal(size=(40, 3, 2)))
    agents, observations = population(market, 4, NetworkSettings())
    members = PopulationPolicy(agents, observations)
    held = np.array([[0.5], [0.2], [0.1]])
    wants = members.decide(7, np.repeat(held, 4, axis=1))
    moves = np.mean(
        [s * (t - held[:, 0]) for s, t in zip(wants.scale_E, wants.wanted_AE.T, strict=True)], 0
    )
    decision = EnsemblePolicy(members).decide(7, held)
    assert decision.scale_E[0] * (decision.wanted_AE - held)[:, 0] == pytest.approx(moves, abs=1e-6)


def test_targets_leave_out_what_does_not_trade_and_cash_keeps_its_share():
    scores = torch.tensor([0.0, 1.0, 2.0, 0.0])
    visible = torch.tensor([True, False, True])
    weights = target_weights(scores, torch.tensor(1.0), visible)
    odds = np.exp([0.0, 2.0, 0.0])  # first asset, third asset, cash
    assert weights.tolist() == pytest.approx([odds[0] / odds.sum(), 0.0, odds[1] / odds.sum()])
    nothing = target_weights(scores[:3], torch.tensor(1.0), torch.zeros(3, dtype=torch.bool))
    assert nothing.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("t", [300, 450])
def test_perturbing_the_future_changes_nothing_before_it(t):
    closes = random_closes(600, 4)
    dates = sessions_of("XNYS")[-1600:-1000].to_numpy("datetime64[D]")
    changed = closes.copy()
    changed[t + 1 :] *= np.random.default_rng(9).uniform(0.5, 2.0, size=changed[t + 1 :].shape)
    one, other = (
        build_market(
            PricePanel("x", "h", dates, ("A", "B", "C", "D"), {"close": c}, np.isfinite(c)),
            FeatureSettings(),
        )
        for c in (closes, changed)
    )
    for name in ("price_DA", "asset_features_DAK", "feature_valid_DA", "market_features_DF"):
        before = [np.asarray(getattr(m, name))[: t + 1] for m in (one, other)]
        assert np.array_equal(*before, equal_nan=True), name
    scaler = fit_scaler(one.market_features_DF, Window("train", 260, 290))
    results = []
    for market in (one, other):
        observations = observe(market, scaler, EnvSettings())
        sizes = observations.sizes
        made = layout(NetworkSettings(mlp_hidden=8), sizes, Anatomy(spread="one"))
        weights = initial_weights(made, torch.Generator().manual_seed(0), 0.5)[None] * 20
        one_P = torch.ones(1)
        agents = ActingAgents("ppo", sizes, Parameters(weights, made), one_P, one_P)
        policy = PopulationPolicy(agents, observations)
        results.append(rollout(policy, market, Window("w", 260, 600), EnvSettings()))
    known = t - 260  # returns of sessions 261 … t
    for name in ("returns_RE", "equity_RE", "weights_RAE", "turnover_RE", "cost_RE"):
        assert np.array_equal(*(getattr(r, name)[:known] for r in results)), name
    assert not np.array_equal(results[0].returns_RE, results[1].returns_RE)


def test_a_holding_whose_ticker_ends_is_closed_at_its_last_price_and_listed():
    closes = np.array(
        [[100.0, 10.0], [100.0, 12.0], [100.0, 8.0], [100.0, np.nan], [100.0, np.nan]]
    )
    market = market_of(closes)
    once = ScheduledPolicy(np.array([[0.5, 0.5]] * 5), np.arange(5) == 0)
    settings = EnvSettings(initial_cash=1_000, costs={"commission_bps": 0}, delisting_haircut=0.25)
    for backend in (numba_backend, numpy_backend):
        result = rollout(once, market, Window("w", 0, 5), settings, backend)
        # Half of 1000 at 10 is 50 shares; they fill at 12, but 5 x 100 + 50 x 12 > 1000: both are
        # scaled by 1000 / 1100, 4 and 45 shares, 60 in cash. The 45 are worth 360 at the last
        # price and 270 after the haircut of a quarter.
        assert result.equity_RE[:, 0].tolist() == [1_000, 820, 730, 730]
        (closing,) = result.closings
        assert (closing.asset, closing.dollars_E.tolist()) == (1, [270.0])
        assert closing.date == market.dates_D[3]
        assert result.cost_RE.sum() == 0


def test_a_pause_keeps_the_position_and_no_order_is_made_on_a_masked_cell():
    closes = np.full((5, 2), 10.0)
    market = market_of(closes)
    tradable = np.ones((5, 2), dtype=bool)
    tradable[2, 1] = False  # no volume on session 2
    market = replace(market, tradable_DA=tradable)
    target = np.array([[0.5, 0.5], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    settings = EnvSettings(initial_cash=1_000, costs={"commission_bps": 0})
    result = rollout(ScheduledPolicy(target, np.ones(5)), market, Window("w", 0, 5), settings)
    # The order of session 1 to sell B meets the masked session 2 and is dropped; on session 2 none
    # is made; that of session 3 fills on session 4.
    assert result.weights_RAE[:, 1, 0].tolist() == [0.5, 0.5, 0.5, 0.0]
    assert result.weights_RAE[:, 0, 0].tolist() == [0.5, 0.0, 0.0, 0.0]
    assert result.dropped_E.tolist() == [1]


def test_a_scheduled_order_is_given_again_until_it_is_filled():
    closes = np.full((8, 2), 10.0)
    tradable = np.ones((8, 2), dtype=bool)
    tradable[1:3, 1] = False  # no volume on the session of the first fill and the next
    market = replace(market_of(closes), tradable_DA=tradable)
    once = np.arange(8) == 0
    settings = EnvSettings(initial_cash=1_000, costs={"commission_bps": 0})
    hold = ScheduledPolicy(equal_weights(market), once, tradable)
    result = rollout(hold, market, Window("w", 0, 8), settings)
    # Visible again at the close of session 3, filled on session 4, and then left alone.
    assert result.weights_RAE[:, 1, 0].tolist() == [0, 0, 0, 0.5, 0.5, 0.5, 0.5]
    assert (result.turnover_RE[:, 0] > 0).tolist() == [
        True,
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    again = rollout(hold, market, Window("w", 0, 8), settings)
    assert np.array_equal(again.weights_RAE, result.weights_RAE)


def test_a_total_loss_on_the_last_cent_is_the_same_in_both_backends():
    closes = np.array([[10.0, 10.0], [10.0, 10.0], [10.0, np.nan], [10.0, np.nan]])
    settings = EnvSettings(initial_cash=1_000, costs={"commission_bps": 0}, delisting_haircut=1.0)
    all_in = ScheduledPolicy(np.array([[0.0, 1.0]] * 4), np.arange(4) < 3)
    for backend in (numba_backend, numpy_backend):
        result = rollout(all_in, market_of(closes), Window("w", 0, 3), settings, backend)
        assert result.equity_RE[:, 0].tolist() == [1_000, 0]


def test_88_real_names_with_a_share_of_a_quarter_million_stay_inside_exact_money():
    frame = pd.read_parquet(DATA / "stocknet88.parquet")
    panel, _ = check(RawPrices(frame, "stocknet88", "XNYS"), QualitySettings())
    market = build_market(panel, FeatureSettings(asset=("reversal_1m",), market=("log_return_1",)))
    berkshire = market.tickers.index("BRK-A")
    assert np.nanmax(panel.fields["close"][:, berkshire]) == pytest.approx(271_450, abs=10_000)
    window = Window("w", 30, len(market.dates_D))
    for cash, holds_it in ((1_000_000, False), (40_000_000, True)):
        settings = EnvSettings(initial_cash=cash)
        result = rollout(equal_weight_monthly(market, 30), market, window, settings)
        slow = rollout(equal_weight_monthly(market, 30), market, window, settings, numpy_backend)
        assert np.isfinite(result.returns_RE).all()
        assert np.array_equal(result.equity_RE, slow.equity_RE)
        # An 88th of a million dollars is less than one share.
        assert bool(result.weights_RAE[:, berkshire].max() > 0) is holds_it


def test_the_books_of_a_rollout_are_those_of_its_steps_one_by_one():
    closes = random_closes(620, 4)
    closes[300:, 1] = np.nan
    volumes = np.full(closes.shape, 3_000)
    market = market_of(closes, volume_DA=volumes)
    costs = {"half_spread_bps": 3, "impact_bps": 40, "volume_cap": 0.2, "commission_minimum": 1}
    settings = EnvSettings(costs=costs, cash_rate=0.02, delisting_haircut=0.2)
    window = Window("w", 5, 610)
    monthly = equal_weight_monthly(market, 5)
    weekly = ScheduledPolicy(equal_weights(market), np.arange(620) % 5 == 0)
    found = rollout(SideBySide([monthly, weekly]), market, window, settings)
    env = TradingEnv(price_tables(market, settings), settings, 610, 1, 2)
    env.reset(np.array([5]))
    policy = SideBySide([equal_weight_monthly(market, 5), weekly])
    sums, traded, interest = np.zeros((5, 2)), np.zeros(2), np.zeros(2)
    for t in range(5, 609):
        env.step(policy.decide(t, env.weights_AE()))
        bill = env.costs()
        sums, interest = sums + bill.costs_CE, interest + bill.interest_E
        traded += bill.traded_E
    assert found.costs_CE == pytest.approx(sums / 1e6, rel=1e-12)
    assert found.traded_E == pytest.approx(traded / 1e6, rel=1e-12)
    assert found.interest_E == pytest.approx(interest / 1e6, rel=1e-12)
    assert found.cost_RE.sum(0) == pytest.approx(sums.sum(0) / 1e6)
    assert (found.cut_E > 0).all()


def test_rollouts_of_different_action_modes_are_joined_and_not_mixed():
    market = market_of(random_closes(40, 2))
    window, settings = Window("w", 0, 30), EnvSettings()

    class Orders:
        num_policies = 1

        def decide(self, session, weights_AE):
            return Decision(np.full((2, 1), 0.01, np.float32), np.ones(1), np.zeros(1), "notional")

    hold = equal_weight_monthly(market, 0)
    with pytest.raises(ValueError, match="different action modes cannot share a rollout; join two"):
        rollout(SideBySide([Orders(), hold]), market, window, settings)
    parts = [
        rollout(p, market, window, settings) for p in (Orders(), equal_weight_monthly(market, 0))
    ]
    both = joined(parts)
    for e, part in enumerate(parts):
        assert np.array_equal(both.returns_RE[:, e], part.returns_RE[:, 0])
        assert np.array_equal(both.costs_CE[:, e], part.costs_CE[:, 0])
        assert np.array_equal(both.weights_RAE[:, :, e], part.weights_RAE[:, :, 0])
