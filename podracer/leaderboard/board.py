"""A tournament's leaderboard, kept in the MLflow model registry.

Every entry is a version of the registered model `podracer-<name>` whose tags hold the score and the
lineage. Aliases: `champion` is the ensemble, `leader` the best agent.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec

from podracer.envs.frozen_agents import load_agents
from podracer.errors import LeaderboardError
from podracer.leaderboard.settings import StoreSettings
from podracer.leaderboard.store import experiment_id, open_store
from podracer.tournament.entry import Entry, ranked
from podracer.tournament.orchestrator import GenerationSummary
from podracer.tournament.updater import update

AGENT_CODE = Path(__file__).with_name("agent_model.py")
GUEST_CODE = Path(__file__).with_name("guest_model.py")
REQUIREMENTS = [
    f"{name}=={version(name)}" for name in ("numpy", "safetensors", "numba", "pydantic")
]
REQUIREMENTS += [f"torch=={version('torch').split('+')[0]}", f"podracer=={version('podracer')}"]
ON_BOARD, EVICTED = "in", "evicted"


@dataclass(frozen=True)
class Identity:
    """What a board belongs to; the tags of all its versions."""

    name: str
    run: str
    tickers: tuple[str, ...]
    tags: dict[str, str]

    @property
    def model(self) -> str:
        """Name of the registered model."""
        return f"podracer-{self.name}"


class MlflowBoard:
    """The bounded board of one tournament; one process writes it."""

    def __init__(
        self, settings: StoreSettings, identity: Identity, capacity: int, observations: np.ndarray
    ) -> None:
        """Open the store and the tournament's MLflow run.

        Args:
            settings: where the store is.
            identity: of the tournament.
            capacity: K.
            observations: a batch on which each registered model must act as it does unregistered.

        Raises:
            LeaderboardError: if the store cannot be written.
        """
        self.identity = identity
        self._capacity = capacity
        self._observations = observations
        self._client = open_store(settings)
        experiment = experiment_id(self._client, settings, identity.model)
        self._claim_name()
        found = self._client.search_runs(
            [experiment], f"tags.run = '{identity.run}'", max_results=1
        )
        tags = {"run": identity.run} | identity.tags
        run = (
            found[0]
            if found
            else self._client.create_run(experiment, tags=tags, run_name=identity.run)
        )
        self.run_id = str(run.info.run_id)
        own = [v for v in self._found() if v.tags["kind"] != "guest"]
        self._versions = {v.tags.get("agent", "ensemble"): v for v in own}

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Show the MLflow run as running inside, then as finished, or as failed."""
        self._client.update_run(self.run_id, "RUNNING")
        try:
            yield
        except BaseException:
            # A store that has gone must not hide what went wrong.
            with suppress(MlflowException):
                self._client.set_terminated(self.run_id, "FAILED")
            raise
        self._client.set_terminated(self.run_id)

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Make the run the active one, as models and inputs need it, without ending it."""
        status = self._client.get_run(self.run_id).info.status
        with mlflow.start_run(run_id=self.run_id):
            yield
        self._client.update_run(self.run_id, status)

    def _claim_name(self) -> None:
        """Create the registered model, or check that it is one of the same universe."""
        universe = ",".join(self.identity.tickers)
        found = self._client.search_registered_models(f"name = '{self.identity.model}'")
        if not found:
            self._client.create_registered_model(self.identity.model, {"tickers": universe})
        elif (held := found[0].tags.get("tickers", universe)) != universe:
            raise LeaderboardError(
                f"name: leaderboard {self.identity.name!r} holds agents of other tickers ({held}). "
                f"Choose another name in params.yaml for this universe."
            )

    def entries(self) -> list[Entry]:
        """Return the entries, best first."""
        return ranked(e for e, v in self._read() if v.tags["board"] == ON_BOARD)

    def offer(self, candidates: Sequence[Entry]) -> list[Entry]:
        """Merge finished agents into the board; only those that enter become versions."""
        self._client.set_registered_model_tag(self.identity.model, "run", self.identity.run)
        self._forget_other_weights(candidates)
        change = update(self.entries(), candidates, self._capacity)
        with self._active():
            for entry in change.entered:
                if entry.name in self._versions:
                    self._tag(entry, ON_BOARD)
                else:
                    self._versions[entry.name] = self._register(entry.name, [entry], _tags(entry))
        for entry in change.evicted:
            self._tag(entry, EVICTED)
        return change.entries

    def _forget_other_weights(self, candidates: Sequence[Entry]) -> None:
        """Evict stored agents that were trained again with another result.

        A run's folder may be deleted and its agents trained anew by other code or on another CPU.
        """
        for entry in candidates:
            stored = self._versions.get(entry.name)
            if stored is not None and stored.tags["weights_hash"] != entry.weights_hash:
                self._client.set_model_version_tag(
                    self.identity.model, stored.version, "board", EVICTED
                )
                del self._versions[entry.name]

    def log_start(self, params: dict[str, Any], dataset: dict[str, str]) -> None:
        """Log the run's parameters and its dataset as an MLflow input."""
        logged = self._client.get_run(self.run_id)
        if logged.data.params:
            return
        entries = [Param(k, str(v)[:5_000]) for k, v in params.items()]
        self._client.log_batch(self.run_id, params=entries)
        source = mlflow.data.meta_dataset.MetaDataset(
            source=mlflow.data.code_dataset_source.CodeDatasetSource(tags=dataset),
            name=dataset["name"],
            digest=dataset["content_hash"][:36],
        )
        with self._active():
            mlflow.log_input(source, context="training", tags=dataset)

    def log_generations(self, generations: Sequence[GenerationSummary]) -> None:
        """Log the metrics of each generation, in one batch."""
        metrics = [
            Metric(name, float(value), 0, g.generation)
            for g in generations
            for name, value in vars(g).items()
            if name != "generation" and value is not None
        ]
        self._client.log_batch(self.run_id, metrics=metrics)

    def log_report(
        self, champion: int, metrics: dict[str, float], tags: dict[str, str], report: Path
    ) -> None:
        """Log what the backtest of a champion's version found: metrics, evidence, the report file."""
        self._client.log_batch(
            self.run_id, metrics=[Metric(k, v, 0, 0) for k, v in metrics.items()]
        )
        self._client.log_artifact(self.run_id, str(report))
        for key, value in tags.items():
            self._client.set_tag(self.run_id, key, value)
            self._client.set_model_version_tag(self.identity.model, str(champion), key, value)

    def crown(self, members: Sequence[Entry]) -> int:
        """Register the ensemble as `champion` and mark its best member as `leader`.

        Returns:
            The ensemble's version.
        """
        leader = self._versions[members[0].name]
        self._client.set_registered_model_alias(self.identity.model, "leader", leader.version)
        champion = self._versions.get("ensemble")
        if champion is None or champion.tags["hashes"] != _hashes(members):
            with self._active():
                champion = self._register("ensemble", members, _ensemble_tags(members))
            self._versions["ensemble"] = champion
        self._client.set_registered_model_alias(self.identity.model, "champion", champion.version)
        return int(champion.version)

    def _read(self) -> list[tuple[Entry, Any]]:
        """Return this tournament's entries with their versions, in order of registration."""
        return [(_entry(v.tags), v) for v in self._found() if v.tags["kind"] == "agent"]

    def _found(self) -> list[Any]:
        """Return every version of this tournament, in order of registration."""
        found = self._client.search_model_versions(
            f"name = '{self.identity.model}' and tags.run = '{self.identity.run}'",
            max_results=10_000,
        )
        return sorted(found, key=lambda v: int(v.version))

    def _tag(self, entry: Entry, state: str) -> None:
        number = self._versions[entry.name].version
        self._client.set_model_version_tag(self.identity.model, number, "board", state)

    def refuse_agent_name(self, name: str) -> None:
        """Refuse a guest that would be called as an agent of the tournament is.

        Raises:
            LeaderboardError: if there is such an agent.
        """
        agents = {v.tags["agent"] for v in self._found() if v.tags["kind"] == "agent"}
        if name in agents:
            raise LeaderboardError(
                f"--name {name}: an agent of this tournament is called that. Choose another name."
            )

    def welcome(
        self, entry: Entry, algorithm: str, observations_XO: np.ndarray, actions_XN: np.ndarray
    ) -> None:
        """Register a guest; an earlier one of its name with other weights leaves the board.

        Args:
            entry: with the guest's score.
            algorithm: that trained it.
            observations_XO: a batch.
            actions_XN: what the guest does there; the registered model must do the same.
        """
        is_known = False
        for found in self._found():
            if found.tags["kind"] == "guest" and found.tags["agent"] == entry.name:
                is_same = found.tags["weights_hash"] == entry.weights_hash
                is_known |= is_same
                self._client.set_model_version_tag(
                    self.identity.model, found.version, "board", ON_BOARD if is_same else EVICTED
                )
        if is_known:
            return
        model = _Model(
            GUEST_CODE,
            [(entry.checkpoint, entry.name)],
            observations_XO,
            actions_XN,
            [*REQUIREMENTS, f"stable-baselines3=={version('stable-baselines3')}"],
        )
        tags = _tags(entry) | {"algorithm": algorithm}
        with self._active():
            self._log(entry.name, model, tags)

    def _register(self, name: str, members: Sequence[Entry], tags: dict[str, str]) -> Any:
        agents = load_agents([m.checkpoint for m in members])
        model = _Model(
            AGENT_CODE,
            [(m.checkpoint, f"{rank:03d}-{m.name}") for rank, m in enumerate(members)],
            self._observations,
            agents.desired_weights(self._observations),
            REQUIREMENTS,
        )
        return self._log(name, model, tags)

    def _log(self, name: str, model: "_Model", tags: dict[str, str]) -> Any:
        """Log a model, check that it acts as it should, and make it a version."""
        with tempfile.TemporaryDirectory() as folder:
            for stem, called in model.checkpoints:
                _copy_checkpoint(stem, Path(folder), called)
            info = mlflow.pyfunc.log_model(
                name=name,
                python_model=str(model.code),
                artifacts={"agents": folder},
                signature=model.signature,
                input_example=model.observations_XO,
                pip_requirements=model.requirements,
            )
        found = mlflow.pyfunc.load_model(info.model_uri).predict(model.observations_XO)
        if not np.array_equal(model.actions_XN, found):
            raise LeaderboardError(
                f"model {name}: loaded back it acts differently (by up to "
                f"{np.abs(model.actions_XN - found).max():.1e}). Its store may be damaged: "
                f"{info.model_uri}"
            )
        return self._client.create_model_version(
            self.identity.model,
            info.model_uri,
            self.run_id,
            tags={"run": self.identity.run} | self.identity.tags | tags,
            model_id=info.model_id,
        )


