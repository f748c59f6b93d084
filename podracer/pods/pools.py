"""Training pools on one machine: pods in this process, or in persistent single-thread workers."""

import json
import logging
import multiprocessing
import os
import time
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from queue import Queue
from threading import Lock, Thread

from podracer.errors import PodError
from podracer.files import write_text
from podracer.pods import pod
from podracer.pods.spec import PodResult, PodSpec

logger = logging.getLogger(__name__)

# A worker that dies takes its pod along; the next attempt goes on from the pod's checkpoint.
ATTEMPTS = 3
PROGRESS_SECONDS = 0.5


def train_with_progress(spec: PodSpec) -> PodResult:
    """Train a pod and keep its progress in `progress.json` of its folder, for whoever watches."""
    last = 0.0

    def note(steps: int, mean_reward: float) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_SECONDS:
            last = time.monotonic()
            facts = {"steps": steps, "mean_reward": mean_reward}
            write_text(spec.folder / "progress.json", json.dumps(facts))

    spec.folder.mkdir(parents=True, exist_ok=True)
    return pod.train(spec, note)


def read_progress(folder: Path) -> int:
    """Return the environment steps per agent that a pod has made, 0 if it has not said."""
    try:
        return int(json.loads((folder / "progress.json").read_text(encoding="utf-8"))["steps"])
    except (OSError, ValueError):
        return 0


class InlinePool:
    """Trains pods one after the other in this process."""

    def __init__(self) -> None:
        self._waiting: list[PodSpec] = []

    def submit(self, spec: PodSpec) -> None:
        """Queue a pod."""
        self._waiting.append(spec)

    def next_finished(self) -> PodResult:
        """Train the next pod."""
        return train_with_progress(self._waiting.pop(0))


class Workers:
    """Persistent single-thread worker processes; two processes beat two threads by far.

    `train` may be called from as many threads as there are workers; a call waits for a free one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._idle: Queue[ProcessPoolExecutor] = Queue()
        self._all: list[ProcessPoolExecutor] = []
        self._lock = Lock()
        self._is_closed = False
        for _ in range(number):
            self._idle.put(self._start())

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def train(self, spec: PodSpec) -> PodResult:
        """Train a pod in the next free worker; a worker that dies is replaced.

        Raises:
            PodError: if the worker died `ATTEMPTS` times, or the workers were closed.
        """
        for attempt in range(1, ATTEMPTS + 1):
            worker = self._idle.get()
            try:
                self._require_open(spec)
                result = worker.submit(train_with_progress, spec).result()
            except BrokenProcessPool:
                self._require_open(spec)
                logger.warning("pod=%s attempt=%d: its worker died", spec.name, attempt)
                worker.shutdown(wait=False)
                worker = self._start()
            else:
                return result
            finally:
                self._idle.put(worker)
        raise PodError(
            f"pod {spec.name}: its worker died {ATTEMPTS} times, maybe for lack of memory. "
            f"Lower pool.workers or pod.agents and run again; finished pods are kept."
        )

    def close(self) -> None:
        """Stop the workers at once; a pod in training keeps its last checkpoint."""
        self._is_closed = True
        for worker in self._all:
            # From Python 3.14 on this is `terminate_workers`.
            for process in list((worker._processes or {}).values()):
                process.terminate()
            worker.shutdown(wait=False, cancel_futures=True)

    def _require_open(self, spec: PodSpec) -> None:
        if self._is_closed:
            raise PodError(f"pod {spec.name}: its workers were stopped; its checkpoint is kept.")

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        worker = ProcessPoolExecutor(1, mp_context=context, initializer=_single_thread)
        worker.submit(os.getpid)  # start it now, so that its imports overlap with other work
        with self._lock:
            self._all.append(worker)
        return worker


class ProcessPool:
    """Trains pods in a set of workers."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers.number)
        self._running: set[Future[PodResult]] = set()

    def submit(self, spec: PodSpec) -> None:
        """Queue a pod."""
        self._running.add(self._threads.submit(self._workers.train, spec))

    def next_finished(self) -> PodResult:
        """Wait for the next pod to finish."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        first = done.pop()
        self._running.discard(first)
        return first.result()


def _single_thread() -> None:
    import torch

    import podracer.envs.kernel  # noqa: F401  compiled while the rest still starts

    torch.set_num_threads(1)
    Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """End this worker when its parent is gone: a rerun would write into the same pod's folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
