"""Functors by hand, and how they are declared."""

from itertools import pairwise

import numpy as np
import pytest

from podracer.envs import declared
from podracer.envs.functors import AccountView, AssetObservation, Columns, Earned, MarketObservation
from podracer.envs.observations import OBSERVATIONS
from podracer.envs.rewards import REWARDS
from podracer.envs.settings import EnvSettings
from podracer.errors import ConfigError, MarketDataError, PodracerError
from podracer.market.windows import Window
from tests.conftest import market_of, random_closes

BEFORE, AFTER = np.array([100.0, 200.0, 50.0]), np.array([110.0, 190.0, 0.0])


def earned(before=BEFORE, after=AFTER, growth=1.02, traded=30.0):
    return Earned(
        before, after, np.full(len(before), growth), 1_000.0, lambda: np.full(len(before), traded)
    )


def reward(name, **parameters):
    functor = REWARDS[name]
    return functor(functor.Parameters(**parameters), 3)


LOST = np.log(1e-6)  # what an account that has lost everything is said to have earned
LOG = np.array([np.log(1.1), np.log(0.95), LOST])


@pytest.mark.parametrize(
    ("functor", "expected"),
    [
        (reward("log_return"), LOG),
        (reward("excess"), LOG - np.log(1.02)),
        (reward("mean_variance", risk_aversion=4), LOG - 2 * LOG**2),
        (reward("delta_equity"), [0.01, -0.01, -0.05]),
        (reward("turnover_penalty"), [-0.3, -0.15, -0.6]),
        (reward("drawdown_penalty"), [0.0, -0.05, -1.0]),
    ],
)
def test_rewards_by_hand(functor, expected):
    assert functor(earned()) == pytest.approx(np.array(expected))


def test_the_drawdown_penalty_is_the_growth_of_the_drawdown_and_forgets_on_reset():
    functor = reward("drawdown_penalty")
    path = np.array([[100, 100, 100], [80, 120, 90], [60, 90, 95], [90, 105, 100.0]])
    steps = [functor(earned(a, b)) for a, b in pairwise(path)]
    # Peaks 100, 120, 100: drawdowns 0 .2 .4 .1, 0 0 .25 .125, 0 .1 .05 0.
    assert np.array(steps) == pytest.approx(
        np.array([[-0.2, 0, -0.1], [-0.2, -0.25, 0], [0, 0, 0]])
    )
    functor.reset(np.array([True, False, False]))
    assert functor(earned(np.array([50.0, 105, 100]), np.array([40.0, 96, 100]))) == pytest.approx(
        [-0.2, -(0.2 - 0.125), 0]
    )


def test_the_differential_sharpe_ratio_is_the_derivative_of_the_moving_sharpe_ratio():
    rng = np.random.default_rng(0)
    returns = rng.normal(0.001, 0.02, size=(60, 3))
    rate = 0.04
    functor = reward("differential_sharpe", adaptation=rate)
    mean, square = np.zeros(3), np.zeros(3)
    for r in returns:
        found = functor(earned(np.full(3, 100.0), 100 * (1 + r)))

        def sharpe(eta, r=r, mean=mean, square=square):
            m, s = mean + eta * (r - mean), square + eta * (r**2 - square)
            return m / np.sqrt(s - m**2)

        if (square - mean**2 > 1e-6).all():
            h = 1e-6
            slope = (sharpe(h) - sharpe(-h)) / (2 * h)
            assert found == pytest.approx(slope, rel=1e-4, abs=1e-6)
        mean, square = mean + rate * (r - mean), square + rate * (r**2 - square)


def view(equity, weights=((0.5, 0.1, 0.0), (0.25, 0.1, 1.0)), previous=None):
    weights_AE = np.array(weights)
    before = np.zeros_like(weights_AE) if previous is None else previous
    return AccountView(lambda: weights_AE, np.array(equity, dtype=float), 100.0, before)


def test_an_episode_ends_by_ruin_or_at_the_drawdown_limit():
    settings = EnvSettings(
        terminations={"ruin": {"fraction": 0.5}, "drawdown_limit": {"fraction": 0.3}}
    )
    ends = declared.terminations(settings, 3)
    assert ends(view([100, 200, 51])).tolist() == [False, False, True]  # 49 % below the first peak
    assert ends(view([71, 141, 90])).tolist() == [False, False, False]
    assert ends(view([70, 140, 90])).tolist() == [True, True, False]
    ends.reset(np.array([False, True, False]))
    assert ends(view([100, 71, 100])).tolist() == [False, False, False]


def test_the_reward_is_the_weighted_sum_of_its_terms():
    settings = EnvSettings(
        rewards={"log_return": {"weight": 2}, "turnover_penalty": {"weight": 0.1}}
    )
    total = declared.rewards(settings, 3)
    assert total(earned()) == pytest.approx(2 * LOG - np.array([0.03, 0.015, 0.06]))


