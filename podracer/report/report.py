"""From a backtest and its evidence to the report; no metric is computed here.

Shapes: R daily returns.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from podracer.backtest.backtest import CHAMPION, UNTRAINED, BacktestResult
from podracer.backtest.baselines import BENCHMARK
from podracer.evaluation.metrics import Metric
from podracer.files import write_text
from podracer.market.quality import QualityReport
from podracer.report import charts
from podracer.tournament.gate import Evidence
from podracer.tournament.ledger import Opening
from podracer.tournament.orchestrator import TournamentSummary

PERCENT = {
    "total_return": "total return",
    "cagr": "CAGR",
    "volatility": "volatility a year",
    "max_drawdown": "max drawdown",
}
RATIO = {"sharpe": "Sharpe", "sortino": "Sortino", "calmar": "Calmar"}
TAIL = {"value_at_risk_95": "VaR 95 %, daily", "expected_shortfall_95": "ES 95 %, daily"}


@dataclass(frozen=True)
class Provenance:
    """Where a result comes from and who had looked at its lockbox before."""

    name: str
    champion_version: int
    members: int
    dataset: str
    dataset_hash: str
    dvc_hash: str
    market_hash: str
    config_hash: str
    git_commit: str
    seed: int
    costs: str
    mode: str
    fill: str
    initial_cash: float
    opening: Opening
    caveats: tuple[str, ...]


def write_report(
    path: Path,
    result: BacktestResult,
    tournament: TournamentSummary,
    evidence: Evidence,
    quality: QualityReport,
    provenance: Provenance,
) -> Path:
    """Write the report as one HTML file without any outside reference; equal inputs, equal bytes."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("podracer", "report"),
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "ratio": ratio, "money": money}
    html = environment.get_template("report.html.j2").render(
        result=result,
        tournament=tournament,
        evidence=evidence,
        quality=quality,
        provenance=provenance,
        champion=result.series[CHAMPION],
        benchmark=result.series[BENCHMARK],
        benchmark_name=BENCHMARK,
        untrained=result.series[UNTRAINED],
        spans=_spans(result),
        percent_rows=PERCENT,
        ratio_rows=RATIO,
        tail_rows=TAIL,
        months=_monthly(result),
        charts=[
            charts.equity_and_drawdown(result),
            charts.lead(result),
            charts.weights(result),
            charts.generations(tournament.generations),
        ],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def percent(metric: Metric | float | None, digits: int = 1) -> str:
    """Show a fraction as percent; an undefined metric as a dash."""
    value = metric.value if isinstance(metric, Metric) else metric
    return "—" if value is None else f"{100 * value:.{digits}f} %"


def ratio(metric: Metric | float | None, digits: int = 2) -> str:
    """Show a ratio; an undefined metric as a dash."""
    value = metric.value if isinstance(metric, Metric) else metric
    return "—" if value is None else f"{value:.{digits}f}"


def money(amount: float) -> str:
    """Show dollars."""
    return f"${amount:,.0f}"


def _spans(result: BacktestResult) -> list[tuple[str, str, str, int]]:
    """Return name, first and last session, and number of daily returns of each window."""
    rows = []
    for window in result.windows:
        first, last = result.spans[window.name]
        rows.append((window.name, str(first), str(last), window.num_returns))
    return rows


def _monthly(result: BacktestResult) -> list[dict[str, Any]]:
    """Return one row a year: the champion's return of each month and of the year."""
    growth_R = 1.0 + result.returns_of(CHAMPION)
    years_R = result.dates_R.astype("datetime64[Y]")
    months_R = result.dates_R.astype("datetime64[M]").astype(int) % 12
    rows = []
    for year in np.unique(years_R):
        cells: list[float | None] = []
        for month in range(12):
            chosen = growth_R[(years_R == year) & (months_R == month)]
            cells.append(float(np.prod(chosen) - 1.0) if len(chosen) else None)
        rows.append(
            {
                "year": str(year),
                "cells": cells,
                "total": float(np.prod(growth_R[years_R == year]) - 1),
            }
        )
    return rows
