"""Deep Q-networks for a population of agents: plain, double, duelling, and all of it (D3QN).

An action of several choices (one for each asset) has a Q for each of them; they share one reward, and
what follows is worth the mean of their best values.

Sources: Mnih et al. 2015 (Nature 518); double: van Hasselt et al. 2016, arXiv:1509.06461; duelling: Wang
et al. 2016, arXiv:1511.06581; several choices: Tavakoli et al. 2018, arXiv:1711.08946.

Shapes: P agents, L sessions, E environments, N actions, M choices of each.
"""

import torch
from torch import Tensor

from podracer.agents.critics import Sample, follow, wanted_values
from podracer.agents.networks import Inputs, actor, actor_backward
from podracer.agents.parameters import Anatomy, Parameters
from podracer.agents.population import Population
from podracer.agents.settings import ReplaySettings

ANATOMY = Anatomy()
DUELLING = Anatomy(duelling=True)
GROUPS = {"policy": ("",)}
MAX_GRADIENT_NORM = 10.0


def q_values(output_PLEO: Tensor, num_actions: int, duelling: bool) -> Tensor:
    """Return Q of every choice (P, L, E, N, M); duelling: value + advantage - its mean."""
    scores = output_PLEO[..., : output_PLEO.shape[-1] - int(duelling)]
    scores = scores.reshape(*scores.shape[:-1], num_actions, -1)
    if not duelling:
        return scores
    value = output_PLEO[..., -1:, None]
    return value + scores - scores.mean(-1, keepdim=True)


def targets(
    population: Population, target: Parameters, settings: ReplaySettings, sample: Sample
) -> Tensor:
    """Return what the Q of the choices made should be (P, L, E)."""
    num_actions = sample.action_PLEN.shape[-1]
    output, _ = actor(target, sample.next_inputs)
    q = q_values(output, num_actions, settings.duelling)
    chosen_by = q
    if settings.double:
        output, _ = actor(population.weights, sample.next_inputs)
        chosen_by = q_values(output, num_actions, settings.duelling)
    best = chosen_by.argmax(-1, keepdim=True)
    return wanted_values(population, sample, q.gather(-1, best)[..., 0].mean(-1))


def loss(
    parameters: Parameters,
    settings: ReplaySettings,
    inputs: Inputs,
    action_PLEN: Tensor,
    wanted_PLE: Tensor,
    is_open_PLE: Tensor,
) -> Tensor:
    """Return the mean Huber loss of the choices made (P,): the oracle of the gradients."""
    output, _ = actor(parameters, inputs)
    q = q_values(output, action_PLEN.shape[-1], settings.duelling)
    made = q.gather(-1, action_PLEN.long()[..., None])[..., 0]
    wanted = wanted_PLE[..., None].expand_as(made)
    each = torch.nn.functional.smooth_l1_loss(made, wanted, reduction="none")
    return (each * is_open_PLE[..., None]).flatten(1).mean(1)


def write_gradients(
    population: Population,
    settings: ReplaySettings,
    inputs: Inputs,
    action_PLEN: Tensor,
    wanted_PLE: Tensor,
    is_open_PLE: Tensor,
) -> None:
    """Write the gradient of `loss`."""
    output, hidden = actor(population.weights, inputs)
    q = q_values(output, action_PLEN.shape[-1], settings.duelling)
    choice = action_PLEN.long()[..., None]
    error = (q.gather(-1, choice) - wanted_PLE[..., None, None]).clamp_(-1.0, 1.0)
    error.mul_((is_open_PLE / action_PLEN[0].numel())[..., None, None])
    by_score = torch.zeros_like(q).scatter_(-1, choice, error)
    if settings.duelling:
        by_score -= error / q.shape[-1]
        by_value = error.sum((-1, -2))[..., None]
        output = torch.cat([by_score.flatten(-2), by_value], dim=-1)
    else:
        output = by_score.flatten(-2)
    actor_backward(population.weights, population.gradients, inputs, hidden, output)


def learn(
    population: Population, target: Parameters, settings: ReplaySettings, sample: Sample
) -> None:
    """Take one step."""
    wanted_PLE = targets(population, target, settings, sample)
    write_gradients(
        population, settings, sample.inputs, sample.action_PLEN, wanted_PLE, sample.is_open_PLE
    )
    population.step("policy", population.hyper["learning_rate"], MAX_GRADIENT_NORM)
    follow(target, population)
