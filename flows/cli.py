"""The command line: `podracer …`. Heavy libraries are imported by the commands that need them."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from podracer.errors import PodracerError

if TYPE_CHECKING:
    from podracer.config import PodracerSettings
    from podracer.pipeline import Outcome

app = typer.Typer(
    help="Tournaments of deep-RL trading agents, from prices to an honest report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
data = typer.Typer(help="Datasets.", no_args_is_help=True)
config = typer.Typer(help="Settings.", no_args_is_help=True)
stage = typer.Typer(help="DVC stages: the steps of a run without Prefect.", hidden=True)
app.add_typer(data, name="data")
app.add_typer(config, name="config")
app.add_typer(stage, name="stage")

out = Console()
errors = Console(stderr=True)
INTERRUPTED = 130
PREFECT_HOME = Path("store") / "prefect"

Params = Annotated[Path, typer.Option("--params", "-p", help="Settings file.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="Override a setting: pod.steps=50000.")
]
DEFAULT_PARAMS = Path("params.yaml")


def main() -> None:
    """Run the command line; an expected error is one line and exit code 2."""
    try:
        app()
    except PodracerError as error:
        errors.print(f"[bold red]error:[/] {_escaped(str(error))}", soft_wrap=True)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what Typer makes of Ctrl-C
            errors.print("stopped; finished pods are kept, run again to go on", style="bold red")
        raise


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _load(params: Path, overrides: list[str] | None) -> "PodracerSettings":
    from podracer.config import load_settings

    return load_settings(params, overrides or [])


@app.command()
def run(
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
    force: Annotated[bool, typer.Option(help="Backtest again even if nothing is new.")] = False,
) -> None:
    """Ingest, train a tournament, backtest the champion, write the report."""
    from flows.progress import watch
    from flows.server import prefect_server
    from podracer import pipeline

    started = time.perf_counter()
    settings = _load(params, set_)
    known = pipeline.preflight(settings)
    if known.remark:
        out.print(f"[dim]{known.remark}[/]")
    folder = pipeline.run_folder(settings, known.dataset_hash)
    out.print(f"[dim]run {folder.name} · starting a Prefect server on loopback …[/]")
    with prefect_server(PREFECT_HOME), watch(settings, folder, out):
        server_seconds = time.perf_counter() - started
        from flows.retrain import retrain

        state = retrain(settings, force=force, return_state=True)
        outcome: Outcome = state.result()  # type: ignore[assignment]
    if state.name == "Skipped":
        out.print(f"[yellow]skipped:[/] nothing is new since run {outcome.run}")
    else:
        _print_timing(folder, server_seconds, time.perf_counter() - started)
    _print_outcome(outcome)


def _print_timing(folder: Path, server_seconds: float, total_seconds: float) -> None:
    seconds = json.loads((folder / "timing.json").read_text(encoding="utf-8"))
    parts = {"server": server_seconds, **seconds}
    parts["rest"] = total_seconds - sum(parts.values())
    spent = " · ".join(f"{name} {value:.0f} s" for name, value in parts.items())
    out.print(f"[dim]{total_seconds:.0f} s in all: {spent}[/]", soft_wrap=True)


def _print_outcome(outcome: "Outcome") -> None:
    def ratio(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.2f}"

    out.print(f"[bold]{outcome.statement}[/]")
    out.print(
        f"lockbox Sharpe: champion {ratio(outcome.champion_sharpe)}, "
        f"equal weight {ratio(outcome.benchmark_sharpe)}; {outcome.num_trials} trials"
    )
    out.print(f"champion: version {outcome.champion_version}")
    out.print(f"report:   {outcome.report}", soft_wrap=True)


@app.command()
def ingest(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Check prices, version them, compute features."""
    from flows.server import prefect_server
    from podracer import pipeline

    settings = _load(params, set_)
    pipeline.preflight(settings)
    with prefect_server(PREFECT_HOME):
        from flows.ingest import ingest as flow

        market, dvc_hash = flow(settings)
    out.print(f"market {market}, DVC hash {dvc_hash}")


