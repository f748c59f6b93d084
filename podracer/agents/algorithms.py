"""The algorithms by name: what networks each needs, how its agents explore and what they do in the end.

In the order of ElegantRL-Podracer (arXiv:2112.05923), table 1.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from podracer.agents import actor_critic, ddpg, dqn, sac, td3
from podracer.agents.distributions import Categorical, Distribution, Gaussian
from podracer.agents.exploration import (
    Additive,
    EpsilonGreedy,
    Exploration,
    Squashed,
    best_choices,
)
from podracer.agents.parameters import Anatomy, Dimensions
from podracer.agents.settings import ON_POLICY, ReplaySettings


def anatomy(algorithm: str, sizes: Dimensions, replay: ReplaySettings) -> Anatomy:
    """Return what an algorithm adds to the networks."""
    if algorithm in ON_POLICY:
        # Assets are alike and share a deviation; the actions of other environments are not.
        spread = "one" if sizes.num_assets else "each"
        return actor_critic.ANATOMY._replace(spread="none" if sizes.num_choices else spread)
    if algorithm == "dqn":
        return dqn.DUELLING if replay.duelling else dqn.ANATOMY
    return {"ddpg": ddpg.ANATOMY, "td3": td3.ANATOMY, "sac": sac.ANATOMY}[algorithm]


def groups(algorithm: str) -> Mapping[str, tuple[str, ...]]:
    """Return which weights an algorithm optimises apart."""
    if algorithm in ON_POLICY:
        return actor_critic.GROUPS
    off_policy: dict[str, Mapping[str, tuple[str, ...]]] = {
        "dqn": dqn.GROUPS,
        "ddpg": ddpg.GROUPS,
        "td3": td3.GROUPS,
        "sac": sac.GROUPS,
    }
    return off_policy[algorithm]


def distribution(sizes: Dimensions) -> Distribution:
    """Return how on-policy agents act."""
    if sizes.num_choices:
        return Categorical(sizes.num_actions, sizes.num_choices)
    return Gaussian(sizes.num_actions)


def exploration(
    algorithm: str, sizes: Dimensions, hyper: Mapping[str, Tensor], replay: ReplaySettings
) -> Exploration:
    """Return how agents act while they learn."""
    N, warmup = sizes.num_actions, replay.warmup_steps
    if algorithm in ON_POLICY:
        return distribution(sizes)
    if algorithm == "dqn":
        chance_P = hyper["exploration_chance"]
        return EpsilonGreedy(N, sizes.num_choices, chance_P, warmup, replay.exploration_steps)
    if algorithm == "sac":
        return Squashed(N, warmup)
    return Additive(N, hyper["exploration_noise"], warmup)


def best_actions(algorithm: str, sizes: Dimensions, output: Tensor) -> Tensor:
    """Return what agents do when it counts (P, …, N): no noise, the likeliest or best choice."""
    if sizes.num_choices:
        return best_choices(output, sizes.num_actions, sizes.num_choices)
    if algorithm in ON_POLICY:
        return output
    return torch.tanh(output[..., : sizes.num_actions])
