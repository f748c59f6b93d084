"""Runs: their folders, what they leave behind, and whether they are complete."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from podracer.config import PodracerSettings
from podracer.errors import LeaderboardError
from podracer.market.market import Market, open_market
from podracer.market.windows import Windows, resolve_windows
from podracer.tournament.ledger import Ledger

RUNS = Path("runs")


@dataclass(frozen=True)
class Lineage:
    """Which version of the data and of the code a run used."""

    dvc_hash: str
    git_commit: str


@dataclass(frozen=True)
class Outcome:
    """What a finished run left behind."""

    run: str
    report: Path
    champion_version: int
    verdict: str
    statement: str
    champion_sharpe: float | None
    benchmark_sharpe: float | None
    num_trials: int


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep a run to one process: two would overwrite each other's checkpoints.

    Raises:
        LeaderboardError: if another process is at work on the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise LeaderboardError(
            f"{folder}: another process is at work on the same run. Wait for it, or stop it first."
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Note how many seconds the block took."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started


def run_folder(settings: PodracerSettings, dataset_hash: str) -> Path:
    """Return the folder of the one run that these prices, configuration and seed have."""
    return RUNS / settings.run_key(dataset_hash)


def finished(settings: PodracerSettings, dataset_hash: str) -> Outcome | None:
    """Return the outcome of the same run, if it has been completed before with this store."""
    path = run_folder(settings, dataset_hash) / "outcome.json"
    if not path.exists() or not has_champion(settings, dataset_hash):
        return None
    facts = json.loads(path.read_text(encoding="utf-8"))
    return Outcome(**facts | {"report": Path(facts["report"])})


def has_champion(settings: PodracerSettings, dataset_hash: str) -> bool:
    """Tell whether a run's tournament is complete; the champion's file is the last it writes.

    A store that was deleted or moved since does not know the run: its pods are then registered anew.
    """
    folder = run_folder(settings, dataset_hash)
    is_known = Ledger(settings.store.ledger).knows(folder.name)
    return is_known and (folder / "champion.json").exists()


def require_tournament(settings: PodracerSettings, dataset_hash: str) -> None:
    """Refuse to go on where no tournament with these prices, settings and seed has finished.

    Raises:
        LeaderboardError: if there is none.
    """
    if not has_champion(settings, dataset_hash):
        folder = run_folder(settings, dataset_hash)
        raise LeaderboardError(
            f"{folder}: there is no finished tournament with these prices, settings and seed. "
            f"Run `podracer run` or `podracer tournament` first."
        )


def champion_lineage(folder: Path) -> Lineage:
    """Return the lineage of a run's champion."""
    crowned = json.loads((folder / "champion.json").read_text(encoding="utf-8"))
    return Lineage(crowned["dvc_hash"], crowned["git_commit"])


def open_run(settings: PodracerSettings, market_folder: Path) -> tuple[Market, Windows, Path]:
    """Return the market of a run, its windows and its folder."""
    market = open_market(market_folder)
    windows = resolve_windows(settings.windows, market.dates_D, market.meta["warmup_bars"])
    return market, windows, run_folder(settings, market.meta["dataset_hash"])


def git_commit() -> str:
    """Return the commit of the working folder, with `+changes` if it has any; "none" without git."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return f"{commit}+changes" if _git("status", "--porcelain", "-uno") else commit
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return found.stdout.strip()
