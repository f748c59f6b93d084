"""The steps of a run, shared by DVC stages and Prefect tasks: ingest → features → tournament → backtest."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from podracer.backtest.backtest import CHAMPION, BacktestResult, backtest
from podracer.backtest.baselines import BENCHMARK
from podracer.config import PodracerSettings
from podracer.envs.frozen_agents import load_agents
from podracer.envs.tables import require_opens
from podracer.errors import ConfigError, LeaderboardError
from podracer.files import write_text
from podracer.leaderboard.board import Identity, MlflowBoard
from podracer.market.market import Market, build_market, chosen_features, open_market
from podracer.market.snapshot import (
    caveats,
    dataset_name,
    load_prices,
    read_snapshot,
    write_snapshot,
)
from podracer.market.windows import Windows, resolve_windows
from podracer.pods.device import resolve_device
from podracer.report.report import Provenance, write_report
from podracer.tournament import gate, orchestrator
from podracer.tournament.entry import Entry
from podracer.tournament.ledger import Ledger, Opening, stretch
from podracer.tournament.orchestrator import (
    TournamentJob,
    TrainingPool,
    load_summary,
)

RUNS = Path("runs")
CHECK_ROWS = 8


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


@dataclass(frozen=True)
class Preflight:
    """What is known before anything is written: the prices' hash, and a remark on the device."""

    dataset_hash: str
    remark: str | None


def preflight(settings: PodracerSettings) -> Preflight:
    """Refuse what cannot work before a server is started or anything is written.

    Raises:
        DeviceError: if the device is not to be had.
        MarketDataError: if the prices are refused.
        ConfigError: if a feature, a window or the fill does not fit the prices.
    """
    remark = resolve_device(settings.pod.device)[1]
    panel = load_prices(settings.data)
    assets, markets = chosen_features(panel, settings.features)
    warmup_bars = max(f.lookback_bars for f in (*assets, *markets))
    windows = resolve_windows(settings.windows, panel.dates_D, warmup_bars)
    if windows.train.num_returns <= settings.pod.horizon_bars:
        raise ConfigError(
            f"windows.train: {windows.train.num_returns + 1} sessions are too few for a rollout of "
            f"{settings.pod.horizon_bars}. Lengthen the window or lower pod.horizon_bars."
        )
    require_opens(settings.env.fill, "open" in panel.fields, dataset_name(settings.data))
    return Preflight(panel.content_hash, remark)


def ingest(settings: PodracerSettings, folder: Path | None = None) -> Path:
    """Load prices through the quality gate and write a snapshot.

    Args:
        settings: of the run.
        folder: where to; `data/raw/<hash>` if None.

    Raises:
        MarketDataError: if the prices are refused.
    """
    panel = load_prices(settings.data)
    target = folder or Path("data/raw") / panel.content_hash[:16]
    return write_snapshot(panel, target, dataset_name(settings.data))


def features(settings: PodracerSettings, snapshot: Path, folder: Path | None = None) -> Path:
    """Build the market of a snapshot and check that the windows fit it.

    Raises:
        MarketDataError: if the snapshot is damaged or too short.
        ConfigError: if a feature or a window does not fit the data.
    """
    panel, name = read_snapshot(snapshot)
    market = build_market(panel, settings.features, name)
    resolve_windows(settings.windows, market.dates_D, market.meta["warmup_bars"])
    return market.save(folder or Path("data/features") / market.hash[:16])


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


def tournament(
    settings: PodracerSettings, market_folder: Path, pool: TrainingPool, lineage: Lineage
) -> Path:
    """Train a tournament, register its leaderboard and its champion; returns the run's folder.

    Raises:
        PodracerError: a subclass that names what went wrong.
    """
    market, windows, folder = _open(settings, market_folder)
    with alone(folder):
        _tournament(settings, market_folder, market, windows, folder, pool, lineage)
    return folder


