"""Prices → versioned snapshot → market."""

from pathlib import Path

from prefect import flow

from podracer.config import PodracerSettings
from tasks import datasets
from tasks.reports import publish_quality


@flow(name="ingest", persist_result=False)
def ingest(settings: PodracerSettings) -> tuple[Path, str]:
    """Ingest prices; returns the market's folder and the snapshot's DVC hash."""
    snapshot, dvc_hash = datasets.ingest(settings)
    market = datasets.build_features(settings, snapshot)
    publish_quality(market, settings.name)
    return market, dvc_hash
