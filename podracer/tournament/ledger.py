"""The trial ledger: every agent ever evaluated, and every opening of a lockbox.

It only grows: deleting a run or a model does not lower the number of trials behind a choice.
Shapes: R daily returns, N trials.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from filelock import FileLock

from podracer.agents.checkpoint import write_text
from podracer.evaluation.statistics import sharpe_per_session
from podracer.pods.spec import PodResult

BENCHMARK = "benchmark"


@dataclass(frozen=True)
class Trials:
    """Trials whose selection window overlaps a given one, on the same prices.

    Attributes:
        count: all of them, the failed ones too.
        excess_sharpe_N: Sharpe ratio per session of each trial's return over the benchmark's.
    """

    count: int
    excess_sharpe_N: np.ndarray

    @property
    def variance(self) -> float:
        """Variance of the trials' Sharpe ratios (ddof 1); 0 with fewer than two."""
        return float(self.excess_sharpe_N.var(ddof=1)) if len(self.excess_sharpe_N) > 1 else 0.0


@dataclass(frozen=True)
class Opening:
    """One opening of a lockbox."""

    dataset_hash: str
    first: str
    last: str
    run: str


class Ledger:
    """Parquet files of trials and a list of lockbox openings under one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trials = folder / "trials"
        self._openings = folder / "openings.jsonl"
        self._trials.mkdir(parents=True, exist_ok=True)

    def record(
        self,
        run: str,
        dataset_hash: str,
        results: Sequence[PodResult],
        dates_R: np.ndarray,
        benchmark_R: np.ndarray,
    ) -> None:
        """Keep the daily selection returns of a generation's trials; recording again changes nothing.

        A failed trial is a column without values: it counts, and has no Sharpe ratio.
        """
        columns: dict[str, np.ndarray] = {BENCHMARK: benchmark_R}
        for agent in (a for result in results for a in result.agents):
            returns_R = agent.selection_returns_R
            columns[agent.name] = np.full(len(dates_R), np.nan) if returns_R is None else returns_R
        frame = pd.DataFrame(columns, index=pd.DatetimeIndex(dates_R, name="date"))
        generation = results[0].generation
        path = self._trials / f"{dataset_hash[:12]}-{run}-g{generation:03d}.parquet"
        part = path.with_suffix(".part")
        frame.to_parquet(part, compression="zstd")
        part.replace(path)

    def trials(self, dataset_hash: str, dates_R: np.ndarray) -> Trials:
        """Return all trials on the same prices whose selection window overlaps these dates."""
        count, ratios = 0, []
        first, last = pd.Timestamp(dates_R[0]), pd.Timestamp(dates_R[-1])
        for path in sorted(self._trials.glob(f"{dataset_hash[:12]}-*.parquet")):
            frame = pd.read_parquet(path)
            if frame.index[0] > last or frame.index[-1] < first:
                continue
            excess = frame.drop(columns=BENCHMARK).sub(frame[BENCHMARK], axis=0)
            count += excess.shape[1]
            ratios += [
                sharpe_per_session(excess[name].to_numpy())
                for name in excess.columns
                if excess[name].notna().all() and excess[name].std() > 0
            ]
        return Trials(count, np.array(ratios))

    def selection_returns(self, run: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the returns (R, N) of all trials that a run's choice competes with, and (R,).

        These are its own and those of other runs on the same window with the same benchmark returns
        (the same prices and costs), without the failed ones. The second is the benchmark's.
        """
        own = pd.read_parquet(min(self._trials.glob(f"*-{run}-g*.parquet")))[BENCHMARK]
        stored = [pd.read_parquet(p) for p in sorted(self._trials.glob("*.parquet"))]
        frames = [f for f in stored if f[BENCHMARK].equals(own)]
        benchmark_R = own.to_numpy()
        trials = pd.concat([f.drop(columns=BENCHMARK) for f in frames], axis=1).dropna(axis=1)
        return trials.to_numpy(), benchmark_R

    def open_lockbox(self, opening: Opening) -> int:
        """Note an opening; return how often this window has now been opened by different runs.

        Overlapping windows on the same prices count: what was seen there was seen.
        """
        with FileLock(self._folder / "openings.lock", timeout=60):
            openings = self.openings()
            if opening not in openings:
                openings.append(opening)
                lines = [json.dumps(asdict(o), sort_keys=True) for o in openings]
                write_text(self._openings, "\n".join(lines) + "\n")
        return sum(_overlap(o, opening) for o in openings[: openings.index(opening) + 1])

    def openings(self) -> list[Opening]:
        """Return every opening so far, the oldest first."""
        if not self._openings.exists():
            return []
        lines = self._openings.read_text(encoding="utf-8").splitlines()
        return [Opening(**json.loads(line)) for line in lines]


def _overlap(one: Opening, other: Opening) -> bool:
    same_prices = one.dataset_hash == other.dataset_hash
    return same_prices and one.first <= other.last and other.first <= one.last
