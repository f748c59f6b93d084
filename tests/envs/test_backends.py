"""The compiled kernel is the NumPy reference, bit for bit."""

import numpy as np
import pytest

from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import Decision, TradingEnv, numba_backend, reference_backend
from tests.conftest import market_of, random_closes

FIELDS = ("value_before_E", "equity_E", "traded_E", "cost_E", "dropped_E", "reward_E")


def random_decision(rng, num_assets, num_envs):
    raw = rng.exponential(size=(num_assets, num_envs)) * (rng.random((num_assets, num_envs)) < 0.7)
    target = raw / np.maximum(raw.sum(0), 1e-9) * rng.uniform(0.2, 1.0, num_envs)
    return Decision(
        target.astype(np.float32),
        rng.choice([0.05, 0.3, 1.0], num_envs),
        rng.choice([0.0, 0.05 / num_assets], num_envs),
    )


@pytest.mark.parametrize("fill", ["next_close", "next_open", "same_close"])
def test_numba_equals_numpy_bit_for_bit_over_2000_sessions_and_512_environments(fill):
    num_assets, rng = 12, np.random.default_rng(1)
    closes = random_closes(2301, num_assets)
    closes[:300, 2] = np.nan  # starts late
    closes[1500:, 3] = np.nan  # dies while held
    closes[700:709, 4] = np.nan  # pauses
    opens = closes * np.round(1 + 0.01 * rng.normal(size=closes.shape), 4)
    settings = EnvSettings(fee_bps=12.5, fill=fill, delisting_haircut=0.3)
    tables = price_tables(market_of(closes, open_DA=opens), settings)
    envs = [
        TradingEnv(tables, settings, 2301, 4, 128, backend)
        for backend in (numba_backend, reference_backend)
    ]
    for env in envs:
        env.reset(np.array([0, 100, 200, 299]))
    for _ in range(2000):
        decision = random_decision(rng, num_assets, 512)
        fast, slow = (env.step(decision) for env in envs)
        for name in FIELDS:
            assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
        assert np.array_equal(envs[0].cash_E, envs[1].cash_E)
        assert np.array_equal(envs[0].shares_AE, envs[1].shares_AE)
        assert (envs[0].cash_E >= 0).all()
