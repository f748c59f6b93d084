"""Pods: a population in one program against Stable-Baselines3, and against agents one by one.

Everything is counted in environment steps of one agent: a pod of 16 makes 16 of them at a time. The
same network, epochs, minibatches, numbers of samples and updates for each environment step on both
sides, the same environment kernel, one thread. A batch of our replay is 64 sessions of four accounts,
SB3's 256 single transitions.
"""

import resource
import sys

import numpy as np
import torch
from stable_baselines3 import PPO, SAC, TD3

from benchmarks.pairs import Ratio, arguments, run
from benchmarks.trading_peer import (
    SETTINGS,
    WINDOW,
    PeerEnv,
    StableBaselinesEnv,
    indicators_market,
    network,
    pod,
    precisions,
)
from podracer.agents.parameters import Parameters
from podracer.agents.settings import Hyperparameters
from podracer.envs.agent_policies import ActingAgents, PopulationPolicy
from podracer.envs.observation import observe
from podracer.envs.rollout import rollout
from podracer.market.market import Market
from podracer.market.scaling import fit_scaler
from podracer.market.windows import Window
from podracer.pods.memory import keep_freed_memory
from podracer.pods.settings import PodSettings
from podracer.pods.trainer import Trainer

# Stable-Baselines3's own schedule: 2,048 samples, minibatches of 64, ten epochs.
PPO_COHORTS, PPO_ENVS, PPO_HORIZON, PPO_EPOCHS = 32, 2, 32, 10
PPO_STEPS = PPO_COHORTS * PPO_ENVS * PPO_HORIZON
OFF_COHORTS, OFF_ENVS, OFF_HORIZON, UPDATES_PER_STEP = 4, 4, 16, 0.25
OFF_STEPS = OFF_COHORTS * OFF_ENVS * OFF_HORIZON
PPO_AGENTS, OFF_AGENTS, JUDGED = 16, 8, 64
EVALUATION = Window("selection", 1_000, 1_250)
# 0.8 of the smaller median of the machines in benchmarks/results/pod_pairs.md.
FLOORS = {"ppo": 5.1, "sac": 2.8, "td3": 2.3, "evaluation": 20.0}
GOALS = {"ppo": 8.0, "sac": 3.0, "td3": 3.0, "evaluation": 13.0}


def ppo_pod(market: Market, num_agents: int, width: int = 64) -> Trainer:
    """A pod with Stable-Baselines3's schedule."""
    settings = PodSettings(
        agents=max(num_agents, 2),
        cohorts=PPO_COHORTS,
        envs_per_cohort=PPO_ENVS,
        horizon_bars=PPO_HORIZON,
        network=network(width),
        ppo={"epochs": PPO_EPOCHS, "minibatches": PPO_COHORTS},
    )
    return pod(market, num_agents, settings)


def off_policy_pod(
    market: Market, algorithm: str, width: int, precision: str = "float32"
) -> Trainer:
    """A pod that learns from a replay, warm."""
    settings = PodSettings(
        agents=OFF_AGENTS,
        algorithm=algorithm,
        cohorts=OFF_COHORTS,
        envs_per_cohort=OFF_ENVS,
        horizon_bars=OFF_HORIZON,
        network=network(width, is_off_policy=True, precision=precision),
        replay={
            "warmup_steps": 256, "updates_per_step": UPDATES_PER_STEP, "capacity_steps": 20_000,
        },
    )  # fmt: skip
    return pod(market, OFF_AGENTS, settings, Hyperparameters(learning_rate=3e-4, discount=0.99))


def stable_baselines_ppo(market: Market, width: int = 64) -> PPO:
    """One agent with the same schedule."""
    env = StableBaselinesEnv(PeerEnv(market, PPO_COHORTS, PPO_ENVS, PPO_HORIZON))
    return PPO(
        "MlpPolicy", env, n_steps=PPO_HORIZON, batch_size=64, n_epochs=PPO_EPOCHS,
        policy_kwargs={"net_arch": {"pi": [width, width], "vf": [width, width]}}, device="cpu",
    )  # fmt: skip


def stable_baselines_off_policy(market: Market, kind: type[SAC] | type[TD3], width: int) -> object:
    """One agent with the same updates for each step."""
    env = StableBaselinesEnv(PeerEnv(market, OFF_COHORTS, OFF_ENVS, OFF_HORIZON))
    return kind(
        "MlpPolicy", env, batch_size=256, train_freq=(OFF_HORIZON, "step"),
        gradient_steps=int(OFF_STEPS * UPDATES_PER_STEP), learning_starts=256, buffer_size=20_000,
        policy_kwargs={"net_arch": [width, width]}, device="cpu",
    )  # fmt: skip


