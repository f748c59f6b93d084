"""The training of a population: rollouts on cohorts of sessions, then updates.

Shapes: P agents, C cohorts, T decisions, E environments of a cohort, A assets, N actions,
W weights of one agent, S account inputs.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from podracer.agents import checkpoint, ppo
from podracer.agents.adam import Adam
from podracer.agents.networks import (
    Parameters,
    action_means,
    initial_weights,
    parameter_shapes,
    reads_account,
    values,
)
from podracer.envs.agent_policies import ActingAgents
from podracer.envs.backends import Decision
from podracer.envs.equal_weight import fill_growth
from podracer.envs.observation import Observations, decision, target_weights, wanted
from podracer.envs.tables import PriceTables
from podracer.envs.trading import TradingEnv
from podracer.errors import CheckpointError
from podracer.pods.earnings import Earnings
from podracer.pods.spec import PodSpec

# Rewards of a session are about 1e-2; the critic learns best on targets of order one.
REWARD_SCALE = 100.0
EQUAL, SPREAD, OWN = range(3)


class Trainer:
    """P agents that learn together; `iterate` is one rollout and its updates.

    Each agent draws its noise from its own generator, so its weights do not depend on its
    neighbours. Sessions, initial portfolios and minibatches come from the pod's generator.
    """

    def __init__(self, spec: PodSpec, observations: Observations, tables: PriceTables) -> None:
        self.spec = spec
        self.settings = spec.settings
        self.steps = 0
        self.iterations = 0
        self.cpu_seconds = 0.0
        self.failures: dict[int, str] = {}
        self._observations = observations
        self._tables = tables
        self.shapes = parameter_shapes(spec.settings.network, observations.sizes)
        hyper = [a.hyperparameters for a in spec.agents]
        self._hyper = {
            name: torch.tensor([getattr(h, name) for h in hyper])
            for name in type(hyper[0]).model_fields
        }
        names = [(spec.seed, agent.name) for agent in spec.agents]
        self._noise_generators = [checkpoint.generator(*n, "noise") for n in names]
        self._pod_generator = checkpoint.generator(spec.seed, spec.name, "cohorts")
        self.weights_PW = torch.stack(
            [
                initial_weights(self.shapes, checkpoint.generator(*n, "weights"), h.initial_std)
                for n, h in zip(names, hyper, strict=True)
            ]
        )
        self.optimizer = Adam(*self.weights_PW.shape)
        self.active_P = torch.ones(len(names), dtype=torch.bool)
        self._env = TradingEnv(
            tables,
            spec.env,
            spec.windows.train.stop,
            spec.settings.cohorts,
            len(names) * spec.settings.envs_per_cohort,
        )
        self._growth_D = fill_growth(tables)
        self._reads_account = reads_account(tuple(self.shapes))
        for p, agent in enumerate(spec.agents):
            if agent.parent_checkpoint is not None:
                self._inherit(p)

    @property
    def parameters(self) -> Parameters:
        """The weights by name."""
        return Parameters(self.weights_PW, self.shapes)

    @property
    def acting(self) -> ActingAgents:
        """The agents as the evaluator wants them."""
        return ActingAgents(self.weights_PW, self.shapes, self._hyper["gain"], self._hyper["speed"])

    def iterate(self) -> Tensor:
        """Roll out, then update; returns each agent's mean reward of a session (P,)."""
        with torch.no_grad():
            batch, mean_reward_P = self._rollout()
        tuning = ppo.Tuning(
            self._hyper["learning_rate"], self._hyper["clip"], self._hyper["entropy_bonus"]
        )
        num_cohorts = self.settings.cohorts
        size = -(-num_cohorts // self.settings.ppo.minibatches)
        for _ in range(self.settings.ppo.epochs):
            order = torch.randperm(num_cohorts, generator=self._pod_generator)
            for cohorts in torch.split(order, size):
                part = ppo.minibatch(batch, cohorts)
                account = part.account_PCTES
                inputs = self._observations.inputs(
                    part.session_CT.flatten(), None if account is None else account.flatten(1, 2)
                )
                healthy_P = ppo.update(
                    self.weights_PW,
                    self.shapes,
                    self.optimizer,
                    inputs,
                    part,
                    tuning,
                    self.active_P,
                )
                self._note_failures(healthy_P)
        self.iterations += 1
        self.steps += num_cohorts * self.settings.horizon_bars * self.settings.envs_per_cohort
        return mean_reward_P

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that a resumed training needs to go on with the same bits."""
        tensors = {
            "weights": self.weights_PW,
            "mean": self.optimizer.mean_PW,
            "square": self.optimizer.square_PW,
            "steps": self.optimizer.steps_P1,
            "active": self.active_P,
            "pod_rng": self._pod_generator.get_state(),
        }
        for p, noise in enumerate(self._noise_generators):
            tensors[f"noise_rng_{p}"] = noise.get_state()
        facts = {
            "key": self.spec.key,
            "steps": self.steps,
            "iterations": self.iterations,
            "cpu_seconds": self.cpu_seconds,
            "failures": {str(p): text for p, text in self.failures.items()},
        }
        return tensors, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Continue from a state of the same spec.

        Raises:
            CheckpointError: if the state belongs to another spec.
        """
        if facts["key"] != self.spec.key:
            raise CheckpointError(
                f"pod {self.spec.name}: the checkpoint belongs to another specification. "
                f"Delete {self.spec.folder}."
            )
        self.weights_PW = tensors["weights"]
        self.optimizer.mean_PW = tensors["mean"]
        self.optimizer.square_PW = tensors["square"]
        self.optimizer.steps_P1 = tensors["steps"]
        self.active_P = tensors["active"]
        self._pod_generator.set_state(tensors["pod_rng"])
        for p, noise in enumerate(self._noise_generators):
            noise.set_state(tensors[f"noise_rng_{p}"])
        self.steps, self.iterations = facts["steps"], facts["iterations"]
        self.cpu_seconds = facts["cpu_seconds"]
        self.failures = {int(p): text for p, text in facts["failures"].items()}

    def _inherit(self, p: int) -> None:
        """Take over a parent's weights and moments; keep the child's own exploration seed."""
        agent = self.spec.agents[p]
        tensors, facts = checkpoint.load(agent.parent_checkpoint)  # type: ignore[arg-type]
        if (
            facts["weights_hash"] != agent.parent_hash
            or facts["market_hash"] != self.spec.market_hash
        ):
            raise CheckpointError(
                f"{agent.name}: the checkpoint of its parent {agent.parent} was trained on another "
                f"market or has changed. Start the tournament again without it."
            )
        self.weights_PW[p] = tensors["weights"]
        self.optimizer.mean_PW[p] = tensors["mean"]
        self.optimizer.square_PW[p] = tensors["square"]
        self.optimizer.steps_P1[p] = tensors["steps"]

    def _note_failures(self, healthy_P: Tensor) -> None:
        for p in torch.nonzero(self.active_P & ~healthy_P).flatten().tolist():
            self.failures[p] = f"non-finite loss at environment step {self.steps}"
            # Zero weights are a finite, harmless policy for what is left of the batched program.
            self.weights_PW[p] = 0.0
        self.active_P = healthy_P

    def _rollout(self) -> tuple[ppo.Batch, Tensor]:
        C, T, E = self.settings.cohorts, self.settings.horizon_bars, self.settings.envs_per_cohort
        P, N = len(self.weights_PW), self._observations.sizes.num_actions
        train = self.spec.windows.train
        start_C = torch.randint(
            train.start, train.stop - T - 1, (C,), generator=self._pod_generator
        )
        session_CT = start_C[:, None] + torch.arange(T)
        noise_PCTEN = self._noise(C, T, E, N)
        std_P = self.parameters["log_std"].exp()
        self._env.reset(start_C.numpy(), self._initial_holdings(start_C), self._scenarios())

        num_inputs = self._observations.sizes.num_account_inputs
        account_PCTES = torch.zeros(P, C, T + 1, E, num_inputs)
        means, values_at = [], []
        growth_TE = np.repeat(self._growth_D[session_CT.numpy().T], P * E, axis=1)
        earnings = Earnings(self._env, self.spec.env, growth_TE)
        if not self._reads_account:
            inputs = self._observations.inputs(session_CT.flatten(), None)
            means = [action_means(self.parameters, inputs).reshape(P, C, T, 1, N)]
            actions_PCTEN = means[0] + std_P.view(P, 1, 1, 1, 1) * noise_PCTEN
            wanted_TAE = self._wanted(actions_PCTEN, session_CT)
        for t in range(T):
            if self._reads_account:
                account_PCTES[:, :, t] = self._account()
                inputs = self._observations.inputs(session_CT[:, t], account_PCTES[:, :, t])
                means.append(action_means(self.parameters, inputs)[:, :, None])
                if "critic_out" in self.shapes:
                    values_at.append(values(self.parameters, inputs)[:, :, None])
                actions = means[-1] + std_P.view(P, 1, 1, 1, 1) * noise_PCTEN[:, :, t : t + 1]
                wanted_AE = self._wanted(actions, session_CT[:, t : t + 1])[0]
            else:
                wanted_AE = wanted_TAE[t]
            step = self._env.step(self._decision(wanted_AE))
            earnings.note(t, step.value_before_E, wanted_AE)
        earnings.finish()
        if "critic_out" in self.shapes:
            account_PCTES[:, :, T] = self._account()
            inputs = self._observations.inputs(session_CT[:, -1] + 1, account_PCTES[:, :, T])
            values_at.append(values(self.parameters, inputs)[:, :, None])
        reward_PCTE = REWARD_SCALE * self._by_agent(earnings.reward_TE)
        is_open_PCTE = self._by_agent(earnings.is_open_TE)
        advantage_PCTE, return_PCTE = self._advantages(reward_PCTE, is_open_PCTE, values_at)
        batch = ppo.Batch(
            session_CT,
            noise_PCTEN,
            torch.cat(means, dim=2),
            self.parameters["log_std"][:, 0].clone(),
            account_PCTES[:, :, :T] if self._reads_account else None,
            ppo.normalised(advantage_PCTE),
            return_PCTE,
        )
        return batch, reward_PCTE.flatten(1).mean(1)

    def _scenarios(self) -> np.ndarray:
        """Draw each cohort's cost scenario; nothing is drawn where there is only one."""
        num_scenarios, C = len(self.spec.env.episode.cost_scales), self.settings.cohorts
        if num_scenarios == 1:
            return np.zeros(C, dtype=np.int64)
        return torch.randint(0, num_scenarios, (C,), generator=self._pod_generator).numpy()

    def _noise(self, C: int, T: int, E: int, N: int) -> Tensor:
        """Antithetic noise: the second half of a cohort's environments mirrors the first."""
        half = [torch.randn(C, T, E // 2, N, generator=g) for g in self._noise_generators]
        half_PCTEN = torch.stack(half)
        return torch.cat([half_PCTEN, -half_PCTEN], dim=3)

    def _initial_holdings(self, start_C: Tensor) -> np.ndarray:
        """Holdings that a cohort's accounts start from (A, C·P·E): the same for all of an agent's.

        Equal weights, a random spread, or where the agent would like to be (mode weights), so that it
        learns from portfolios that it meets.
        """
        P, C, E = len(self.weights_PW), self.settings.cohorts, self.settings.envs_per_cohort
        A = self._tables.num_assets
        kind_C = torch.randint(0, 3, (C,), generator=self._pod_generator)
        spread_CA = -torch.rand(C, A, generator=self._pod_generator).clamp(min=1e-7).log()
        visible_CA = self._observations.visible_DA[start_C]
        base_CA = torch.where((kind_C == SPREAD)[:, None], spread_CA, torch.ones(C, A)) * visible_CA
        base_CA = base_CA / base_CA.sum(1, keepdim=True).clamp(min=1e-9)
        own_PCA = base_CA.expand(P, C, A)
        if self.spec.env.action.mode == "weights":
            num_inputs = self._observations.sizes.num_account_inputs
            account = torch.zeros(P, C, 1, num_inputs) if self._reads_account else None
            scores = action_means(self.parameters, self._observations.inputs(start_C, account))
            gain = self._hyper["gain"].view(P, 1, 1)
            own_PCA = target_weights(scores[:, :, 0], gain, visible_CA)
        weights_PCA = torch.where((kind_C == OWN)[:, None], own_PCA, base_CA)
        weights_ACPE = weights_PCA.permute(2, 1, 0)[..., None].expand(A, C, P, E)
        return weights_ACPE.reshape(A, -1).double().numpy()

    def _wanted(self, actions_PCTEN: Tensor, session_CT: Tensor) -> np.ndarray:
        """Turn actions into the environment's layout (T, A, C·P·E)."""
        visible_CTA = self._observations.visible_DA[session_CT]
        gain = self._hyper["gain"].view(-1, 1, 1, 1, 1)
        action = self.spec.env.action
        wanted_PCTEA = wanted(actions_PCTEN, gain, visible_CTA[:, :, None, :], action)
        return wanted_PCTEA.permute(2, 4, 1, 0, 3).contiguous().flatten(2).numpy()

    def _decision(self, wanted_AE: np.ndarray) -> Decision:
        P, C, E = len(self.weights_PW), self.settings.cohorts, self.settings.envs_per_cohort
        speed_E = self._hyper["speed"].double()[None, :, None].expand(C, P, E).reshape(-1).numpy()
        return decision(wanted_AE, speed_E, self.spec.env)

    def _account(self) -> Tensor:
        """Return the account inputs of every environment (P, C, E, S)."""
        P, C, E = len(self.weights_PW), self.settings.cohorts, self.settings.envs_per_cohort
        inputs_ES = self._observations.account(self._env.weights_AE())
        return inputs_ES.reshape(C, P, E, -1).transpose(0, 1)

    def _by_agent(self, values_TE: np.ndarray) -> Tensor:
        """Turn the environment's layout (T, C·P·E) into (P, C, T, E), float32."""
        P, C = len(self.weights_PW), self.settings.cohorts
        values_TCPE = torch.from_numpy(values_TE.astype(np.float32)).view(len(values_TE), C, P, -1)
        return values_TCPE.permute(2, 1, 0, 3).contiguous()

    def _advantages(
        self, reward_PCTE: Tensor, is_open_PCTE: Tensor, values_at: list[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """Return advantages and the critic's targets; an episode that has ended is worth nothing."""
        discount_P = self._hyper["discount"]
        if not values_at:
            return ppo.cohort_advantages(reward_PCTE, discount_P), None
        value_PCTE = torch.cat(values_at, dim=2) * is_open_PCTE
        advantage_PCTE = ppo.critic_advantages(
            reward_PCTE, value_PCTE, discount_P, self._hyper["gae_lambda"]
        )
        return advantage_PCTE, advantage_PCTE + value_PCTE[:, :, :-1]
