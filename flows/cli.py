"""The command line: `podracer …`. Heavy libraries are imported by the commands that need them."""

import errno
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from flows.console import DEFAULT_PARAMS, Params, Set, errors, escaped, load, out, settings_table
from flows.data_commands import data, print_quality
from flows.env_commands import env
from flows.pod_commands import pod
from podracer.errors import NotFinalError, PodracerError

if TYPE_CHECKING:
    from podracer.pipeline.runs import Outcome

app = typer.Typer(
    help="Tournaments of deep-RL trading agents, from prices to an honest report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
config = typer.Typer(help="Settings.", no_args_is_help=True)
stage = typer.Typer(help="DVC stages: the steps of a run without Prefect.", hidden=True)
app.add_typer(data, name="data")
app.add_typer(env, name="env")
app.add_typer(pod, name="pod")
app.add_typer(config, name="config")
app.add_typer(stage, name="stage")

INTERRUPTED = 130
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_YET = 3
PREFECT_HOME = Path("store") / "prefect"


def main() -> None:
    """Run the command line; an expected error is one line and exit code 2."""
    try:
        app()
    except NotFinalError as error:
        errors.print(f"[yellow]skipped:[/] {escaped(str(error))}", soft_wrap=True)
        sys.exit(NOT_YET)
    except PodracerError as error:
        errors.print(f"[bold red]error:[/] {escaped(str(error))}", soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        errors.print(
            f"[bold red]error:[/] the disk is full ({escaped(str(error))}). What was there is as it "
            f"was; free some space and run again.",
            soft_wrap=True,
        )
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what Typer makes of Ctrl-C
            errors.print("stopped; finished pods are kept, run again to go on", style="bold red")
        raise


@app.command()
def run(
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
    force: Annotated[bool, typer.Option(help="Backtest again even if nothing is new.")] = False,
) -> None:
    """Ingest, train a tournament, backtest the champion, write the report."""
    from flows.progress import watch
    from flows.server import prefect_server
    from podracer.pipeline import runs
    from podracer.pipeline.preflight import preflight

    started = time.perf_counter()
    settings = load(params, set_)
    known = preflight(settings)
    if known.remark:
        out.print(f"[dim]{known.remark}[/]")
    folder = runs.run_folder(settings, known.dataset_hash)
    out.print(f"[dim]run {folder.name} · starting a Prefect server on loopback …[/]")
    with prefect_server(PREFECT_HOME), watch(settings, folder, out):
        server_seconds = time.perf_counter() - started
        from flows.retrain import retrain

        state = retrain(settings, force=force, return_state=True)
        if state.name == "Skipped" and state.data is None:
            out.print(f"[yellow]skipped:[/] {escaped(str(state.message))}", soft_wrap=True)
            raise typer.Exit(NOT_YET)
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
    from podracer.pipeline import datasets
    from podracer.pipeline.preflight import preflight

    settings = load(params, set_)
    preflight(settings)
    with prefect_server(PREFECT_HOME):
        from flows.ingest import ingest as flow

        market, dvc_hash = flow(settings)
    print_quality(datasets.read_quality(market))
    out.print(f"market {market}, DVC hash {dvc_hash}", soft_wrap=True)


@app.command()
def tournament(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Ingest and train a tournament; the lockbox stays closed."""
    from flows.progress import watch
    from flows.server import prefect_server
    from podracer.pipeline import runs
    from podracer.pipeline.preflight import preflight

    settings = load(params, set_)
    dataset_hash = preflight(settings).dataset_hash
    folder = runs.run_folder(settings, dataset_hash)
    if runs.has_champion(settings, dataset_hash):
        out.print(f"[yellow]skipped:[/] nothing is new since run {folder.name}")
        leaderboard(params, set_)
        return
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
    from podracer.tournament.entry import leaderboard_json

    settings = load(params, set_)
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
            "guest" if entry.kind == "guest" else entry.parent or "new",
            entry.weights_hash[:8],
        )
    out.print(table)


@app.command()
def enter(
    sb3: Annotated[Path, typer.Option(help="The zip that Stable-Baselines3's model.save() wrote.")],
    algorithm: Annotated[str, typer.Option(help="ppo, a2c, sac, td3 or ddpg.")],
    name: Annotated[str | None, typer.Option(help="On the leaderboard; the file's name.")] = None,
    net_arch: Annotated[
        str | None, typer.Option(help="Hidden layers as 64,64; SB3's default if left out.")
    ] = None,
    activation: Annotated[str | None, typer.Option(help="tanh or relu; SB3's default.")] = None,
    stack: Annotated[int, typer.Option(help="Observations side by side.")] = 1,
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
) -> None:
    """Enter a policy that Stable-Baselines3 trained into the finished tournament, as a guest."""
    from podracer.pipeline import datasets, runs
    from podracer.pipeline.guests import declare, enter
    from podracer.pipeline.preflight import preflight

    settings = load(params, set_)
    guest = declare(sb3, algorithm, net_arch, activation, stack, name)
    runs.require_tournament(settings, preflight(settings).dataset_hash)
    market = datasets.features(settings, datasets.ingest(settings))
    entry = enter(settings, market, guest)
    score = f"{entry.score:.4f}" if entry.score is not None else entry.reason
    out.print(f"{entry.name}: score {score}; it counts as a trial of this window")
    out.print("[dim]what it was trained on is its owner's word: podracer cannot check it[/]")
    leaderboard(params, set_)


@app.command()
def backtest(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Backtest the champion of the finished tournament and write its report."""
    from flows.server import prefect_server
    from podracer.pipeline import runs
    from podracer.pipeline.preflight import preflight

    settings = load(params, set_)
    runs.require_tournament(settings, preflight(settings).dataset_hash)
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

    settings = load(params, set_)
    with prefect_server(PREFECT_HOME, port) as url:
        from flows.deploy import serve_deployments

        out.print(f"Prefect UI: {url.removesuffix('/api')} · stop with Ctrl-C")
        out.print(
            f"[dim]from another shell: PREFECT_API_URL={url} prefect deployment run retrain/retrain[/]",
            soft_wrap=True,
        )
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


@config.command("explain")
def config_explain(params: Params = DEFAULT_PARAMS, set_: Set = None) -> None:
    """Print every setting with its value and meaning."""
    from podracer.config import explain

    out.print(settings_table(explain(load(params, set_))))


@config.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of params.yaml."""
    from podracer.config import PodracerSettings

    sys.stdout.write(json.dumps(PodracerSettings.model_json_schema(), indent=1) + "\n")


@stage.command("ingest")
def stage_ingest() -> None:
    """Write data/raw/current."""
    from flows import stages

    stages.ingest(load(DEFAULT_PARAMS, None))


@stage.command("features")
def stage_features() -> None:
    """Write data/features/current."""
    from flows import stages

    stages.features(load(DEFAULT_PARAMS, None))


@stage.command("tournament")
def stage_tournament() -> None:
    """Write pipeline/leaderboard.json and pipeline/generations.json."""
    from flows import stages

    stages.tournament(load(DEFAULT_PARAMS, None))


@stage.command("backtest")
def stage_backtest() -> None:
    """Write pipeline/metrics.json, pipeline/equity.csv and pipeline/report.html."""
    from flows import stages

    stages.backtest(load(DEFAULT_PARAMS, None))
