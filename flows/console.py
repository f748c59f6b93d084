"""What all commands share: where they print, how they read settings."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from podracer.config import PodracerSettings

out = Console()
errors = Console(stderr=True)

Params = Annotated[Path, typer.Option("--params", "-p", help="Settings file.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="Override a setting: pod.steps=50000.")
]
DEFAULT_PARAMS = Path("params.yaml")


def settings_table(rows: Iterable[tuple[str, Any, str]]) -> Table:
    """Return settings with their values and meanings as a table."""
    table = Table(Column("setting", no_wrap=True), "value", "meaning")
    for key, value, meaning in rows:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(key, escaped("null" if value is None else shown), escaped(meaning))
    return table


def escaped(text: str) -> str:
    """Return text that Rich prints as it is."""
    from rich.markup import escape

    return escape(text)


def load(params: Path, overrides: list[str] | None) -> "PodracerSettings":
    """Read and check the settings."""
    from podracer.config import load_settings

    return load_settings(params, overrides or [])
