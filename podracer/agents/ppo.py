"""Proximal policy optimisation for a population of agents.

Source: Schulman et al. 2017, arXiv:1707.06347. The ratio is clipped, the entropy bonus is *added* to
the objective, and the value is bootstrapped where a window is truncated.

Shapes: P agents, C cohorts (each on its own stretch of sessions), T decisions, E environments of a
cohort, N actions, S account inputs.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from podracer.agents.adam import Adam
from podracer.agents.networks import Inputs, Parameters, action_means, values

MAX_GRADIENT_NORM = 0.5
VALUE_WEIGHT = 0.5


class Batch(NamedTuple):
    """One rollout of a population.

    Attributes:
        session_CT: rows of the market.
        noise_PCTEN: standard normal exploration noise.
        mean_PCTEN: action means that the rollout used; E is 1 where they ignore the account.
        log_std_P: log standard deviation that the rollout used.
        account_PCTES: account inputs, or None where no network reads them.
        advantage_PCTE: normalised.
        return_PCTE: targets of the critic, or None without one.
    """

    session_CT: Tensor
    noise_PCTEN: Tensor
    mean_PCTEN: Tensor
    log_std_P: Tensor
    account_PCTES: Tensor | None
    advantage_PCTE: Tensor
    return_PCTE: Tensor | None


class Tuning(NamedTuple):
    """Hyper-parameters of P agents as tensors (P,)."""

    learning_rate_P: Tensor
    clip_P: Tensor
    entropy_bonus_P: Tensor


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
    reward_PCTE: Tensor, value_PCTE: Tensor, discount_P: Tensor, gae_lambda_P: Tensor
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438).

    Args:
        reward_PCTE: reward of each decision.
        value_PCTE: (…, T + 1, E): values at each decision and after the last, which bootstraps the
            truncated rollout.
        discount_P: per agent.
        gae_lambda_P: per agent.
    """
    discount = discount_P[:, None, None]
    decay = discount * gae_lambda_P[:, None, None]
    advantage_PCTE = torch.empty_like(reward_PCTE)
    running = torch.zeros_like(reward_PCTE[:, :, 0])
    for t in reversed(range(reward_PCTE.shape[2])):
        surprise = reward_PCTE[:, :, t] + discount * value_PCTE[:, :, t + 1] - value_PCTE[:, :, t]
        running = surprise + decay * running
        advantage_PCTE[:, :, t] = running
    return advantage_PCTE


def normalised(advantage_PCTE: Tensor) -> Tensor:
    """Scale each agent's advantages to mean 0 and deviation 1."""
    flat = advantage_PCTE.flatten(1)
    std, mean = torch.std_mean(flat, dim=1, correction=0)
    shape = (-1, 1, 1, 1)
    return (advantage_PCTE - mean.view(shape)) / (std.view(shape) + 1e-8)


def log_ratio(
    noise: Tensor, old_mean: Tensor, new_mean: Tensor, old_log_std: Tensor, new_log_std: Tensor
) -> Tensor:
    """ln(new density / old density) of the action old_mean + old_std · noise, over the last axis.

    In noise coordinates: with d = (old mean - new mean) / new std and r = old std / new std, the
    action lies r·noise + d deviations from the new mean. Only noise·d is computed per environment
    where the means are shared by a cohort; nothing large is subtracted.
    """
    r = torch.exp(old_log_std - new_log_std)
    d = (old_mean - new_mean) * torch.exp(-new_log_std)[..., None]
    num_actions = noise.shape[-1]
    cross = (noise * d).sum(-1)
    quadratic = 0.5 * (1.0 - r.square()) * noise.square().sum(-1) - 0.5 * d.square().sum(-1)
    return quadratic - r * cross + num_actions * torch.log(r)


def losses(parameters: Parameters, inputs: Inputs, batch: Batch, tuning: Tuning) -> Tensor:
    """Return each agent's loss (P,): minus the clipped objective and the entropy, plus the critic's.

    `inputs` are those of the batch's sessions, flattened to L = C·T.
    """
    P, C, T, E, _ = batch.noise_PCTEN.shape
    mean_PCTEN = action_means(parameters, inputs).reshape(P, C, T, -1, batch.noise_PCTEN.shape[-1])
    log_std_P111 = parameters["log_std"].view(P, 1, 1, 1)
    change = log_ratio(
        batch.noise_PCTEN,
        batch.mean_PCTEN,
        mean_PCTEN,
        batch.log_std_P.view(P, 1, 1, 1),
        log_std_P111,
    )
    ratio = torch.exp(change.clamp(max=20.0))
    clip = tuning.clip_P.view(P, 1, 1, 1)
    clipped = torch.minimum(torch.maximum(ratio, 1.0 - clip), 1.0 + clip)
    objective = torch.minimum(ratio * batch.advantage_PCTE, clipped * batch.advantage_PCTE)
    num_actions = batch.noise_PCTEN.shape[-1]
    entropy_P = num_actions * (log_std_P111.view(P) + 0.5 * math.log(2 * math.pi * math.e))
    loss_P = -objective.flatten(1).mean(1) - tuning.entropy_bonus_P * entropy_P
    if batch.return_PCTE is not None:
        error = values(parameters, inputs).reshape(P, C, T, E) - batch.return_PCTE
        loss_P = loss_P + VALUE_WEIGHT * error.square().flatten(1).mean(1)
    return loss_P


def minibatch(batch: Batch, cohorts: Tensor) -> Batch:
    """Return the batch of some cohorts."""

    def pick(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.index_select(1, cohorts)

    return Batch(
        batch.session_CT[cohorts],
        batch.noise_PCTEN.index_select(1, cohorts),
        batch.mean_PCTEN.index_select(1, cohorts),
        batch.log_std_P,
        pick(batch.account_PCTES),
        batch.advantage_PCTE.index_select(1, cohorts),
        pick(batch.return_PCTE),
    )


def update(
    weights_PW: Tensor,
    shapes: dict[str, tuple[int, ...]],
    optimizer: Adam,
    inputs: Inputs,
    batch: Batch,
    tuning: Tuning,
    active_P: Tensor,
) -> Tensor:
    """Take one gradient step on a minibatch, in place.

    An agent whose loss or gradient is not finite keeps its weights and moments; so does one that was
    not active. The others' bits do not depend on it.

    Returns:
        Which agents are still active (P,).
    """
    leaf_PW = weights_PW.clone().requires_grad_()
    loss_P = losses(Parameters(leaf_PW, shapes), inputs, batch, tuning)
    (gradient_PW,) = torch.autograd.grad(loss_P.sum(), leaf_PW)
    norm_P1 = gradient_PW.norm(dim=1, keepdim=True)
    healthy_P = torch.isfinite(loss_P.detach()) & torch.isfinite(norm_P1[:, 0]) & active_P
    scaled_PW = gradient_PW * (MAX_GRADIENT_NORM / (norm_P1 + 1e-6)).clamp(max=1.0)
    optimizer.step(
        weights_PW,
        torch.nan_to_num(scaled_PW),
        tuning.learning_rate_P[:, None],
        healthy_P[:, None],
    )
    return healthy_P
