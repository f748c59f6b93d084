"""Market → trained agents → leaderboard."""

from pathlib import Path

from prefect import flow

from podracer.config import PodracerSettings
from podracer.pipeline import runs, training
from podracer.pipeline.runs import Lineage
from podracer.pods.pools import InlinePool, Workers
from tasks.pods import PrefectPool
from tasks.reports import publish_leaderboard


@flow(name="tournament", persist_result=False)
def tournament(settings: PodracerSettings, market: Path, dvc_hash: str) -> Path:
    """Run a tournament with its pods as task runs; returns the run's folder."""
    lineage = Lineage(dvc_hash, runs.git_commit())
    if settings.pool.launcher == "inline":
        folder = training.tournament(settings, market, InlinePool(), lineage)
    else:
        with Workers(settings.pool.num_workers(settings.tournament.pods)) as workers:
            folder = training.tournament(settings, market, PrefectPool(workers), lineage)
    publish_leaderboard(folder, settings.name)
    return folder
