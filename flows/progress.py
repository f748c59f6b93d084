"""One progress line for people, read from the files that pods keep in the run's folder."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from podracer.config import PodracerSettings
from podracer.pods.pools import read_progress

REFRESH_SECONDS = 0.5


@contextmanager
def watch(settings: PodracerSettings, folder: Path, console: Console) -> Iterator[None]:
    """Show generation, pods, agent-steps a second and the best score while the block runs."""
    progress = Progress(
        TextColumn("[bold]training[/]"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    wanted = settings.tournament.generations * settings.tournament.pods * settings.pod.steps
    stop = Event()
    with progress:
        task = progress.add_task("training", total=wanted, status="starting")

        def refresh() -> None:
            last_steps, last_time, rate = _pod_steps(settings, folder), time.monotonic(), 0.0
            while not stop.wait(REFRESH_SECONDS):
                steps = _pod_steps(settings, folder)
                now = time.monotonic()
                if steps > last_steps:
                    rate = (steps - last_steps) * settings.pod.agents / (now - last_time)
                    last_steps, last_time = steps, now
                progress.update(task, completed=steps, status=_status(settings, folder, rate))

        thread = Thread(target=refresh, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _pod_steps(settings: PodracerSettings, folder: Path) -> int:
    total = 0
    for pod in folder.glob("pods/g*-p*"):
        is_done = (pod / "result.json").exists()
        total += settings.pod.steps if is_done else min(read_progress(pod), settings.pod.steps)
    return total


def _status(settings: PodracerSettings, folder: Path, rate: float) -> str:
    pods = [p.parent.name for p in folder.glob("pods/g*-p*/progress.json")]
    done = [p.parent.name for p in folder.glob("pods/g*-p*/result.json")]
    generation = max((int(name[1:].partition("-")[0]) for name in pods), default=1)
    finished = sum(name.startswith(f"g{generation}-") for name in done)
    best = "—"
    path = folder / "generation.json"
    if path.exists():
        score = json.loads(path.read_text(encoding="utf-8"))["board_best_score"]
        best = "—" if score is None else f"{score:.3f}"
    return (
        f"generation {generation}/{settings.tournament.generations} · "
        f"pod {finished}/{settings.tournament.pods} · {rate / 1e3:,.0f} k steps/s · best score {best}"
    )
