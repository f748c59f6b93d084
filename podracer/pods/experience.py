"""What a population lived through in one rollout, and who makes such rollouts.

Shapes: P agents, C cohorts, T decisions, U = T + 1, E environments of a cohort, N actions, O outputs of
an actor, S account inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from podracer.agents.exploration import Exploration
from podracer.agents.networks import Inputs
from podracer.agents.parameters import Dimensions, Parameters


class Experience(NamedTuple):
    """A rollout of a population.

    Attributes:
        session_CT: rows of the market; 0 without one.
        noise_PCTEx: random numbers of the exploration.
        output_PCTEO: the actor's outputs; E is 1 where they ignore the account.
        action_PCTEN: what was done.
        account_PCUES: what was seen of the account before each decision and after the last, or None
            where no network reads it.
        final_PCTES: what each decision led to, where that is not always the next row; else None.
        reward_PCTE: what each decision earned.
        is_open_PCTE: 1, or 0 where the episode had ended before and the account only waits.
        is_worth_PCTE: 1, or 0 where the decision ended the episode: what follows is worth nothing.
        goes_on_PCTE: 1 where the next decision belongs to the same episode.
    """

    session_CT: Tensor
    noise_PCTEx: Tensor
    output_PCTEO: Tensor
    action_PCTEN: Tensor
    account_PCUES: Tensor | None
    final_PCTES: Tensor | None
    reward_PCTE: Tensor
    is_open_PCTE: Tensor
    is_worth_PCTE: Tensor
    goes_on_PCTE: Tensor


@dataclass
class Explorers:
    """The agents as a rollout needs them.

    Attributes:
        algorithm: theirs.
        weights: present ones.
        exploration: turns outputs into actions.
        hyper: by name, (P,).
        noise_generators: one for each agent, so that it does not depend on its neighbours.
        pod_generator: for what all share: sessions, initial portfolios.
        steps: environment steps of each agent so far.
    """

    algorithm: str
    weights: Parameters
    exploration: Exploration
    hyper: dict[str, Tensor]
    noise_generators: Sequence[torch.Generator]
    pod_generator: torch.Generator
    steps: int = 0

    def noise(self, shape: tuple[int, int, int], is_paired: bool) -> Tensor:
        """Return random numbers (P, C, T, E, ·) for shape (C, T, E).

        Antithetic where environments come in pairs that start alike: the second half of a cohort
        mirrors the first.
        """
        C, T, E = shape
        is_halved = is_paired and self.exploration.is_mirrored
        size = (C, T, E // 2 if is_halved else E)
        drawn = [self.exploration.draw_noise(size, g) for g in self.noise_generators]
        noise = torch.stack(drawn)
        return torch.cat([noise, -noise], dim=3) if is_halved else noise


class Rollouts(Protocol):
    """Where experience comes from: a market, or other environments.

    Attributes:
        sizes: what networks must fit.
        has_cohorts: samples of a cohort share sessions, so minibatches are made of whole cohorts.
        steps: environment steps of each agent in a rollout.
    """

    sizes: Dimensions
    has_cohorts: bool
    steps: int

    def collect(self, agents: Explorers) -> Experience:
        """Let all agents act."""
        ...

    def inputs(self, session_CT: Tensor, account_PLES: Tensor | None) -> Inputs:
        """Return what networks see on L = C·T sessions, but for what they remember."""
        ...
