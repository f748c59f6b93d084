"""Does it learn? Our populations against Stable-Baselines3 at equal environment steps and settings.

`python -m benchmarks.learn_pairs` trains what is missing on our side (all seeds of a task in one
population), `--peer` what is missing of SB3's (one task and seed at a time); each result is appended
to benchmarks/results/learn_pairs.jsonl as it comes. `--table` prints the table; it ends with 1 where
our interquartile mean is inferior by more than 5 % of the score range.

Both are judged alike: the deterministic policy after the last step, over 50 episodes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import trim_mean

from benchmarks.learn_tasks import TASKS, Task
from podracer.agents.algorithms import best_actions
from podracer.agents.networks import actor, observed
from podracer.agents.parameters import Parameters
from podracer.agents.settings import ON_POLICY, Hyperparameters, NetworkSettings
from podracer.envs.reverse import GymnasiumEnvs
from podracer.pods.gymnasium_rollouts import GymnasiumRollouts
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PopulationSpec
from podracer.pods.trainer import Trainer

RESULTS = Path(__file__).parent / "results" / "learn_pairs.jsonl"
GATE_SEEDS, SHOWN_SEEDS, EPISODES, MARGIN = 5, 3, 50, 0.05
KINDS = {"ppo": "PPO", "a2c": "A2C", "dqn": "DQN", "ddpg": "DDPG", "td3": "TD3", "sac": "SAC"}
Act = Callable[[np.ndarray], np.ndarray]


def judged(env: str, act: Act) -> float:
    """Return the mean return of a policy over the first episode of each of 50 environments."""
    envs = GymnasiumEnvs(env, EPISODES)
    seen = envs.reset(1_000_000)
    total, is_open = np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
    while is_open.any():
        step = envs.step(act(seen))
        total += step.reward_E * is_open
        is_open &= ~step.done_E
        seen = step.observation_EO
    envs.close()
    return float(total.mean())


def population(task: Task, num_seeds: int) -> tuple[Trainer, GymnasiumRollouts]:
    """Our side: an agent for each seed."""
    shared = "ppo" if task.algorithm in ON_POLICY else "replay"
    settings = PodSettings(
        agents=num_seeds + num_seeds % 2,
        algorithm=task.algorithm,
        horizon_bars=max(task.horizon, 2),
        network=NetworkSettings(
            head=False,
            mlp_hidden=task.width,
            critic_hidden=task.width,
            activation=task.activation,
        ),
        checkpoint_every=1,
        **{shared: task.shared},
    )
    given = Hyperparameters(**task.hyper)
    spec = PopulationSpec(
        name=task.name,
        seed=1,
        agents=tuple(AgentSpec(name=f"seed{i}", hyperparameters=given) for i in range(num_seeds)),
        settings=settings,
        folder=Path(tempfile.mkdtemp()),
    )
    rollouts = GymnasiumRollouts(task.env, num_seeds, task.envs, task.horizon, seed=1)
    return Trainer(spec, rollouts), rollouts


def ours(task: Task, num_seeds: int) -> Iterator[dict[str, Any]]:
    """Train all seeds at once."""
    started = time.process_time()
    trainer, rollouts = population(task, num_seeds)
    while trainer.steps < task.steps:
        trainer.iterate()
    seconds = (time.process_time() - started) / num_seeds
    weights = trainer.population.weights
    for p in range(num_seeds):
        alone = Parameters(weights.flat_PW[p : p + 1], weights.layout)

        def act(seen_EO: np.ndarray, alone: Parameters = alone) -> np.ndarray:
            with torch.no_grad():
                output, _ = actor(alone, observed(torch.from_numpy(seen_EO)[None]))
                action = best_actions(task.algorithm, rollouts.sizes, output[0, 0]).numpy()
            return action[:, 0].astype(np.int64) if rollouts.sizes.num_choices else action

        yield result(task, "ours", p, judged(task.env, act), seconds)
    rollouts.close()


def peer(task: Task, seed: int) -> dict[str, Any]:
    """Train one seed of SB3."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env

    started = time.process_time()
    env = make_vec_env(task.env, n_envs=task.envs, seed=seed)
    kind = getattr(stable_baselines3, KINDS[task.algorithm])
    model = kind("MlpPolicy", env, seed=seed, device="cpu", **peer_settings(task))
    model.learn(task.steps)
    seconds = time.process_time() - started
    is_discrete = hasattr(env.action_space, "n")

    def act(seen_EO: np.ndarray) -> np.ndarray:
        action, _ = model.predict(seen_EO, deterministic=True)
        if is_discrete:
            return action
        # GymnasiumEnvs scales from [-1, 1] to the bounds of the space.
        low, high = env.action_space.low, env.action_space.high
        return 2.0 * (action - low) / (high - low) - 1.0

    score = judged(task.env, act)
    env.close()
    return result(task, "SB3", seed, score, seconds)