@dataclass(frozen=True)
class _Model:
    """What is logged: code, checkpoints under their names, and how it acts on a batch."""

    code: Path
    checkpoints: Sequence[tuple[Path, str]]
    observations_XO: np.ndarray
    actions_XN: np.ndarray
    requirements: list[str]

    @property
    def signature(self) -> ModelSignature:
        """Shapes and types of a batch of observations and of actions."""
        batches = (self.observations_XO, self.actions_XN)
        inputs, outputs = (TensorSpec(b.dtype, (-1, b.shape[1])) for b in batches)
        return ModelSignature(inputs=Schema([inputs]), outputs=Schema([outputs]))


def _copy_checkpoint(stem: Path, folder: Path, name: str) -> None:
    for path in [stem.with_suffix(".json"), *stem.parent.glob(f"{stem.name}-*.safetensors")]:
        shutil.copy(path, folder / path.name.replace(stem.name, name, 1))


def _tags(entry: Entry) -> dict[str, str]:
    facts = {
        "kind": entry.kind,
        "board": ON_BOARD,
        "agent": entry.name,
        "generation": str(entry.generation),
        "pod": entry.pod,
        "parent": entry.parent or "",
        "score": "" if entry.score is None else repr(entry.score),
        "reason": entry.reason or "",
        "train_score": "" if entry.train_score is None else repr(entry.train_score),
        "sharpe": "" if entry.sharpe is None else repr(entry.sharpe),
        "weights_hash": entry.weights_hash,
        "hyperparameters": json.dumps(entry.hyperparameters, sort_keys=True),
        "checkpoint": str(entry.checkpoint),
    }
    return facts


