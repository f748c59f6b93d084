"""What on-policy algorithms share: one gradient step of actors and critics on a minibatch.

An algorithm says what it wants of each log ratio; the entropy bonus is *added* to the objective and
the critic's squared error subtracted.

Shapes: P agents, L sessions, E environments.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from podracer.agents.batch import Minibatch
from podracer.agents.distributions import Distribution
from podracer.agents.memory import recall, recall_backward, remember
from podracer.agents.networks import Inputs, actor, actor_backward, mlp, mlp_backward
from podracer.agents.parameters import Anatomy, Parameters
from podracer.agents.population import Population

ANATOMY = Anatomy(critics=("critic",), spread="one")
GROUPS = {"policy": ("",)}
MAX_GRADIENT_NORM = 0.5
VALUE_WEIGHT = 0.5


class Objective(NamedTuple):
    """What an algorithm makes of log ratios (P, L, E) and advantages (P, L, E), for P clip ranges.

    Attributes:
        value: what is to be maximised, of each sample.
        gradient: its derivative with respect to each log ratio.
    """

    value: Callable[[Tensor, Tensor, Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor]


def loss(
    population: Population,
    parameters: Parameters,
    distribution: Distribution,
    objective: Objective,
    inputs: Inputs,
    batch: Minibatch,
) -> Tensor:
    """Return each agent's loss (P,), by autograd differentiable: the oracle of `write_gradients`."""
    clip = population.hyper["clip"].view(-1, 1, 1)
    inputs = remember(parameters, inputs)
    output_PLEO, _ = actor(parameters, inputs)
    comparison = distribution.compare(parameters, output_PLEO, batch.taken)
    wanted_PLE = objective.value(comparison.log_ratio_PLE, batch.advantage_PLE, clip)
    loss_P = -wanted_PLE.flatten(1).mean(1)
    loss_P = loss_P - population.hyper["entropy_bonus"] * comparison.entropy_P
    if batch.return_PLE is not None:
        value_PLEO, _ = mlp(parameters, "critic", inputs)
        error = value_PLEO[..., 0] - batch.return_PLE
        if batch.is_open_PLE is not None:
            error = error * batch.is_open_PLE
        loss_P = loss_P + VALUE_WEIGHT * error.square().flatten(1).mean(1)
    return loss_P


def write_gradients(
    population: Population,
    distribution: Distribution,
    objective: Objective,
    inputs: Inputs,
    batch: Minibatch,
) -> Tensor:
    """Write the gradient of `loss`, in closed form; returns whose policy explores no more (P,)."""
    weights, gradients = population.weights, population.gradients
    clip = population.hyper["clip"].view(-1, 1, 1)
    share = 1.0 / batch.advantage_PLE[0].numel()
    recalled = recall(weights, inputs)
    inputs = recalled.inputs
    output_PLEO, hidden = actor(weights, inputs)
    comparison = distribution.compare(weights, output_PLEO, batch.taken)
    log_ratio_PLE = objective.gradient(comparison.log_ratio_PLE, batch.advantage_PLE, clip)
    output_PLEO = distribution.gradient(
        weights,
        gradients,
        batch.taken,
        comparison,
        log_ratio_PLE.mul_(-share),
        -population.hyper["entropy_bonus"],
    )
    memory_PLM = actor_backward(weights, gradients, inputs, hidden, output_PLEO)
    if batch.return_PLE is not None:
        value_PLEO, critic_hidden = mlp(weights, "critic", inputs)
        error = value_PLEO.sub_(batch.return_PLE[..., None]).mul_(2.0 * VALUE_WEIGHT * share)
        if batch.is_open_PLE is not None:
            error.mul_(batch.is_open_PLE[..., None])
        by_critic = mlp_backward(weights, gradients, "critic", inputs, critic_hidden, error)
        if memory_PLM is not None and by_critic is not None:
            memory_PLM = memory_PLM + by_critic
    if memory_PLM is not None:
        recall_backward(recalled, memory_PLM, gradients)
    distance_P = comparison.log_ratio_PLE.abs().mean((1, 2))
    population.farthest_P = torch.maximum(population.farthest_P, distance_P)
    return distribution.is_dead(weights, comparison)
