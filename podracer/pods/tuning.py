"""How a pod makes the most agent-steps of a core: measured on this machine, in pairs.

From the present settings a search doubles and halves one size at a time and goes on from what was
fastest, until nothing is. Candidates of a round run in rotating order on the same market; only ratios
within a round are compared.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from podracer.errors import ConfigError
from podracer.pods.settings import MAX_WORKERS, PodSettings
from podracer.pods.trainer import Trainer

ROUNDS, FINAL_ROUNDS = 3, 7
# A ratio below is within what the same case moves by from round to round.
LEAST_GAIN = 1.05
# What a worker takes before it has any agents: interpreter, torch, numba (measured 480 MB).
WORKER_BYTES = 500e6
LARGEST = {"agents": 64, "cohorts": 64, "envs_per_cohort": 64, "horizon_bars": 256}
SIZES = tuple(LARGEST)


class Choice(NamedTuple):
    """The sizes that a search may change."""

    agents: int
    cohorts: int
    envs_per_cohort: int
    horizon_bars: int

    def neighbours(self) -> Iterator["Choice"]:
        """Yield every choice with one size doubled or halved."""
        for name in SIZES:
            size = getattr(self, name)
            for other in (2 * size, size // 2):
                if 2 <= other <= LARGEST[name]:
                    yield self._replace(**{name: other})


@dataclass(frozen=True)
class Tuning:
    """What a search has found.

    Attributes:
        before: the present sizes.
        after: the fastest that was found.
        gain: agent-steps per CPU second of `after` over those of `before`, median of the last rounds.
        least: the smallest of those ratios.
        most: the largest.
        steps_a_second: agent-steps per CPU second of one worker with `after`.
        worker_bytes: memory of a worker, estimated from its arrays.
        workers: that cores and memory allow.
        tried: choices that were measured.
    """

    before: Choice
    after: Choice
    gain: float
    least: float
    most: float
    steps_a_second: float
    worker_bytes: float
    workers: int
    tried: int


def choice_of(settings: PodSettings) -> Choice:
    """Return the present sizes."""
    return Choice(*(getattr(settings, name) for name in SIZES))


def tune(
    settings: PodSettings,
    is_allowed: Callable[[PodSettings], bool],
    open_trainer: Callable[[PodSettings, Path], Trainer],
    cores: int,
    memory_bytes: float,
    seconds: float,
) -> Tuning:
    """Search for sizes that train faster.

    Args:
        settings: the present ones.
        is_allowed: whether the rest of the configuration permits some settings.
        open_trainer: a pod with some settings, whose files lie in a folder.
        cores: that workers may use, one each.
        memory_bytes: that all workers together may use.
        seconds: after which no new round is begun.

    Raises:
        ConfigError: if not even one worker with the present sizes fits into the memory.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        bench = _Bench(settings, open_trainer, Path(scratch))
        before = best = choice_of(settings)
        bench.require_memory(before, memory_bytes)
        deadline = time.monotonic() + seconds
        tried = {best}
        while time.monotonic() < deadline:
            fresh = [
                c for c in best.neighbours() if c not in tried and is_allowed(bench.settings(c))
            ]
            fresh = [c for c in fresh if bench.fits(c, memory_bytes)]
            if not fresh:
                break
            tried |= set(fresh)
            rates = bench.rates([best, *fresh], ROUNDS)
            ratios = {c: _median_ratio(rates[c], rates[best]) for c in fresh}
            fastest = max(fresh, key=lambda c: ratios[c])
            if ratios[fastest] < LEAST_GAIN:
                break
            best = fastest
        rates = bench.rates([before, best] if best != before else [before], FINAL_ROUNDS)
        ratios_last = [a / b for a, b in zip(rates[best], rates[before], strict=True)]
        if min(ratios_last) < 1.0:  # within what the same sizes move by
            best, ratios_last = before, [1.0]
        worker_bytes = bench.worker_bytes(best)
    return Tuning(
        before,
        best,
        statistics.median(ratios_last),
        min(ratios_last),
        max(ratios_last),
        statistics.median(rates[best]),
        worker_bytes,
        max(1, min(cores, int(memory_bytes / worker_bytes), MAX_WORKERS)),
        len(tried),
    )


def _median_ratio(rates: list[float], others: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(rates, others, strict=True))


class _Bench:
    """Trainers by their sizes, opened once."""

    def __init__(
        self,
        settings: PodSettings,
        open_trainer: Callable[[PodSettings, Path], Trainer],
        scratch: Path,
    ) -> None:
        self._given = settings
        self._open = open_trainer
        self._scratch = scratch
        self._trainers: dict[Choice, Trainer] = {}

    def settings(self, choice: Choice) -> PodSettings:
        """Return the settings with other sizes."""
        # A replay's warm-up is no part of how fast a pod trains.
        replay = self._given.replay.model_copy(update={"warmup_steps": 0})
        return self._given.model_copy(update=choice._asdict() | {"replay": replay})

    def rates(self, choices: list[Choice], rounds: int) -> Mapping[Choice, list[float]]:
        """Return agent-steps per CPU second of each choice in each round; rounds rotate the order."""
        self._trainers = {c: self._trainer(c) for c in choices}  # others are let go
        found: dict[Choice, list[float]] = {c: [] for c in choices}
        for i in range(rounds):
            for choice in choices[i % len(choices) :] + choices[: i % len(choices)]:
                trainer = self._trainers[choice]
                started, before = time.process_time(), trainer.steps
                trainer.iterate()
                seconds = time.process_time() - started
                found[choice].append((trainer.steps - before) * choice.agents / seconds)
        return found

    def worker_bytes(self, choice: Choice) -> float:
        """Estimate the memory of a worker."""
        return WORKER_BYTES + self._trainer(choice).memory_bytes

    def fits(self, choice: Choice, memory_bytes: float) -> bool:
        """Return whether a worker may have these sizes; a replay may have limits of its own."""
        try:
            return self.worker_bytes(choice) <= memory_bytes
        except ConfigError:
            return False

    def require_memory(self, choice: Choice, memory_bytes: float) -> None:
        """Refuse memory in which no worker fits."""
        needed = self.worker_bytes(choice)
        if needed > memory_bytes:
            raise ConfigError(
                f"--memory-gb: a worker with the present sizes takes about {needed / 1e9:.1f} GB, and "
                f"{memory_bytes / 1e9:g} GB are allowed. Allow more, or lower pod.agents."
            )

    def _trainer(self, choice: Choice) -> Trainer:
        if choice not in self._trainers:
            folder = self._scratch / "-".join(map(str, choice))
            folder.mkdir(exist_ok=True)
            trainer = self._open(self.settings(choice), folder)
            while not trainer.has_begun:  # compile, and fill a replay for a first batch
                trainer.iterate()
            self._trainers[choice] = trainer
        return self._trainers[choice]
