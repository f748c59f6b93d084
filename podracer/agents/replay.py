"""What off-policy algorithms remember: account and action on a session, never the market's features.

A transition of 30 stocks takes 380 bytes instead of the 2.5 kB of two whole observations.

Shapes: P agents, L sessions, E accounts of an agent on each of them, R slots of the ring, S account
inputs, N actions, X numbers of a transition.
"""

import hashlib
import logging
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from podracer.agents.settings import ReplaySettings
from podracer.errors import CheckpointError, ConfigError

logger = logging.getLogger(__name__)


class Transitions(NamedTuple):
    """What the decisions of E accounts of each agent on L sessions led to.

    Attributes:
        session_L: rows of the market; all agents share them.
        account_PLES: what was seen of the account (cash and holdings as fractions of equity, unless
            declared otherwise), or the observation of an environment without a market.
        action_PLEN: what was done.
        reward_PLE: what it earned.
        next_account_PLES: what it led to, on the session after.
        goes_on_PLE: 0 where the episode came to its end, so that what follows is worth nothing.
        is_open_PLE: 0 where it had ended before and the account only waits: nothing is learnt of it.
    """

    session_L: Tensor
    account_PLES: Tensor
    action_PLEN: Tensor
    reward_PLE: Tensor
    next_account_PLES: Tensor
    goes_on_PLE: Tensor
    is_open_PLE: Tensor


