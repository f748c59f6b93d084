"""A leaderboard in memory, for notebooks and tests."""

from collections.abc import Sequence

from podracer.tournament.entry import Entry
from podracer.tournament.updater import update


class MemoryBoard:
    """A bounded board that is gone with the process."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """Return the entries, best first."""
        return list(self._entries)

    def offer(self, candidates: Sequence[Entry]) -> list[Entry]:
        """Merge candidates; returns the entries, best first."""
        self._entries = update(self._entries, candidates, self._capacity).entries
        return self.entries()
