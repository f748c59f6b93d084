"""A pod: train a population, evaluate it, leave a result.

Shapes: P agents, D sessions.
"""

import logging
import shutil
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from podracer.agents import checkpoint
from podracer.envs.agent_policies import PopulationPolicy
from podracer.envs.declared import observation_tables
from podracer.envs.observation import Observations, observation_spec, observe
from podracer.envs.rollout import Rollout, rollout
from podracer.envs.tables import price_tables
from podracer.errors import CheckpointError, MarketDataError
from podracer.market.market import Market, open_market
from podracer.market.scaling import Scaler
from podracer.pods.device import resolve_device
from podracer.pods.market_rollouts import MarketRollouts
from podracer.pods.memory import keep_freed_memory, out_of_memory
from podracer.pods.spec import AgentResult, PodResult, PodSpec, load_result, save_result
from podracer.pods.trainer import Trainer

logger = logging.getLogger(__name__)

Progress = Callable[[int, float], None]


def train(spec: PodSpec, progress: Progress | None = None) -> PodResult:
    """Train a pod's population, or return its finished result; a dead pod goes on where it was.

    Args:
        spec: what to train; its folder keeps checkpoints and the result.
        progress: called after each rollout with the environment steps per agent so far and the
            population's mean reward.

    Raises:
        DeviceError: if the device cannot be used.
        MarketDataError: if the market's content is not what the spec names.
        CheckpointError: if a parent's checkpoint is missing or from another market.
        ConfigError: if networks or replay do not fit into the memory.
        PodError: if the memory runs out in the middle.
    """
    if finished := _finished(spec):
        return finished
    resolve_device(spec.settings.device)
    # Two threads sum in another order than one: the bits would depend on the launcher.
    torch.set_num_threads(1)
    market = open_market(spec.market_folder)
    if market.hash != spec.market_hash:
        raise MarketDataError(
            f"{spec.market_folder}: pod {spec.name} expects market {spec.market_hash[:12]}…, found "
            f"{market.hash[:12]}…. Ingest again."
        )
    try:
        trainer, observations, scaler = open_pod(spec, market)
        _resume(trainer)
        started = time.process_time() - trainer.cpu_seconds
        _train(trainer, started, progress)
    except (RuntimeError, MemoryError, OSError) as error:
        if said := out_of_memory(error, spec.name, spec.settings):
            raise said from error
        raise
    policy = PopulationPolicy(trainer.acting, observations)
    on_train = rollout(policy, market, spec.windows.train, spec.env)
    on_selection = rollout(policy, market, spec.windows.selection, spec.env)
    features = observation_spec(market, observations.tables)
    agents = tuple(
        _agent_result(spec, trainer, p, scaler, features, on_train, on_selection)
        for p in range(len(spec.agents))
    )
    seconds = time.process_time() - started
    result = PodResult(spec.name, spec.generation, agents, trainer.steps * len(agents), seconds)
    save_result(spec, result)
    for leftover in spec.folder.glob("state*"):
        leftover.unlink(missing_ok=True)
    logger.info("pod=%s steps=%d cpu_seconds=%.1f", spec.name, result.steps, seconds)
    return result


class OpenPod(NamedTuple):
    """A pod before its first rollout, with what its agents see."""

    trainer: Trainer
    observations: Observations
    scaler: Scaler


def open_pod(spec: PodSpec, market: Market) -> OpenPod:
    """Return the trainer of a pod."""
    keep_freed_memory()
    scaler = observation_tables(market, spec.env).fit(spec.windows.train)
    observations = observe(market, scaler, spec.env)
    tables = price_tables(market, spec.env, spec.env.episode.cost_scales)
    window, num_agents = spec.windows.train, len(spec.agents)
    rollouts = MarketRollouts(observations, tables, spec.env, spec.settings, window, num_agents)
    return OpenPod(Trainer(spec, rollouts), observations, scaler)


def _train(trainer: Trainer, started: float, progress: Progress | None) -> None:
    """Train until there are steps enough, or nobody left."""
    spec, settings = trainer.spec, trainer.settings
    while trainer.steps < settings.steps and len(trainer.failures) < len(spec.agents):
        mean_reward_P = trainer.iterate()
        trainer.cpu_seconds = time.process_time() - started
        if trainer.iterations % settings.checkpoint_every == 0:
            checkpoint.save(spec.folder / "state", *trainer.state())
        if progress is not None:
            progress(trainer.steps, float(mean_reward_P.mean()))


def _finished(spec: PodSpec) -> PodResult | None:
    """Return the stored result of the same spec; clear the folder of any other."""
    try:
        key, result = load_result(spec.folder)
        if key == spec.key:
            # Children and models are made of these files, long after this pod was trained.
            for agent in result.agents:
                checkpoint.load(agent.checkpoint)
            return result
    except CheckpointError as error:
        if (spec.folder / "result.json").exists():
            logger.warning("pod=%s is trained anew: %s", spec.name, error)
        return None
    shutil.rmtree(spec.folder)
    spec.folder.mkdir()
    return None


def _resume(trainer: Trainer) -> None:
    try:
        tensors, facts = checkpoint.load(trainer.spec.folder / "state")
        trainer.restore(tensors, facts)
    except CheckpointError as error:
        if (trainer.spec.folder / "state.json").exists():
            logger.warning("pod=%s starts anew: %s", trainer.spec.name, error)


def _agent_result(
    spec: PodSpec,
    trainer: Trainer,
    p: int,
    scaler: Scaler,
    feature_spec: dict[str, object],
    on_train: Rollout,
    on_selection: Rollout,
) -> AgentResult:
    """Write the agent's checkpoint and return what it achieved."""
    agent = spec.agents[p]
    failure = trainer.failures.get(p)
    weights_hash = checkpoint.weights_hash(trainer.population.weights.flat_PW[p])
    stem = spec.folder / agent.name
    tensors = trainer.population.tensors()
    checkpoint.save(
        stem,
        {
            "weights": tensors["weights"][p],
            "mean": tensors["mean"][p],
            "square": tensors["square"][p],
            "steps": tensors["steps"][p],
            "scaler_mean": torch.from_numpy(scaler.mean_F),
            "scaler_std": torch.from_numpy(scaler.std_F),
        },
        trainer.kind
        | {
            "name": agent.name,
            "hyperparameters": agent.hyperparameters.model_dump(),
            "env": spec.env.model_dump(),
            "features": feature_spec,
            "market_hash": spec.market_hash,
            "weights_hash": weights_hash,
            "seed": spec.seed,
            "parent": agent.parent,
            "environment_steps": trainer.steps,
            "failure": failure,
        },
    )
    healthy = failure is None
    return AgentResult(
        name=agent.name,
        parent=agent.parent,
        hyperparameters=agent.hyperparameters.model_dump(),
        checkpoint=stem,
        weights_hash=weights_hash,
        failure=failure,
        train_returns_R=on_train.returns_RE[:, p].copy() if healthy else None,
        selection_returns_R=on_selection.returns_RE[:, p].copy() if healthy else None,
        has_traded=bool(on_selection.has_traded_E[p]) and healthy,
    )
