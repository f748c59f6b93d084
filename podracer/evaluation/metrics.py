"""Performance metrics of daily net returns.

Conventions: simple returns on exchange sessions, the first one from the initial capital; 252
sessions a year; geometric CAGR; sample deviation (ddof 1); drawdown on compounded wealth from 1.0;
historical VaR; risk-free rate 0. A metric that is not defined is null with a reason, never 0 or inf.

Shapes: R daily returns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SESSIONS_A_YEAR = 252
MINIMUM_SESSIONS = 60
TAIL = 0.05


@dataclass(frozen=True)
class Metric:
    """A number, or None and the reason why there is none."""

    value: float | None
    reason: str | None = None


def _defined(value: float) -> Metric:
    return Metric(float(value))


def _undefined(reason: str) -> Metric:
    return Metric(None, reason)


def check_returns(returns_R: np.ndarray) -> None:
    """Refuse what is no series of returns.

    Raises:
        ValueError: if a return is not finite or below -100 %.
    """
    if not np.isfinite(returns_R).all():
        raise ValueError(
            f"returns must be finite, {int((~np.isfinite(returns_R)).sum())} of {len(returns_R)} "
            f"are not; clean the prices before"
        )
    if len(returns_R) and returns_R.min() < -1.0:
        raise ValueError(f"a return of {returns_R.min():.4f} is below -1: the account was ruined")


def wealth(returns_R: np.ndarray) -> np.ndarray:
    """Return compounded wealth (R + 1), starting at 1.0."""
    return np.concatenate([[1.0], np.cumprod(1.0 + returns_R)])


def drawdown(returns_R: np.ndarray) -> np.ndarray:
    """Return wealth relative to its highest value so far, minus 1 (R + 1)."""
    wealth_R = wealth(returns_R)
    depth_R: np.ndarray = wealth_R / np.maximum.accumulate(wealth_R) - 1.0
    return depth_R


def total_return(returns_R: np.ndarray) -> Metric:
    """Compounded return of the period."""
    return _defined(wealth(returns_R)[-1] - 1.0)


def cagr(returns_R: np.ndarray) -> Metric:
    """Geometric return a year; not defined below 60 sessions."""
    if len(returns_R) < MINIMUM_SESSIONS:
        return _too_short(returns_R)
    return _defined(wealth(returns_R)[-1] ** (SESSIONS_A_YEAR / len(returns_R)) - 1.0)


def volatility(returns_R: np.ndarray) -> Metric:
    """Deviation a year."""
    if len(returns_R) < MINIMUM_SESSIONS:
        return _too_short(returns_R)
    return _defined(returns_R.std(ddof=1) * np.sqrt(SESSIONS_A_YEAR))


def sharpe(returns_R: np.ndarray) -> Metric:
    """Mean over deviation, a year."""
    if len(returns_R) < MINIMUM_SESSIONS:
        return _too_short(returns_R)
    if _is_constant(returns_R):
        return _undefined("zero volatility")
    return _defined(returns_R.mean() / returns_R.std(ddof=1) * np.sqrt(SESSIONS_A_YEAR))


def sortino(returns_R: np.ndarray) -> Metric:
    """Mean over the root of the second lower partial moment about 0, a year."""
    if len(returns_R) < MINIMUM_SESSIONS:
        return _too_short(returns_R)
    downside = np.sqrt(np.square(np.minimum(returns_R, 0.0)).mean())
    if downside == 0.0:
        return _undefined("no losing session")
    return _defined(returns_R.mean() / downside * np.sqrt(SESSIONS_A_YEAR))


def max_drawdown(returns_R: np.ndarray) -> Metric:
    """Deepest fall from a peak, a negative fraction; 0 if there was none."""
    return _defined(drawdown(returns_R).min())


def calmar(returns_R: np.ndarray) -> Metric:
    """CAGR over the depth of the deepest drawdown."""
    growth, depth = cagr(returns_R), drawdown(returns_R).min()
    if growth.value is None:
        return growth
    if depth == 0.0:
        return _undefined("no drawdown")
    return _defined(growth.value / -depth)


def value_at_risk(returns_R: np.ndarray) -> Metric:
    """Historical 5 % quantile of daily returns."""
    if len(returns_R) < MINIMUM_SESSIONS:
        return _too_short(returns_R)
    return _defined(np.quantile(returns_R, TAIL))


def expected_shortfall(returns_R: np.ndarray) -> Metric:
    """Mean of the daily returns at or below the 5 % quantile."""
    if len(returns_R) < MINIMUM_SESSIONS:
        return _too_short(returns_R)
    return _defined(returns_R[returns_R <= np.quantile(returns_R, TAIL)].mean())


def hit_rate(returns_R: np.ndarray) -> Metric:
    """Share of sessions with a gain; sessions without change count."""
    if len(returns_R) == 0:
        return _undefined("no return")
    return _defined((returns_R > 0.0).mean())


METRICS: dict[str, Callable[[np.ndarray], Metric]] = {
    "total_return": total_return,
    "cagr": cagr,
    "volatility": volatility,
    "sharpe": sharpe,
    "sortino": sortino,
    "max_drawdown": max_drawdown,
    "calmar": calmar,
    "value_at_risk_95": value_at_risk,
    "expected_shortfall_95": expected_shortfall,
    "hit_rate": hit_rate,
}


def relative_metrics(returns_R: np.ndarray, benchmark_R: np.ndarray) -> dict[str, Metric]:
    """Return tracking error, information ratio, beta and alpha (CAPM, arithmetic), a year."""
    names = ("tracking_error", "information_ratio", "beta", "alpha")
    if len(returns_R) < MINIMUM_SESSIONS:
        return dict.fromkeys(names, _too_short(returns_R))
    excess_R = returns_R - benchmark_R
    if _is_constant(excess_R):
        reason = "identical to the benchmark" if not excess_R.any() else "constant difference"
        return dict.fromkeys(names, _undefined(reason))
    error = excess_R.std(ddof=1) * np.sqrt(SESSIONS_A_YEAR)
    metrics = {
        "tracking_error": _defined(error),
        "information_ratio": _defined(excess_R.mean() * SESSIONS_A_YEAR / error),
    }
    if _is_constant(benchmark_R):
        return metrics | dict.fromkeys(names[2:], _undefined("the benchmark does not move"))
    beta = np.cov(returns_R, benchmark_R, ddof=1)[0, 1] / benchmark_R.var(ddof=1)
    alpha = (returns_R.mean() - beta * benchmark_R.mean()) * SESSIONS_A_YEAR
    return metrics | {"beta": _defined(beta), "alpha": _defined(alpha)}


def summary(returns_R: np.ndarray) -> dict[str, Metric]:
    """Return every metric of one series.

    Raises:
        ValueError: if a return is not finite or below -100 %.
    """
    check_returns(returns_R)
    return {name: metric(returns_R) for name, metric in METRICS.items()}


def _too_short(returns_R: np.ndarray) -> Metric:
    return _undefined(f"{len(returns_R)} sessions, needs {MINIMUM_SESSIONS}")


def _is_constant(returns_R: np.ndarray) -> bool:
    # A constant return leaves a deviation of rounding errors, about 1e-19.
    return bool(np.ptp(returns_R) <= 1e-12)
