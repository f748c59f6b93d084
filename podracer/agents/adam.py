"""Adam for a population: each agent has a learning rate, a gradient norm and a fate of its own.

Shapes: P agents, W weights of one agent.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-5


class Moments(NamedTuple):
    """Adam's memory of some of the weights of P agents.

    Attributes:
        mean_PW: of the gradients.
        square_PW: mean of the squared gradients.
        steps_P: taken so far.
    """

    mean_PW: Tensor
    square_PW: Tensor
    steps_P: Tensor


def adam_step(
    weights_PW: Tensor,
    gradient_PW: Tensor,
    moments: Moments,
    learning_rate_P: Tensor,
    divisor_P: Tensor,
    active_P: Tensor,
) -> None:
    """Move the active agents' weights and moments in place; the others keep every bit.

    torch's fused step does the arithmetic, one call an agent: its learning rate is one number for all
    it is given, but it takes a divisor of the gradient and a flag to leave everything as it was,
    which serve here to clip and to leave failed agents alone.

    Args:
        weights_PW: rows contiguous.
        gradient_PW: rows contiguous; they may be overwritten.
        moments: of these weights.
        learning_rate_P: one for each agent.
        divisor_P: what each gradient is divided by.
        active_P: who learns.

    Source: Kingma and Ba 2015, arXiv:1412.6980, with bias correction.
    """
    moments.steps_P.add_(active_P)
    told = (learning_rate_P, divisor_P, (~active_P).float())
    for weights, gradient, mean, square, steps, rate, divisor, is_left_alone in zip(
        *(tensor.unbind() for tensor in (weights_PW, gradient_PW, *moments, *told)), strict=True
    ):
        torch._fused_adam_(
            [weights],
            [gradient],
            [mean],
            [square],
            [],
            [steps],
            lr=rate,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
            found_inf=is_left_alone,
        )
