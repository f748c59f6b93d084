"""What memories learn on a market whose drift has a hidden sign.

The exact Bayes filter is the yardstick: long while the chance of the good regime is above a half. An
agent's share w of equity in the asset is read as a position 2w - 1; its return from fill to fill over the
Bayes policy's is the score, on 210,000 sessions of 30 markets that it was not trained on. Agents see the
market alone: an account's holdings, which follow the last decision, would be a memory of another kind. One
training market of 150,000 sessions, four agents with seeds of their own, the same steps for all. A long
position whenever the last return was positive, the best that can be done without a memory, is shown too.

`python -m benchmarks.memory_study` trains and judges all; `--only stack` one of them.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from podracer.agents.memory import remember
from podracer.agents.networks import actor
from podracer.agents.settings import Hyperparameters, NetworkSettings
from podracer.envs.agent_policies import ActingAgents
from podracer.envs.observation import observe, target_weights
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.market.market import Market
from podracer.market.scaling import Scaler
from podracer.market.synthetic import (
    HiddenRegimeSettings,
    hidden_regime_market,
    regime_posterior,
)
from podracer.market.windows import Window
from podracer.pods.market_rollouts import MarketRollouts
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PopulationSpec
from podracer.pods.trainer import Trainer

AGENTS, TRAINED_ON, JUDGED_ON, NUM_JUDGED = 4, 150_000, 7_000, 30
MEMORIES, STEPS = ("none", "stack", "gru", "lstm"), 800_000
ENV = EnvSettings(
    costs={"commission_bps": 0},
    action={"cash_action": True, "no_trade_band": 0},
    rewards={"log_return": {}},
    observations={"market_features": {}},
)
UNSCALED = Scaler(np.zeros(1, np.float32), np.ones(1, np.float32))


def trained(memory: str, steps: int) -> Trainer:
    """Four agents with that memory."""
    market = hidden_regime_market(HiddenRegimeSettings(num_sessions=TRAINED_ON, seed=1))
    settings = PodSettings(
        agents=AGENTS,
        cohorts=16,
        envs_per_cohort=8,
        horizon_bars=64,
        network=NetworkSettings(head=False, mlp_hidden=32, memory=memory, memory_bars=32),
    )
    given = Hyperparameters(learning_rate=1e-3, discount=0.5, gain=3.0, speed=1.0, initial_std=0.7)
    spec = PopulationSpec(
        name=memory,
        seed=1,
        agents=tuple(AgentSpec(name=f"a{i}", hyperparameters=given) for i in range(AGENTS)),
        settings=settings,
        folder=Path(tempfile.mkdtemp()),
    )
    window = Window("train", 0, TRAINED_ON)
    seen, tables = observe(market, UNSCALED, ENV), price_tables(market, ENV)
    trainer = Trainer(spec, MarketRollouts(seen, tables, ENV, settings, window, AGENTS))
    while trainer.steps < steps:
        trainer.iterate()
    return trainer


def returns(acting: ActingAgents, market: Market, shuffled: bool) -> tuple[np.ndarray, float]:
    """Return the mean return of each agent's position and the Bayes policy's, over the volatility."""
    observations = observe(market, UNSCALED, ENV)
    account = torch.zeros(len(acting.weights), JUDGED_ON, 1, 0)
    bars = acting.weights.layout.memory_bars
    inputs = observations.inputs(torch.arange(JUDGED_ON)[:, None], account, bars)
    if shuffled and inputs.past_CQF is not None:
        # The past of another session before what is seen of this one.
        order = torch.randperm(JUDGED_ON, generator=torch.Generator().manual_seed(0))
        past_CQF = torch.cat([inputs.past_CQF[order, :-1], inputs.past_CQF[:, -1:]], dim=1)
        inputs = inputs._replace(past_CQF=past_CQF)
    with torch.no_grad():
        output, _ = actor(acting.weights, remember(acting.weights, inputs))
        gain_P11 = acting.gain_P.view(-1, 1, 1)
        share_PDA = target_weights(output[:, :, 0], gain_P11, observations.visible_DA)
    share_DP = share_PDA[..., 0].T.double().numpy()
    earned_D = np.asarray(market.market_features_DF)[2:, 0].astype(np.float64)
    seen_D = np.asarray(market.market_features_DF)[:, 0]
    is_good_D = regime_posterior(seen_D, HiddenRegimeSettings()) > 0.5
    bayes = float((np.where(is_good_D[:-2], 1.0, -1.0) * earned_D).mean())
    return ((2.0 * share_DP[:-2] - 1.0) * earned_D[:, None]).mean(0), bayes


def scores(acting: ActingAgents, *, shuffled: bool = False) -> np.ndarray:
    """Return each agent's share of the Bayes policy's return."""
    found, best = [], []
    for i in range(NUM_JUDGED):
        market = hidden_regime_market(HiddenRegimeSettings(num_sessions=JUDGED_ON, seed=100 + i))
        mine, bayes = returns(acting, market, shuffled)
        found.append(mine)
        best.append(bayes)
    return np.mean(found, axis=0) / np.mean(best)


def sign_of_the_last_return() -> float:
    """Return the share of the Bayes return that the best rule without a memory earns."""
    earned, best = [], []
    for i in range(NUM_JUDGED):
        market = hidden_regime_market(HiddenRegimeSettings(num_sessions=JUDGED_ON, seed=100 + i))
        seen_D = np.asarray(market.market_features_DF)[:, 0].astype(np.float64)
        is_good_D = regime_posterior(seen_D, HiddenRegimeSettings()) > 0.5
        earned.append((np.sign(seen_D[:-2]) * seen_D[2:]).mean())
        best.append((np.where(is_good_D[:-2], 1.0, -1.0) * seen_D[2:]).mean())
    return float(np.mean(earned) / np.mean(best))


def main() -> None:
    """Train and judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=MEMORIES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"the sign of the last return earns {sign_of_the_last_return():.3f} of the Bayes return")
    print("| memory | steps | share of the Bayes return: mean (each) | shuffled | CPU s |")
    print("|---|---|---|---|---|")
    for memory in MEMORIES:
        if options.only in (None, memory):
            started = time.process_time()
            acting = trained(memory, STEPS).acting
            seconds = time.process_time() - started
            score, apart = scores(acting), scores(acting, shuffled=True)
            each = ", ".join(f"{s:.3f}" for s in score)
            print(
                f"| {memory} | {STEPS:,} | {score.mean():.3f} ({each}) | {apart.mean():.3f} | "
                f"{seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