@app.command()
def tournament(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Ingest and train a tournament; the lockbox stays closed."""
    from flows.progress import watch
    from flows.server import prefect_server
    from podracer import pipeline

    settings = _load(params, set_)
    folder = pipeline.run_folder(settings, pipeline.preflight(settings).dataset_hash)
    with prefect_server(PREFECT_HOME), watch(settings, folder, out):
        from flows.ingest import ingest as ingest_flow
        from flows.tournament import tournament as tournament_flow

        market, dvc_hash = ingest_flow(settings)
        tournament_flow(settings, market, dvc_hash)
    leaderboard(params, set_)


@app.command()
def leaderboard(
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Show the leaderboard of the newest tournament."""
    from podracer.leaderboard.board import read_board
    from podracer.pipeline import leaderboard_json

    settings = _load(params, set_)
    entries = read_board(settings.store, settings.name)
    if as_json:
        sys.stdout.write(leaderboard_json(entries))
        return
    table = Table("rank", "agent", "score", "Sharpe", "parent", "weights", title=settings.name)
    for rank, entry in enumerate(entries, start=1):
        table.add_row(
            str(rank),
            entry.name,
            f"{entry.score:.4f}" if entry.score is not None else entry.reason,
            f"{entry.sharpe:.3f}" if entry.sharpe is not None else "—",
            entry.parent or "new",
            entry.weights_hash[:8],
        )
    out.print(table)


@app.command()
def backtest(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Backtest the champion of the finished tournament and write its report."""
    from flows.server import prefect_server
    from podracer import pipeline

    settings = _load(params, set_)
    pipeline.require_tournament(settings, pipeline.preflight(settings).dataset_hash)
    with prefect_server(PREFECT_HOME):
        from flows.backtest import backtest as flow

        outcome = flow(settings)
    _print_outcome(outcome)


@app.command()
def serve(
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
    port: Annotated[
        int, typer.Option(help="Port of the Prefect UI, if it is started here.")
    ] = 4200,
) -> None:
    """Serve the retrain and backtest deployments until stopped."""
    from flows.server import prefect_server

    settings = _load(params, set_)
    with prefect_server(PREFECT_HOME, port) as url:
        from flows.deploy import serve_deployments

        out.print(f"Prefect UI: {url.removesuffix('/api')} · stop with Ctrl-C")
        serve_deployments(settings)


@app.command()
def doctor(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Tell versions, device, cores, stores, and what is missing."""
    from flows.doctor import examine

    table = Table("what", "found", "remark")
    findings = examine(params, set_ or [])
    for finding in findings:
        style = "" if finding.is_fine else "red"
        table.add_row(finding.what, finding.found, finding.remark, style=style)
    out.print(table)
    if not all(f.is_fine for f in findings):
        raise typer.Exit(1)


@data.command("list")
def data_list() -> None:
    """Show the bundled datasets."""
    from podracer.market.sources.bundled import datasets

    for dataset in datasets():
        facts = dataset.facts
        table = Table(show_header=False, title=f"{dataset.name}: {dataset.title}", width=100)
        first, last = facts["span"]
        rows: dict[str, Any] = {
            "span": f"{first} … {last}, {facts['tickers']} tickers",
            "columns": ", ".join(facts["columns"]),
            "adjustment": facts["adjustment"],
            "survivorship": facts["survivorship"],
            "known defects": "; ".join(facts["known_defects"]) or "none found",
            "source": facts["source"],
            "licence": facts["licence"],
            "windows": "\n".join(f"{k}: {v}" for k, v in facts["default_windows"].items()),
        }
        for key, value in rows.items():
            table.add_row(key, value)
        out.print(table)


@config.command("explain")
def config_explain(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Print every setting with its value and meaning."""
    from podracer.config import explain

    table = Table("setting", "value", "meaning")
    for key, value, meaning in explain(_load(params, set_)):
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(key, _escaped(shown), _escaped(meaning))
    out.print(table)


@config.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of params.yaml."""
    from podracer.config import PodracerSettings

    sys.stdout.write(json.dumps(PodracerSettings.model_json_schema(), indent=1) + "\n")


@stage.command("ingest")
def stage_ingest() -> None:
    """Write data/raw/current."""
    from flows import stages

    stages.ingest(_load(DEFAULT_PARAMS, None))


@stage.command("features")
def stage_features() -> None:
    """Write data/features/current."""
    from flows import stages

    stages.features(_load(DEFAULT_PARAMS, None))


@stage.command("tournament")
def stage_tournament() -> None:
    """Write pipeline/leaderboard.json and pipeline/generations.json."""
    from flows import stages

    stages.tournament(_load(DEFAULT_PARAMS, None))


@stage.command("backtest")
def stage_backtest() -> None:
    """Write pipeline/metrics.json, pipeline/equity.csv and pipeline/report.html."""
    from flows import stages

    stages.backtest(_load(DEFAULT_PARAMS, None))