def peer_settings(task: Task) -> dict[str, Any]:
    """Our words in SB3's."""
    given, shared = task.hyper, task.shared
    activation = torch.nn.Tanh if task.activation == "tanh" else torch.nn.ReLU
    policy = {"activation_fn": activation, "net_arch": [task.width, task.width]}
    settings: dict[str, Any] = {"gamma": given["discount"], "policy_kwargs": policy}
    if task.algorithm in ON_POLICY:
        policy["net_arch"] = {"pi": [task.width] * 2, "vf": [task.width] * 2}
        policy["log_std_init"] = float(np.log(given.get("initial_std", 0.5)))
        settings |= {"n_steps": task.horizon, "gae_lambda": given["gae_lambda"]}
        settings |= {"learning_rate": given["learning_rate"]}
        if task.algorithm == "a2c":
            # Adam as on our side, instead of RMSprop.
            policy["optimizer_class"], policy["optimizer_kwargs"] = torch.optim.Adam, {"eps": 1e-5}
            return settings | {"use_rms_prop": False}
        batch = task.envs * task.horizon // shared["minibatches"]
        return settings | {
            "n_epochs": shared["epochs"], "batch_size": batch, "clip_range": given.get("clip", 0.2),
        }  # fmt: skip
    updates = shared.get("updates_per_step", 1.0) * task.horizon * task.envs
    settings |= {
        "learning_rate": given["learning_rate"], "buffer_size": shared["capacity_steps"],
        "learning_starts": shared["warmup_steps"], "batch_size": shared["batch_size"],
        "train_freq": task.horizon, "gradient_steps": round(updates),
        "tau": given.get("target_rate", 0.005),
    }  # fmt: skip
    if task.algorithm == "dqn":
        settings |= {
            "exploration_fraction": shared["exploration_steps"] / task.steps,
            "exploration_final_eps": given["exploration_chance"], "target_update_interval": 1,
        }  # fmt: skip
    if task.algorithm in ("ddpg", "td3"):
        from stable_baselines3.common.noise import NormalActionNoise

        std = np.full(1, given["exploration_noise"])
        settings["action_noise"] = NormalActionNoise(np.zeros(1), std)
    return settings


def result(task: Task, side: str, seed: int, score: float, seconds: float) -> dict[str, Any]:
    """Return a line of the results."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        "task": task.name, "side": side, "seed": seed, "steps": task.steps, "score": round(score, 2),
        "cpu_seconds": round(seconds, 1), "date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit,
    }  # fmt: skip


def stored() -> list[dict[str, Any]]:
    """Return all results so far."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def append(line: dict[str, Any]) -> None:
    """Keep a result."""
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(line, flush=True)


def train_missing(is_peer: bool, chosen: str) -> None:
    """Train what has no result yet."""
    for task in TASKS:
        if chosen not in task.name:
            continue
        num_seeds = GATE_SEEDS if task.is_gate else SHOWN_SEEDS
        side = "SB3" if is_peer else "ours"
        known = {r["seed"] for r in stored() if r["task"] == task.name and r["side"] == side}
        if is_peer:
            for seed in set(range(num_seeds)) - known:
                append(peer(task, seed))
        elif not known:
            for line in ours(task, num_seeds):
                append(line)


def table() -> bool:
    """Print the results; returns whether none of the gates is inferior."""
    is_fine = True
    print(
        "| task | steps | ours: IQM (each) | SB3: IQM (each) | margin | | CPU s a seed: ours, SB3 |"
    )
    print("|---|---|---|---|---|---|---|")
    for task in TASKS:
        sides = {
            side: [r for r in stored() if r["task"] == task.name and r["side"] == side]
            for side in ("ours", "SB3")
        }
        if not all(sides.values()):
            continue
        scores = {side: [r["score"] for r in lines] for side, lines in sides.items()}
        means = {side: float(trim_mean(values, 0.25)) for side, values in scores.items()}
        margin = MARGIN * (task.highest - task.lowest)
        is_inferior = means["ours"] < means["SB3"] - margin
        is_fine &= not (is_inferior and task.is_gate)
        seconds = [np.mean([r["cpu_seconds"] for r in lines]) for lines in sides.values()]
        each = [f"{means[s]:.0f} ({', '.join(f'{v:.0f}' for v in scores[s])})" for s in sides]
        verdict = ("inferior" if is_inferior else "not inferior") if task.is_gate else "shown"
        print(
            f"| {task.name} | {task.steps:,} | {each[0]} | {each[1]} | {margin:.0f} | {verdict} | "
            f"{seconds[0]:.0f}, {seconds[1]:.0f} |"
        )
    return is_fine


def main() -> None:
    """Train what is missing, or print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", action="store_true", help="Stable-Baselines3's side")
    parser.add_argument("--table", action="store_true", help="only print the results")
    parser.add_argument("--only", default="", help="tasks whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.table:
        train_missing(options.peer, options.only)
    if not table():
        sys.exit(1)


if __name__ == "__main__":
    main()
