"""What a pod is asked to do, and what it gives back.

Shapes: R daily returns of a window.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from podracer.agents import checkpoint
from podracer.agents.settings import Hyperparameters
from podracer.envs.settings import EnvSettings
from podracer.market.windows import Windows
from podracer.pods.settings import PodSettings
from podracer.settings import Settings, canonical_hash


class AgentSpec(Settings):
    """One agent to train: new, or the child of an entry of the leaderboard."""

    name: str
    hyperparameters: Hyperparameters
    parent: str | None = None
    parent_hash: str | None = None
    parent_checkpoint: Path | None = None


class PopulationSpec(Settings):
    """A population to train, wherever; everything in it but the folders may change the result."""

    name: str
    seed: int
    agents: tuple[AgentSpec, ...]
    settings: PodSettings
    folder: Path
    market_hash: str = ""

    @property
    def key(self) -> str:
        """The hash of all that determines the result, whatever the folders are called."""
        facts = self.model_dump(mode="json", exclude={"market_folder", "folder"})
        for agent in facts["agents"]:
            agent.pop("parent_checkpoint")
        return canonical_hash(facts)


class PodSpec(PopulationSpec):
    """A population to train on a market."""

    generation: int
    env: EnvSettings
    windows: Windows
    market_folder: Path


@dataclass(frozen=True)
class AgentResult:
    """A trained agent and its deterministic daily returns, net of costs.

    Attributes:
        failure: why and when training failed; such an agent has no returns.
        train_returns_R: on the training window.
        selection_returns_R: on the selection window.
        has_traded: whether it traded in the selection window.
    """

    name: str
    parent: str | None
    hyperparameters: dict[str, float]
    checkpoint: Path
    weights_hash: str
    failure: str | None
    train_returns_R: np.ndarray | None
    selection_returns_R: np.ndarray | None
    has_traded: bool


@dataclass(frozen=True)
class PodResult:
    """What one pod made."""

    name: str
    generation: int
    agents: tuple[AgentResult, ...]
    steps: int
    cpu_seconds: float


def save_result(spec: PodSpec, result: PodResult) -> Path:
    """Write a pod's result into its folder; returns the checkpoint's stem."""
    tensors, agents = {}, []
    for agent in result.agents:
        facts: dict[str, Any] = dict(agent.__dict__)
        facts["checkpoint"] = agent.checkpoint.name
        for window in ("train_returns_R", "selection_returns_R"):
            returns = facts.pop(window)
            if returns is not None:
                tensors[f"{agent.name}/{window}"] = torch.from_numpy(returns)
        agents.append(facts)
    facts = {"agents": agents, "steps": result.steps, "cpu_seconds": result.cpu_seconds}
    checkpoint.save(
        spec.folder / "result",
        tensors,
        facts | {"key": spec.key, "name": spec.name, "generation": spec.generation},
    )
    return spec.folder / "result"


def load_result(folder: Path) -> tuple[str, PodResult]:
    """Read a pod's result; returns its spec's key with it.

    Raises:
        CheckpointError: if there is none, or it is damaged.
    """
    tensors, facts = checkpoint.load(folder / "result")
    agents = []
    for agent in facts["agents"]:
        returns = {
            window: tensors[key].numpy()
            if (key := f"{agent['name']}/{window}") in tensors
            else None
            for window in ("train_returns_R", "selection_returns_R")
        }
        agents.append(AgentResult(**agent | returns | {"checkpoint": folder / agent["checkpoint"]}))
    result = PodResult(
        facts["name"], facts["generation"], tuple(agents), facts["steps"], facts["cpu_seconds"]
    )
    return facts["key"], result
