"""What actor-critic algorithms that learn from a replay share: critics Q(s, a) and their gradients.

Shapes: P agents, L sessions, E environments, N actions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from podracer.agents.networks import (
    Inputs,
    account_gradient,
    actor,
    actor_backward,
    mlp,
    mlp_backward,
)
from podracer.agents.parameters import Anatomy, Parameters
from podracer.agents.population import Population


class Sample(NamedTuple):
    """Transitions as networks see them.

    Attributes:
        inputs: what was seen.
        action_PLEN: what was done.
        reward_PLE: what it earned.
        next_inputs: what it led to.
        goes_on_PLE: 0 where the episode came to its end.
        is_open_PLE: 0 where it had ended before: nothing is learnt of it.
    """

    inputs: Inputs
    action_PLEN: Tensor
    reward_PLE: Tensor
    next_inputs: Inputs
    goes_on_PLE: Tensor
    is_open_PLE: Tensor


def anatomy(*critics: str, spread: str = "none", has_temperature: bool = False) -> Anatomy:
    """Return what a deterministic or a squashed actor with these critics needs."""
    return Anatomy(critics, True, spread, has_temperature=has_temperature)


def judged(parameters: Parameters, critics: Sequence[str], inputs: Inputs) -> Tensor:
    """Return the smallest value of several critics (P, L, E); `inputs` show actions."""
    values = [mlp(parameters, name, inputs)[0][..., 0] for name in critics]
    return values[0] if len(values) == 1 else torch.minimum(*values)


def wanted_values(population: Population, sample: Sample, next_value_PLE: Tensor) -> Tensor:
    """Return reward + discount · next value, which is nothing after the end of an episode."""
    discount = population.hyper["discount"].view(-1, 1, 1)
    return sample.reward_PLE + discount * sample.goes_on_PLE * next_value_PLE


def critic_loss(
    parameters: Parameters,
    critics: Sequence[str],
    inputs: Inputs,
    wanted_PLE: Tensor,
    is_open_PLE: Tensor,
) -> Tensor:
    """Return the sum of the critics' mean squared errors (P,): the oracle of the gradients."""
    errors = [
        (mlp(parameters, name, inputs)[0][..., 0] - wanted_PLE) * is_open_PLE for name in critics
    ]
    return sum((e.square().flatten(1).mean(1) for e in errors), torch.zeros(()))


def write_critic_gradients(
    population: Population,
    critics: Sequence[str],
    inputs: Inputs,
    wanted_PLE: Tensor,
    is_open_PLE: Tensor,
) -> None:
    """Write the gradient of `critic_loss`."""
    share_PLEO = (is_open_PLE * (2.0 / wanted_PLE[0].numel()))[..., None]
    for name in critics:
        value_PLEO, hidden = mlp(population.weights, name, inputs)
        error = value_PLEO.sub_(wanted_PLE[..., None]).mul_(share_PLEO)
        mlp_backward(population.weights, population.gradients, name, inputs, hidden, error)


def worth_gradient(
    parameters: Parameters, critics: Sequence[str], inputs: Inputs, action_PLEN: Tensor
) -> Tensor:
    """Return the derivative of the smallest critic's value by each action (P, L, E, N)."""
    seen = inputs.with_actions(action_PLEN)
    judged_by = [mlp(parameters, name, seen) for name in critics]
    actions = slice(-action_PLEN.shape[-1], None)
    if len(critics) == 1:
        ((value, hidden),) = judged_by
        return account_gradient(parameters, critics[0], hidden, torch.ones_like(value), actions)
    (value, hidden), (other, other_hidden) = judged_by
    is_smaller = (value <= other).to(value.dtype)
    one = account_gradient(parameters, critics[0], hidden, is_smaller, actions)
    return one + account_gradient(parameters, critics[1], other_hidden, 1.0 - is_smaller, actions)


def deterministic_loss(
    parameters: Parameters, critic: str, inputs: Inputs, is_open_PLE: Tensor
) -> Tensor:
    """Return minus the mean value of what actors would do (P,): the oracle of the gradients."""
    output, _ = actor(parameters, inputs)
    seen = inputs.with_actions(torch.tanh(output))
    return -(judged(parameters, (critic,), seen) * is_open_PLE).flatten(1).mean(1)


def write_deterministic_gradients(
    population: Population, critic: str, inputs: Inputs, is_open_PLE: Tensor
) -> None:
    """Write the gradient of `deterministic_loss` with respect to the actor."""
    output, hidden = actor(population.weights, inputs)
    action_PLEN = torch.tanh(output)
    worth = worth_gradient(population.weights, (critic,), inputs, action_PLEN)
    share_PLE1 = (is_open_PLE / is_open_PLE[0].numel())[..., None]
    output = worth.mul_(action_PLEN.square().sub_(1.0)).mul_(share_PLE1)
    actor_backward(population.weights, population.gradients, inputs, hidden, output)


def follow(target: Parameters, population: Population) -> None:
    """Move target networks a share of the way to the present ones."""
    target.flat_PW.lerp_(population.weights.flat_PW, population.hyper["target_rate"][:, None])
