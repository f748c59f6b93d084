"""The look-ahead audit: quiet on what is honest, and it names what is not."""

import numpy as np
import pytest

from podracer.envs import declared
from podracer.envs.audit import audit
from podracer.envs.functors import AssetObservation, Columns, MarketObservation
from podracer.envs.settings import EnvSettings
from podracer.errors import MarketDataError
from podracer.market.prices import PricePanel
from podracer.market.sessions import sessions_of
from podracer.market.settings import FeatureSettings
from tests.conftest import random_closes

SESSIONS, TICKERS = 420, ("A", "B", "C")


@pytest.fixture(scope="module")
def panel():
    rng = np.random.default_rng(0)
    close = random_closes(SESSIONS, 3)
    close[300:303, 1] = np.nan
    open_ = close * (1 + 0.01 * rng.normal(size=close.shape))
    fields = {
        "open": open_,
        "high": np.fmax(open_, close) * 1.01,
        "low": np.fmin(open_, close) * 0.99,
        "close": close,
        "volume": rng.integers(1_000, 90_000, close.shape).astype(float),
        "dividend": np.where(rng.random(close.shape) < 0.01, 0.5, 0.0),
        "split": np.zeros(close.shape),
    }
    dates = sessions_of("XNYS")[:SESSIONS].to_numpy("datetime64[D]")
    return PricePanel("made up", "hash", dates, TICKERS, fields, np.isfinite(close))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"fill": "next_open", "costs": {"volume_cap": 0.1, "unfilled": "carry", "impact_bps": 50}},
        {"action": {"mode": "discrete"}, "observations": {"market_features": {}, "previous_action": {}},
         "rewards": {"differential_sharpe": {}, "drawdown_penalty": {}, "turnover_penalty": {}}},
    ],
)  # fmt: skip
def test_nothing_of_ours_looks_ahead(panel, environment):
    report = audit(panel, FeatureSettings(), EnvSettings(**environment))
    assert report.leaks == ()
    assert "env.observations.market_features" in report.checked
    assert len(report.probes) == 3


class Tomorrow(MarketObservation):
    """Tomorrow's return, planted."""

    def columns(self, market):
        price = market.price_DA[:, 0]
        return Columns(np.append(price[1:] / price[:-1] - 1, 0.0)[:, None], ("tomorrow:A",))


class Demeaned(AssetObservation):
    """A price less its mean over all sessions: a leak of another kind."""

    def columns(self, market):
        price = np.nan_to_num(market.price_DA) / 1e6
        return Columns((price - price.mean(0))[:, :, None], ("demeaned",))


@pytest.mark.parametrize(("functor", "column"), [(Tomorrow, "tomorrow:A"), (Demeaned, "demeaned")])
def test_a_planted_functor_that_looks_ahead_is_caught_and_named(
    panel, monkeypatch, functor, column
):
    monkeypatch.setitem(declared.KNOWN_OBSERVATIONS, "cash", functor)
    settings = EnvSettings(observations={"cash": {}, "holdings": {}})
    report = audit(panel, FeatureSettings(), settings)
    assert [leak.what for leak in report.leaks] == ["env.observations.cash", "observation"]
    assert repr(column) in report.leaks[0].detail
    assert "changes with prices after" in report.leaks[0].detail


def test_trading_at_the_close_that_was_seen_is_no_leak_of_the_future(panel):
    # It is dishonest for another reason: nobody can decide on a close and trade at it.
    assert audit(panel, FeatureSettings(), EnvSettings(fill="same_close")).leaks == ()


def test_a_history_that_is_too_short_is_refused(panel):
    rows = slice(0, 280)
    short = PricePanel(
        "short", "hash", panel.dates_D[rows], TICKERS,
        {k: v[rows] for k, v in panel.fields.items()}, panel.tradable_DA[rows],
    )  # fmt: skip
    with pytest.raises(
        MarketDataError, match="short: an audit needs 43 sessions after the warm-up"
    ):
        audit(short, FeatureSettings(), EnvSettings())
