"""What an actor's outputs mean as chances of actions, for algorithms that learn from densities.

Each distribution gives the logarithm of (new density / old density) of what was done, and its
gradient with respect to the actor's outputs, in closed form.

Shapes: P agents, L sessions, E environments, N actions, M choices of each, O = N·M outputs, S
standard deviations that are learnt: 1 for all actions, or N.
"""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from podracer.agents.exploration import Exploration, best_choices
from podracer.agents.parameters import Parameters

HALF_LOG_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)


class Taken(NamedTuple):
    """What was done, and under which policy.

    Attributes:
        done_PLEN: Gaussian: standard normal noise; the action was mean + std · noise. Categorical:
            the choices, as numbers from 0 on.
        square_PLES: Gaussian: noise², summed over the actions that share a deviation. Else S is 0.
        output_PLEO: the actor's outputs then; E is 1 where they ignore the account.
        log_std_PS: log standard deviations then.
    """

    done_PLEN: Tensor
    square_PLES: Tensor
    output_PLEO: Tensor
    log_std_PS: Tensor


class Comparison(NamedTuple):
    """New densities against old ones.

    Attributes:
        log_ratio_PLE: ln(new density / old density).
        entropy_P: mean entropy of the new policy, summed over actions.
        parts: what the gradient needs again.
    """

    log_ratio_PLE: Tensor
    entropy_P: Tensor
    parts: tuple[Tensor, ...]


class Distribution(Exploration, Protocol):
    """Chances of actions."""

    def taken(self, output: Tensor, noise: Tensor, action: Tensor, weights: Parameters) -> Taken:
        """Return what will be compared later; leading dimensions stay as they are."""
        ...

    def compare(self, parameters: Parameters, output_PLEO: Tensor, taken: Taken) -> Comparison:
        """Compare the present policy with the one that acted."""
        ...

    def gradient(
        self,
        parameters: Parameters,
        gradients: Parameters,
        taken: Taken,
        comparison: Comparison,
        log_ratio_PLE: Tensor,
        entropy_P: Tensor,
    ) -> Tensor:
        """Return the gradient of the outputs; write that of parameters that belong to no network.

        Args:
            parameters: present.
            gradients: to write into.
            taken: what was done.
            comparison: of the present policy with it.
            log_ratio_PLE: gradient of the loss with respect to each log ratio.
            entropy_P: gradient of the loss with respect to the mean entropy.
        """
        ...

    def is_dead(self, parameters: Parameters, comparison: Comparison) -> Tensor:
        """Tell which agents explore no more (P,)."""
        ...


class Gaussian:
    """Independent normal actions; the standard deviation does not depend on what is seen.

    In noise coordinates: with d = (old mean - new mean) / new std and r = old std / new std, the
    action lies u = r·noise + d deviations from the new mean. Where the means are shared by the
    environments of a cohort, only products with the noise are computed for each environment.
    """

    is_mirrored = True

    def __init__(self, num_actions: int) -> None:
        self._num_actions = num_actions

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """See `Exploration`."""
        return torch.randn(*shape, self._num_actions, generator=generator)

    def draw(self, output: Tensor, noise: Tensor, weights: Parameters, step: int) -> Tensor:
        """See `Exploration`."""
        return output + _per_action(weights["log_std"].exp(), noise) * noise

    def taken(self, output: Tensor, noise: Tensor, action: Tensor, weights: Parameters) -> Taken:
        """See `Distribution`."""
        log_std_PS = weights["log_std"].clone()
        square = noise.square()
        if log_std_PS.shape[-1] == 1:
            square = square.sum(-1, keepdim=True)
        return Taken(noise, square, output, log_std_PS)

    def compare(self, parameters: Parameters, output_PLEO: Tensor, taken: Taken) -> Comparison:
        """See `Distribution`."""
        log_std_PS = parameters["log_std"]
        num_each = self._num_actions / log_std_PS.shape[-1]
        r = _per_action(torch.exp(taken.log_std_PS - log_std_PS), output_PLEO)
        d = (taken.output_PLEO - output_PLEO) * _per_action(torch.exp(-log_std_PS), output_PLEO)
        constant_P = num_each * (taken.log_std_PS - log_std_PS).sum(1)
        if output_PLEO.shape[2] == 1:
            products_PLE = torch.matmul(taken.done_PLEN, (r * d).mT)[..., 0]
            squares_PLES = r.square() * taken.square_PLES
            change = taken.square_PLES.sum(-1) - squares_PLES.sum(-1)
            log_ratio = 0.5 * (change - d.square().sum(-1)) - products_PLE
            parts: tuple[Tensor, ...] = (r, d, squares_PLES, products_PLE)
        else:
            u = torch.addcmul(d, r, taken.done_PLEN)
            log_ratio = 0.5 * (taken.square_PLES.sum(-1) - torch.linalg.vecdot(u, u))
            parts = (r, u)
        entropy_P = num_each * (log_std_PS + HALF_LOG_2_PI_E).sum(1)
        return Comparison(log_ratio + constant_P[:, None, None], entropy_P, parts)

    def gradient(
        self,
        parameters: Parameters,
        gradients: Parameters,
        taken: Taken,
        comparison: Comparison,
        log_ratio_PLE: Tensor,
        entropy_P: Tensor,
    ) -> Tensor:
        """See `Distribution`: d ln density = u / std for the mean, and u² - 1 for ln std."""
        log_std_PS = parameters["log_std"]
        inverse_std = torch.exp(-log_std_PS)[:, None, None]
        num_each = self._num_actions / log_std_PS.shape[-1]
        weight = log_ratio_PLE[..., None]
        if taken.output_PLEO.shape[2] == 1:
            r, d, squares_PLES, products_PLE = comparison.parts
            output = torch.matmul(log_ratio_PLE[:, :, None], taken.done_PLEN)
            output = inverse_std * (r * output + d * weight.sum(2, keepdim=True))
            if log_std_PS.shape[-1] > 1:
                square = squares_PLES + 2.0 * r * taken.done_PLEN * d + d.square()
            else:
                square = squares_PLES + (2.0 * products_PLE + d.square().sum(-1))[..., None]
        else:
            _, u = comparison.parts
            output = u * (weight * inverse_std)
            square = (
                u.square() if log_std_PS.shape[-1] > 1 else torch.linalg.vecdot(u, u)[..., None]
            )
        spread_PS = (weight * (square - num_each)).sum((1, 2))
        gradients["log_std"].copy_(spread_PS + (entropy_P * num_each)[:, None])
        return output

    def is_dead(self, parameters: Parameters, comparison: Comparison) -> Tensor:
        """An agent whose actions differ by less than e^-10 learns nothing from them."""
        return (parameters["log_std"] < -10.0).any(1)


