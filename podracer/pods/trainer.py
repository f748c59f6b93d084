"""The training of a population: rollouts, then updates.

Shapes: P agents, W weights of one agent, G groups of weights.
"""

from typing import Any

import torch
from torch import Tensor

from podracer.agents import algorithms, checkpoint
from podracer.agents.parameters import Anatomy, initial_weights, layout
from podracer.agents.population import CAUSES, Population
from podracer.agents.settings import ON_POLICY, Hyperparameters
from podracer.envs.agent_policies import ActingAgents
from podracer.errors import CheckpointError
from podracer.pods.experience import Explorers, Rollouts
from podracer.pods.learners import Learner, OffPolicyLearner, OnPolicyLearner
from podracer.pods.memory import BYTES_A_WEIGHT, machine_bytes, require_memory
from podracer.pods.spec import PopulationSpec


class Trainer:
    """P agents that learn together; `iterate` is one rollout and its updates.

    Each agent draws its noise from its own generator, so its weights do not depend on its
    neighbours. Sessions, initial portfolios and minibatches come from the pod's generator.
    """

    def __init__(self, spec: PopulationSpec, rollouts: Rollouts) -> None:
        self.spec = spec
        self.settings = spec.settings
        self.steps = 0
        self.iterations = 0
        self.cpu_seconds = 0.0
        self.failures: dict[int, str] = {}
        self.rollout_bytes = 0
        self._rollouts = rollouts
        algorithm, replay = spec.settings.algorithm, spec.settings.replay
        self.anatomy: Anatomy = algorithms.anatomy(algorithm, rollouts.sizes, replay)
        self.layout = layout(spec.settings.network, rollouts.sizes, self.anatomy)
        require_memory(len(spec.agents), self.layout.num_weights, machine_bytes())
        hyper = [a.hyperparameters for a in spec.agents]
        hyper_P = {
            name: torch.tensor([getattr(h, name) for h in hyper])
            for name in Hyperparameters.model_fields
        }
        names = [(spec.seed, agent.name) for agent in spec.agents]
        weights = [
            initial_weights(self.layout, checkpoint.generator(*n, "weights"), h.initial_std)
            for n, h in zip(names, hyper, strict=True)
        ]
        self.population = Population(
            torch.stack(weights), self.layout, hyper_P, algorithms.groups(algorithm)
        )
        for p, agent in enumerate(spec.agents):
            if agent.parent_checkpoint is not None:
                self._inherit(p)
        self._explorers = Explorers(
            algorithm,
            self.population.weights,
            algorithms.exploration(algorithm, rollouts.sizes, hyper_P, replay),
            hyper_P,
            [checkpoint.generator(*n, "noise") for n in names],
            checkpoint.generator(spec.seed, spec.name, "cohorts"),
        )
        self._learner = self._new_learner()

    @property
    def acting(self) -> ActingAgents:
        """The agents as the evaluator wants them."""
        hyper = self.population.hyper
        return ActingAgents(
            self.settings.algorithm,
            self._rollouts.sizes,
            self.population.weights,
            hyper["gain"],
            hyper["speed"],
        )

    @property
    def kind(self) -> dict[str, Any]:
        """What an agent's weights mean nothing without; a child shares it with its parent."""
        return {
            "algorithm": self.settings.algorithm,
            "network": self.settings.network.model_dump(),
            "sizes": self._rollouts.sizes._asdict(),
            "anatomy": self.anatomy._asdict() | {"critics": list(self.anatomy.critics)},
        }

    @property
    def has_begun(self) -> bool:
        """Whether there has been an update."""
        return self._learner.has_begun

    @property
    def memory_bytes(self) -> int:
        """Estimate what a worker needs beside the libraries, once a rollout has been made.

        A rollout is held three times over: as it was lived, as a batch, and as what a minibatch of it
        becomes in the networks.
        """
        weights = self.population.weights.flat_PW.numel()
        return BYTES_A_WEIGHT * weights + 3 * self.rollout_bytes + self._learner.memory_bytes

    def iterate(self) -> Tensor:
        """Roll out, then update; returns each agent's mean reward of a session (P,)."""
        self._explorers.steps = self.steps
        with torch.no_grad():
            experience = self._rollouts.collect(self._explorers)
            self._learner.learn(experience, self._explorers)
        self.rollout_bytes = sum(part.nbytes for part in experience if part is not None)
        self._note_failures()
        self.iterations += 1
        self.steps += self._rollouts.steps
        return experience.reward_PCTE.flatten(1).mean(1)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that a resumed training needs to go on with the same bits."""
        tensors = self.population.tensors() | {"pod_rng": self._explorers.pod_generator.get_state()}
        for p, noise in enumerate(self._explorers.noise_generators):
            tensors[f"noise_rng_{p}"] = noise.get_state()
        learnt, learner_facts = self._learner.state()
        facts = {
            "key": self.spec.key,
            "steps": self.steps,
            "iterations": self.iterations,
            "cpu_seconds": self.cpu_seconds,
            "failures": {str(p): text for p, text in self.failures.items()},
            "learner": learner_facts,
        }
        return tensors | learnt, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Continue from a state of the same spec.

        Raises:
            CheckpointError: if the state belongs to another spec, or what it needs is gone.
        """
        if facts["key"] != self.spec.key:
            raise CheckpointError(
                f"pod {self.spec.name}: the checkpoint belongs to another specification. "
                f"Delete {self.spec.folder}."
            )
        self._learner.restore(tensors, facts["learner"])
        for name, tensor in self.population.tensors().items():
            tensor.copy_(tensors[name])
        self._explorers.pod_generator.set_state(tensors["pod_rng"])
        for p, noise in enumerate(self._explorers.noise_generators):
            noise.set_state(tensors[f"noise_rng_{p}"])
        self.steps, self.iterations = facts["steps"], facts["iterations"]
        self.cpu_seconds = facts["cpu_seconds"]
        self.failures = {int(p): text for p, text in facts["failures"].items()}

    def _new_learner(self) -> Learner:
        if self.settings.algorithm in ON_POLICY:
            chances = algorithms.distribution(self._rollouts.sizes)
            return OnPolicyLearner(self.population, self._rollouts, chances, self.settings)
        path = self.spec.folder / "state-replay.bin"
        return OffPolicyLearner(self.population, self._rollouts, self.settings, path)

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
        for name, expected in self.kind.items():
            if facts[name] != expected:
                raise CheckpointError(
                    f"{agent.name}: its parent {agent.parent} has another {name} ({facts[name]}, expected "
                    f"{expected}). Start the tournament again without it."
                )
        own = self.population.tensors()
        for name in ("weights", "mean", "square", "steps"):
            own[name][p] = tensors[name]

    def _note_failures(self) -> None:
        """Give agents that have failed weights of zero: a harmless policy for what is left to do."""
        if bool(self.population.active_P.all()):
            return
        for p in torch.nonzero(~self.population.active_P).flatten().tolist():
            if p not in self.failures:
                cause = CAUSES[int(self.population.cause_P[p])]
                self.failures[p] = f"{cause} at environment step {self.steps}"
                self.population.weights.flat_PW[p] = 0.0
