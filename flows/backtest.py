"""Leaderboard → evidence → report."""

from pathlib import Path

from prefect import flow

from flows.ingest import ingest
from podracer import pipeline
from podracer.config import PodracerSettings
from podracer.pipeline import Outcome
from tasks import reports
from tasks.reports import publish_report


@flow(name="backtest", persist_result=False)
def backtest(settings: PodracerSettings) -> Outcome:
    """Backtest the champion of the finished tournament with these settings and write its report.

    Raises:
        LeaderboardError: if there is no finished tournament with these prices and settings.
    """
    pipeline.require_tournament(settings, pipeline.preflight(settings).dataset_hash)
    market, _ = ingest.fn(settings)
    return report(settings, market)


def report(settings: PodracerSettings, market: Path) -> Outcome:
    """Open the lockbox, write the report and link it in the UI."""
    outcome = reports.backtest(settings, market)
    publish_report(outcome, settings.name)
    return outcome
