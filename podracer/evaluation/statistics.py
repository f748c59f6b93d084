"""How sure one may be: bootstrap scores, and Sharpe ratios deflated for the number of trials.

All Sharpe ratios here are *per session*, not annualised, unless a name says otherwise.
Shapes: R daily returns, S resamples, N trials.
"""

import hashlib
import math

import numpy as np
from scipy import stats

from podracer.evaluation.metrics import SESSIONS_A_YEAR, Metric

EULER_GAMMA = 0.5772156649015329
MEAN_BLOCK = 10
RESAMPLES = 1_000
SCORE_QUANTILE = 0.05


def bootstrap_indices(num_returns: int, market_hash: str, window: str) -> np.ndarray:
    """Return the resampled rows (S, R) that every score on this window shares.

    Stationary bootstrap (Politis and Romano 1994): blocks of geometric length with mean 10, wrapped
    around the end. Seeded by market and window, so that scores of different runs are comparable.
    """
    seed = hashlib.sha256(f"{market_hash}/{window}/{num_returns}".encode()).digest()[:8]
    rng = np.random.default_rng(int.from_bytes(seed, "little"))
    starts_SR = rng.integers(0, num_returns, size=(RESAMPLES, num_returns))
    begins_SR = rng.random((RESAMPLES, num_returns)) < 1.0 / MEAN_BLOCK
    begins_SR[:, 0] = True
    position_R = np.arange(num_returns)
    begin_SR = np.maximum.accumulate(np.where(begins_SR, position_R, 0), axis=1)
    first_SR = np.take_along_axis(starts_SR, begin_SR, axis=1)
    indices_SR: np.ndarray = (first_SR + position_R - begin_SR) % num_returns
    return indices_SR


def sharpe_differences(
    returns_RN: np.ndarray, benchmark_R: np.ndarray, indices_SR: np.ndarray
) -> np.ndarray:
    """Return annualised Sharpe(series) - Sharpe(benchmark) on every resample (S, N), paired by day."""
    together_RN = np.column_stack([returns_RN, benchmark_R])
    ratio_SN = np.array([_annual_sharpe(together_RN[rows]) for rows in indices_SR])
    difference_SN: np.ndarray = ratio_SN[:, :-1] - ratio_SN[:, -1:]
    return difference_SN


def score(returns_RN: np.ndarray, benchmark_R: np.ndarray, indices_SR: np.ndarray) -> np.ndarray:
    """Return the leaderboard's score of each series (N,).

    The 5 % quantile of the bootstrapped difference of annualised Sharpe ratios to the benchmark; NaN
    for a series that does not move on some resample.
    """
    quantile_N: np.ndarray = np.quantile(
        sharpe_differences(returns_RN, benchmark_R, indices_SR), SCORE_QUANTILE, axis=0
    )
    return quantile_N


def _annual_sharpe(returns_RN: np.ndarray) -> np.ndarray:
    std_N = returns_RN.std(0, ddof=1)
    # A series that does not move has no ratio: NaN, and so has a score that any resample lacks.
    ratio_N: np.ndarray = returns_RN.mean(0) / np.where(std_N > 0.0, std_N, np.nan)
    return ratio_N * math.sqrt(SESSIONS_A_YEAR)


def sharpe_per_session(returns_R: np.ndarray) -> float:
    """Mean over sample deviation of one session."""
    return float(returns_R.mean() / returns_R.std(ddof=1))


def probabilistic_sharpe(
    sharpe: float, threshold: float, num_returns: int, skew: float = 0.0, kurtosis: float = 3.0
) -> float:
    """Return the probability that the true Sharpe ratio exceeds a threshold.

    Args:
        sharpe: observed, per session.
        threshold: per session.
        num_returns: R.
        skew: of the returns.
        kurtosis: of the returns, 3 for a normal distribution.

    Source: Bailey and López de Prado 2012, "The Sharpe Ratio Efficient Frontier".

    Raises:
        ValueError: if the ratio is above 1 a session, which only an annualised one is.
    """
    if abs(sharpe) > 1.0:
        raise ValueError(
            f"a Sharpe ratio of {sharpe:.2f} a session is not plausible: divide an annualised one "
            f"by sqrt({SESSIONS_A_YEAR})"
        )
    return float(
        stats.norm.cdf((sharpe - threshold) / _standard_error(sharpe, num_returns, skew, kurtosis))
    )


def _standard_error(sharpe: float, num_returns: int, skew: float, kurtosis: float) -> float:
    variance = 1.0 - skew * sharpe + (kurtosis - 1.0) / 4.0 * sharpe**2
    return math.sqrt(variance / (num_returns - 1))


def expected_best_sharpe(num_trials: int, variance: float) -> float:
    """Return the Sharpe ratio that the best of N trials without skill is expected to show.

    Source: Bailey and López de Prado 2014, "The Deflated Sharpe Ratio".
    """
    if num_trials < 2:
        return 0.0
    high = stats.norm.ppf(1.0 - 1.0 / num_trials)
    higher = stats.norm.ppf(1.0 - 1.0 / (num_trials * math.e))
    return float(math.sqrt(variance) * ((1.0 - EULER_GAMMA) * high + EULER_GAMMA * higher))


def deflated_sharpe(returns_R: np.ndarray, num_trials: int, variance: float) -> float:
    """Return the probability that a series beats what the best of N unskilled trials would show.

    Args:
        returns_R: daily returns, usually in excess of a benchmark.
        num_trials: N, every trial behind the choice.
        variance: of the trials' Sharpe ratios per session (ddof 1).
    """
    return probabilistic_sharpe(
        sharpe_per_session(returns_R),
        expected_best_sharpe(num_trials, variance),
        len(returns_R),
        float(stats.skew(returns_R)),
        float(stats.kurtosis(returns_R, fisher=False)),
    )


def years_needed(returns_R: np.ndarray, confidence: float = 0.95) -> Metric:
    """Return the years of such returns after which their Sharpe ratio would be proved positive.

    Minimum track record length, Bailey and López de Prado 2012.
    """
    sharpe = sharpe_per_session(returns_R)
    if sharpe <= 0.0:
        return Metric(None, "the returns are not positive on average")
    skew = float(stats.skew(returns_R))
    kurtosis = float(stats.kurtosis(returns_R, fisher=False))
    variance = 1.0 - skew * sharpe + (kurtosis - 1.0) / 4.0 * sharpe**2
    sessions = 1.0 + variance * (stats.norm.ppf(confidence) / sharpe) ** 2
    return Metric(float(sessions / SESSIONS_A_YEAR))


def superior_predictive_ability(excess_RN: np.ndarray, seed: int = 1) -> float:
    """Return Hansen's (2005) SPA p-value: no trial is better than the benchmark.

    Consistent p-value, studentised, stationary bootstrap with mean block 10, by `arch`.

    Args:
        excess_RN: each trial's returns over the benchmark's.
        seed: of the resamples.
    """
    from arch.bootstrap import SPA

    # arch compares losses: a return is a negative loss, and the benchmark's excess is 0.
    test = SPA(
        np.zeros(len(excess_RN)), -excess_RN, block_size=MEAN_BLOCK, reps=RESAMPLES, seed=seed
    )
    test.compute()
    return float(test.pvalues["consistent"])
