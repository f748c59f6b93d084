"""Advantage actor-critic, synchronous, for a population of agents: one step on each rollout.

Source: Mnih et al. 2016, arXiv:1602.01783, in its synchronous form.

Shapes: P agents, L sessions, E environments.
"""

import torch
from torch import Tensor

from podracer.agents.actor_critic import MAX_GRADIENT_NORM, Objective, write_gradients
from podracer.agents.batch import Batch, InputsOf
from podracer.agents.distributions import Distribution
from podracer.agents.population import Population


def weighted(log_ratio_PLE: Tensor, advantage_PLE: Tensor, clip_P11: Tensor) -> Tensor:
    """Log density times advantage; the density of the acting policy is a constant."""
    return log_ratio_PLE * advantage_PLE


def weighted_gradient(log_ratio_PLE: Tensor, advantage_PLE: Tensor, clip_P11: Tensor) -> Tensor:
    """The advantage."""
    return advantage_PLE.clone()


OBJECTIVE = Objective(weighted, weighted_gradient)


def learn(
    population: Population, distribution: Distribution, batch: Batch, inputs_of: InputsOf
) -> None:
    """Take one step on the whole rollout."""
    whole = batch.minibatch(torch.arange(batch.advantage_PCTE.shape[1]))
    inputs = inputs_of(whole.session_CT, whole.account_PLES)
    is_dead_P = write_gradients(population, distribution, OBJECTIVE, inputs, whole)
    population.step("policy", population.hyper["learning_rate"], MAX_GRADIENT_NORM)
    population.judge(is_dead_P)
