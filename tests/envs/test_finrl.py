"""FinRL's rule against a scalar account in plain floats, written from its published description."""

import numpy as np
import pytest

from podracer.envs.finrl import FinrlEnv
from podracer.envs.settings import EnvSettings
from podracer.errors import ConfigError, MarketDataError
from tests.conftest import market_of, random_closes

HMAX, FEE, CASH, STOCKS = 100, 0.001, 1_000_000.0, 30
SETTINGS = EnvSettings(
    costs={"commission_bps": 10}, action={"mode": "shares", "max_trade_shares": HMAX}
)


class ScalarFinrl:
    """One account: lists and floats, a loop over stocks. The bugs can be switched on."""

    def __init__(self, closes, indicators, turbulence=None, threshold=np.inf, *, forgets_fee=False,
                 first_day_is_calm=False, repeats_last_reward=False):  # fmt: skip
        self.closes, self.indicators = closes, indicators
        self.turbulence, self.threshold = turbulence, threshold
        self.forgets_fee, self.first_day_is_calm = forgets_fee, first_day_is_calm
        self.repeats_last_reward = repeats_last_reward
        self.day, self.cash, self.shares, self.reward = 0, CASH, [0] * closes.shape[1], 0.0

    def state(self):
        blocks = [list(self.indicators[self.day, :, k]) for k in range(self.indicators.shape[2])]
        return [self.cash, *self.closes[self.day], *self.shares, *(x for b in blocks for x in b)]

    def worth(self):
        return self.cash + sum(
            s * p for s, p in zip(self.shares, self.closes[self.day], strict=True)
        )

    def step(self, action):
        if self.day == len(self.closes) - 1 and self.repeats_last_reward:
            return self.reward
        before, price = self.worth(), self.closes[self.day]
        orders = [int(a * np.float32(HMAX)) for a in action]
        is_calm = self.first_day_is_calm and self.day == 0
        if (
            self.turbulence is not None
            and self.turbulence[self.day] >= self.threshold
            and not is_calm
        ):
            orders = [-s for s in self.shares]
        by_size = sorted(range(len(orders)), key=lambda i: (orders[i], i))
        for i in by_size:
            if orders[i] < 0:
                sold = min(-orders[i], self.shares[i])
                self.cash += price[i] * sold * (1 - FEE)
                self.shares[i] -= sold
        for i in sorted(by_size, key=lambda i: (-orders[i], i)):
            if orders[i] > 0:
                each = price[i] if self.forgets_fee else price[i] * (1 + FEE)
                bought = min(orders[i], int((self.cash + 1e-9) // each))
                self.cash -= price[i] * bought * (1 + FEE)
                self.shares[i] += bought
        self.day += 1
        self.reward = (self.worth() - before) * 1e-4
        return self.reward


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(3)
    closes = random_closes(1_002, STOCKS, 5)
    indicators = rng.normal(50, 20, size=(1_002, STOCKS, 8))
    turbulence = np.where(rng.random(1_002) < 0.03, 500.0, 10.0)
    return market_of(closes), closes, indicators, turbulence


def test_shares_are_equal_and_equity_to_a_billionth_over_1000_sessions_of_30_stocks(world):
    market, closes, indicators, turbulence = world
    env = FinrlEnv(market, indicators, SETTINGS, 2, turbulence, 140.0)
    scalars = [ScalarFinrl(closes, indicators, turbulence, 140.0) for _ in range(2)]
    assert env.reset()[0] == pytest.approx(scalars[0].state())
    rng = np.random.default_rng(0)
    was_short = 0
    for _ in range(1_000):
        action = rng.uniform(-0.7, 1, size=(2, STOCKS)).astype(np.float32)
        action[:, 7] = action[:, 3]  # a tie
        state, reward, _ = env.step(action)
        for e, scalar in enumerate(scalars):
            assert scalar.step(action[e]) == pytest.approx(reward[e], abs=1e-9)
            assert env.shares_AE[:, e].tolist() == scalar.shares
            assert env.equity_E[e] == pytest.approx(scalar.worth(), rel=1e-9)
            assert state[e] == pytest.approx(scalar.state(), rel=1e-9, abs=1e-3)
        was_short += (env.cash_E < 500).sum()
    assert was_short > 100


def test_the_state_is_181_wide_for_4_indicators_and_301_for_8(world):
    market, _, indicators, _ = world
    assert FinrlEnv(market, indicators[:, :, :4], SETTINGS, 3).reset().shape == (3, 181)
    assert FinrlEnv(market, indicators, SETTINGS, 3).reset().shape == (3, 301)


def test_finrls_array_environment_goes_below_zero_cash_and_ours_does_not(world):
    closes, indicators = np.full((3, 1), 100.0), np.zeros((3, 1, 1))
    env = FinrlEnv(
        market_of(closes), indicators, SETTINGS.model_copy(update={"initial_cash": 10_000})
    )
    scalar = ScalarFinrl(closes, indicators, forgets_fee=True)
    scalar.cash = 10_000
    env.reset()
    env.step(np.ones((1, 1)))
    scalar.step(np.ones(1))
    assert (scalar.shares, scalar.cash) == ([100], pytest.approx(-10.0))
    assert (env.shares_AE.tolist(), env.cash_E.tolist()) == ([[99]], [90.1])


def test_finrl_pays_the_last_reward_twice_and_ours_ends(world):
    _, closes, indicators, _ = world
    short = market_of(closes[:6])
    env = FinrlEnv(short, indicators[:6], SETTINGS)
    scalar = ScalarFinrl(closes[:6], indicators[:6], repeats_last_reward=True)
    env.reset()
    action = np.ones((1, STOCKS), dtype=np.float32)
    rewards = [(env.step(action).reward_E[0], scalar.step(action[0])) for _ in range(5)]
    assert rewards[-1][0] == pytest.approx(rewards[-1][1], abs=1e-9)
    assert scalar.step(action[0]) == rewards[-1][1] != 0
    with pytest.raises(ValueError, match="an episode has ended"):
        env.step(action)


def test_finrl_ignores_turbulence_on_the_first_day_and_ours_does_not(world):
    market, closes, indicators, _ = world
    storm = np.full(1_002, 500.0)
    action = np.ones((1, STOCKS), dtype=np.float32)
    env = FinrlEnv(market, indicators, SETTINGS, 1, storm, 140.0)
    env.reset()
    env.step(action)
    scalar = ScalarFinrl(closes, indicators, storm, 140.0, first_day_is_calm=True)
    scalar.step(action[0])
    assert scalar.shares == [100] * STOCKS
    assert env.shares_AE[:, 0].tolist() == [0] * STOCKS


@pytest.mark.parametrize(
    "settings",
    [
        {"costs": {"impact_bps": 5}},
        {"costs": {"commission_minimum": 1}},
        {"shares": "fractional"},
        {"cash_rate": 0.02},
    ],
)
def test_settings_that_finrl_does_not_have_are_refused(world, settings):
    with pytest.raises(
        ConfigError, match="FinRL's rule knows whole shares and a commission in basis"
    ):
        FinrlEnv(world[0], world[2], EnvSettings(**settings))


def test_a_market_with_holes_is_refused(world):
    closes = world[1][:10].copy()
    closes[3, 2] = np.nan
    with pytest.raises(MarketDataError, match="FinRL's rule needs every price of every ticker"):
        FinrlEnv(market_of(closes), world[2][:10], SETTINGS)
