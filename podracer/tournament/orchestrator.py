"""The orchestrator: the loop of generator → training pool → updater, against two protocols."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from podracer.agents.settings import Hyperparameters
from podracer.envs.settings import EnvSettings
from podracer.errors import LeaderboardError
from podracer.files import write_text
from podracer.market.market import Market
from podracer.market.windows import Windows
from podracer.pods.settings import PodSettings
from podracer.pods.spec import PodResult, PodSpec
from podracer.tournament import generator
from podracer.tournament.entry import Entry, ranked
from podracer.tournament.ledger import Ledger
from podracer.tournament.selection import make_judge
from podracer.tournament.settings import TournamentSettings
from podracer.tournament.updater import update

logger = logging.getLogger(__name__)


class TrainingPool(Protocol):
    """Where pods are trained."""

    def submit(self, spec: PodSpec) -> None:
        """Queue a pod."""
        ...

    def next_finished(self) -> PodResult:
        """Wait for the next pod to finish, in any order.

        Raises:
            PodError: if a pod could not be trained, also after a retry.
        """
        ...


class Board(Protocol):
    """The bounded leaderboard of one tournament."""

    def entries(self) -> list[Entry]:
        """Return the entries, best first."""
        ...

    def offer(self, candidates: Sequence[Entry]) -> list[Entry]:
        """Let the updater merge candidates; returns the entries, best first."""
        ...


@dataclass(frozen=True)
class TournamentJob:
    """All that a tournament needs to know."""

    run: str
    seed: int
    settings: TournamentSettings
    pod: PodSettings
    hyperparameters: Hyperparameters
    env: EnvSettings
    market: Market
    market_folder: Path
    windows: Windows
    folder: Path


@dataclass(frozen=True)
class GenerationSummary:
    """One generation in numbers; scores are None where no agent had one."""

    generation: int
    best_score: float | None
    median_score: float | None
    median_train_score: float | None
    board_best_score: float | None
    entered: int
    failed: int
    steps: int
    cpu_seconds: float


@dataclass(frozen=True)
class TournamentSummary:
    """The final board and how it came about."""

    entries: tuple[Entry, ...]
    generations: tuple[GenerationSummary, ...]
    num_trials: int

    @property
    def scored(self) -> tuple[Entry, ...]:
        """Entries with a defined score, best first."""
        return tuple(e for e in self.entries if e.score is not None)

    def save(self, path: Path) -> None:
        """Write the summary as JSON."""
        facts = asdict(self)
        for entry in facts["entries"]:
            entry["checkpoint"] = str(Path(entry["checkpoint"]).relative_to(path.parent.resolve()))
        write_text(path, json.dumps(facts, indent=1))


def load_summary(path: Path) -> TournamentSummary:
    """Read a saved summary."""
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    folder = path.parent.resolve()
    entries = [Entry(**e | {"checkpoint": folder / e["checkpoint"]}) for e in facts["entries"]]
    generations = [GenerationSummary(**g) for g in facts["generations"]]
    return TournamentSummary(tuple(entries), tuple(generations), facts["num_trials"])


def run(
    job: TournamentJob,
    pool: TrainingPool,
    board: Board,
    ledger: Ledger,
    on_generation: Callable[[GenerationSummary], None] | None = None,
) -> TournamentSummary:
    """Run a generational tournament: train all pods of a generation, update the board, repeat.

    Deterministic in the job: pods are specified and their results merged in order of their names,
    however they were scheduled. Finished pods of an interrupted run are not trained again.

    Raises:
        LeaderboardError: if no agent ended with a defined score.
        PodError: if a pod could not be trained.
    """
    judge = make_judge(job.market, job.windows, job.env)
    dates_R = job.windows.selection.return_dates(job.market.dates_D)
    entries: list[Entry] = []
    generations, num_trials = [], 0
    for generation in range(1, job.settings.generations + 1):
        specs = [_pod_spec(job, generation, p, entries) for p in range(1, job.settings.pods + 1)]
        results = []
        for result in _train(pool, specs):
            ledger.record(job.run, job.market.tickers, result, dates_R, judge.selection.benchmark_R)
            results.append(result)
        order = [spec.name for spec in specs]
        results.sort(key=lambda result: order.index(result.name))
        candidates = [entry for result in results for entry in judge.entries(result)]
        before = {e.name for e in entries}
        # The generator must see the board as it was at this generation: on a resumed run the stored
        # board already holds later entries.
        entries = update(entries, candidates, job.settings.board_size).entries
        board.offer(candidates)
        num_trials += len(candidates)
        summary = _summarise(generation, results, candidates, entries, before)
        generations.append(summary)
        if on_generation is not None:
            on_generation(summary)
        logger.info("generation=%d best_score=%s", generation, summary.board_best_score)
    if not any(e.score is not None for e in entries):
        raise LeaderboardError(
            f"tournament {job.run}: no agent has a defined score "
            f"({entries[0].reason if entries else 'none was trained'}). See the pods' checkpoints."
        )
    return TournamentSummary(tuple(entries), tuple(generations), num_trials)


def _pod_spec(job: TournamentJob, generation: int, number: int, board: Sequence[Entry]) -> PodSpec:
    name = f"g{generation}-p{number}"
    agents = generator.next_agents(
        job.settings, job.hyperparameters, board, name, job.pod.agents, job.seed
    )
    return PodSpec(
        name=name,
        generation=generation,
        seed=job.seed,
        agents=agents,
        settings=job.pod,
        env=job.env,
        windows=job.windows,
        market_hash=job.market.hash,
        market_folder=job.market_folder,
        folder=job.folder / "pods" / name,
    )


def _train(pool: TrainingPool, specs: Sequence[PodSpec]) -> Iterator[PodResult]:
    for spec in specs:
        pool.submit(spec)
    for _ in specs:
        yield pool.next_finished()


def _summarise(
    generation: int,
    results: Sequence[PodResult],
    candidates: Sequence[Entry],
    entries: Sequence[Entry],
    before: set[str],
) -> GenerationSummary:
    scored = ranked(c for c in candidates if c.score is not None)
    middle = scored[len(scored) // 2] if scored else None
    return GenerationSummary(
        generation=generation,
        best_score=scored[0].score if scored else None,
        median_score=middle.score if middle else None,
        median_train_score=middle.train_score if middle else None,
        board_best_score=entries[0].score if entries else None,
        entered=sum(e.name not in before for e in entries),
        failed=sum(a.failure is not None for result in results for a in result.agents),
        steps=sum(result.steps for result in results),
        cpu_seconds=sum(result.cpu_seconds for result in results),
    )
