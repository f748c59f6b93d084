"""How soon it learns: our pod against Stable-Baselines3's PPO on a planted market, in CPU seconds.

A feature of each stock foretells its next earnable return (correlation 0.3, 10 stocks, 10 bp). The
oracle is the best rule of a family (softmax of the signal, with a gain, a speed and a band) on the
training window; both sides are judged by the Sharpe ratio of their deterministic policy on 1,250 later
sessions, over the oracle's there. Ours is the median of a pod of eight with the default network, timed
as the whole pod; SB3's is one agent with a 2x64 network, the same gain, reward, discount and rollouts, and
its own Adam and critic. A pod with the peer's network is shown beside it. Evaluation is not timed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO

from benchmarks.pairs import machine
from benchmarks.trading_peer import PeerEnv, StableBaselinesEnv
from podracer.agents.settings import Hyperparameters, NetworkSettings
from podracer.envs.agent_policies import PopulationPolicy
from podracer.envs.backends import Decision
from podracer.envs.observation import observe
from podracer.envs.policies import Policy
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.market.market import Market
from podracer.market.scaling import fit_scaler
from podracer.market.synthetic import PlantedSettings, planted_market
from podracer.market.windows import Window
from podracer.pods.market_rollouts import MarketRollouts
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PopulationSpec
from podracer.pods.trainer import Trainer

TRAIN, SELECTION = Window("train", 10, 3_010), Window("selection", 3_100, 4_350)
OBSERVATIONS = {"cash": {}, "holdings": {}, "asset_features": {}, "market_features": {}}
ENV = EnvSettings(
    initial_cash=100_000,
    rewards={"excess": {}},
    observations=OBSERVATIONS,
    action={"gain": 3.0, "speed": 1.0},
)
GOALS, AGENTS = (0.8, 0.9), 8
PEER, GOAL, FLOOR = "SB3 PPO, 2x64", 3.0, 3.0


class Rule:
    """Softmax of the signal."""

    num_policies = 1

    def __init__(self, signal_DA: np.ndarray, gain: float, speed: float, band: float) -> None:
        odds_DA = np.exp(gain * signal_DA)
        self._target_DA = (odds_DA / odds_DA.sum(1, keepdims=True)).astype(np.float32)
        self._speed, self._band = np.array([speed]), np.array([band])

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Ask for the session's target."""
        return Decision(self._target_DA[session][:, None], self._speed, self._band)


class PeerPolicy:
    """A policy of SB3's as the evaluator wants it."""

    num_policies = 1

    def __init__(self, model: PPO, env: PeerEnv) -> None:
        self._model, self._env = model, env

    def decide(self, session: int, weights_AE: np.ndarray) -> Decision:
        """Ask the model."""
        row = self._env.row(weights_AE, self._env.market_row(session))
        action, _ = self._model.predict(row, deterministic=True)
        return self._env.decision(action)


def sharpe(policy: Policy, market: Market, window: Window) -> np.ndarray:
    """Return the annual Sharpe ratio of each policy."""
    returns_RE = rollout(policy, market, window, ENV).returns_RE
    return returns_RE.mean(0) / returns_RE.std(0, ddof=1) * np.sqrt(252)


def oracle(market: Market) -> float:
    """Return the Sharpe ratio on the selection window of the rule that is best in training."""
    signal_DA = np.asarray(market.asset_features_DAK)[:, :, 0]
    family = [
        Rule(signal_DA, gain, speed, band)
        for gain in (0.5, 1, 2, 3, 4, 6)
        for speed in (0.25, 0.5, 1.0)
        for band in (0.0, 0.02)
    ]
    best = max(family, key=lambda rule: float(sharpe(rule, market, Window("s", 10, 1_010))[0]))
    return float(sharpe(best, market, SELECTION)[0])


