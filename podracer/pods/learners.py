"""From a rollout to updates: what on-policy and off-policy algorithms do with it.

Shapes: P agents, C cohorts, T decisions, U = T + 1, E environments of a cohort, S account inputs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from podracer.agents import a2c, ddpg, dqn, ppo, sac, td3
from podracer.agents.advantages import cohort_advantages, critic_advantages, normalised
from podracer.agents.batch import Batch
from podracer.agents.critics import Sample
from podracer.agents.distributions import Distribution, Taken
from podracer.agents.exploration import Squashed
from podracer.agents.memory import remember
from podracer.agents.networks import Inputs, mlp
from podracer.agents.parameters import Parameters
from podracer.agents.population import Population
from podracer.agents.replay import Replay, Transitions
from podracer.pods.experience import Experience, Explorers, Rollouts
from podracer.pods.settings import PodSettings


class Learner(Protocol):
    """Updates a population with what it has lived through.

    Attributes:
        memory_bytes: of what is kept between rollouts.
        has_begun: whether there has been an update.
    """

    memory_bytes: int
    has_begun: bool

    def learn(self, experience: Experience, agents: Explorers) -> None:
        """Take in a rollout and update."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what a resumed training needs beside the population."""
        ...

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from a state."""
        ...


class OnPolicyLearner:
    """PPO and A2C: advantages of the rollout, then updates with it; nothing is kept."""

    memory_bytes = 0
    has_begun = False

    def __init__(
        self,
        population: Population,
        rollouts: Rollouts,
        distribution: Distribution,
        settings: PodSettings,
    ) -> None:
        self._population = population
        self._rollouts = rollouts
        self._distribution = distribution
        self._settings = settings

    def learn(self, experience: Experience, agents: Explorers) -> None:
        """Take in a rollout and update."""
        batch = self._batch(experience)
        self.has_begun = True
        if self._settings.algorithm == "a2c":
            a2c.learn(self._population, self._distribution, batch, self._rollouts.inputs)
            return
        ppo.learn(
            self._population,
            self._distribution,
            self._settings.ppo,
            batch,
            self._rollouts.inputs,
            agents.pod_generator,
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Nothing is kept between rollouts."""
        return {}, {}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Nothing is kept between rollouts."""

    def _batch(self, lived: Experience) -> Batch:
        advantage_PCTE, return_PCTE = self._advantages(lived)
        if self._settings.ppo.normalise_advantages:
            advantage_PCTE = normalised(advantage_PCTE, lived.is_open_PCTE)
        else:
            advantage_PCTE = advantage_PCTE * lived.is_open_PCTE
        # What an account does after its episode has ended teaches nothing.
        waits = None if bool(lived.is_open_PCTE.all()) else lived.is_open_PCTE
        account = None if lived.account_PCUES is None else lived.account_PCUES[:, :, :-1]
        taken = self._distribution.taken(
            lived.output_PCTEO, lived.noise_PCTEx, lived.action_PCTEN, self._population.weights
        )
        batch = Batch(lived.session_CT, taken, account, advantage_PCTE, return_PCTE, waits)
        return batch if self._rollouts.has_cohorts else _as_samples(batch)

    def _advantages(self, lived: Experience) -> tuple[Tensor, Tensor | None]:
        """Return advantages and the critic's targets; an episode that has ended is worth nothing."""
        hyper = self._population.hyper
        if "critic_out" not in self._population.weights or lived.account_PCUES is None:
            return cohort_advantages(lived.reward_PCTE, hyper["discount"]), None
        last_C1 = lived.session_CT[:, -1:] + 1
        value_PCUE = self._values(torch.cat([lived.session_CT, last_C1], 1), lived.account_PCUES)
        next_PCTE = value_PCUE[:, :, 1:]
        if lived.final_PCTES is not None:
            next_PCTE = self._values(lived.session_CT, lived.final_PCTES)
        value_PCTE = value_PCUE[:, :, :-1] * lived.is_open_PCTE
        advantage_PCTE = critic_advantages(
            lived.reward_PCTE,
            value_PCTE,
            next_PCTE * lived.is_worth_PCTE,
            lived.goes_on_PCTE,
            hyper["discount"],
            hyper["gae_lambda"],
        )
        return advantage_PCTE, advantage_PCTE + value_PCTE

    def _values(self, session_CT: Tensor, account_PCTES: Tensor) -> Tensor:
        """Return the critic's values (P, C, T, E), a cohort at a time to bound the memory."""
        values = []
        for session_T, account_PTES in zip(session_CT, account_PCTES.unbind(1), strict=True):
            weights = self._population.weights
            inputs = remember(weights, self._rollouts.inputs(session_T[None], account_PTES))
            value, _ = mlp(weights, "critic", inputs)
            values.append(value.view(account_PTES.shape[:3]))
        return torch.stack(values, dim=1)


def _as_samples(batch: Batch) -> Batch:
    """Let each sample be a cohort of its own: (P, C, T, E, ·) becomes (P, C·T·E, 1, 1, ·)."""

    def alone(tensor: Tensor) -> Tensor:
        return tensor.flatten(1, 3)[:, :, None, None]

    account, target, taken = batch.account_PCTES, batch.return_PCTE, batch.taken
    return Batch(
        batch.session_CT.new_zeros(batch.advantage_PCTE[0].numel(), 1),
        Taken(
            alone(taken.done_PLEN),
            alone(taken.square_PLES),
            alone(taken.output_PLEO),
            taken.log_std_PS,
        ),
        None if account is None else alone(account),
        alone(batch.advantage_PCTE),
        None if target is None else alone(target),
    )  # episodes without a market go on in the next one: no account waits


