"""Does it learn? Our populations against Stable-Baselines3 at equal environment steps and settings.

`python -m benchmarks.learn_pairs` trains what is missing on our side (all seeds of a task in one
population), `--peer` what is missing of SB3's (one task and seed at a time); each result is appended
to benchmarks/results/learn_pairs.jsonl as it comes, with a hash of its settings. `--table` prints the
table; it ends with 1 where our interquartile mean is inferior by more than 5 % of the score range, or a
gate has not been run with all its seeds.

Both are judged alike: the deterministic policy after the last step, over 50 episodes.
"""

import argparse
import hashlib
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
from gymnasium.wrappers import RescaleAction
from scipy.stats import bootstrap, trim_mean

from benchmarks.learn_tasks import ACROBOT, CARTPOLE, TASKS, Task
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
UNIT_ACTIONS: dict[str, Any] = {
    "wrapper_class": RescaleAction,
    "wrapper_kwargs": {"min_action": np.float32(-1.0), "max_action": np.float32(1.0)},
}


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
    # Actions in [-1, 1] on both sides, so that a deviation means the same.
    unit = {} if task.algorithm in ("dqn",) or task.env in (CARTPOLE, ACROBOT) else UNIT_ACTIONS
    env = make_vec_env(task.env, n_envs=task.envs, seed=seed, **unit)
    kind = getattr(stable_baselines3, KINDS[task.algorithm])
    model = kind("MlpPolicy", env, seed=seed, device="cpu", **peer_settings(task))
    model.learn(task.steps)
    seconds = time.process_time() - started

    def act(seen_EO: np.ndarray) -> np.ndarray:
        action, _ = model.predict(seen_EO, deterministic=True)
        return action

    score = judged(task.env, act)
    env.close()
    return result(task, "SB3", seed, score, seconds)


def peer_settings(task: Task) -> dict[str, Any]:
    """Our words in SB3's."""
    given, shared = task.hyper, task.shared
    activation = torch.nn.Tanh if task.activation == "tanh" else torch.nn.ReLU
    policy = {"activation_fn": activation, "net_arch": [task.width, task.width]}
    policy["optimizer_kwargs"] = {"eps": 1e-5}
    settings: dict[str, Any] = {"gamma": given["discount"], "policy_kwargs": policy}
    if task.algorithm in ON_POLICY:
        policy["net_arch"] = {"pi": [task.width] * 2, "vf": [task.width] * 2}
        policy["log_std_init"] = float(np.log(given.get("initial_std", 0.5)))
        settings |= {"n_steps": task.horizon, "gae_lambda": given["gae_lambda"]}
        settings |= {"learning_rate": given["learning_rate"]}
        if task.algorithm == "a2c":
            # Adam as on our side, instead of RMSprop.
            policy["optimizer_class"] = torch.optim.Adam
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
        moves = shared["updates_per_step"]
        settings["tau"] = 1.0 - (1.0 - given["target_rate"]) ** moves
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
        "settings": settings_hash(task, side),
    }  # fmt: skip


def settings_hash(task: Task, side: str) -> str:
    """Return what tells results of other settings apart."""
    told = [*task, {} if side == "ours" else repr(peer_settings(task))]
    return hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()[:12]


def stored(task: Task, side: str) -> dict[int, dict[str, Any]]:
    """Return the results of the present settings so far, by seed."""
    if not RESULTS.exists():
        return {}
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    wanted = task.name, side, settings_hash(task, side)
    return {r["seed"]: r for r in lines if (r["task"], r["side"], r.get("settings")) == wanted}


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
        num_seeds = seeds_of(task)
        missing = sorted(set(range(num_seeds)) - set(stored(task, "SB3" if is_peer else "ours")))
        if is_peer:
            for seed in missing:
                append(peer(task, seed))
        elif missing:
            for line in ours(task, num_seeds):
                if line["seed"] in missing:
                    append(line)


def seeds_of(task: Task) -> int:
    """Return how many seeds a task is trained with."""
    return GATE_SEEDS if task.is_gate else SHOWN_SEEDS


def difference(scores: dict[str, list[float]]) -> tuple[float, float]:
    """Return the 90 % bootstrap interval of the difference of the interquartile means."""
    ours_X, theirs_X = np.array(scores["ours"]), np.array(scores["SB3"])
    if np.ptp(ours_X) == 0 and np.ptp(theirs_X) == 0:
        return float(ours_X[0] - theirs_X[0]), float(ours_X[0] - theirs_X[0])
    found = bootstrap(
        (ours_X, theirs_X),
        lambda a, b, axis: trim_mean(a, 0.25, axis=axis) - trim_mean(b, 0.25, axis=axis),
        confidence_level=0.9,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def table(chosen: str) -> bool:
    """Print the results; returns whether all gates have been run and none is inferior."""
    is_fine, shown = True, []
    print(
        "| task | steps | ours: IQM (each) | SB3: IQM (each) | difference, 90 % | margin | | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for task in TASKS:
        if chosen not in task.name:
            continue
        sides = {side: list(stored(task, side).values()) for side in ("ours", "SB3")}
        counts = [len(lines) for lines in sides.values()]
        shown += [*sides["ours"], *sides["SB3"]]
        if min(counts) < seeds_of(task):
            print(
                f"| {task.name} | {task.steps:,} | {counts[0]} seeds | {counts[1]} seeds | | | not run | |"
            )
            is_fine &= not task.is_gate
            continue
        scores = {side: [r["score"] for r in lines] for side, lines in sides.items()}
        # Of three seeds the interquartile mean is the median.
        share = 0.25 if task.is_gate else 0.34
        means = {side: float(trim_mean(values, share)) for side, values in scores.items()}
        low, high = difference(scores)
        margin = MARGIN * (task.highest - task.lowest)
        is_inferior = means["ours"] < means["SB3"] - margin
        is_fine &= not (is_inferior and task.is_gate)
        seconds = [np.mean([r["cpu_seconds"] for r in lines]) for lines in sides.values()]
        each = [f"{means[s]:.0f} ({', '.join(f'{v:.0f}' for v in scores[s])})" for s in sides]
        verdict = ("inferior" if is_inferior else "not inferior") if task.is_gate else "shown"
        print(
            f"| {task.name} | {task.steps:,} | {each[0]} | {each[1]} | {low:.0f} … {high:.0f} | "
            f"{margin:.0f} | {verdict} | {seconds[0]:.0f}, {seconds[1]:.0f} |"
        )
    dates, commits = (sorted({r[key] for r in shown}) for key in ("date", "commit"))
    print(f"\nTrained on {', '.join(dates)} at the commits {', '.join(commits)}.")
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
    if not table(options.only):
        sys.exit(1)


if __name__ == "__main__":
    main()
