"""Training: our trainer against Stable-Baselines3 and against a plain autograd PPO of our own.

One agent, the same network, rollouts of 16 cohorts of 16 accounts by 128 sessions, four epochs of
minibatches of 2,048 samples, the same environment kernel, one thread. Peers see the whole 301-wide
observation, as they are made to; ours keeps the market's part apart. Before anything is timed, our
gradients are compared with autograd's.

The factored matmul limit is what the products of our update would take at the rate that this core
multiplies such matrices, and nothing else: no tanh, no loss, no optimiser, no environment.
"""

import time

import torch
from stable_baselines3 import PPO

from benchmarks.pairs import Ratio, arguments, run
from benchmarks.trading_peer import (
    A,
    PeerEnv,
    StableBaselinesEnv,
    indicators_market,
    network,
    pod,
    precisions,
)
from podracer.market.market import Market
from podracer.pods.memory import keep_freed_memory
from podracer.pods.settings import PodSettings
from podracer.pods.trainer import Trainer

COHORTS, ENVS, HORIZON, EPOCHS = 16, 16, 128, 4
STEPS = COHORTS * ENVS * HORIZON
MINIBATCH = STEPS // COHORTS
# 0.8 of the smaller median of the machines in benchmarks/results/train_pairs.md.
FLOORS = {64: 2.2, 128: 1.8, 256: 1.5, "plain": 1.9, "limit64": 0.28, "limit128": 0.45}
GOALS = {64: 3.5, 128: 3.0, 256: 3.0, "plain": 2.2, "limit64": 0.6, "limit128": 0.75}


def ours(market: Market, width: int, precision: str = "float32") -> Trainer:
    """One agent of ours."""
    settings = PodSettings(
        cohorts=COHORTS,
        envs_per_cohort=ENVS,
        horizon_bars=HORIZON,
        network=network(width, precision=precision),
        ppo={"epochs": EPOCHS, "minibatches": COHORTS},
    )
    return pod(market, 1, settings)


def stable_baselines(market: Market, width: int) -> PPO:
    """One agent of Stable-Baselines3."""
    env = StableBaselinesEnv(PeerEnv(market, COHORTS, ENVS, HORIZON))
    layers = {"pi": [width, width], "vf": [width, width]}
    return PPO(
        "MlpPolicy", env, n_steps=HORIZON, batch_size=MINIBATCH, n_epochs=EPOCHS,
        policy_kwargs={"net_arch": layers}, device="cpu",
    )  # fmt: skip


class PlainPpo:
    """PPO as it is usually written in one file: modules, distributions, autograd, Adam."""

    def __init__(self, market: Market, width: int) -> None:
        self.env = PeerEnv(market, COHORTS, ENVS, HORIZON)

        def two_layers(outputs: int) -> torch.nn.Module:
            return torch.nn.Sequential(
                torch.nn.Linear(self.env.width, width), torch.nn.Tanh(),
                torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, outputs),
            )  # fmt: skip

        self.actor, self.critic = two_layers(A), two_layers(1)
        self.log_std = torch.nn.Parameter(torch.zeros(A))
        self.learnt = [*self.actor.parameters(), *self.critic.parameters(), self.log_std]
        self.optimizer = torch.optim.Adam(self.learnt, lr=3e-4, eps=1e-5)
        self.seen = torch.from_numpy(self.env.reset())

    def chances(self, seen: torch.Tensor) -> torch.distributions.Normal:
        """The policy."""
        return torch.distributions.Normal(self.actor(seen), self.log_std.exp())

    def iterate(self) -> None:
        """Roll out, then update."""
        seen, done, action, density, reward, value = [], [], [], [], [], []
        with torch.no_grad():
            for _ in range(HORIZON):
                chances = self.chances(self.seen)
                action.append(chances.sample())
                density.append(chances.log_prob(action[-1]).sum(-1))
                seen.append(self.seen)
                value.append(self.critic(self.seen)[:, 0])
                now, earned, over = self.env.step(action[-1].numpy())
                self.seen = torch.from_numpy(now)
                reward.append(torch.from_numpy(earned))
                done.append(float(over))
            value.append(self.critic(self.seen)[:, 0])
            running, advantage = torch.zeros(COHORTS * ENVS), []
            for t in reversed(range(HORIZON)):
                goes_on = 1.0 - done[t]
                surprise = reward[t] + 0.99 * goes_on * value[t + 1] - value[t]
                running = surprise + 0.99 * 0.95 * goes_on * running
                advantage.insert(0, running)
            target = torch.cat([a + v for a, v in zip(advantage, value[:-1], strict=True)])
        columns = [torch.cat(c) for c in (seen, action, density, advantage)] + [target]
        for _ in range(EPOCHS):
            for rows in torch.randperm(STEPS).split(MINIBATCH):
                self.update(*(column[rows] for column in columns))

    def update(
        self,
        seen: torch.Tensor,
        action: torch.Tensor,
        density: torch.Tensor,
        advantage: torch.Tensor,
        target: torch.Tensor,
    ) -> None:
        """Take one step."""
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (self.chances(seen).log_prob(action).sum(-1) - density).exp()
        wanted = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = 0.5 * (self.critic(seen)[:, 0] - target).square().mean() - wanted
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learnt, 0.5)
        self.optimizer.step()


