"""The trial ledger: every agent ever evaluated, and every opening of a lockbox.

It only grows: deleting a run or a model does not lower the number of trials behind a choice.
Shapes: R daily returns, N trials.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from filelock import FileLock

from podracer.evaluation.statistics import sharpe_per_session
from podracer.files import replacing, write_text

if TYPE_CHECKING:
    from podracer.pods.spec import PodResult

BENCHMARK = "benchmark"
SHARED_DATES = 0.9


@dataclass(frozen=True)
class Stretch:
    """A stretch of a universe's history that was looked at.

    Prices that grow by a day or are restated stay the same history, so tickers and dates name it,
    not a content hash.

    Attributes:
        tickers: the universe.
        first: first session, as an ISO date.
        last: last session.
    """

    tickers: tuple[str, ...]
    first: str
    last: str

    def overlaps(self, other: "Stretch") -> bool:
        """Tell whether one look told anything about the other: a shared ticker on a shared day."""
        on_a_shared_day = self.first <= other.last and other.first <= self.last
        return on_a_shared_day and not set(self.tickers).isdisjoint(other.tickers)


def stretch(tickers: Sequence[str], dates_R: np.ndarray) -> Stretch:
    """Return the stretch that a universe and the dates of daily returns cover."""
    return Stretch(tuple(tickers), *(str(d.astype("datetime64[D]")) for d in dates_R[[0, -1]]))


@dataclass(frozen=True)
class Trials:
    """All trials that stand behind a choice.

    Attributes:
        count: all of them, the failed ones too.
        excess_sharpe_N: Sharpe ratio per session of each trial's return over the benchmark's.
        excess_RN: those returns, of the trials that share at least 90 % of the choosing run's
            dates, on the dates that they all share.
    """

    count: int
    excess_sharpe_N: np.ndarray
    excess_RN: np.ndarray

    @property
    def variance(self) -> float:
        """Variance of the trials' Sharpe ratios (ddof 1); 0 with fewer than two."""
        return float(self.excess_sharpe_N.var(ddof=1)) if len(self.excess_sharpe_N) > 1 else 0.0


@dataclass(frozen=True)
class Opening:
    """One opening of a lockbox.

    Attributes:
        number: how many different runs have now opened a lockbox that overlaps with this one.
        selections: how many other runs had chosen agents on days of it before.
    """

    run: str
    lockbox: Stretch
    number: int
    selections: int

    @property
    def is_first_look(self) -> bool:
        """Whether nothing was decided or reported on these days before."""
        return self.number == 1 and self.selections == 0


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
        tickers: Sequence[str],
        result: "PodResult",
        dates_R: np.ndarray,
        benchmark_R: np.ndarray,
    ) -> None:
        """Keep the daily selection returns of a pod's trials; recording again changes nothing.

        A failed trial is a column without values: it counts, and has no Sharpe ratio.
        """
        columns: dict[str, np.ndarray] = {BENCHMARK: benchmark_R}
        for agent in result.agents:
            returns_R = agent.selection_returns_R
            columns[agent.name] = np.full(len(dates_R), np.nan) if returns_R is None else returns_R
        frame = pd.DataFrame(columns, index=pd.DatetimeIndex(dates_R, name="date"))
        frame.attrs = {"run": run, "tickers": list(tickers)}
        path = self._trials / f"{run}-{result.name}.parquet"
        with replacing(path) as part:
            frame.to_parquet(part, compression="zstd")

    def knows(self, run: str) -> bool:
        """Tell whether any trial of a run is in the ledger."""
        return any(self._trials.glob(f"{run}-*.parquet"))

    def trials(self, selection: Stretch) -> Trials:
        """Return all trials whose selection window overlaps the given one."""
        excesses = [
            frame.drop(columns=BENCHMARK).sub(frame[BENCHMARK], axis=0)
            for frame, seen in self._recorded()
            if seen.overlaps(selection)
        ]
        ratios = [
            sharpe_per_session(excess[name].to_numpy())
            for excess in excesses
            for name in excess.columns
            if excess[name].notna().all() and excess[name].std() > 0
        ]
        return Trials(
            count=sum(excess.shape[1] for excess in excesses),
            excess_sharpe_N=np.array(ratios),
            excess_RN=_on_shared_dates(excesses, selection),
        )

    def open_lockbox(self, run: str, lockbox: Stretch) -> Opening:
        """Note an opening, once a run; returns it as it was noted the first time."""
        with FileLock(self._folder / "openings.lock", timeout=60):
            openings = self.openings()
            for opening in openings:
                if (opening.run, opening.lockbox) == (run, lockbox):
                    return opening
            earlier = {o.run for o in openings if o.lockbox.overlaps(lockbox)}
            chose = {
                frame.attrs["run"] for frame, seen in self._recorded() if seen.overlaps(lockbox)
            }
            opening = Opening(run, lockbox, len(earlier | {run}), len(chose - {run}))
            lines = [json.dumps(asdict(o), sort_keys=True) for o in (*openings, opening)]
            write_text(self._openings, "\n".join(lines) + "\n")
        return opening

    def openings(self) -> list[Opening]:
        """Return every opening so far, the oldest first."""
        if not self._openings.exists():
            return []
        lines = self._openings.read_text(encoding="utf-8").splitlines()
        return [_opening(json.loads(line)) for line in lines]

    def _recorded(self) -> list[tuple[pd.DataFrame, Stretch]]:
        """Return every pod's returns with the stretch that they were chosen on."""
        frames = [pd.read_parquet(path) for path in sorted(self._trials.glob("*.parquet"))]
        return [(f, stretch(f.attrs["tickers"], f.index.to_numpy())) for f in frames]


def _opening(facts: dict[str, Any]) -> Opening:
    lockbox = facts["lockbox"]
    return Opening(
        **facts | {"lockbox": Stretch(**lockbox | {"tickers": tuple(lockbox["tickers"])})}
    )


def _on_shared_dates(excesses: Sequence[pd.DataFrame], selection: Stretch) -> np.ndarray:
    """Align trials by date, so that they can be compared with each other.

    A nightly run's window ends a day later than yesterday's: a trial that shares nearly all dates
    is compared on those, one that shares fewer would cost too many of them.
    """
    within = [e.loc[selection.first : selection.last] for e in excesses]
    longest = max(map(len, within), default=0)
    near = [e for e in within if len(e) >= SHARED_DATES * longest]
    if not near:
        return np.empty((0, 0))
    shared: np.ndarray = pd.concat(near, axis=1, join="inner").dropna(axis=1).to_numpy()
    return shared