def pod(
    market: Market, seed: int, network: NetworkSettings | None = None, rate: float = 5e-3
) -> tuple[Callable[[], object], Callable[[], float]]:
    """Our side: a call that trains, and one that judges."""
    settings = PodSettings(agents=AGENTS, network=network or NetworkSettings())
    given = Hyperparameters(learning_rate=rate, gain=3.0, speed=1.0, initial_std=1.0, discount=0.5)
    observations = observe(market, fit_scaler(market.market_features_DF, TRAIN), ENV)
    spec = PopulationSpec(
        name="planted",
        seed=seed,
        agents=tuple(AgentSpec(name=f"a{i}", hyperparameters=given) for i in range(AGENTS)),
        settings=settings,
        folder=Path(tempfile.mkdtemp()),
    )
    rollouts = MarketRollouts(observations, price_tables(market, ENV), ENV, settings, TRAIN, AGENTS)
    trainer = Trainer(spec, rollouts)

    def judge() -> float:
        policy = PopulationPolicy(trainer.acting, observations)
        return float(np.median(sharpe(policy, market, SELECTION)))

    return trainer.iterate, judge


def wide_pod(market: Market, seed: int) -> tuple[Callable[[], object], Callable[[], float]]:
    """Our side with the peer's network: no head, MLP and critic of 2x64."""
    return pod(market, seed, NetworkSettings(head=False, mlp_hidden=64, critic_hidden=64), 1e-3)


def peer(market: Market, seed: int) -> tuple[Callable[[], object], Callable[[], float]]:
    """SB3's side."""
    env = PeerEnv(market, 16, 8, 32, ENV, TRAIN)
    model = PPO(
        "MlpPolicy", StableBaselinesEnv(env), n_steps=32, batch_size=1_024, n_epochs=4, seed=seed,
        gamma=0.5, learning_rate=1e-3, device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
    )  # fmt: skip
    return (
        lambda: model.learn(16 * 8 * 32, reset_num_timesteps=False),
        lambda: float(sharpe(PeerPolicy(model, env), market, SELECTION)[0]),
    )


def times(
    train: Callable[[], object], judge: Callable[[], float], best: float, limit: float, every: float
) -> tuple[dict[float, float], float]:
    """Return CPU seconds to each goal, and the largest fraction of the oracle within the limit."""
    spent, next_look, reached, most = 0.0, 0.0, {}, 0.0
    while spent < limit and len(reached) < len(GOALS):
        started = time.process_time()
        train()
        spent += time.process_time() - started
        if spent >= next_look:
            next_look = spent + every
            fraction = judge() / best
            most = max(most, fraction)
            reached |= {g: spent for g in GOALS if g not in reached and fraction >= g}
    return reached, most


def ratio(reached: dict[str, dict[float, float]], limit: float) -> float:
    """Return the peer's time to the last goal over ours; at least that where the peer never came."""
    ours, theirs = (reached[name].get(GOALS[-1]) for name in ("pod of 8, default head", PEER))
    return 0.0 if ours is None else (theirs or limit) / ours


def main() -> None:
    """Train both sides on three markets."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds of the peer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    print("| seed | oracle's Sharpe | side | 80 % after | 90 % after | best fraction |")
    print("|---|---|---|---|---|---|")
    ratios: list[float] = []
    for seed in range(options.seeds):
        market = planted_market(PlantedSettings(seed=seed))
        best = oracle(market)
        pod(market, seed)[0]()  # compile
        reached: dict[str, dict[float, float]] = {}
        for name, side, limit, every in (
            ("pod of 8, default head", pod, 30.0, 0.1),
            ("pod of 8, 2x64", wide_pod, options.limit, 1.0),
            (PEER, peer, options.limit, 1.0),
        ):  # fmt: skip
            reached[name], most = times(*side(market, seed), best, limit, every)
            shown = [
                f"{reached[name][g]:.1f} s" if g in reached[name] else f"> {limit:.0f} s"
                for g in GOALS
            ]
            print(
                f"| {seed} | {best:.2f} | {name} | {shown[0]} | {shown[1]} | {most:.2f} |",
                flush=True,
            )
        ratios.append(ratio(reached, options.limit))
    shown_ratios = ", ".join(f"{r:.3g}" for r in ratios)
    median = float(np.median(ratios))
    print(
        f"{PEER} / pod of 8, time to {GOALS[-1]:.0%} of the oracle: {median:.3g}x ({shown_ratios}), "
        f"floor {FLOOR:g}, goal {GOAL:g}"
    )
    if median < FLOOR:
        sys.exit(1)


if __name__ == "__main__":
    main()
