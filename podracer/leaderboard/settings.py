"""Where the leaderboard lives."""

from pathlib import Path

from pydantic import Field

from podracer.settings import Settings


class StoreSettings(Settings):
    """Folders and addresses of what outlives a run; none of it changes a result."""

    folder: Path = Field(
        Path("store"), description="Holds the MLflow database, its artifacts and the trial ledger."
    )
    mlflow_uri: str | None = Field(
        None, description="MLflow tracking server or database; SQLite in the folder if null."
    )

    @property
    def tracking_uri(self) -> str:
        """The address that MLflow is given."""
        return self.mlflow_uri or f"sqlite:///{self.folder.resolve()}/mlflow.db"

    @property
    def artifacts(self) -> Path:
        """Where models are kept when the store is a local database."""
        return self.folder.resolve() / "artifacts"

    @property
    def ledger(self) -> Path:
        """Where trials and lockbox openings are kept."""
        return self.folder.resolve() / "ledger"
