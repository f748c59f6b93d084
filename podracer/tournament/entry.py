"""An entry of the leaderboard, and the order of entries.

Shapes: R daily returns.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A trained agent with its score.

    Attributes:
        score: 5 % quantile of the bootstrapped Sharpe difference to the benchmark on the selection
            window; None where it is undefined, with the reason.
        train_score: the same on the training window.
        sharpe: annualised, on the selection window.
        kind: an agent of the tournament, or a guest that was trained elsewhere.
    """

    name: str
    generation: int
    pod: str
    parent: str | None
    hyperparameters: dict[str, float]
    checkpoint: Path
    weights_hash: str
    score: float | None
    reason: str | None
    train_score: float | None
    sharpe: float | None
    kind: str = "agent"


def ranked(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries best first: undefined scores last, ties in the order given (the earlier first)."""
    return sorted(entries, key=lambda e: (e.score is None, -(e.score or 0.0)))


def leaderboard_json(entries: Sequence[Entry]) -> str:
    """Return the board as JSON without run ids, times or paths: equal boards, equal bytes."""
    rows = [
        {k: v for k, v in asdict(entry).items() if k != "checkpoint"} | {"rank": rank}
        for rank, entry in enumerate(entries, start=1)
    ]
    return json.dumps(rows, indent=1, sort_keys=True) + "\n"