class Products:
    """The matrix products of our update and rollout, and nothing else."""

    def __init__(self, width: int) -> None:
        H, own, shared = width, 1 + A, 9 * A
        self.sizes = []
        for outputs in (A, 1):
            forward = [
                (MINIBATCH, own, H),
                (MINIBATCH, H, H),
                (MINIBATCH, H, outputs),
                (HORIZON, shared, H),
            ]
            weights = [(k, m, n) for m, k, n in forward]
            inner = [(MINIBATCH, outputs, H), (MINIBATCH, H, H)]
            # Once for the rollout or the values, and for each epoch forward and backward.
            self.sizes += forward + EPOCHS * (forward + weights + inner)
        self.sizes = [s for s in self.sizes if 1 not in s]
        self.tensors = {
            s: (torch.randn(s[0], s[1]), torch.randn(s[1], s[2]), torch.empty(s[0], s[2]))
            for s in self.sizes
        }

    def iterate(self) -> None:
        """Multiply as much as one iteration does."""
        for _ in range(STEPS // MINIBATCH):
            for size in self.sizes:
                left, right, out = self.tensors[size]
                torch.mm(left, right, out=out)


def main() -> None:
    """Time one iteration of each."""
    options = arguments()
    torch.set_num_threads(1)
    keep_freed_memory()  # as every pod does; the peers of this process have it too
    market = indicators_market()
    widths = (64,) if options.quick else (64, 128, 256)
    cases, claims = {}, []
    for width in widths:
        peer = stable_baselines(market, width)
        cases[f"SB3 PPO 2x{width}"] = (
            lambda p=peer: p.learn(STEPS, reset_num_timesteps=False),
            STEPS,
        )
        for precision in precisions(width):
            name = f"ours 2x{width}" + (f" {precision}" if precision != "float32" else "")
            cases[name] = (ours(market, width, precision).iterate, STEPS)
            claims.append(Ratio(name, f"SB3 PPO 2x{width}", FLOORS[width], GOALS[width]))
    for width in widths[:2]:
        cases[f"products alone 2x{width}"] = (Products(width).iterate, STEPS)
        limit = f"limit{width}"
        claims.append(
            Ratio(f"ours 2x{width}", f"products alone 2x{width}", FLOORS[limit], GOALS[limit])
        )
    cases["plain autograd PPO 2x64"] = (PlainPpo(market, 64).iterate, STEPS)
    claims.append(Ratio("ours 2x64", "plain autograd PPO 2x64", FLOORS["plain"], GOALS["plain"]))
    started = time.process_time()
    run(cases, claims, repeats=3 if options.quick else 7, as_json=options.json)
    if not options.json:
        print(f"{time.process_time() - started:.0f} CPU seconds in all")


if __name__ == "__main__":
    main()
