"""Leaderboard → evidence → report."""

from pathlib import Path

from prefect import flow

from flows.ingest import ingest
from podracer.config import PodracerSettings
from podracer.pipeline import runs
from podracer.pipeline.preflight import preflight
from podracer.pipeline.runs import Outcome
from tasks import reports
from tasks.reports import publish_report


@flow(name="backtest", persist_result=False)
def backtest(settings: PodracerSettings) -> Outcome:
    """Backtest the champion of the finished tournament with these settings and write its report.

    Raises:
        LeaderboardError: if there is no finished tournament with these prices and settings.
    """
    runs.require_tournament(settings, preflight(settings).dataset_hash)
    market, _ = ingest.fn(settings)
    return report(settings, market)


def report(settings: PodracerSettings, market: Path) -> Outcome:
    """Open the lockbox, write the report and link it in the UI."""
    outcome = reports.backtest(settings, market)
    publish_report(outcome, settings.name)
    return outcome
