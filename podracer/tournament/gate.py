"""The gate: does the evidence support that the champion is better than equal weight?

A refusal is a normal outcome. Shapes: R daily returns, N trials.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from podracer.evaluation.metrics import Metric
from podracer.evaluation.statistics import (
    deflated_sharpe,
    sharpe_per_session,
    superior_predictive_ability,
    years_needed,
)
from podracer.tournament.ledger import Opening, Trials

LARGEST_P_VALUE = 0.05
SMALLEST_DEFLATED_SHARPE = 0.95


@dataclass(frozen=True)
class Evidence:
    """What is known about the champion after the lockbox was opened.

    Attributes:
        spa_p_value: chance that the best of all trials looks this good on the selection window
            without any being better than the benchmark (Hansen's SPA).
        deflated_sharpe: probability that the champion's lockbox return over the benchmark beats
            what the best of all trials without skill would show.
        num_trials: N behind it.
        excess_sharpe: champion over benchmark on the lockbox, per session.
    """

    spa_p_value: float
    deflated_sharpe: Metric
    num_trials: int
    excess_sharpe: Metric
    years_needed: Metric
    verdict: Literal["strong", "supported", "not enough evidence"]
    statement: str


def weigh(
    champion_R: np.ndarray, benchmark_R: np.ndarray, trials: Trials, opening: Opening
) -> Evidence:
    """Weigh the champion against the benchmark.

    Args:
        champion_R: the champion's returns in the lockbox.
        benchmark_R: the benchmark's there.
        trials: all trials that stand behind the choice, on the selection window.
        opening: of this lockbox.
    """
    p_value = superior_predictive_ability(trials.excess_RN)
    excess_R = champion_R - benchmark_R
    if np.ptp(excess_R) <= 1e-12:
        none = Metric(None, "the champion is the benchmark")
        return Evidence(
            p_value, none, trials.count, none, none, "not enough evidence", _refusal(none)
        )
    deflated = deflated_sharpe(excess_R, trials.count, trials.variance)
    is_ahead = excess_R.mean() > 0 and (
        sharpe_per_session(champion_R) > sharpe_per_session(benchmark_R)
    )
    needed = years_needed(excess_R) if is_ahead else Metric(None, "the champion was not ahead")
    passed = (p_value <= LARGEST_P_VALUE, deflated >= SMALLEST_DEFLATED_SHARPE)
    verdict: Literal["strong", "supported", "not enough evidence"] = "not enough evidence"
    # Nothing found on the selection window supports a champion that then fell behind.
    if is_ahead and any(passed):
        verdict = "strong" if all(passed) else "supported"
    statement = _refusal(needed)
    if verdict != "not enough evidence":
        # Evidence from days that an earlier decision was made on is weaker than it looks.
        seen = "" if opening.is_first_look else ", but in a lockbox that was looked at before"
        statement = f"{verdict} by the evidence{seen}"
    return Evidence(
        p_value,
        Metric(deflated),
        trials.count,
        Metric(sharpe_per_session(excess_R)),
        needed,
        verdict,
        statement,
    )


def _refusal(needed: Metric) -> str:
    if needed.value is None:
        return "not enough evidence: the champion was not ahead of equal weight in the lockbox"
    return (
        f"not enough evidence: a lead like the one in the lockbox needs about "
        f"{needed.value:,.0f} years to show"
    )
