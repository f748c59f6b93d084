"""`podracer pod …`: training on this machine."""

import json
import os
import stat
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from flows.console import DEFAULT_PARAMS, Params, Set, load, out
from podracer.errors import ConfigError

pod = typer.Typer(help="Pods: the training of a population.", no_args_is_help=True)


@pod.callback()
def _group() -> None:
    """Keep `tune` a command of its own."""


def _require_writable(params: Path, overrides: list[str] | None) -> None:
    """Refuse a settings file that the choice could not go into, before anything is measured."""
    if overrides:
        raise ConfigError(
            f"--write: {params} would get sizes that were measured with --set {overrides[0]}. Put that "
            f"into the file first, or leave one of the two out."
        )
    if not params.is_file():
        raise ConfigError(f"--write: {params} is no regular file. Give --params FILE.")
    # Root passes every check of access; a file without the bit is meant to stay as it is.
    is_meant_to_stay = not params.stat().st_mode & stat.S_IWUSR
    if is_meant_to_stay or not os.access(params.resolve().parent, os.W_OK):
        raise ConfigError(
            f"--write: {params} or its folder is read-only. Make both writable, or leave --write out."
        )


@pod.command()
def tune(
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores for workers; all usable ones if not given.")
    ] = None,
    memory_gb: Annotated[
        float | None,
        typer.Option(min=0.1, max=1e6, help="Memory of all workers; the machine's if not given."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=1, max=3600, help="No new round is begun after this long."),
    ] = 60,
    write: Annotated[bool, typer.Option(help="Write the choice into the settings file.")] = False,
) -> None:
    """Measure which sizes of a pod train fastest here, and propose them."""
    settings = load(params, set_)
    from podracer.files import write_text
    from podracer.pipeline import datasets, tuning
    from podracer.pipeline.preflight import preflight
    from podracer.pods.memory import machine_bytes

    if write:
        _require_writable(params, set_)
    preflight(settings)
    market = datasets.features(settings, datasets.ingest(settings))
    usable = cores or len(os.sched_getaffinity(0))
    memory = memory_gb * 1e9 if memory_gb else machine_bytes()
    found = tuning.tune(settings, market, usable, memory, seconds)
    table = Table("setting", "now", "proposed")
    for name, now in found.before._asdict().items():
        table.add_row(f"pod.{name}", str(now), str(getattr(found.after, name)))
    now_workers = "null" if settings.pool.workers is None else str(settings.pool.workers)
    table.add_row("pool.workers", now_workers, str(found.workers))
    out.print(table)
    out.print(
        f"{found.steps_a_second:,.0f} agent-steps per CPU second of a worker, {found.gain:.2f}x the "
        f"present ({found.least:.2f} … {found.most:.2f}); {found.tried} sizes tried; a worker takes "
        f"about {found.worker_bytes / 1e9:.1f} GB."
    )
    record = settings.store.folder / "tuning.json"
    write_text(record, json.dumps(tuning.facts(found), indent=1))
    if write:
        tuning.write(found, params)
        out.print(f"Written into {params}. Other sizes are another configuration: runs start anew.")
        return
    out.print(f"Kept in {record}; --write puts it into {Path(params)}.")
