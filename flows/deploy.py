"""The deployments that can be started from the Prefect UI, served in their own module."""

from prefect import serve
from prefect.schedules import Cron

from flows.backtest import backtest
from flows.retrain import retrain
from podracer.config import PodracerSettings


def serve_deployments(settings: PodracerSettings) -> None:
    """Serve `retrain` on its schedule and `backtest` on demand.

    Windows given as lengths end at the latest session, so that a scheduled run moves with the data.
    """
    parameters = {"settings": settings.model_dump(mode="json")}
    serve(
        retrain.to_deployment(  # type: ignore[arg-type]
            "retrain",
            parameters=parameters,
            schedule=Cron(settings.schedule.cron, timezone=settings.schedule.timezone),
            description="Ingest, train a tournament, backtest the champion.",
        ),
        backtest.to_deployment(  # type: ignore[arg-type]
            "backtest",
            parameters=parameters,
            description="Backtest the champion of the finished tournament with these settings.",
        ),
        pause_on_shutdown=False,
    )
