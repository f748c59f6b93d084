"""Soft actor-critic for a population of agents, with a learnt temperature.

Source: Haarnoja et al. 2018, arXiv:1812.05905.

Shapes: P agents, L sessions, E environments, N actions.
"""

import math

import torch
from torch import Tensor

from podracer.agents.critics import (
    Sample,
    anatomy,
    follow,
    judged,
    wanted_values,
    worth_gradient,
    write_critic_gradients,
)
from podracer.agents.exploration import LOG_STD_RANGE, Squashed
from podracer.agents.networks import Inputs, actor, actor_backward
from podracer.agents.parameters import Parameters
from podracer.agents.population import Population

CRITICS = ("critic1", "critic2")
ANATOMY = anatomy(*CRITICS, spread="seen", has_temperature=True)
GROUPS = {
    "actor": ("log_std", "head", "cash_score", "mlp"),
    "critics": ("critic",),
    "temperature": ("temperature",),
}
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


def squash(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return tanh(mean + std · noise) (…, N) and the logarithm of its density (…).

    ln(1 - tanh²u) is written as 2·(ln 2 - u - softplus(-2u)), which doesn't lose its digits.
    """
    u = mean + log_std.exp() * noise
    slope = 2.0 * (math.log(2.0) - u - torch.nn.functional.softplus(-2.0 * u))
    density = -0.5 * noise.square() - log_std - HALF_LOG_2_PI - slope
    return torch.tanh(u), density.sum(-1)


def targets(
    population: Population,
    target: Parameters,
    exploration: Squashed,
    sample: Sample,
    noise_LEN: Tensor,
) -> Tensor:
    """Return what the critics should say of the sample (P, L, E): value and entropy."""
    output, _ = actor(population.weights, sample.next_inputs)
    action, density = squash(*exploration.split(output, population.weights), noise_LEN)
    seen = sample.next_inputs.with_actions(action)
    temperature = population.weights["temperature"].exp()[..., None]
    soft = judged(target, CRITICS, seen) - temperature * density
    return wanted_values(population, sample, soft)


def actor_loss(
    parameters: Parameters,
    exploration: Squashed,
    inputs: Inputs,
    noise_LEN: Tensor,
    is_open_PLE: Tensor,
) -> Tensor:
    """Return the mean of temperature · ln density - value (P,): the oracle of the gradients."""
    output, _ = actor(parameters, inputs)
    action, density = squash(*exploration.split(output, parameters), noise_LEN)
    value = judged(parameters, CRITICS, inputs.with_actions(action))
    temperature = parameters["temperature"].detach().exp()[..., None]
    return ((temperature * density - value) * is_open_PLE).flatten(1).mean(1)


def write_actor_gradients(
    population: Population,
    exploration: Squashed,
    inputs: Inputs,
    noise_LEN: Tensor,
    is_open_PLE: Tensor,
) -> Tensor:
    """Write the gradient of `actor_loss` by the actor; returns the mean log density (P,).

    With u = mean + std · noise and a = tanh u: d ln density / du = 2a, dQ/du = dQ/da · (1 - a²), and
    ln density also falls by what ln std rises.
    """
    weights = population.weights
    output, hidden = actor(weights, inputs)
    mean, log_std = exploration.split(output, weights)
    action, density = squash(mean, log_std, noise_LEN)
    temperature = weights["temperature"].exp()[:, None, None]
    share = (is_open_PLE / is_open_PLE[0].numel())[..., None]
    worth = worth_gradient(weights, CRITICS, inputs, action)
    by_u = share * (2.0 * temperature * action - worth * (1.0 - action.square()))
    by_log_std = by_u * log_std.exp() * noise_LEN - share * temperature
    by_log_std *= (log_std > LOG_STD_RANGE[0]) & (log_std < LOG_STD_RANGE[1])
    population.gradients["log_std"].copy_(by_log_std.sum((1, 2)))
    seen = output.shape[-1] > mean.shape[-1]
    output = torch.cat([by_u, by_log_std], dim=-1) if seen else by_u
    actor_backward(weights, population.gradients, inputs, hidden, output)
    number_P = is_open_PLE.sum((1, 2)).clamp(min=1.0)
    return (density * is_open_PLE).sum((1, 2)) / number_P


def learn(
    population: Population,
    target: Parameters,
    exploration: Squashed,
    sample: Sample,
    noise_LEN: Tensor,
    next_noise_LEN: Tensor,
) -> None:
    """Take one step of critics, actor and temperature.

    Args:
        population: learns.
        target: critics that follow.
        exploration: reads the actor's outputs.
        sample: of the replay.
        noise_LEN: standard normal, for actions on what was seen, the same for all agents.
        next_noise_LEN: for actions on what it led to.
    """
    hyper = population.hyper
    wanted_PLE = targets(population, target, exploration, sample, next_noise_LEN)
    seen = sample.inputs.with_actions(sample.action_PLEN)
    write_critic_gradients(population, CRITICS, seen, wanted_PLE, sample.is_open_PLE)
    population.step("critics", hyper["critic_learning_rate"])
    density_P = write_actor_gradients(
        population, exploration, sample.inputs, noise_LEN, sample.is_open_PLE
    )
    population.step("actor", hyper["learning_rate"])
    # The temperature rises while the entropy, minus the log density, is lower than wanted.
    entropy_P = hyper["target_entropy"] * sample.action_PLEN.shape[-1]
    population.gradients["temperature"].copy_((entropy_P - density_P)[:, None])
    population.step("temperature", hyper["learning_rate"])
    follow(target, population)
