"""Market → trained agents → leaderboard."""

import json
from dataclasses import asdict
from pathlib import Path

from podracer.config import PodracerSettings
from podracer.files import write_text
from podracer.market.market import Market
from podracer.market.windows import Windows
from podracer.pipeline.board import open_board
from podracer.pipeline.runs import Lineage, alone, open_run
from podracer.tournament import orchestrator
from podracer.tournament.entry import leaderboard_json
from podracer.tournament.ledger import Ledger
from podracer.tournament.orchestrator import TournamentJob, TrainingPool


def tournament(
    settings: PodracerSettings, market_folder: Path, pool: TrainingPool, lineage: Lineage
) -> Path:
    """Train a tournament, register its leaderboard and its champion; returns the run's folder.

    Raises:
        PodracerError: a subclass that names what went wrong.
    """
    market, windows, folder = open_run(settings, market_folder)
    with alone(folder):
        _tournament(settings, market_folder, market, windows, folder, pool, lineage)
    return folder


def _tournament(
    settings: PodracerSettings,
    market_folder: Path,
    market: Market,
    windows: Windows,
    folder: Path,
    pool: TrainingPool,
    lineage: Lineage,
) -> None:
    # Defaults may name hyper-parameters that this algorithm does not read: children need not vary them.
    varied = {n: limits for n, limits in settings.tournament.ranges.items() if n in settings.read}
    job = TournamentJob(
        run=folder.name,
        seed=settings.seed,
        settings=settings.tournament.model_copy(update={"ranges": varied}),
        pod=settings.pod,
        hyperparameters=settings.hyperparameters,
        env=settings.env,
        market=market,
        market_folder=market_folder.resolve(),
        windows=windows,
        folder=folder.resolve(),
    )
    board = open_board(settings, market, windows, folder.name, lineage)
    with board.at_work():
        board.log_start(
            json.loads(settings.model_dump_json(exclude={"store", "pool", "schedule"})),
            {
                "name": market.meta["name"],
                "content_hash": market.meta["dataset_hash"],
                "dvc_hash": lineage.dvc_hash,
            },
        )
        summary = orchestrator.run(
            job,
            pool,
            board,
            Ledger(settings.store.ledger),
            lambda g: write_text(folder / "generation.json", json.dumps(asdict(g))),
        )
        version = board.crown(summary.scored[: settings.tournament.ensemble_size])
        board.log_generations(summary.generations)
        summary.save(folder / "tournament.json")
        write_text(folder / "leaderboard.json", leaderboard_json(summary.entries))
        write_text(folder / "champion.json", json.dumps({"version": version} | asdict(lineage)))
