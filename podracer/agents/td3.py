"""Twin delayed deep deterministic policy gradient for a population of agents.

Source: Fujimoto et al. 2018, arXiv:1802.09477: the smaller of two critics, smoothed target actions,
and an actor that moves less often.

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

CRITICS = ("critic1", "critic2")
ANATOMY = anatomy(*CRITICS)
GROUPS = {"actor": ("head", "cash_score", "mlp"), "critics": ("critic",)}
LARGEST_TARGET_NOISE = 0.5


def targets(
    population: Population, target: Parameters, sample: Sample, noise_LEN: Tensor
) -> Tensor:
    """Return what the critics should say of the sample (P, L, E).

    Args:
        population: gives discounts and the deviation of the noise.
        target: networks that follow the present ones.
        sample: of the replay.
        noise_LEN: standard normal, the same for all agents.
    """
    output, _ = actor(target, sample.next_inputs)
    noise = population.hyper["target_noise"].view(-1, 1, 1, 1) * noise_LEN
    noise = noise.clamp(-LARGEST_TARGET_NOISE, LARGEST_TARGET_NOISE)
    action = (torch.tanh(output) + noise).clamp(-1.0, 1.0)
    seen = sample.next_inputs.with_actions(action)
    return wanted_values(population, sample, judged(target, CRITICS, seen))


def learn(
    population: Population,
    target: Parameters,
    sample: Sample,
    noise_LEN: Tensor,
    moves_actor: bool,
) -> None:
    """Take one step of the critics, and of actor and targets if it is their turn."""
    wanted_PLE = targets(population, target, sample, noise_LEN)
    seen = sample.inputs.with_actions(sample.action_PLEN)
    write_critic_gradients(population, CRITICS, seen, wanted_PLE, sample.is_open_PLE)
    population.step("critics", population.hyper["critic_learning_rate"])
    if moves_actor:
        write_deterministic_gradients(population, CRITICS[0], sample.inputs, sample.is_open_PLE)
        population.step("actor", population.hyper["learning_rate"])
        follow(target, population)
