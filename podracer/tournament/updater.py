"""The updater: which finished agents enter the bounded leaderboard."""

from collections.abc import Sequence
from typing import NamedTuple

from podracer.tournament.entry import Entry, ranked


class BoardChange(NamedTuple):
    """The board after an update, best first, and what changed."""

    entries: list[Entry]
    entered: list[Entry]
    evicted: list[Entry]


def update(board: Sequence[Entry], candidates: Sequence[Entry], capacity: int) -> BoardChange:
    """Merge finished agents into the board and keep the best `capacity`.

    Of equal scores the earlier entry wins; undefined scores rank last. An agent that is already on
    the board (a repeated offer) is not added twice.
    """
    known = {e.name for e in board}
    merged = ranked([*board, *(c for c in candidates if c.name not in known)])
    kept = merged[:capacity]
    names = {e.name for e in kept}
    return BoardChange(
        kept,
        [e for e in kept if e.name not in known],
        [e for e in board if e.name not in names],
    )