def _hashes(members: Sequence[Entry]) -> str:
    return ",".join(m.weights_hash[:16] for m in members)


def _ensemble_tags(members: Sequence[Entry]) -> dict[str, str]:
    return {
        "kind": "ensemble",
        "board": "",
        "members": ",".join(m.name for m in members),
        "hashes": _hashes(members),
        "size": str(len(members)),
        "generation": str(max(m.generation for m in members)),
    }


def _entry(tags: dict[str, str]) -> Entry:
    def number(name: str) -> float | None:
        return float(tags[name]) if tags[name] else None

    return Entry(
        name=tags["agent"],
        generation=int(tags["generation"]),
        pod=tags["pod"],
        parent=tags["parent"] or None,
        hyperparameters=json.loads(tags["hyperparameters"]),
        checkpoint=Path(tags["checkpoint"]),
        weights_hash=tags["weights_hash"],
        score=number("score"),
        reason=tags["reason"] or None,
        train_score=number("train_score"),
        sharpe=number("sharpe"),
        kind=tags["kind"],
    )


def read_board(settings: StoreSettings, name: str) -> list[Entry]:
    """Return the entries of the newest tournament called `name`, best first.

    Raises:
        LeaderboardError: if there is none.
    """
    client = open_store(settings)
    model = Identity(name, "", (), {}).model
    found = client.search_registered_models(f"name = '{model}'")
    if not found:
        raise LeaderboardError(
            f"there is no leaderboard {name!r} in {settings.tracking_uri}. "
            f"Run `podracer run` first, or check name and store in params.yaml."
        )
    run = found[0].tags["run"]
    versions = client.search_model_versions(
        f"name = '{model}' and tags.run = '{run}' and tags.board = '{ON_BOARD}'",
        max_results=10_000,
    )
    return ranked(_entry(v.tags) for v in sorted(versions, key=lambda v: int(v.version)))
