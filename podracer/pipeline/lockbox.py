"""Champion → backtest in the lockbox → evidence → report."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podracer.backtest.backtest import CHAMPION, BacktestResult, backtest
from podracer.backtest.baselines import BENCHMARK
from podracer.config import PodracerSettings
from podracer.envs.frozen_agents import load_agents
from podracer.files import write_text
from podracer.market.market import Market
from podracer.market.quality import QualityReport
from podracer.market.windows import Windows
from podracer.pipeline.board import open_board
from podracer.pipeline.datasets import QUALITY, read_quality
from podracer.pipeline.runs import Outcome, alone, champion_lineage, open_run
from podracer.report.report import Provenance, write_report
from podracer.tournament import gate
from podracer.tournament.ledger import Ledger, Opening, stretch
from podracer.tournament.orchestrator import load_summary


def run_backtest(settings: PodracerSettings, market_folder: Path) -> Outcome:
    """Open the lockbox for a finished tournament, weigh the evidence, write the report.

    Raises:
        PodracerError: a subclass that names what went wrong.
    """
    market, windows, folder = open_run(settings, market_folder)
    quality = read_quality(market_folder)
    with alone(folder):
        return _backtest(settings, market, windows, quality, folder)


def _backtest(
    settings: PodracerSettings,
    market: Market,
    windows: Windows,
    quality: QualityReport,
    folder: Path,
) -> Outcome:
    summary = load_summary(folder / "tournament.json")
    crowned = json.loads((folder / "champion.json").read_text(encoding="utf-8"))
    lineage = champion_lineage(folder)
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
    report = write_report(folder / "report.html", result, summary, evidence, quality, provenance)
    write_text(folder / QUALITY, quality.to_json())
    _write_numbers(folder, result, evidence)
    board = open_board(settings, market, windows, folder.name, lineage)
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
        costs=settings.env.costs.summary,
        mode=settings.env.action.mode,
        fill=settings.env.fill,
        initial_cash=settings.env.initial_cash,
        opening=opening,
        caveats=tuple(market.meta["notes"]),
    )


def _flat_metrics(result: BacktestResult) -> dict[str, float]:
    champion = result.series[CHAMPION]
    named = champion.metrics | champion.relative
    defined = {k: m.value for k, m in named.items() if m.value is not None}
    return {f"lockbox_{k}": v for k, v in defined.items()}


def _write_numbers(folder: Path, result: BacktestResult, evidence: gate.Evidence) -> None:
    """Write the report's numbers as JSON, and the equity curves as CSV."""
    numbers = {
        "lockbox": {name: asdict(series) for name, series in result.series.items()},
        "sharpe_difference_observed_5_95": result.sharpe_difference,
        "evidence": asdict(evidence),
    }
    write_text(folder / "metrics.json", json.dumps(numbers, indent=1, allow_nan=False))
    equity = pd.DataFrame(
        np.cumprod(1.0 + result.returns_RS, axis=0), index=result.dates_R, columns=result.names
    )
    write_text(folder / "equity.csv", equity.to_csv(index_label="date", float_format="%.6f"))
