"""Deep deterministic policy gradient for a population of agents.

Source: Lillicrap et al. 2016, arXiv:1509.02971, with normal exploration noise.

Shapes: P agents, L sessions, E environments, N actions.
"""

import torch
from torch import Tensor

from podracer.agents.critics import (
    Sample,
    anatomy,
    follow,
    judged,
    wanted_values,
    write_critic_gradients,
    write_deterministic_gradients,
)
from podracer.agents.networks import actor
from podracer.agents.parameters import Parameters
from podracer.agents.population import Population

CRITICS = ("critic",)
ANATOMY = anatomy(*CRITICS)
GROUPS = {"actor": ("head", "cash_score", "mlp"), "critics": ("critic",)}


def targets(population: Population, target: Parameters, sample: Sample) -> Tensor:
    """Return what the critic should say of the sample (P, L, E)."""
    output, _ = actor(target, sample.next_inputs)
    seen = sample.next_inputs.with_actions(torch.tanh(output))
    return wanted_values(population, sample, judged(target, CRITICS, seen))


def learn(population: Population, target: Parameters, sample: Sample) -> None:
    """Take one step of critic and actor."""
    wanted_PLE = targets(population, target, sample)
    seen = sample.inputs.with_actions(sample.action_PLEN)
    write_critic_gradients(population, CRITICS, seen, wanted_PLE, sample.is_open_PLE)
    population.step("critics", population.hyper["critic_learning_rate"])
    write_deterministic_gradients(population, CRITICS[0], sample.inputs, sample.is_open_PLE)
    population.step("actor", population.hyper["learning_rate"])
    follow(target, population)
