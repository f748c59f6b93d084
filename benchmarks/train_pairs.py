"""Training: our pod against a plain autograd PPO of the same population.

The peer trains one agent after the other on the same rollouts: per-sample log densities through
torch.distributions, torch's Adam, no shared sessions. Same samples, epochs, minibatches and network.
Both update on a batch that our environment has made; the rollout is timed on our side as well.
"""

import tempfile
from pathlib import Path

import torch

from benchmarks.pairs import Ratio, arguments, run
from podracer.agents import ppo
from podracer.agents.networks import Inputs, Parameters, action_means
from podracer.agents.settings import Hyperparameters
from podracer.envs.observation import observe
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.market.scaling import fit_scaler
from podracer.market.synthetic import PlantedSettings, planted_market
from podracer.market.windows import Window, Windows
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PodSpec
from podracer.pods.trainer import Trainer

P = 8
WINDOWS = Windows(
    Window("train", 0, 1500), Window("selection", 1500, 1700), Window("lockbox", 1700, 1900)
)


def trainer() -> Trainer:
    """A pod of eight agents with linear heads on a planted market."""
    market = planted_market(PlantedSettings(num_sessions=2000, num_assets=20))
    spec = PodSpec(
        name="g1-p1", generation=1, seed=1, settings=PodSettings(agents=P), env=EnvSettings(),
        agents=tuple(AgentSpec(name=f"a{i}", hyperparameters=Hyperparameters()) for i in range(P)),
        windows=WINDOWS, market_hash=market.hash, market_folder=Path(), folder=Path(tempfile.mkdtemp()),
    )  # fmt: skip
    scaler = fit_scaler(market.market_features_DF, WINDOWS.train)
    return Trainer(spec, observe(market, scaler, spec.env), price_tables(market, spec.env))


class PlainPpo:
    """One agent as it is usually written: every sample carries its own features."""

    def __init__(self, ours: Trainer, p: int) -> None:
        self.ours, self.p = ours, p
        self.weights = torch.nn.Parameter(ours.weights_PW[p : p + 1].clone())
        self.optimizer = torch.optim.Adam([self.weights], lr=5e-3, eps=1e-5)

    def iterate(self) -> None:
        """Roll out with our environment, then update with plain autograd."""
        with torch.no_grad():
            batch, _ = self.ours._rollout()
        p, settings = self.p, self.ours.settings
        noise = batch.noise_PCTEN[p]
        std = batch.log_std_P[p].exp()
        action = batch.mean_PCTEN[p] + std * noise
        old = torch.distributions.Normal(batch.mean_PCTEN[p], std).log_prob(action).sum(-1)
        # Features of every sample, one row each: (C, T, E) sessions flattened.
        sessions = batch.session_CT[:, :, None].expand(*noise.shape[:3])
        for _ in range(settings.ppo.epochs):
            for rows in torch.randperm(noise.shape[0]).split(
                -(-noise.shape[0] // settings.ppo.minibatches)
            ):
                seen = self.ours._observations.asset_DAK[sessions[rows].flatten()]
                parameters = Parameters(self.weights, self.ours.shapes)
                mean = action_means(parameters, Inputs(seen, seen[:, 0], None))[0, :, 0]
                new_std = parameters["log_std"].exp()
                taken = action[rows].reshape(mean.shape)
                density = (
                    torch.distributions.Normal(mean, new_std.squeeze()).log_prob(taken).sum(-1)
                )
                ratio = (density - old[rows].flatten()).exp()
                advantage = batch.advantage_PCTE[p][rows].flatten()
                loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_([self.weights], ppo.MAX_GRADIENT_NORM)
                self.optimizer.step()


def main() -> None:
    """Time one iteration of the pod against one iteration of each of its agents alone."""
    options = arguments()
    torch.set_num_threads(1)
    pod = trainer()
    steps = pod.settings.cohorts * pod.settings.horizon_bars * pod.settings.envs_per_cohort
    alone = [PlainPpo(pod, p) for p in range(P)]

    def plain() -> None:
        # One rollout of the whole population, as the pod makes, then P plain updates.
        rolled = pod._rollout()
        pod_rollout = pod._rollout
        pod._rollout = lambda: rolled  # type: ignore[method-assign]
        for agent in alone:
            agent.iterate()
        pod._rollout = pod_rollout  # type: ignore[method-assign]

    run(
        {"pod": (pod.iterate, steps * P), "plain autograd PPO": (plain, steps * P)},
        [Ratio("pod", "plain autograd PPO", 2.6, 3.0)],
        repeats=5 if options.quick else 15,
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
