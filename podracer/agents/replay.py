"""What off-policy algorithms remember: account and action on a session, never the market's features.

A transition of 30 stocks takes 376 bytes instead of the 2.5 kB of two whole observations.

Shapes: P agents, X transitions, R slots of the ring, S account inputs, N actions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from podracer.agents.settings import ReplaySettings
from podracer.errors import ConfigError


class Transitions(NamedTuple):
    """What X decisions of each agent led to.

    Attributes:
        session_X: rows of the market; all agents share them.
        account_PXS: what was seen of the account (cash and holdings as fractions of equity, unless
            declared otherwise), or the observation of an environment without a market.
        action_PXN: what was done.
        reward_PX: what it earned.
        next_account_PXS: what it led to, on the session after.
        goes_on_PX: 0 where the episode came to its end, so that what follows is worth nothing.
    """

    session_X: Tensor
    account_PXS: Tensor
    action_PXN: Tensor
    reward_PX: Tensor
    next_account_PXS: Tensor
    goes_on_PX: Tensor


class Replay:
    """A ring of transitions; the oldest give way.

    In a file it outlives its process: with more slots than are drawn from, what was written since a
    checkpoint has only taken the place of what the checkpoint no longer drew from. So a checkpoint
    needs nothing but the count, and a resumed training draws the very transitions of an undisturbed
    one. (A machine that loses power may lose the file; training then starts anew.)

    Attributes:
        capacity: transitions of an agent that are drawn from at most.
        count: transitions of an agent so far.
        is_kept: whether the file was there before.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        num_agents: int,
        num_account_inputs: int,
        num_actions: int,
        spare: int,
        path: Path | None = None,
    ) -> None:
        """Open an empty ring.

        Args:
            settings: how much to remember.
            num_agents: P.
            num_account_inputs: S.
            num_actions: N.
            spare: transitions of an agent that may be written between two checkpoints.
            path: a file to keep the ring in; in memory if None. An existing file of the right size is
                gone on with, see `count`.

        Raises:
            ConfigError: if a batch does not fit into the memory that is allowed.
        """
        # A row is account, next account, action, reward and whether it goes on.
        width = 2 * num_account_inputs + num_actions + 2
        fits = settings.capacity_mb * 2**20 // (4 * width * num_agents) - spare
        self.capacity = min(settings.capacity_steps, fits)
        if self.capacity < settings.batch_size:
            needed = 4 * width * num_agents * (settings.batch_size + spare) / 2**20
            raise ConfigError(
                f"pod.replay.capacity_mb: {settings.capacity_mb} MiB hold fewer than the "
                f"{settings.batch_size} transitions of a batch beside the {spare} between two "
                f"checkpoints, for {num_agents} agents. Set it to {int(np.ceil(needed))} at least."
            )
        self.count = 0
        self.is_kept = False
        self._num_slots = self.capacity + spare
        shape = (num_agents, self._num_slots, width)
        self._session_R = torch.zeros(self._num_slots, dtype=torch.int64)
        if path is None:
            self._rows_PRX = torch.zeros(shape)
        else:
            size = 4 * int(np.prod(shape)) + 8 * self._num_slots
            self.is_kept = path.exists() and path.stat().st_size == size
            if not self.is_kept:
                with path.open("wb") as file:
                    file.truncate(size)
            self._file = np.memmap(path, np.uint8, mode="r+", shape=(size,))
            rows = self._file[: 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
            self._rows_PRX = torch.from_numpy(rows)
            self._session_R = torch.from_numpy(self._file[rows.nbytes :].view(np.int64))
        self._sizes = [num_account_inputs, num_actions, 1, num_account_inputs, 1]

    def __len__(self) -> int:
        """Transitions that may be drawn."""
        return min(self.count, self.capacity)

    def add(self, new: Transitions) -> None:
        """Remember transitions."""
        slots_X = (self.count + torch.arange(len(new.session_X))) % self._num_slots
        self._session_R[slots_X] = new.session_X
        row_PXW = torch.cat(
            [
                new.account_PXS,
                new.action_PXN,
                new.reward_PX[..., None],
                new.next_account_PXS,
                new.goes_on_PX[..., None],
            ],
            dim=-1,
        )
        self._rows_PRX[:, slots_X] = row_PXW
        self.count += len(new.session_X)

    def draw(self, number: int, generator: torch.Generator) -> Transitions:
        """Return transitions, drawn uniformly with replacement; all agents get the same slots."""
        age_X = torch.randint(0, len(self), (number,), generator=generator)
        slots_X = (self.count - 1 - age_X) % self._num_slots
        parts = torch.split(self._rows_PRX.index_select(1, slots_X), self._sizes, dim=-1)
        account, action, reward, next_account, goes_on = parts
        return Transitions(
            self._session_R[slots_X], account, action, reward[..., 0], next_account, goes_on[..., 0]
        )

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        if hasattr(self, "_file"):
            self._file.flush()

    def facts(self) -> Mapping[str, int]:
        """Return what a checkpoint must keep."""
        return {"count": self.count, "slots": self._num_slots}
