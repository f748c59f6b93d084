"""Versioning of datasets; the only importer of dvc."""

import os
from pathlib import Path

os.environ["DVC_NO_ANALYTICS"] = "true"

from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.lock import LockError
from dvc.repo import Repo
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_random_exponential

from podracer.config import PodracerSettings
from podracer.errors import MarketDataError
from podracer.pipeline import datasets

UNTRACKED = "untracked"
LOCK_SECONDS = 60


@task(cache_policy=NO_CACHE)
def ingest(settings: PodracerSettings) -> tuple[Path, str]:
    """Write the snapshot of the prices and track it; returns its folder and its DVC hash."""
    snapshot = datasets.ingest(settings)
    dvc_hash = track(snapshot)
    get_run_logger().info("snapshot=%s dvc=%s", snapshot, dvc_hash)
    return snapshot, dvc_hash


@task(cache_policy=NO_CACHE)
def build_features(settings: PodracerSettings, snapshot: Path) -> Path:
    """Build the market of a snapshot; see `podracer.pipeline.datasets.features`."""
    folder = datasets.features(settings, snapshot)
    get_run_logger().info("market=%s", folder)
    return folder


def track(snapshot: Path) -> str:
    """Add a snapshot to DVC and return its DVC hash; outside a DVC repository it stays untracked.

    Raises:
        MarketDataError: if DVC cannot add it, also after waiting for its lock.
    """
    try:
        return _add(snapshot)
    except NotDvcRepoError:
        return UNTRACKED
    except (DvcException, LockError) as error:
        raise MarketDataError(
            f"{snapshot}: DVC could not add it ({error}). Free its lock or its disk and run again."
        ) from error


@retry(
    retry=retry_if_exception_type(LockError),
    stop=stop_after_delay(LOCK_SECONDS),
    wait=wait_random_exponential(multiplier=0.2, max=5),
    reraise=True,
)
def _add(snapshot: Path) -> str:
    with Repo() as repo:
        repo.scm_context.quiet = True
        (stage,) = repo.add(str(snapshot))
        return str(stage.outs[0].hash_info.value)
