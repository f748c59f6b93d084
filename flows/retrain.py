"""Ingest → tournament → backtest, or nothing if nothing is new."""

import json

from prefect import State, flow
from prefect.states import Completed

from flows.backtest import report
from flows.ingest import ingest
from flows.tournament import tournament
from podracer.config import PodracerSettings
from podracer.errors import NotFinalError
from podracer.files import write_text
from podracer.pipeline import runs
from podracer.pipeline.preflight import preflight
from podracer.pipeline.runs import Outcome
from tasks.reports import publish_report


@flow(
    name="retrain",
    flow_run_name="{settings.name}-seed-{settings.seed}",
    persist_result=False,
)
def retrain(settings: PodracerSettings, force: bool = False) -> "Outcome | State[Outcome]":
    """Retrain and backtest; skipped if nothing is new, or the newest session is not final yet.

    Args:
        settings: the whole configuration.
        force: backtest again even if nothing is new; finished pods are not trained twice.
    """
    try:
        known = preflight(settings)
    except NotFinalError as error:
        return Completed(name="Skipped", message=str(error))
    earlier = runs.finished(settings, known.dataset_hash)
    if earlier is not None and not force:
        publish_report(earlier, settings.name)
        return Completed(
            name="Skipped", message=f"nothing is new; see {earlier.report}", data=earlier
        )
    # `.fn`: the steps' tasks belong to this run; a sub-flow run would cost a second each.
    seconds: dict[str, float] = {}
    with runs.timed(seconds, "ingest"):
        market, dvc_hash = ingest.fn(settings)
    with runs.timed(seconds, "tournament"):
        folder = runs.run_folder(settings, known.dataset_hash)
        if not runs.has_champion(settings, known.dataset_hash):
            tournament.fn(settings, market, dvc_hash)
    with runs.timed(seconds, "backtest"):
        outcome = report(settings, market)
    write_text(folder / "timing.json", json.dumps(seconds))
    return outcome
