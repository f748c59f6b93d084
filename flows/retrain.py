"""Ingest → tournament → backtest, or nothing if nothing is new."""

import json

from prefect import State, flow
from prefect.states import Completed

from flows.backtest import report
from flows.ingest import ingest
from flows.tournament import tournament
from podracer import pipeline
from podracer.config import PodracerSettings
from podracer.files import write_text
from podracer.pipeline import Outcome
from tasks.reports import publish_report


@flow(name="retrain", persist_result=False)
def retrain(settings: PodracerSettings, force: bool = False) -> "Outcome | State[Outcome]":
    """Retrain and backtest; a run whose prices, configuration and seed are complete is skipped.

    Args:
        settings: the whole configuration.
        force: backtest again even if nothing is new; finished pods are not trained twice.
    """
    known = pipeline.preflight(settings)
    earlier = pipeline.finished(settings, known.dataset_hash)
    if earlier is not None and not force:
        publish_report(earlier, settings.name)
        return Completed(
            name="Skipped", message=f"nothing is new; see {earlier.report}", data=earlier
        )
    # `.fn`: the steps' tasks belong to this run; a sub-flow run would cost a second each.
    seconds: dict[str, float] = {}
    with pipeline.timed(seconds, "ingest"):
        market, dvc_hash = ingest.fn(settings)
    with pipeline.timed(seconds, "tournament"):
        folder = pipeline.run_folder(settings, known.dataset_hash)
        if not pipeline.has_champion(settings, known.dataset_hash):
            tournament.fn(settings, market, dvc_hash)
    with pipeline.timed(seconds, "backtest"):
        outcome = report(settings, market)
    write_text(folder / "timing.json", json.dumps(seconds))
    return outcome
