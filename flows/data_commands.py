"""`podracer data …`: datasets, and what the quality gate says of them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from flows.console import DEFAULT_PARAMS, Params, Set, escaped, load, out

if TYPE_CHECKING:
    from podracer.market.quality import QualityReport

data = typer.Typer(help="Datasets.", no_args_is_help=True)


@data.command("list")
def list_() -> None:
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


@data.command("check")
def check(
    what: Annotated[
        str | None, typer.Argument(help="A CSV or parquet file, or a bundled dataset.")
    ] = None,
    params: Params = DEFAULT_PARAMS,
    set_: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every cell, machine-readable.")] = False,
) -> None:
    """Pass prices through the quality gate alone; those of params.yaml if none are named."""
    from podracer.market.loading import load_raw
    from podracer.market.quality import check as gate
    from podracer.market.sources.bundled import datasets

    settings = load(params, set_).data
    if what is not None:
        is_bundled = what in {d.name for d in datasets()}
        named = {"source": "bundled", "dataset": what} if is_bundled else {"source": "file"}
        settings = settings.model_copy(update=named | {"path": Path(what)})
    raw, _ = load_raw(settings)
    _, report = gate(raw, settings.quality)
    if as_json:
        sys.stdout.write(report.to_json() + "\n")
        return
    print_quality(report)
    for note in raw.defects:
        out.print(f"known: {escaped(note)}", soft_wrap=True)


def print_quality(report: "QualityReport") -> None:
    """Print what the gate found."""
    out.print(
        f"{report.name}: {len(report.tickers)} tickers, {report.first} … {report.last}, "
        f"{report.rows_used:,} of {report.rows_in:,} rows can be traded",
        soft_wrap=True,
    )
    for tic, kind, detail in report.failures:
        out.print(f"[yellow]not delivered:[/] {tic}, {kind}: {escaped(detail)}", soft_wrap=True)
    if not report.findings:
        out.print("no finding")
        return
    table = Table("rule", "cells", "names", "done", "the first")
    for first, cells, names in report.by_rule():
        example = f"{first.tic} {first.date}: {first.value}, expected {first.expected}"
        table.add_row(first.rule, str(cells), str(names), first.done, escaped(example))
    out.print(table)


@data.command("diff")
def diff(
    older: Annotated[str, typer.Argument(help="A snapshot: its folder, or the start of its hash.")],
    newer: Annotated[str, typer.Argument(help="Another one.")],
) -> None:
    """Show what changed between two versions of the same prices."""
    from podracer.market.diff import difference
    from podracer.market.snapshot import find_snapshot, read_snapshot

    one, other = (read_snapshot(find_snapshot(name)) for name in (older, newer))
    for line in difference(one, other).lines():
        out.print(escaped(line), soft_wrap=True, highlight=False)
