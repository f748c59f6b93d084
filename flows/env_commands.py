"""`podracer env …`: the declared environment."""

import json
import sys
from typing import Annotated

import typer
from rich.table import Column, Table

from flows.console import DEFAULT_PARAMS, Params, Set, escaped, load, out, settings_table

env = typer.Typer(help="The declared environment.", no_args_is_help=True)


@env.command()
def explain(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Print the resolved environment: what agents see, do, pay and earn."""
    from podracer.config import explain as rows
    from podracer.envs.declared import explain as functors
    from podracer.envs.settings import KNOWN
    from podracer.pipeline.preflight import check_prices

    whole = load(params, set_)
    check_prices(whole)
    settings = whole.env
    out.print(f"environment {settings.hash[:16]}")
    table = Table(Column("functor", no_wrap=True), "parameters", "meaning")
    for kind, name, given, meaning in functors(settings):
        shown = ", ".join(f"{key} {value}" for key, value in given.items())
        table.add_row(f"{kind}.{name}", escaped(shown), escaped(meaning))
    out.print(table)
    out.print(settings_table(r for r in rows(settings) if r[0].partition(".")[0] not in KNOWN))


@env.command()
def schema() -> None:
    """Print the JSON Schema of the env section, with the functors of installed packages."""
    from podracer.envs.settings import EnvSettings

    sys.stdout.write(json.dumps(EnvSettings.model_json_schema(), indent=1) + "\n")


@env.command()
def check() -> None:
    """Pass every registered Gymnasium environment through Gymnasium's and SB3's checkers."""
    from podracer.envs.checks import check_faces

    table = Table("environment", "action mode", "Gymnasium", "Stable-Baselines3")
    verdicts = check_faces()
    for v in verdicts:
        table.add_row(v.name, v.mode, escaped(v.gymnasium), escaped(v.stable_baselines))
    out.print(table)
    if not all(v.is_fine for v in verdicts):
        raise typer.Exit(1)


@env.command()
def audit(
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
    probes: Annotated[int, typer.Option(min=1, max=50, help="Closes to look at.")] = 3,
) -> None:
    """Change the future and see whether an observation, a fill or a reward before it moves."""
    from podracer.envs.audit import audit as look
    from podracer.market.loading import load_raw
    from podracer.market.quality import check as gate

    settings = load(params, set_)
    raw, _ = load_raw(settings.data)
    panel, _ = gate(raw, settings.data.quality)
    report = look(panel, settings.features, settings.env, probes)
    leaking = {leak.what: leak.detail for leak in report.leaks}
    table = Table("what", "verdict")
    for what in report.checked:
        detail = leaking.get(what)
        table.add_row(
            what, "no look-ahead" if detail is None else f"[red]LEAKS: {escaped(detail)}[/]"
        )
    out.print(table)
    out.print(f"closes after which the future was changed: {', '.join(map(str, report.probes))}")
    if leaking:
        raise typer.Exit(1)
