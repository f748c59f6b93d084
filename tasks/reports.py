"""The backtest and its Prefect artifacts."""

from pathlib import Path

from prefect import get_run_logger, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from podracer.config import PodracerSettings
from podracer.pipeline import datasets, lockbox
from podracer.pipeline.runs import Outcome
from podracer.tournament.orchestrator import load_summary


@task(cache_policy=NO_CACHE)
def backtest(settings: PodracerSettings, market: Path) -> Outcome:
    """Open the lockbox and write the report; see `podracer.pipeline.lockbox.run_backtest`."""
    outcome = lockbox.run_backtest(settings, market)
    get_run_logger().info("report=%s verdict=%s", outcome.report, outcome.verdict)
    return outcome


def publish_quality(market: Path, name: str) -> None:
    """Show what the gate found and did in the Prefect UI, one row a rule."""
    quality = datasets.read_quality(market)
    rows = [
        {
            "rule": first.rule,
            "cells": cells,
            "names": names,
            "done": first.done,
            "expected": first.expected,
            "the first": f"{first.tic} {first.date}: {first.value}",
        }
        for first, cells, names in quality.by_rule()
    ]
    create_table_artifact(
        key=f"{name}-quality",
        table=rows,
        description=f"Data quality of {quality.name}: {quality.rows_used} of {quality.rows_in} rows "
        f"can be traded; every cell is in quality.json of {market}",
    )


def publish_leaderboard(folder: Path, name: str) -> None:
    """Show the leaderboard and the scores by generation in the Prefect UI."""
    summary = load_summary(folder / "tournament.json")
    rows = [
        {
            "rank": rank,
            "agent": e.name,
            "score": e.reason if e.score is None else round(e.score, 4),
            "parent": e.parent or "new",
            "generation": e.generation,
        }
        for rank, e in enumerate(summary.entries, start=1)
    ]
    create_table_artifact(key=f"{name}-leaderboard", table=rows, description=f"Leaderboard {name}")
    lines = [
        "| generation | best on the board | median | entered | failed |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {g.generation} | {_number(g.board_best_score)} | {_number(g.median_score)} "
        f"| {g.entered} | {g.failed} |"
        for g in summary.generations
    ]
    create_markdown_artifact(
        key=f"{name}-generations", markdown="\n".join(lines), description="Scores by generation"
    )


def publish_report(outcome: Outcome, name: str) -> None:
    """Link the report in the Prefect UI."""
    create_link_artifact(
        key=f"{name}-report",
        link=outcome.report.resolve().as_uri(),
        link_text=f"{name}: {outcome.statement}",
        description="Backtest report",
    )


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"
