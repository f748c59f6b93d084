"""The leaderboard of a run, with its lineage and a batch to check models on."""

import os

import numpy as np
import torch

from podracer.agents.settings import NetworkSettings
from podracer.config import PodracerSettings
from podracer.envs.declared import ObservationTables, observation_tables
from podracer.leaderboard.board import Identity, MlflowBoard
from podracer.market.market import Market
from podracer.market.windows import Windows
from podracer.pipeline.runs import Lineage

CHECK_ROWS = 8


def open_board(
    settings: PodracerSettings, market: Market, windows: Windows, run: str, lineage: Lineage
) -> MlflowBoard:
    """Open the leaderboard of a run."""
    tags = {
        "market_hash": market.hash,
        "dataset_hash": str(market.meta["dataset_hash"]),
        "dvc_hash": lineage.dvc_hash,
        "config_hash": settings.config_hash,
        "git_commit": lineage.git_commit,
        "seed": str(settings.seed),
        "fill": settings.env.fill,
        "env_hash": settings.env.hash,
        "cpu": _instruction_set(),
    }
    return MlflowBoard(
        settings.store,
        Identity(settings.name, run, market.tickers, tags),
        settings.tournament.board_size,
        _observation_batch(
            market, windows, observation_tables(market, settings.env), settings.pod.network
        ),
    )


def _observation_batch(
    market: Market, windows: Windows, tables: ObservationTables, network: NetworkSettings
) -> np.ndarray:
    """Return observations of some sessions of the selection window with invented holdings."""
    bars = 1 if network.memory == "none" else network.memory_bars
    before_K = np.arange(1 - bars, 1)
    rows = np.linspace(windows.selection.start, windows.selection.stop - 1, CHECK_ROWS).astype(int)
    rng = np.random.default_rng(0)
    account = rng.dirichlet(np.ones(1 + market.num_assets), size=CHECK_ROWS)
    return np.concatenate(
        [
            account,
            tables.asset_DAK[rows].reshape(CHECK_ROWS, -1),
            tables.market_DF[np.maximum(rows[:, None] + before_K, 0)].reshape(CHECK_ROWS, -1),
        ],
        axis=1,
    ).astype(np.float32)


def _instruction_set() -> str:
    return f"{torch.backends.cpu.get_cpu_capability()}, {os.uname().machine}"