def test_what_accounts_look_like_by_hand():
    settings = EnvSettings(observations={"cash": {}, "holdings": {}, "previous_action": {}})
    account = declared.account_functors(settings)
    columns = account.columns(view([1, 1, 1], previous=np.array([[1.0, 0, 0], [0, -1, 0]])))
    expected = [[0.25, 0.8, 0], [0.5, 0.1, 0], [0.25, 0.1, 1], [1, 0, 0], [0, -1, 0]]
    assert columns == pytest.approx(np.array(expected))
    assert account.names(("A", "B")) == (
        "cash", "held:A", "held:B", "last action:A", "last action:B",
    )  # fmt: skip


def test_the_tables_have_the_declared_columns_and_only_scaled_ones_are_scaled():
    rng = np.random.default_rng(0)
    market = market_of(random_closes(80, 3), rng.normal(5, 2, size=(80, 3, 2)))
    tables = declared.observation_tables(market, EnvSettings(observations={"market_features": {}}))
    assert tables.asset_DAK.shape == (80, 3, 0)
    scaler = tables.fit(Window("train", 0, 60))
    assert scaler.apply(tables.market_DF)[:60].mean(0) == pytest.approx(np.zeros(6), abs=1e-5)
    plain = tables._replace(is_scaled_F=np.zeros(6, dtype=bool))
    unscaled = plain.fit(Window("train", 0, 60)).apply(tables.market_DF)
    assert unscaled == pytest.approx(np.clip(tables.market_DF, -10, 10))


def test_a_hidden_state_is_shown_only_where_there_is_one_and_it_is_asked_for():
    market = market_of(random_closes(80, 3))
    with pytest.raises(ConfigError, match=r"env\.observability: full needs a market with a hidden"):
        declared.observation_tables(market, EnvSettings(observability="full"))


class Crooked(MarketObservation):
    """Gives a row too few."""

    def columns(self, market):
        return Columns(np.zeros((len(market.dates_D) - 1, 1)), ("x",))


class Empty(AssetObservation):
    """Has a hole."""

    def columns(self, market):
        values = np.zeros((*market.price_DA.shape, 1))
        values[7, 1, 0] = np.nan
        return Columns(values, ("hole",))


def test_functors_that_give_wrong_tables_are_refused_by_name(monkeypatch):
    market = market_of(random_closes(20, 3))
    monkeypatch.setitem(declared.KNOWN_OBSERVATIONS, "cash", Crooked)
    with pytest.raises(
        MarketDataError, match=r"env\.observations\.cash: expected a table of shape"
    ):
        declared.observation_tables(market, EnvSettings(observations={"cash": {}}))
    monkeypatch.setitem(declared.KNOWN_OBSERVATIONS, "cash", Empty)
    with pytest.raises(MarketDataError, match=r"env\.observations\.cash: 'hole' of T1 is nan on"):
        declared.observation_tables(market, EnvSettings(observations={"cash": {}}))


def test_every_functor_has_a_one_line_meaning():
    for functor in [*REWARDS.values(), *OBSERVATIONS.values()]:
        assert functor.__doc__.splitlines()[0].endswith(".")


def test_the_hash_of_an_environment_follows_what_is_declared():
    plain = EnvSettings()
    assert plain.hash == EnvSettings(rewards={"mean_variance": {"risk_aversion": 10}}).hash
    assert plain.hash != EnvSettings(rewards={"mean_variance": {"risk_aversion": 11}}).hash
    assert plain.hash != EnvSettings(observations={"cash": {}}).hash


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"rewards": {}}, "rewards names none; choose of mean_variance"),
        ({"observations": {}}, "observations names none; choose of asset_features"),
        ({"costs": {"unfilled": "carry"}}, "carry needs costs.volume_cap"),
        ({"episode": {"cost_scales": [1, 11]}}, "a cost scale lies in 0 … 10, got 1.0, 11.0"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(declaration, message):
    with pytest.raises(ValueError, match=message):
        EnvSettings(**declaration)


def test_a_reward_of_another_shape_is_named(monkeypatch):
    monkeypatch.setattr(REWARDS["excess"], "__call__", lambda self, earned: 3.0)
    total = declared.rewards(EnvSettings(rewards={"excess": {}}), 3)
    with pytest.raises(
        PodracerError,
        match=r"reward Excess: expected one number an environment, shape \(3,\), got \(\)",
    ):
        total(earned())


@pytest.mark.parametrize(
    "declaration",
    [
        {"costs": {"impact_bps": float("nan")}},
        {"rewards": {"mean_variance": {"risk_aversion": float("inf")}}},
        {"rewards": {"turnover_penalty": {"weight": -5}}},
        {"rewards": {"log_return": {"weight": 0}}},
        {"initial_cash": float("inf")},
    ],
)
def test_numbers_that_are_none_and_rewards_that_pay_for_nothing_are_refused(declaration):
    with pytest.raises(ValueError, match=r"finite number|greater than 0|less than"):
        EnvSettings(**declaration)
