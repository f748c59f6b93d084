"""What an on-policy algorithm learns from: a rollout, and minibatches of it.

Shapes: P agents, C cohorts (each on its own stretch of sessions), T decisions, E environments of a
cohort, L = C·T sessions of a minibatch, S account inputs.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from podracer.agents.distributions import Taken
from podracer.agents.networks import Inputs

# From stretches of sessions (C, T) and accounts (P, C·T, E, S) to what networks see.
InputsOf = Callable[[Tensor, Tensor | None], Inputs]


class Minibatch(NamedTuple):
    """Some cohorts of a rollout, whose C·T sessions have become L; the fields are those of `Batch`."""

    session_CT: Tensor
    taken: Taken
    account_PLES: Tensor | None
    advantage_PLE: Tensor
    return_PLE: Tensor | None
    is_open_PLE: Tensor | None = None


class Batch(NamedTuple):
    """A rollout.

    Attributes:
        session_CT: rows of the market.
        taken: what was done.
        account_PCTES: account inputs, or None where no network reads them.
        advantage_PCTE: of what was done.
        return_PCTE: targets of the critic, or None without one.
        is_open_PCTE: 0 where an episode had ended and the account only waits, or None if none has.
    """

    session_CT: Tensor
    taken: Taken
    account_PCTES: Tensor | None
    advantage_PCTE: Tensor
    return_PCTE: Tensor | None
    is_open_PCTE: Tensor | None = None

    def minibatch(self, cohorts: Tensor) -> Minibatch:
        """Return some cohorts.

        Cohorts of a single sample, as of environments without a market, share one row of networks'
        inputs instead of having one each.
        """
        is_single = self.advantage_PCTE[0, 0].numel() == 1
        only = int(cohorts[0]) if len(cohorts) == 1 else None

        def pick(tensor_PCTEx: Tensor) -> Tensor:
            if only is not None:
                return tensor_PCTEx[:, only]  # a view: nothing is copied
            picked = tensor_PCTEx.index_select(1, cohorts).flatten(1, 2)
            return picked.transpose(1, 2) if is_single else picked

        def maybe(tensor_PCTEx: Tensor | None) -> Tensor | None:
            return None if tensor_PCTEx is None else pick(tensor_PCTEx)

        taken = self.taken
        return Minibatch(
            self.session_CT[cohorts[:1] if is_single else cohorts],
            Taken(
                pick(taken.done_PLEN),
                pick(taken.square_PLES),
                pick(taken.output_PLEO),
                taken.log_std_PS,
            ),
            maybe(self.account_PCTES),
            pick(self.advantage_PCTE),
            maybe(self.return_PCTE),
            maybe(self.is_open_PCTE),
        )
