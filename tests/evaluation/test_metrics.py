"""Metrics against closed forms, published values and quantstats."""

import numpy as np
import pytest
import quantstats

from podracer.evaluation import metrics


def series():
    """One thousand and five sessions of normal returns, as in the published comparison."""
    return np.random.default_rng(7).normal(0.0006, 0.012, 1005)


def test_all_metrics_equal_the_published_values_of_the_same_series():
    found = {name: metric.value for name, metric in metrics.summary(series()).items()}
    assert found["cagr"] == pytest.approx(-0.071515, abs=1e-6)
    assert found["volatility"] == pytest.approx(0.179472, abs=1e-6)
    assert found["sharpe"] == pytest.approx(-0.32371, abs=1e-5)
    assert found["sortino"] == pytest.approx(-0.452152, abs=1e-6)
    assert found["max_drawdown"] == pytest.approx(-0.521306, abs=1e-6)
    assert found["calmar"] == pytest.approx(-0.137184, abs=1e-6)
    assert found["value_at_risk_95"] == pytest.approx(-0.019149, abs=1e-6)
    assert found["expected_shortfall_95"] == pytest.approx(-0.023355, abs=1e-6)


def test_sharpe_and_drawdown_equal_quantstats():
    import pandas as pd

    dated = pd.Series(series(), index=pd.bdate_range("2021-01-04", periods=1005))
    assert metrics.sharpe(series()).value == pytest.approx(quantstats.stats.sharpe(dated))
    assert metrics.max_drawdown(series()).value == pytest.approx(
        quantstats.stats.max_drawdown(dated)
    )


def test_a_loss_on_the_first_day_is_a_drawdown():
    assert metrics.max_drawdown(np.array([-0.1, 0.01, 0.01])).value == pytest.approx(-0.1)


def test_four_days_are_not_annualised():
    returns = np.array([0.5, -0.5, 0.1, 0.1])
    assert metrics.total_return(returns).value == pytest.approx(-0.0925)
    for name in ("cagr", "volatility", "sharpe", "sortino", "calmar", "value_at_risk_95"):
        metric = metrics.METRICS[name](returns)
        assert (metric.value, metric.reason) == (None, "4 sessions, needs 60")


def test_undefined_metrics_are_null_with_a_reason():
    flat, up = np.zeros(100), np.full(100, 0.001)
    assert metrics.sharpe(flat).reason == "zero volatility"
    assert metrics.sharpe(up).reason == "zero volatility"
    assert metrics.sortino(up).reason == "no losing session"
    assert metrics.calmar(up).reason == "no drawdown"
    assert metrics.hit_rate(np.array([])).reason == "no return"
    relative = metrics.relative_metrics(up, up)
    assert relative["information_ratio"].reason == "identical to the benchmark"
    assert metrics.relative_metrics(up, flat)["beta"].reason == "constant difference"
    assert (
        metrics.relative_metrics(series(), np.zeros(1005))["beta"].reason
        == "the benchmark does not move"
    )


def test_hit_rate_counts_sessions_without_change():
    assert metrics.hit_rate(np.array([0.01, 0, 0, -0.01, 0.02, 0])).value == pytest.approx(1 / 3)


def test_relative_metrics_by_hand():
    rng = np.random.default_rng(3)
    benchmark = rng.normal(0, 0.01, 500)
    returns = 0.0002 + 1.5 * benchmark + rng.normal(0, 0.001, 500)
    found = metrics.relative_metrics(returns, benchmark)
    slope, intercept = np.polyfit(benchmark, returns, 1)
    assert found["beta"].value == pytest.approx(slope)
    assert found["alpha"].value == pytest.approx(intercept * 252)
    excess = returns - benchmark
    assert found["information_ratio"].value == pytest.approx(
        excess.mean() / excess.std(ddof=1) * np.sqrt(252)
    )


def test_what_is_no_series_of_returns_is_refused():
    with pytest.raises(ValueError, match="returns must be finite, 1 of 3 are not"):
        metrics.summary(np.array([0.1, np.nan, 0.1]))
    with pytest.raises(ValueError, match="below -1: the account was ruined"):
        metrics.summary(np.array([0.1, -1.5]))
