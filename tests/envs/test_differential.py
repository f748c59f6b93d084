"""The batched backends against one account at a time in Decimal, on 10,000 random steps each."""

from decimal import Decimal

import numpy as np
import pytest

from podracer.envs.backends import numba_backend, numpy_backend
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import TradingEnv
from tests.envs.scalar_account import Quote, ScalarAccount
from tests.envs.test_backends import EVERYTHING, random_decision, random_market

NUM_ENVS, NUM_STEPS, ASSETS = 40, 250, 7


def quotes_at(market, t, haircut, lots=1):
    """What the scalar account is told, read from the market and not from our tables."""
    price, volume = market.price_DA, market.volume_DA
    quotes = []
    for a in range(price.shape[1]):
        seen = price[: t + 1, a]
        known = seen[np.isfinite(seen)]
        mark = Decimal(int(known[-1])) if len(known) else Decimal(0)
        here, after = price[t, a], price[t + 1, a]
        has_ended = not np.isfinite(price[t + 1 :, a]).any() and np.isfinite(here)
        quotes.append(
            Quote(
                close=Decimal(int(here)) if np.isfinite(here) else None,
                fill=Decimal(int(after)) if np.isfinite(after) else None,
                mark=mark,
                volume=Decimal(int(volume[t + 1, a])),
                ends_at=Decimal(int(np.floor(int(here) * (1 - haircut)))) if has_ended else None,
            )
        )
    for quote in quotes if lots > 1 else ():
        for name in ("close", "fill", "mark", "ends_at"):
            price = getattr(quote, name)
            setattr(quote, name, None if price is None else price / lots)
        quote.volume *= lots
    return quotes


@pytest.mark.parametrize(
    ("backend", "unfilled"),
    [(numba_backend, "cancel"), (numba_backend, "carry"), (numpy_backend, "carry")],
)
def test_ten_thousand_random_steps_equal_the_scalar_account(backend, unfilled):
    rng = np.random.default_rng(4)
    costs = EVERYTHING | {"unfilled": unfilled}
    settings = EnvSettings(costs=costs, cash_rate=0.04, initial_cash=40_000, delisting_haircut=0.25)
    market = random_market(NUM_STEPS + 2, ASSETS, rng, seed=9)
    env = TradingEnv(price_tables(market, settings), settings, NUM_STEPS + 2, 1, NUM_ENVS, backend)
    env.reset(np.array([0]))
    daily_rate = Decimal(1.04 ** (1 / 252) - 1)
    pending = np.zeros((ASSETS, NUM_ENVS))
    seen = np.zeros(4)  # dropped, cut, short of cash, zero volume
    for t in range(NUM_STEPS):
        kind = ("weights", "notional", "shares")[t % 3]
        decision = random_decision(rng, ASSETS, NUM_ENVS, kind)
        cash_E, lots_AE = env.cash_E.copy(), env.lots_AE.copy()
        step = env.step(decision)
        bill = env.costs()
        spent_E = bill.bought_E - bill.sold_E + bill.cost_E - bill.interest_E
        assert np.array_equal(env.cash_E, cash_E - spent_E), "the breakdown sums to the cash"
        quotes = quotes_at(market, t, 0.25)
        for e in range(NUM_ENVS):
            account = ScalarAccount(
                Decimal(int(cash_E[e])),
                [Decimal(int(s)) for s in lots_AE[:, e]],
                costs,
                daily_rate,
                [Decimal(int(p)) for p in pending[:, e]],
            )
            scalar = account.step(
                quotes,
                [Decimal(float(w)) for w in decision.wanted_AE[:, e]],
                Decimal(float(decision.scale_E[e])),
                Decimal(float(decision.band_E[e])),
                kind,
            )
            assert [int(s) for s in account.shares] == env.lots_AE[:, e].tolist(), (t, e)
            assert float(account.cash) == pytest.approx(env.cash_E[e], rel=1e-9, abs=ASSETS)
            named = [scalar.commission, scalar.half_spread, scalar.slippage, scalar.impact]
            assert bill.costs_CE[:4, e] == pytest.approx([float(x) for x in named], abs=ASSETS)
            assert (account.dropped, account.cut) == (step.dropped_E[e], step.cut_E[e]), (t, e)
            pending[:, e] = [float(p) for p in account.pending]
        seen += [
            step.dropped_E.sum(),
            step.cut_E.sum(),
            (env.cash_E < 1e8).sum(),
            (market.volume_DA[t + 1] == 0).sum(),
        ]
    assert (seen > 20).all(), "masks, caps, short cash and sessions without volume were met"


@pytest.mark.parametrize("backend", [numpy_backend, numba_backend])
def test_fractional_shares_equal_the_scalar_account_to_a_billionth(backend):
    rng = np.random.default_rng(5)
    costs = {k: v for k, v in EVERYTHING.items() if k != "commission_minimum"}
    settings = EnvSettings(costs=costs, shares="fractional", initial_cash=9_000)
    lots = 1_000_000
    market = random_market(102, ASSETS, rng, seed=9)
    env = TradingEnv(price_tables(market, settings), settings, 102, 1, 20, backend)
    env.reset(np.array([0]))
    for t in range(100):
        kind = ("weights", "notional")[t % 2]
        decision = random_decision(rng, ASSETS, 20, kind)
        cash_E, lots_AE = env.cash_E.copy(), env.lots_AE.copy()
        env.step(decision)
        bill = env.costs()
        spent_E = bill.bought_E - bill.sold_E + bill.cost_E - bill.interest_E
        assert env.cash_E == pytest.approx(cash_E - spent_E, rel=1e-9, abs=1)
        quotes = quotes_at(market, t, 0.0, lots)
        for e in range(20):
            account = ScalarAccount(
                Decimal(int(cash_E[e])),
                [Decimal(int(s)) for s in lots_AE[:, e]],
                costs,
                pending=[Decimal(0)] * ASSETS,
                lots=lots,
            )
            account.step(
                quotes,
                [Decimal(float(w)) for w in decision.wanted_AE[:, e]],
                Decimal(float(decision.scale_E[e])),
                Decimal(float(decision.band_E[e])),
                kind,
            )
            after = quotes_at(market, t + 1, 0.0, lots)
            worth = float(account.worth(after))
            ours = env.lots_AE[:, e]
            held = sum(float(q.mark) * n for n, q in zip(ours, after, strict=True))
            assert env.cash_E[e] + held == pytest.approx(worth, rel=1e-9)
            assert ours == pytest.approx([float(s) for s in account.shares], rel=1e-9, abs=2)
