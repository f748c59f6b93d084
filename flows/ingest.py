"""Prices → versioned snapshot → market."""

from pathlib import Path

from prefect import flow

from podracer.config import PodracerSettings
from tasks import datasets


@flow(name="ingest", persist_result=False)
def ingest(settings: PodracerSettings) -> tuple[Path, str]:
    """Ingest prices; returns the market's folder and the snapshot's DVC hash."""
    snapshot, dvc_hash = datasets.ingest(settings)
    return datasets.build_features(settings, snapshot), dvc_hash
