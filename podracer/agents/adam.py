"""Adam for a population: one learning rate for each agent, which torch's own does not offer.

Shapes: P agents, W weights of one agent.
"""

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-5


class Adam:
    """Moments of P agents. Source: Kingma and Ba 2015, arXiv:1412.6980, with bias correction."""

    def __init__(self, num_agents: int, num_weights: int) -> None:
        self.mean_PW = torch.zeros(num_agents, num_weights)
        self.square_PW = torch.zeros(num_agents, num_weights)
        self.steps_P1 = torch.zeros(num_agents, 1)

    def step(
        self, weights_PW: Tensor, gradient_PW: Tensor, learning_rate_P1: Tensor, active_P1: Tensor
    ) -> None:
        """Move the active agents' weights and moments in place; the others keep every bit."""
        self.steps_P1 += active_P1
        mean_PW = torch.lerp(gradient_PW, self.mean_PW, BETA1)
        square_PW = torch.lerp(gradient_PW.square(), self.square_PW, BETA2)
        correction1_P1 = 1.0 - BETA1**self.steps_P1
        correction2_P1 = 1.0 - BETA2**self.steps_P1
        denominator_PW = (square_PW / correction2_P1).sqrt_().add_(EPSILON)
        moved_PW = weights_PW - learning_rate_P1 * (mean_PW / correction1_P1) / denominator_PW
        self.mean_PW = torch.where(active_P1, mean_PW, self.mean_PW)
        self.square_PW = torch.where(active_P1, square_PW, self.square_PW)
        weights_PW.copy_(torch.where(active_P1, moved_PW, weights_PW))
