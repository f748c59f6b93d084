"""The MLflow store: opened once, created under a lock, telemetry off."""

import logging
import os

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import mlflow
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from podracer.errors import LeaderboardError
from podracer.files import check_writable
from podracer.leaderboard.settings import StoreSettings

for noisy in ("mlflow", "alembic"):
    logging.getLogger(noisy).setLevel(logging.WARNING)


def open_store(settings: StoreSettings) -> MlflowClient:
    """Create the store if it is new, and return a client of it.

    Two processes that create one SQLite store at once would break its migration, hence the lock.

    Raises:
        LeaderboardError: if the store cannot be written.
    """
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
        check_writable(settings.folder)
        with FileLock(settings.folder / "mlflow.lock", timeout=120):
            mlflow.set_tracking_uri(settings.tracking_uri)
            client = MlflowClient(settings.tracking_uri)
            client.search_experiments(max_results=1)
    except (OSError, MlflowException, SQLAlchemyError) as error:
        reason = str(error).splitlines()[0]
        raise LeaderboardError(
            f"store.folder: the MLflow store at {settings.tracking_uri} cannot be written "
            f"({reason}). Free or change the folder, or set store.mlflow_uri."
        ) from error
    return client


def experiment_id(client: MlflowClient, settings: StoreSettings, name: str) -> str:
    """Return the id of the experiment, created if it is new."""
    if experiment := client.get_experiment_by_name(name):
        return str(experiment.experiment_id)
    location = None if settings.mlflow_uri else settings.artifacts.as_uri()
    return str(client.create_experiment(name, artifact_location=location))
