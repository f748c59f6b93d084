"""How much better what was done turned out than what was expected.

Shapes: P agents, C cohorts, T decisions, E environments of a cohort.
"""

import torch
from torch import Tensor


def cohort_advantages(reward_PCTE: Tensor, discount_P: Tensor) -> Tensor:
    """Discounted return minus the mean of the cohort's environments on the same session.

    No critic: environments of one cohort share their sessions and their initial holdings, so the
    difference is what their actions made. The return ends with the rollout.
    """
    total_PCTE = reward_PCTE.clone()
    for t in reversed(range(reward_PCTE.shape[2] - 1)):
        total_PCTE[:, :, t] += discount_P[:, None, None] * total_PCTE[:, :, t + 1]
    return total_PCTE - total_PCTE.mean(3, keepdim=True)


def critic_advantages(
    reward_PCTE: Tensor,
    value_PCTE: Tensor,
    next_value_PCTE: Tensor,
    goes_on_PCTE: Tensor,
    discount_P: Tensor,
    gae_lambda_P: Tensor,
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438).

    Args:
        reward_PCTE: reward of each decision.
        value_PCTE: of what was seen before it.
        next_value_PCTE: of what it led to: 0 where the episode came to its end, the value of the
            true last observation where it was cut off.
        goes_on_PCTE: 1 where the next decision belongs to the same episode, else 0.
        discount_P: per agent.
        gae_lambda_P: per agent.
    """
    discount = discount_P[:, None, None]
    decay = discount * gae_lambda_P[:, None, None]
    advantage_PCTE = torch.empty_like(reward_PCTE)
    surprise_PCTE = reward_PCTE + discount[..., None] * next_value_PCTE - value_PCTE
    running = torch.zeros_like(reward_PCTE[:, :, 0])
    for t in reversed(range(reward_PCTE.shape[2])):
        running = surprise_PCTE[:, :, t] + decay * goes_on_PCTE[:, :, t] * running
        advantage_PCTE[:, :, t] = running
    return advantage_PCTE


def normalised(advantage_PCTE: Tensor, is_open_PCTE: Tensor) -> Tensor:
    """Scale each agent's advantages to mean 0 and deviation 1 over open accounts; others get 0.

    Args:
        advantage_PCTE: any.
        is_open_PCTE: 1, or 0 where an episode had ended before.
    """
    axes = (1, 2, 3)
    number = is_open_PCTE.sum(axes, keepdim=True).clamp(min=1.0)
    mean = (advantage_PCTE * is_open_PCTE).sum(axes, keepdim=True) / number
    centred = (advantage_PCTE - mean) * is_open_PCTE
    std = (centred.square().sum(axes, keepdim=True) / number).sqrt()
    return centred / (std + 1e-8)
