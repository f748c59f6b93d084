"""P agents that learn together: weights, gradients, moments, hyper-parameters, and who has failed.

Shapes: P agents, W weights of one agent, G groups of weights that are optimised apart.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from podracer.agents.adam import Moments, adam_step
from podracer.agents.parameters import Layout, Parameters

CAUSES = ("", "non-finite loss", "exploding ratio", "dead policy")
NON_FINITE, EXPLODING, DEAD = 1, 2, 3
# A policy e^10 times likelier or less likely, on average, than the one that acted can't learn from it.
LARGEST_DISTANCE = 10.0


class Population:
    """The learning state of P agents.

    The others' bits do not depend on an agent that fails. What may have gone wrong is noted at every
    step and judged once a rollout, so that nothing waits for the device in between; a failed agent is
    passed over from then on.

    Attributes:
        weights: by layer, (P, …).
        gradients: of the same layout.
        hyper: hyper-parameters as tensors (P,).
        mean_PW: Adam's.
        square_PW: Adam's.
        steps_PG: Adam's, of each group.
        active_P: who has not failed.
        cause_P: index into `CAUSES`.
        longest_P: largest norm of a gradient since the last judgement; nan if one was.
        farthest_P: largest mean distance of the policy from the one that acted, since then.
    """

    def __init__(
        self,
        weights_PW: Tensor,
        layout: Layout,
        hyper: Mapping[str, Tensor],
        groups: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Start with fresh moments.

        Args:
            weights_PW: taken over.
            layout: of one agent.
            hyper: by name.
            groups: of weights that are optimised apart: how the names of their layers begin.
        """
        self.weights = Parameters(weights_PW, layout)
        self.gradients = Parameters(torch.zeros_like(weights_PW), layout)
        self.hyper = dict(hyper)
        self.mean_PW = torch.zeros_like(weights_PW)
        self.square_PW = torch.zeros_like(weights_PW)
        self.steps_PG = weights_PW.new_zeros(len(weights_PW), len(groups))
        self.active_P = torch.ones(len(weights_PW), dtype=torch.bool, device=weights_PW.device)
        self.cause_P = torch.zeros(len(weights_PW), dtype=torch.int64, device=weights_PW.device)
        self.longest_P = weights_PW.new_zeros(len(weights_PW))
        self.farthest_P = weights_PW.new_zeros(len(weights_PW))
        self._spans = {name: layout.span(*begins) for name, begins in groups.items()}
        self._group = {name: number for number, name in enumerate(groups)}

    def __len__(self) -> int:
        """P."""
        return len(self.active_P)

    def judge(self, is_dead_P: Tensor | None = None) -> None:
        """Pass over agents that have failed, from now on; the first cause of each is kept.

        Args:
            is_dead_P: whose policy explores no more.
        """
        farthest_P = self.farthest_P
        is_finite_P = torch.isfinite(self.longest_P + farthest_P)
        self._mark(~(is_finite_P & torch.isfinite(self.weights.flat_PW).all(1)), NON_FINITE)
        self._mark(farthest_P > LARGEST_DISTANCE, EXPLODING)
        if is_dead_P is not None:
            self._mark(is_dead_P, DEAD)
        self.longest_P = torch.zeros_like(farthest_P)
        self.farthest_P = torch.zeros_like(farthest_P)

    def _mark(self, is_failed_P: Tensor, cause: int) -> None:
        fails_P = is_failed_P & self.active_P
        self.cause_P.masked_fill_(fails_P, cause)
        self.active_P &= ~fails_P

    def step(self, group: str, learning_rate_P: Tensor, max_norm: float | None = None) -> None:
        """Move a group of weights against its gradient.

        Args:
            group: of weights.
            learning_rate_P: one for each agent.
            max_norm: longer gradients are shortened to it.
        """
        span = self._spans[group]
        gradient_PW = self.gradients.flat_PW[:, span]
        norm_P = gradient_PW.norm(dim=1)
        self.longest_P = torch.maximum(self.longest_P, norm_P)
        divisor_P = (
            torch.ones_like(norm_P) if max_norm is None else (norm_P / max_norm).clamp_(min=1.0)
        )
        moments = Moments(
            self.mean_PW[:, span], self.square_PW[:, span], self.steps_PG[:, self._group[group]]
        )
        weights_PW = self.weights.flat_PW[:, span]
        adam_step(weights_PW, gradient_PW, moments, learning_rate_P, divisor_P, self.active_P)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that a checkpoint must keep; row p of each belongs to agent p."""
        return {
            "weights": self.weights.flat_PW,
            "mean": self.mean_PW,
            "square": self.square_PW,
            "steps": self.steps_PG,
            "active": self.active_P,
            "cause": self.cause_P,
        }
