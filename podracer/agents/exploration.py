"""How agents act while they learn: an actor's outputs and random numbers make an action.

The algorithms that learn from densities add more to it (see `distributions`).

Shapes: P agents, N actions, M choices of each.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

from podracer.agents.parameters import Parameters

LOG_STD_RANGE = (-20.0, 2.0)


class Exploration(Protocol):
    """From outputs (P, …, O) to actions (P, …, N): continuous, or numbers of choices from 0 on.

    Attributes:
        is_mirrored: whether the negative of the random numbers is as likely as they are.
    """

    is_mirrored: bool

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return the random numbers that actions of one agent need, shape (*shape, ·)."""
        ...

    def draw(self, output: Tensor, noise: Tensor, weights: Parameters, step: int) -> Tensor:
        """Return what agents try after `step` environment steps of each."""
        ...


def per_agent(value_P: Tensor, like: Tensor) -> Tensor:
    """Return (P, 1, …) with as many dimensions as `like`."""
    return value_P.view(-1, *(1,) * (like.dim() - 1))


class Additive:
    """Actions are tanh of the outputs; normal noise is added: DDPG, TD3."""

    is_mirrored = False

    def __init__(self, num_actions: int, std_P: Tensor, warmup_steps: int) -> None:
        self._num_actions = num_actions
        self._std_P = std_P
        self._warmup_steps = warmup_steps

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """See `Exploration`."""
        return torch.randn(*shape, self._num_actions, generator=generator)

    def draw(self, output: Tensor, noise: Tensor, weights: Parameters, step: int) -> Tensor:
        """See `Exploration`; uniform in [-1, 1] until there is enough to learn from."""
        if step < self._warmup_steps:
            return _uniform(noise).expand_as(output + noise)
        return (torch.tanh(output) + per_agent(self._std_P, noise) * noise).clamp_(-1.0, 1.0)


class Squashed:
    """Actions are tanh of a normal draw whose deviation depends on what is seen: SAC."""

    is_mirrored = False

    def __init__(self, num_actions: int, warmup_steps: int) -> None:
        self._num_actions = num_actions
        self._warmup_steps = warmup_steps

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """See `Exploration`."""
        return torch.randn(*shape, self._num_actions, generator=generator)

    def draw(self, output: Tensor, noise: Tensor, weights: Parameters, step: int) -> Tensor:
        """See `Exploration`; uniform in [-1, 1] until there is enough to learn from."""
        if step < self._warmup_steps:
            return _uniform(noise)
        mean, log_std = self.split(output, weights)
        return torch.tanh(mean + log_std.exp() * noise)

    def split(self, output: Tensor, weights: Parameters) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation; the network's part of it adds to the agent's."""
        own = weights["log_std"].view(len(weights), *(1,) * (output.dim() - 2), -1)
        seen = output[..., self._num_actions :]
        log_std = own + seen if seen.shape[-1] else own.expand_as(output)
        return output[..., : self._num_actions], log_std.clamp(*LOG_STD_RANGE)


class EpsilonGreedy:
    """The best choice, but for a random one now and then: DQN."""

    is_mirrored = False

    def __init__(
        self,
        num_actions: int,
        num_choices: int,
        chance_P: Tensor,
        warmup_steps: int,
        falling_steps: int,
    ) -> None:
        self._shape = (num_actions, num_choices)
        self._chance_P = chance_P
        self._warmup_steps = warmup_steps
        self._falling_steps = falling_steps

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """See `Exploration`: a coin and a choice for each action, uniform in [0, 1)."""
        return torch.rand(*shape, 2 * self._shape[0], generator=generator)

    def draw(self, output: Tensor, noise: Tensor, weights: Parameters, step: int) -> Tensor:
        """See `Exploration`; the chance of a random choice falls linearly from 1."""
        share = 0.0 if step < self._warmup_steps else min(step / self._falling_steps, 1.0)
        chance = per_agent(1.0 - share * (1.0 - self._chance_P), noise)
        coin, pick = noise.chunk(2, dim=-1)
        random = (pick * self._shape[1]).floor()
        return torch.where(coin < chance, random, best_choices(output, *self._shape))


def best_choices(output: Tensor, num_actions: int, num_choices: int) -> Tensor:
    """Return the choice of the largest score for each action (P, …, N); an MLP's value is ignored."""
    scores = output[..., : num_actions * num_choices]
    scores = scores.reshape(*output.shape[:-1], num_actions, num_choices)
    return scores.argmax(-1).to(output.dtype)


def _uniform(noise: Tensor) -> Tensor:
    """Turn standard normal numbers into uniform ones in [-1, 1]."""
    return torch.erf(noise / math.sqrt(2.0))