def _tournament(
    settings: PodracerSettings,
    market_folder: Path,
    market: Market,
    windows: Windows,
    folder: Path,
    pool: TrainingPool,
    lineage: Lineage,
) -> None:
    job = TournamentJob(
        run=folder.name,
        seed=settings.seed,
        settings=settings.tournament,
        pod=settings.pod,
        hyperparameters=settings.hyperparameters,
        env=settings.env,
        market=market,
        market_folder=market_folder.resolve(),
        windows=windows,
        folder=folder.resolve(),
    )
    board = _board(settings, market, windows, folder.name, lineage)
    board.log_start(
        json.loads(settings.model_dump_json(exclude={"store", "pool", "schedule"})),
        {
            "name": market.meta["name"],
            "content_hash": market.meta["dataset_hash"],
            "dvc_hash": lineage.dvc_hash,
        },
    )
    summary = orchestrator.run(
        job,
        pool,
        board,
        Ledger(settings.store.ledger),
        lambda g: write_text(folder / "generation.json", json.dumps(asdict(g))),
    )
    version = board.crown(summary.scored[: settings.tournament.ensemble_size])
    board.log_generations(summary.generations)
    summary.save(folder / "tournament.json")
    write_text(folder / "leaderboard.json", leaderboard_json(summary.entries))
    write_text(folder / "champion.json", json.dumps({"version": version} | asdict(lineage)))


def run_backtest(settings: PodracerSettings, market_folder: Path) -> Outcome:
    """Open the lockbox for a finished tournament, weigh the evidence, write the report.

    Raises:
        PodracerError: a subclass that names what went wrong.
    """
    market, windows, folder = _open(settings, market_folder)
    with alone(folder):
        return _backtest(settings, market, windows, folder)


def _backtest(
    settings: PodracerSettings, market: Market, windows: Windows, folder: Path
) -> Outcome:
    summary = load_summary(folder / "tournament.json")
    crowned = json.loads((folder / "champion.json").read_text(encoding="utf-8"))
    lineage = Lineage(crowned["dvc_hash"], crowned["git_commit"])
    ledger = Ledger(settings.store.ledger)
    members = summary.scored[: settings.tournament.ensemble_size]
    lockbox = windows.lockbox
    opening = ledger.open_lockbox(
        folder.name, stretch(market.tickers, lockbox.return_dates(market.dates_D))
    )
    result = backtest(
        market,
        windows,
        settings.env,
        load_agents([m.checkpoint for m in members]),
        load_agents([members[0].checkpoint]),
        settings.seed,
    )
    trials = ledger.trials(stretch(market.tickers, windows.selection.return_dates(market.dates_D)))
    evidence = gate.weigh(
        result.returns_of(CHAMPION), result.returns_of(BENCHMARK), trials, opening
    )
    provenance = _provenance(settings, market, crowned, len(members), opening)
    report = write_report(folder / "report.html", result, summary, evidence, provenance)
    _write_numbers(folder, result, evidence)
    board = _board(settings, market, windows, folder.name, lineage)
    board.log_report(
        crowned["version"],
        _flat_metrics(result),
        {
            "verdict": evidence.verdict,
            "lockbox_openings": str(opening.number),
            "lockbox_selections": str(opening.selections),
            "trials": str(evidence.num_trials),
        },
        report,
    )
    outcome = Outcome(
        run=folder.name,
        report=report,
        champion_version=crowned["version"],
        verdict=evidence.verdict,
        statement=evidence.statement,
        champion_sharpe=result.series[CHAMPION].metrics["sharpe"].value,
        benchmark_sharpe=result.series[BENCHMARK].metrics["sharpe"].value,
        num_trials=evidence.num_trials,
    )
    facts = asdict(outcome) | {"report": str(report)}
    write_text(folder / "outcome.json", json.dumps(facts, indent=1))
    return outcome


