"""Proximal policy optimisation for a population of agents.

Source: Schulman et al. 2017, arXiv:1707.06347. The ratio is clipped, the entropy bonus is *added* to
the objective, and the value is bootstrapped where a window is truncated.

Shapes: P agents, L sessions, E environments.
"""

import torch
from torch import Tensor

from podracer.agents.actor_critic import MAX_GRADIENT_NORM, Objective, write_gradients
from podracer.agents.batch import Batch, InputsOf
from podracer.agents.distributions import Distribution
from podracer.agents.population import Population
from podracer.agents.settings import PpoSettings

# Beyond, exp overflows; the clipped side of the objective is flat long before.
LARGEST = 20.0


def clipped(log_ratio_PLE: Tensor, advantage_PLE: Tensor, clip_P11: Tensor) -> Tensor:
    """The smaller of ratio · advantage and the same with the ratio within 1 ± clip."""
    ratio = torch.exp(log_ratio_PLE.clamp(max=LARGEST))
    inside = torch.minimum(torch.maximum(ratio, 1.0 - clip_P11), 1.0 + clip_P11)
    return torch.minimum(ratio * advantage_PLE, inside * advantage_PLE)


def clipped_gradient(log_ratio_PLE: Tensor, advantage_PLE: Tensor, clip_P11: Tensor) -> Tensor:
    """Ratio · advantage where moving the ratio still changes `clipped`, else 0."""
    ratio = torch.exp(log_ratio_PLE.clamp(max=LARGEST))
    is_live = torch.where(advantage_PLE > 0, ratio < 1.0 + clip_P11, ratio > 1.0 - clip_P11)
    is_live &= log_ratio_PLE <= LARGEST
    return ratio.mul_(advantage_PLE).mul_(is_live)


OBJECTIVE = Objective(clipped, clipped_gradient)


def learn(
    population: Population,
    distribution: Distribution,
    settings: PpoSettings,
    batch: Batch,
    inputs_of: InputsOf,
    generator: torch.Generator,
) -> None:
    """Go over a rollout several times, in minibatches of whole cohorts that all agents share."""
    num_cohorts = batch.advantage_PCTE.shape[1]
    size = -(-num_cohorts // settings.minibatches)
    for _ in range(settings.epochs):
        order = torch.randperm(num_cohorts, generator=generator)
        for cohorts in torch.split(order, size):
            part = batch.minibatch(cohorts)
            inputs = inputs_of(part.session_CT, part.account_PLES)
            is_dead_P = write_gradients(population, distribution, OBJECTIVE, inputs, part)
            population.step("policy", population.hyper["learning_rate"], MAX_GRADIENT_NORM)
    population.judge(is_dead_P)