class Replay:
    """A ring of sessions, each with the transitions of a cohort's accounts; the oldest give way.

    The accounts of a session are drawn together, so that networks see its market features once.

    In a file it outlives its process: with more slots than are drawn from, what was written since a
    checkpoint has only taken the place of what the checkpoint no longer drew from. So a checkpoint
    needs nothing but the count and a digest, and a resumed training draws the very transitions of an
    undisturbed one. (A machine that loses power may lose the file; training then starts anew.)

    Attributes:
        capacity: slots that are drawn from at most.
        count: slots written so far.
        memory_bytes: of all slots.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        shape: tuple[int, int, int, int],
        spare_steps: int,
        path: Path | None = None,
    ) -> None:
        """Open an empty ring.

        Args:
            settings: how much to remember.
            shape: P agents, E accounts of each on a session, S account inputs, N actions.
            spare_steps: transitions of an agent that may be written between two checkpoints.
            path: a file to keep the ring in; in memory if None. An existing file of the right size is
                gone on with, see `count`.

        Raises:
            ConfigError: if a batch does not fit into the memory that is allowed.
        """
        P, E, S, N = shape
        self._num_accounts = E
        # A row is account, next account, action, reward, whether it goes on and whether it is open.
        self._sizes = [S, S, N, 1, 1, 1]
        slot_bytes = 4 * P * E * sum(self._sizes)
        spare, smallest = -(-spare_steps // E), -(-settings.batch_size // E)
        fits = settings.capacity_mb * 2**20 // slot_bytes - spare
        self.capacity = min(-(-settings.capacity_steps // E), fits)
        if self.capacity < -(-settings.capacity_steps // E):
            logger.warning(
                "replay.capacity_mb=%d holds %d transitions of an agent, not the %d asked for",
                settings.capacity_mb,
                max(self.capacity, 0) * E,
                settings.capacity_steps,
            )
        if self.capacity < smallest:
            needed = slot_bytes * (smallest + spare) / 2**20
            raise ConfigError(
                f"pod.replay.capacity_mb: {settings.capacity_mb} MiB hold fewer than the "
                f"{settings.batch_size} transitions of a batch beside the {spare_steps} between two "
                f"checkpoints, for {P} agents. Set it to {int(np.ceil(needed))} at least, or lower "
                f"pod.checkpoint_every."
            )
        self.count = 0
        self._is_kept = False
        self._num_slots = self.capacity + spare
        rows = (self._num_slots, P, E, sum(self._sizes))
        self.memory_bytes = self._num_slots * (slot_bytes + 8)
        self._session_R = torch.zeros(self._num_slots, dtype=torch.int64)
        self._checksum_R = np.zeros(self._num_slots, dtype=np.uint32)
        self._rows_RPEX = torch.zeros(rows if path is None else 0)
        if path is not None:
            self._open(path, rows)

    def __len__(self) -> int:
        """Transitions of an agent that may be drawn."""
        return min(self.count, self.capacity) * self._num_accounts

    def add(self, new: Transitions) -> None:
        """Remember transitions."""
        number = len(new.session_L)
        slots_L = (self.count + torch.arange(number)) % self._num_slots
        self._session_R[slots_L] = new.session_L
        parts = (
            new.account_PLES,
            new.next_account_PLES,
            new.action_PLEN,
            new.reward_PLE[..., None],
            new.goes_on_PLE[..., None],
            new.is_open_PLE[..., None],
        )
        self._rows_RPEX[slots_L] = torch.cat(parts, dim=-1).transpose(0, 1)
        self._sum(slots_L)
        self.count += number

    def draw(self, number: int, generator: torch.Generator) -> Transitions:
        """Return about that many transitions of each agent: whole sessions, uniformly, with replacement.

        All agents get the same sessions.
        """
        num_sessions = -(-number // self._num_accounts)
        stored = len(self) // self._num_accounts
        age_L = torch.randint(0, stored, (num_sessions,), generator=generator)
        slots_L = (self.count - 1 - age_L) % self._num_slots
        rows_PLEX = self._rows_RPEX.index_select(0, slots_L).transpose(0, 1)
        parts = torch.split(rows_PLEX, self._sizes, dim=-1)
        account, after, action, *rest = (part.contiguous() for part in parts)
        reward, goes_on, is_open = (part[..., 0] for part in rest)
        return Transitions(
            self._session_R[slots_L], account, action, reward, after, goes_on, is_open
        )

    def _open(self, path: Path, rows: tuple[int, ...]) -> None:
        size = 4 * int(np.prod(rows)) + 8 * self._num_slots
        self._is_kept = path.exists() and path.stat().st_size == size
        if not self._is_kept:
            with path.open("wb") as file:
                file.truncate(size)
        self._file = np.memmap(path, np.uint8, mode="r+", shape=(size,))
        numbers = self._file[: size - 8 * self._num_slots].view(np.float32)
        self._rows_RPEX = torch.from_numpy(numbers.reshape(rows))
        self._session_R = torch.from_numpy(self._file[numbers.nbytes :].view(np.int64))

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        if hasattr(self, "_file"):
            self._file.flush()

    def facts(self) -> dict[str, Any]:
        """Return what a checkpoint must keep."""
        return {"count": self.count, "slots": self._num_slots, "digest": self._digest()}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Go on with what the file keeps of a checkpoint.

        Raises:
            CheckpointError: if the file is gone, of another size or of other content.
        """
        if not self._is_kept or self._num_slots != facts["slots"]:
            raise CheckpointError("the replay's file is gone or of another size")
        self.count = facts["count"]
        self._sum(self._drawn())
        if self._digest() != facts["digest"]:
            self.count = 0
            raise CheckpointError("the replay's file is damaged or of another training")

    def _drawn(self) -> Tensor:
        """Return the slots that may be drawn, newest first."""
        return (self.count - 1 - torch.arange(min(self.count, self.capacity))) % self._num_slots

    def _sum(self, slots_L: Tensor) -> None:
        rows_RX = self._rows_RPEX.numpy().reshape(self._num_slots, -1)
        for slot in slots_L.tolist():
            self._checksum_R[slot] = zlib.crc32(rows_RX[slot])

    def _digest(self) -> str:
        drawn = self._drawn().numpy()
        digest = hashlib.sha256(self._session_R.numpy()[drawn])
        digest.update(self._checksum_R[drawn])
        return digest.hexdigest()