def _provenance(
    settings: PodracerSettings,
    market: Market,
    crowned: dict[str, Any],
    members: int,
    opening: Opening,
) -> Provenance:
    """Say where a champion comes from; `crowned` is the content of champion.json."""
    return Provenance(
        name=settings.name,
        champion_version=crowned["version"],
        members=members,
        dataset=market.meta["name"],
        dataset_hash=market.meta["dataset_hash"],
        dvc_hash=crowned["dvc_hash"],
        market_hash=market.hash,
        config_hash=settings.config_hash,
        git_commit=crowned["git_commit"],
        seed=settings.seed,
        fee_bps=settings.env.fee_bps,
        fill=settings.env.fill,
        initial_cash=settings.env.initial_cash,
        opening=opening,
        caveats=caveats(settings.data),
    )


def leaderboard_json(entries: Sequence[Entry]) -> str:
    """Return the board as JSON without run ids, times or paths: equal boards, equal bytes."""
    rows = [
        {k: v for k, v in asdict(entry).items() if k != "checkpoint"} | {"rank": rank}
        for rank, entry in enumerate(entries, start=1)
    ]
    return json.dumps(rows, indent=1, sort_keys=True) + "\n"


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


def _open(settings: PodracerSettings, market_folder: Path) -> tuple[Market, Windows, Path]:
    market = open_market(market_folder)
    windows = resolve_windows(settings.windows, market.dates_D, market.meta["warmup_bars"])
    return market, windows, run_folder(settings, market.meta["dataset_hash"])


def _board(
    settings: PodracerSettings, market: Market, windows: Windows, run: str, lineage: Lineage
) -> MlflowBoard:
    tags = {
        "market_hash": market.hash,
        "dataset_hash": str(market.meta["dataset_hash"]),
        "dvc_hash": lineage.dvc_hash,
        "config_hash": settings.config_hash,
        "git_commit": lineage.git_commit,
        "seed": str(settings.seed),
        "fill": settings.env.fill,
        "cpu": _instruction_set(),
    }
    return MlflowBoard(
        settings.store,
        Identity(settings.name, run, tags),
        settings.tournament.board_size,
        _observation_batch(market, windows),
    )


def _observation_batch(market: Market, windows: Windows) -> np.ndarray:
    """Return observations of some sessions of the selection window with invented holdings."""
    rows = np.linspace(windows.selection.start, windows.selection.stop - 1, CHECK_ROWS).astype(int)
    rng = np.random.default_rng(0)
    account = rng.dirichlet(np.ones(1 + market.num_assets), size=CHECK_ROWS)
    return np.concatenate(
        [
            account,
            np.asarray(market.asset_features_DAK[rows]).reshape(CHECK_ROWS, -1),
            np.asarray(market.market_features_DF[rows]),
        ],
        axis=1,
    ).astype(np.float32)


def _flat_metrics(result: BacktestResult) -> dict[str, float]:
    champion = result.series[CHAMPION]
    named = champion.metrics | champion.relative
    defined = {k: m.value for k, m in named.items() if m.value is not None}
    return {f"lockbox_{k}": v for k, v in defined.items()}


def _write_numbers(folder: Path, result: BacktestResult, evidence: gate.Evidence) -> None:
    """Write the report's numbers as JSON, and the equity curves as CSV."""
    numbers = {
        "lockbox": {name: asdict(series) for name, series in result.series.items()},
        "sharpe_difference_5_50_95": result.sharpe_difference,
        "evidence": asdict(evidence),
    }
    write_text(folder / "metrics.json", json.dumps(numbers, indent=1, allow_nan=False))
    equity = pd.DataFrame(
        np.cumprod(1.0 + result.returns_RS, axis=0), index=result.dates_R, columns=result.names
    )
    write_text(folder / "equity.csv", equity.to_csv(index_label="date", float_format="%.6f"))


def _instruction_set() -> str:
    import torch

    return f"{torch.backends.cpu.get_cpu_capability()}, {os.uname().machine}"