def _per_action(values_PS: Tensor, like: Tensor) -> Tensor:
    """Return (P, 1, …, S) with as many dimensions as `like`."""
    return values_PS.view(len(values_PS), *(1,) * (like.dim() - 2), -1)


class Categorical:
    """Independent choices, each among M; the outputs are unnormalised log chances."""

    is_mirrored = False

    def __init__(self, num_actions: int, num_choices: int) -> None:
        self._shape = (num_actions, num_choices)

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """See `Exploration`: Gumbel noise."""
        num_scores = self._shape[0] * self._shape[1]
        uniform = torch.rand(*shape, num_scores, generator=generator).clamp_(min=1e-20)
        return uniform.log_().neg_().log_().neg_()

    def draw(self, output: Tensor, noise: Tensor, weights: Parameters, step: int) -> Tensor:
        """See `Exploration`: the largest of score + Gumbel noise is a draw from the softmax."""
        return best_choices(output + noise, *self._shape)

    def taken(self, output: Tensor, noise: Tensor, action: Tensor, weights: Parameters) -> Taken:
        """See `Distribution`."""
        return Taken(action, action[..., :0], output, output.new_zeros(len(output), 0))

    def compare(self, parameters: Parameters, output_PLEO: Tensor, taken: Taken) -> Comparison:
        """See `Distribution`."""
        log_chance = self._log_chances(output_PLEO)
        change = log_chance - self._log_chances(taken.output_PLEO)
        change = change.expand(*taken.done_PLEN.shape, -1)
        log_ratio = change.gather(-1, taken.done_PLEN.long()[..., None])[..., 0].sum(-1)
        entropy_P = -(log_chance.exp() * log_chance).sum((-1, -2)).flatten(1).mean(1)
        return Comparison(log_ratio, entropy_P, (log_chance,))

    def gradient(
        self,
        parameters: Parameters,
        gradients: Parameters,
        taken: Taken,
        comparison: Comparison,
        log_ratio_PLE: Tensor,
        entropy_P: Tensor,
    ) -> Tensor:
        """See `Distribution`: d ln chance = 1{chosen} - chance; d entropy = -chance·(ln chance + H)."""
        (log_chance,) = comparison.parts
        chance = log_chance.exp()
        chosen = chance.new_zeros(*taken.done_PLEN.shape, chance.shape[-1])
        chosen.scatter_(-1, taken.done_PLEN.long()[..., None], 1.0)
        gradient = (chosen - chance) * log_ratio_PLE[..., None, None]
        if chance.shape[2] == 1:
            gradient = gradient.sum(2, keepdim=True)
        entropy = -(chance * log_chance).sum(-1, keepdim=True)
        share_P = entropy_P / (chance.shape[1] * chance.shape[2])
        gradient -= share_P.view(-1, 1, 1, 1, 1) * chance * (log_chance + entropy)
        return gradient.flatten(-2)

    def is_dead(self, parameters: Parameters, comparison: Comparison) -> Tensor:
        """An agent whose choices are certain to the last bit learns nothing from them."""
        return comparison.entropy_P == 0.0

    def _log_chances(self, output_PLEO: Tensor) -> Tensor:
        return torch.log_softmax(output_PLEO.reshape(*output_PLEO.shape[:-1], *self._shape), dim=-1)
