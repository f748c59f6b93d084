"""A foreign policy enters a finished tournament as a guest: scored as all agents are, and counted.

Guests stand on the leaderboard with their provenance. They are no parents and no members of the
champion: what they learned from cannot be checked.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from podracer.agents import checkpoint
from podracer.config import PodracerSettings, load_settings
from podracer.envs.guests import GuestPolicy, GuestSettings, read_weights, seat
from podracer.envs.rollout import rollout
from podracer.envs.spaces import Sizes
from podracer.errors import ConfigError
from podracer.market.market import Market, open_market
from podracer.market.windows import Windows, resolve_windows
from podracer.pipeline import datasets
from podracer.pipeline.board import CHECK_ROWS, open_board
from podracer.pipeline.runs import alone, champion_lineage, open_run
from podracer.pods.spec import AgentResult, PodResult
from podracer.tournament.entry import Entry
from podracer.tournament.ledger import Ledger
from podracer.tournament.selection import make_judge

GUESTS = "guests"
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


def training_face(params: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return what `gymnasium.make` and `make_vec` need to train on the market of a params.yaml.

    The train window, scaled as the tournament scales it: a policy trained there can be entered.
    """
    settings = load_settings(Path(params), overrides)
    market = open_market(datasets.features(settings, datasets.ingest(settings)))
    windows = resolve_windows(settings.windows, market.dates_D, market.meta["warmup_bars"])
    named = {window.name: window for window in windows}
    return {"market": market, "env": settings.env, "window": "train", "windows": named}


@dataclass(frozen=True)
class GuestFile:
    """A model's file, what its owner declares of it, and its name on the leaderboard."""

    path: Path
    name: str
    declared: GuestSettings


def declare(
    path: Path,
    algorithm: str,
    net_arch: str | None,
    activation: str | None,
    stack: int,
    name: str | None,
) -> GuestFile:
    """Return a guest as the command line declares it.

    Raises:
        ConfigError: if a declaration is not one that can be built, or the name cannot be a file's.
    """
    called = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem)[:40] if name is None else name
    if not NAME.fullmatch(called):
        raise ConfigError(
            f"--name {called}: expected letters, digits, - and _, 40 at most. Choose another name."
        )
    layers = None if net_arch is None else tuple(net_arch.split(","))
    facts = {
        "algorithm": algorithm.lower(),
        "net_arch": layers,
        "activation": activation,
        "stack": stack,
    }
    try:
        return GuestFile(path, called, GuestSettings.model_validate(facts))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = str(first["loc"][0]).replace("_", "-")
        came = net_arch if option == "net-arch" else facts[str(first["loc"][0])]
        raise ConfigError(f"--{option}: {first['msg'].lower()}, got {came!r}.") from error


def enter(settings: PodracerSettings, market_folder: Path, file: GuestFile) -> Entry:
    """Score a guest on the selection window and put it on the leaderboard.

    Args:
        settings: of the finished tournament.
        market_folder: of its market.
        file: the guest.

    Raises:
        PodracerError: a subclass that names what is wrong.
    """
    weights = read_weights(file.path)
    market, windows, folder = open_run(settings, market_folder)
    torch.set_num_threads(1)
    policy = seat(file.declared, weights, market, windows.train, settings.env)
    with alone(folder):
        board = open_board(settings, market, windows, folder.name, champion_lineage(folder))
        board.refuse_agent_name(file.name)
        stem = _store(folder / GUESTS / file.name, settings, market, file, weights, policy.sizes)
        result = _trial(
            settings, market, windows, file, policy, stem, _hash(file.declared, weights)
        )
        judge = make_judge(market, windows, settings.env)
        dates_R = windows.selection.return_dates(market.dates_D)
        Ledger(settings.store.ledger).record(
            folder.name, market.tickers, result, dates_R, judge.selection.benchmark_R
        )
        (judged,) = judge.entries(result)
        entry = replace(judged, kind="guest")
        rng = np.random.default_rng(0)
        batch_XO = rng.uniform(-1, 1, (CHECK_ROWS, policy.sizes.width)).astype(np.float32)
        actions_XN, _ = policy.policy.predict(batch_XO, deterministic=True)
        board.welcome(entry, file.declared.algorithm, batch_XO, actions_XN)
    return entry


def _store(
    stem: Path,
    settings: PodracerSettings,
    market: Market,
    file: GuestFile,
    weights: dict[str, Tensor],
    sizes: Sizes,
) -> Path:
    """Keep a guest's tensors and its declaration in the run's folder; returns the stem."""
    facts = {
        "guest": file.declared.model_dump(mode="json"),
        "name": file.name,
        "source_sha256": hashlib.sha256(file.path.read_bytes()).hexdigest(),
        "market_hash": market.hash,
        "sizes": sizes._asdict(),
        "env": settings.env.model_dump(mode="json"),
    }
    checkpoint.save(stem, weights, facts)
    return stem


def _hash(declared: GuestSettings, weights: dict[str, Tensor]) -> str:
    """Return the sha256 of a policy: the same tensors read another way are another one."""
    digest = hashlib.sha256(declared.model_dump_json().encode())
    for key in sorted(weights):
        digest.update(key.encode() + weights[key].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _trial(
    settings: PodracerSettings,
    market: Market,
    windows: Windows,
    file: GuestFile,
    policy: GuestPolicy,
    stem: Path,
    weights_hash: str,
) -> PodResult:
    """Run a guest over the windows that agents are scored on; it counts as a pod of one."""
    on_train = rollout(policy, market, windows.train, settings.env)
    on_selection = rollout(policy, market, windows.selection, settings.env)
    agent = AgentResult(
        name=file.name,
        parent=None,
        hyperparameters={},
        checkpoint=stem,
        weights_hash=weights_hash,
        failure=None,
        train_returns_R=on_train.returns_RE[:, 0],
        selection_returns_R=on_selection.returns_RE[:, 0],
        has_traded=bool(on_selection.has_traded_E[0]),
    )
    # Another policy under a known name is another trial.
    return PodResult(f"guest-{file.name}-{weights_hash[:8]}", 0, (agent,), 0, 0.0)
