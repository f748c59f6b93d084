"""Scoring: from a pod's daily returns to entries that can be ranked.

Shapes: R daily returns, N agents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from podracer.envs.policies import equal_weight_monthly
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.evaluation.metrics import sharpe
from podracer.evaluation.statistics import bootstrap_indices, score
from podracer.market.market import Market
from podracer.market.windows import Window, Windows
from podracer.pods.spec import AgentResult, PodResult
from podracer.tournament.entry import Entry


@dataclass(frozen=True)
class Yardstick:
    """The benchmark's daily net returns on a window, and the resamples that all scores share."""

    benchmark_R: np.ndarray
    indices_SR: np.ndarray

    def scores(self, returns_RN: np.ndarray) -> np.ndarray:
        """Return the score of each series (N,)."""
        return score(returns_RN, self.benchmark_R, self.indices_SR)


@dataclass(frozen=True)
class Judge:
    """Scores agents on the selection window, and for the record on the training window."""

    train: Yardstick
    selection: Yardstick

    def entries(self, result: PodResult) -> list[Entry]:
        """Turn a pod's agents into entries; an undefined score is None with its reason."""
        reasons = {a.name: reason for a in result.agents if (reason := _why_undefined(a))}
        scored = [a for a in result.agents if a.name not in reasons]
        on_train: dict[str, float] = {}
        on_selection: dict[str, float] = {}
        if scored:
            names = [a.name for a in scored]
            train_N = self.train.scores(_stack([a.train_returns_R for a in scored]))
            selection_N = self.selection.scores(_stack([a.selection_returns_R for a in scored]))
            on_train = dict(zip(names, train_N.tolist(), strict=True))
            on_selection = dict(zip(names, selection_N.tolist(), strict=True))
        reasons |= {n: "too few moves for a score" for n, s in on_selection.items() if isnan(s)}
        return [
            _entry(result, a, reasons.get(a.name), on_selection.get(a.name), on_train.get(a.name))
            for a in result.agents
        ]


def make_judge(market: Market, windows: Windows, env: EnvSettings) -> Judge:
    """Run the benchmark, equal weight rebalanced monthly, on the windows that agents are scored on."""

    def yardstick(window: Window) -> Yardstick:
        benchmark = rollout(equal_weight_monthly(market, window.start), market, window, env.patient)
        indices_SR = bootstrap_indices(window.num_returns, market.hash, window.name)
        return Yardstick(benchmark.returns_RE[:, 0], indices_SR)

    return Judge(yardstick(windows.train), yardstick(windows.selection))


def _why_undefined(agent: AgentResult) -> str | None:
    if agent.failure is not None:
        return agent.failure
    if not agent.has_traded:
        return "never traded"
    if agent.selection_returns_R is None or not np.isfinite(agent.selection_returns_R).all():
        return "non-finite returns"
    return None


def _entry(
    result: PodResult,
    agent: AgentResult,
    reason: str | None,
    on_selection: float | None,
    on_train: float | None,
) -> Entry:
    ratio = None
    if reason is None and agent.selection_returns_R is not None:
        ratio = sharpe(agent.selection_returns_R).value
    return Entry(
        name=agent.name,
        generation=result.generation,
        pod=result.name,
        parent=agent.parent,
        hyperparameters=agent.hyperparameters,
        checkpoint=agent.checkpoint,
        weights_hash=agent.weights_hash,
        score=on_selection if reason is None else None,
        reason=reason,
        train_score=None if on_train is None or isnan(on_train) else on_train,
        sharpe=ratio,
    )


def _stack(series: Sequence[np.ndarray | None]) -> np.ndarray:
    return np.stack([s for s in series if s is not None], axis=1)