class OffPolicyLearner:
    """DDPG, TD3, SAC and DQN: a replay, target networks, and updates for each step."""

    def __init__(
        self,
        population: Population,
        rollouts: Rollouts,
        settings: PodSettings,
        path: Path | None = None,
    ) -> None:
        """Start with an empty replay.

        Args:
            population: learns.
            rollouts: where experience comes from.
            settings: of the pod.
            path: file of the replay; in memory if None.
        """
        self._population = population
        self._rollouts = rollouts
        self._algorithm = settings.algorithm
        self._settings = settings.replay
        flat_PW = population.weights.flat_PW
        self._target = Parameters(flat_PW.clone(), population.weights.layout)
        sizes = rollouts.sizes
        shape = (
            len(population),
            settings.envs_per_cohort if rollouts.has_cohorts else 1,
            sizes.num_account_inputs if population.weights.reads_account else 0,
            sizes.num_actions,
        )
        spare_steps = rollouts.steps * settings.checkpoint_every
        self._replay = Replay(settings.replay, shape, spare_steps, path)
        self.memory_bytes = self._replay.memory_bytes
        self.has_begun = False
        self._num_updates = 0
        self._num_steps = 0
        self._num_seen = 0

    def learn(self, experience: Experience, agents: Explorers) -> None:
        """Remember a rollout; once there is enough to draw from, update."""
        self._replay.add(_transitions(experience, self._rollouts.has_cohorts))
        self._num_seen += self._rollouts.steps
        if self._num_seen < max(self._settings.warmup_steps, self._settings.batch_size):
            return
        self._num_steps += self._rollouts.steps
        self.has_begun = True
        while self._num_updates < int(self._num_steps * self._settings.updates_per_step):
            self._num_updates += 1
            self._update(agents)
        self._population.judge()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what a resumed training needs beside the population and the replay's file."""
        self._replay.flush()
        facts = {
            "updates": self._num_updates,
            "update_steps": self._num_steps,
            "seen": self._num_seen,
        }
        return {"target": self._target.flat_PW}, facts | {"replay": self._replay.facts()}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from a state.

        Raises:
            CheckpointError: if the replay's file is gone or not the one that the state was saved with.
        """
        self._replay.restore(facts["replay"])
        self._target.flat_PW.copy_(tensors["target"])
        self._num_updates, self._num_steps = facts["updates"], facts["update_steps"]
        self._num_seen = facts["seen"]

    def _update(self, agents: Explorers) -> None:
        drawn = self._replay.draw(self._settings.batch_size, agents.pod_generator)
        sample = self._sample(drawn)
        population, target = self._population, self._target
        shape = sample.action_PLEN.shape[1:]
        if self._algorithm == "dqn":
            dqn.learn(population, target, self._settings, sample)
        elif self._algorithm == "ddpg":
            ddpg.learn(population, target, sample)
        elif self._algorithm == "td3":
            noise = torch.randn(shape, generator=agents.pod_generator)
            moves_actor = self._num_updates % self._settings.policy_delay == 0
            td3.learn(population, target, sample, noise, moves_actor)
        elif isinstance(agents.exploration, Squashed):
            noise = torch.randn(2, *shape, generator=agents.pod_generator)
            sac.learn(population, target, agents.exploration, sample, noise[0], noise[1])

    def _sample(self, drawn: Transitions) -> Sample:
        """Return transitions as networks see them: without a market they share one row."""

        def arranged(tensor_PLEx: Tensor) -> Tensor:
            return tensor_PLEx if self._rollouts.has_cohorts else tensor_PLEx.transpose(1, 2)

        def seen(session_L: Tensor, account_PLES: Tensor) -> Inputs:
            given = self._rollouts.inputs(session_L[:, None], arranged(account_PLES))
            return remember(self._population.weights, given)

        return Sample(
            seen(drawn.session_L, drawn.account_PLES),
            arranged(drawn.action_PLEN),
            arranged(drawn.reward_PLE),
            seen(drawn.session_L + 1, drawn.next_account_PLES),
            arranged(drawn.goes_on_PLE),
            arranged(drawn.is_open_PLE),
        )


def _transitions(lived: Experience, has_cohorts: bool) -> Transitions:
    """Return the decisions of a rollout, session by session: (P, C, T, E) becomes (P, C·T, E).

    Without a market each account is a session of its own: (P, C·T·E, 1).
    """

    def each(tensor_PCTEx: Tensor) -> Tensor:
        if has_cohorts:
            return tensor_PCTEx.flatten(1, 2)
        return tensor_PCTEx.flatten(1, 3)[:, :, None]

    account = lived.account_PCUES
    if account is None:
        P, C, T, E = lived.reward_PCTE.shape
        account = lived.reward_PCTE.new_zeros(P, C, T + 1, E, 0)
    after = account[:, :, 1:] if lived.final_PCTES is None else lived.final_PCTES
    num_accounts = 1 if has_cohorts else lived.reward_PCTE.shape[3]
    return Transitions(
        lived.session_CT.flatten().repeat_interleave(num_accounts),
        each(account[:, :, :-1]),
        each(lived.action_PCTEN),
        each(lived.reward_PCTE),
        each(after),
        each(lived.is_worth_PCTE),
        each(lived.is_open_PCTE),
    )
