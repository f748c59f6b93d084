"""What all commands share: where they print, how they read settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from podracer.config import PodracerSettings

out = Console()
errors = Console(stderr=True)

Params = Annotated[Path, typer.Option("--params", "-p", help="Settings file.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="Override a setting: pod.steps=50000.")
]
DEFAULT_PARAMS = Path("params.yaml")


def escaped(text: str) -> str:
    """Return text that Rich prints as it is."""
    from rich.markup import escape

    return escape(text)


def load(params: Path, overrides: list[str] | None) -> "PodracerSettings":
    """Read and check the settings."""
    from podracer.config import load_settings

    return load_settings(params, overrides or [])