class Evaluation:
    """Agents over a window, all at once or one after the other."""

    def __init__(self, market: Market, trained: Trainer) -> None:
        self.market, self.acting = market, trained.acting
        scaler = fit_scaler(market.market_features_DF, WINDOW)
        self.observations = observe(market, scaler, SETTINGS)

    def returns(self, acting: ActingAgents) -> np.ndarray:
        """Evaluate some of them (R, P)."""
        policy = PopulationPolicy(acting, self.observations)
        return rollout(policy, self.market, EVALUATION, SETTINGS).returns_RE

    def together(self) -> np.ndarray:
        """All at once."""
        return self.returns(self.acting)

    def one_by_one(self) -> np.ndarray:
        """One after the other."""
        weights = self.acting.weights
        each = [
            self.acting._replace(
                weights=Parameters(weights.flat_PW[p : p + 1], weights.layout),
                gain_P=self.acting.gain_P[p : p + 1],
                speed_P=self.acting.speed_P[p : p + 1],
            )
            for p in range(JUDGED)
        ]
        return np.concatenate([self.returns(acting) for acting in each], axis=1)


def memory(market: Market) -> str:
    """Say what an agent and an environment take."""
    trainer = ppo_pod(market, PPO_AGENTS)
    weights = trainer.population.weights.flat_PW.shape[1]
    lived = trainer._rollouts.collect(trainer._explorers)
    sample = sum(t.numel() * 4 for t in lived if t is not None and t.dim() > 2)
    samples = PPO_AGENTS * PPO_STEPS
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"an agent of 2x64: {weights:,} weights, {16 * weights / 1024:.0f} KiB with gradient and "
        f"moments; a sample of a rollout: {sample / samples:.0f} B (a whole observation is 1,204 B); "
        f"process at its peak: {peak:.0f} MiB"
    )


def main() -> None:
    """Time one iteration of each."""
    options = arguments()
    torch.set_num_threads(1)
    keep_freed_memory()  # as every pod does; the peers of this process have it too
    market = indicators_market()
    with torch.no_grad():
        if not options.json:
            print(memory(market))
        judged = Evaluation(market, ppo_pod(market, JUDGED))
        apart, together = judged.one_by_one(), judged.together()
    if np.abs(apart - together).max() > 1e-6:
        sys.exit("evaluations of 64 agents differ by more than 1e-6")
    peer = stable_baselines_ppo(market)
    judged_steps = JUDGED * EVALUATION.num_returns
    sixteen = f"pod of {PPO_AGENTS}, PPO"
    cases = {
        sixteen: (ppo_pod(market, PPO_AGENTS).iterate, PPO_AGENTS * PPO_STEPS),
        "pod of 1, PPO": (ppo_pod(market, 1).iterate, PPO_STEPS),
        "SB3 PPO": (lambda: peer.learn(PPO_STEPS, reset_num_timesteps=False), PPO_STEPS),
        "64 agents judged together": (judged.together, judged_steps),
        "64 agents judged one by one": (judged.one_by_one, judged_steps),
    }
    claims = [
        Ratio(sixteen, "SB3 PPO", FLOORS["ppo"], GOALS["ppo"]),
        Ratio(sixteen, "pod of 1, PPO", 0.0, 1.5),
        Ratio(
            "64 agents judged together",
            "64 agents judged one by one",
            FLOORS["evaluation"],
            GOALS["evaluation"],
        ),
    ]
    for name, kind in (("sac", SAC), ("td3", TD3)):
        for width in (64,) if options.quick else (64, 256):
            theirs = f"SB3 {name} 2x{width}"
            model = stable_baselines_off_policy(market, kind, width)
            cases[theirs] = (
                lambda m=model: m.learn(OFF_STEPS, reset_num_timesteps=False),
                OFF_STEPS,
            )
            floor = FLOORS[name] if width == 64 else 0.0
            for precision in precisions(width):
                ours = f"pod of {OFF_AGENTS}, {name} 2x{width}"
                ours += f" {precision}" if precision != "float32" else ""
                trainer = off_policy_pod(market, name, width, precision)
                cases[ours] = (trainer.iterate, OFF_AGENTS * OFF_STEPS)
                claims.append(Ratio(ours, theirs, floor, GOALS[name]))
    for _ in range(2):  # past the warm-up of the replays
        for call, _ in cases.values():
            call()
    run(cases, claims, repeats=3 if options.quick else 5, as_json=options.json)


if __name__ == "__main__":
    main()
