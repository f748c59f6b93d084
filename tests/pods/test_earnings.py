"""What accounts earn in training: from fill to fill, and nothing after an episode has ended."""

import numpy as np
import pytest

from podracer.envs.backends import Decision
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from podracer.pods.earnings import Earnings
from tests.conftest import market_of

FREE = {"commission_bps": 0}


def earn(closes, settings, targets):
    """Rewards (T, E) of given targets (T, A, E) on given closes."""
    closes = np.asarray(closes, dtype=float)
    num_decisions, _, num_envs = np.shape(targets)
    env = TradingEnv(price_tables(market_of(closes), settings), settings, len(closes), 1, num_envs)
    env.reset(np.array([0]))
    earnings = Earnings(env, settings, np.ones((num_decisions, num_envs)))
    for t, target in enumerate(np.asarray(targets, dtype=np.float32)):
        decision = Decision(np.ascontiguousarray(target), np.ones(num_envs), np.zeros(num_envs))
        earnings.note(t, env.step(decision).value_before_E, decision.wanted_AE)
    earnings.finish()
    return earnings


def test_a_decision_is_paid_from_its_own_fill_to_the_next():
    closes = [[100.0], [200.0], [300.0], [150.0], [150.0]]
    settings = EnvSettings(costs=FREE, rewards={"log_return": {}})
    # In, in, out: the first fill is at 200, so the jump from 100 is nobody's; then 300/200 and 150/300.
    targets = np.array([1.0, 1.0, 0.0])[:, None, None] * [[[1.0, 0.0]]]
    found = earn(closes, settings, targets)
    assert found.reward_TE[:, 0] == pytest.approx([np.log(1.5), np.log(0.5), 0.0], abs=1e-5)
    assert found.reward_TE[:, 1].tolist() == [0, 0, 0]


def test_turnover_is_that_of_the_decisions_own_orders():
    closes = [[100.0]] * 5
    settings = EnvSettings(costs=FREE, rewards={"turnover_penalty": {"weight": 2}})
    targets = np.array([0.5, 0.5, 0.1])[:, None, None] * np.ones((1, 1, 1))
    assert earn(closes, settings, targets).reward_TE[:, 0] == pytest.approx(
        [-1.0, 0.0, -0.8], abs=1e-3
    )


def test_nothing_is_earned_after_the_drawdown_limit():
    closes = [[100.0], [100.0], [60.0], [90.0], [90.0], [120.0]]
    settings = EnvSettings(
        costs=FREE, rewards={"log_return": {}}, terminations={"drawdown_limit": {"fraction": 0.3}}
    )
    found = earn(closes, settings, np.ones((4, 1, 1)) * [[[1.0, 0.1]]])
    # The first account is 40 % down at the mark of decision 1, after which it is closed.
    assert found.is_open_TE[:, 0].tolist() == [True, True, False, False, False]
    assert found.reward_TE[:, 0] == pytest.approx([np.log(0.6), np.log(1.5), 0, 0], abs=1e-3)
    assert found.is_open_TE[:, 1].all()
    assert (found.reward_TE[[0, 1, 3], 1] != 0).all()
