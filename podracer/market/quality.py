"""The gate that all prices pass before anything is trained on them.

It refuses what cannot be trusted, takes single cells and tickers out of trading, and names the rest.
Shapes: D bars, A assets.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from podracer.errors import MarketDataError
from podracer.market.findings import Finding, Findings, QualitySettings, day
from podracer.market.prices import PricePanel
from podracer.market.raw import RawPrices, used_columns
from podracer.market.rows import settled_rows, with_numbers
from podracer.market.rules import RULES, Grid, Level, Rule
from podracer.market.sessions import (
    DAILY,
    bars_of,
    session_of_bars,
)

DONE = {
    "price": "price not used",
    "trade": "not tradable",
    "ticker": "ticker not used from there on",
}


@dataclass(frozen=True)
class QualityReport:
    """What the gate found and did.

    Attributes:
        rows_in: rows that the source gave.
        rows_used: cells that can be traded.
        requested: the universe asked for; `tickers` is the universe that came out.
        failures: requested tickers that never arrived, as (tic, kind, detail).
    """

    name: str
    content_hash: str
    first: str
    last: str
    rows_in: int
    rows_used: int
    requested: tuple[str, ...]
    tickers: tuple[str, ...]
    failures: tuple[tuple[str, str, str], ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(asdict(self), indent=1)

    def by_rule(self) -> list[tuple[Finding, int, int]]:
        """Return the first finding of each (rule, done), the number of its cells and of its tickers."""
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.rule, finding.done), []).append(finding)
        return [(g[0], len(g), len({f.tic for f in g})) for g in groups.values()]


def load_quality(text: str) -> QualityReport:
    """Read what `QualityReport.to_json` wrote."""
    facts: dict[str, Any] = json.loads(text)
    facts["findings"] = tuple(Finding(**f) for f in facts["findings"])
    facts["failures"] = tuple(tuple(f) for f in facts["failures"])
    return QualityReport(**facts | {k: tuple(facts[k]) for k in ("requested", "tickers")})


def check(
    raw: RawPrices, settings: QualitySettings, now: datetime | None = None
) -> tuple[PricePanel, QualityReport]:
    """Pass prices through the gate.

    Args:
        raw: prices as the source gave them.
        settings: the level of each rule.
        now: the time by which a bar must have ended to count; the clock's if None.

    Raises:
        NotFinalError: if the newest session is there, but its prices are not yet.
        MarketDataError: naming the first bad cell, where a rule says stop, two rows contradict each
            other, a date is no session, or nothing is left to trade.
    """
    findings = Findings(raw.name, settings)
    frame = settled_rows(raw, with_numbers(raw), now or datetime.now(UTC), findings)
    grid, tradable_DA = _apply_rules(_grid(raw, frame), findings)
    if not tradable_DA.any():
        rules = ", ".join(sorted({f.rule for f in findings.found})) or "no row has a price"
        raise MarketDataError(
            f"{raw.name}: nothing is left to trade ({rules}). "
            f"Mend the prices, check data.exchange, or lower data.quality.levels in params.yaml."
        )
    index_D = None
    if raw.index is not None:
        level = raw.index.reindex(pd.DatetimeIndex(grid.dates_D)).ffill()
        index_D = level.to_numpy(dtype=np.float64)
    panel = PricePanel(
        name=raw.name,
        content_hash=raw.content_hash,
        dates_D=session_of_bars(grid.dates_D, raw.exchange, raw.bar),
        tickers=grid.tickers,
        fields=grid.fields,
        tradable_DA=tradable_DA,
        index_D=index_D,
        notes=raw.notes,
        is_adjusted=raw.is_adjusted,
        starts_D=None if raw.bar == DAILY else grid.dates_D,
    )
    report = QualityReport(
        name=raw.name,
        content_hash=panel.content_hash,
        first=day(grid.dates_D[0]),
        last=day(grid.dates_D[-1]),
        rows_in=len(raw.frame),
        rows_used=int(tradable_DA.sum()),
        requested=raw.requested or grid.tickers,
        tickers=grid.tickers,
        failures=tuple((f.tic, f.kind, f.detail) for f in raw.failures),
        findings=tuple(findings.found),
    )
    return panel, report


def _grid(raw: RawPrices, frame: pd.DataFrame) -> Grid:
    tickers = RawPrices(frame, raw.name, raw.exchange, requested=raw.requested).tickers
    moments = frame["date"].to_numpy("datetime64[s]")
    # Every bar of the calendar has a row, so that one which all tickers lack is seen to be missing.
    dates = bars_of(raw.exchange, raw.bar, moments.min(), moments.max()).astype("datetime64[s]")
    dates = dates[(dates >= moments.min()) & (dates <= moments.max())]
    rows = np.searchsorted(dates, moments)
    columns = pd.Index(tickers).get_indexer(pd.Index(frame["tic"]))
    row_DA = np.zeros((len(dates), len(tickers)), dtype=bool)
    row_DA[rows, columns] = True
    fields = {}
    for name in used_columns(frame):
        values_DA = np.full(row_DA.shape, np.nan)
        values_DA[rows, columns] = frame[name].to_numpy()
        fields[name] = values_DA
    return Grid(dates, tickers, fields, row_DA, np.zeros(row_DA.shape, dtype=bool))


def _apply_rules(grid: Grid, findings: Findings) -> tuple[Grid, np.ndarray]:
    """Apply the rules in order; each sees the prices that the ones before have left."""
    halted_DA = np.zeros(grid.row_DA.shape, dtype=bool)
    for rule in RULES:
        level = findings.settings.level(rule.name)
        if level == "off" or not rule.applies(grid):
            continue
        marks_DA = rule.find(grid)
        cells = np.argwhere(marks_DA)
        if not len(cells):
            continue
        shown_DA = (
            marks_DA if marks_DA.dtype != bool else grid.fields.get(rule.column, grid.close_DA)
        )
        findings.add(rule.name, [_finding(rule, level, grid, d, a, shown_DA) for d, a in cells])
        if level == "quarantine":
            grid, halted_DA = _quarantine(rule, grid, marks_DA != 0, halted_DA)
    return grid, np.isfinite(grid.close_DA) & ~halted_DA


def _quarantine(
    rule: Rule, grid: Grid, marks_DA: np.ndarray, halted_DA: np.ndarray
) -> tuple[Grid, np.ndarray]:
    if rule.scope == "ticker":
        # Not before: agents of that time could not know.
        marks_DA = np.logical_or.accumulate(marks_DA, axis=0)
    if rule.scope in ("price", "ticker"):
        # Actions stay: a dividend on a day without a price was paid all the same.
        fields = {
            k: v if k in ("dividend", "split") else np.where(marks_DA, np.nan, v)
            for k, v in grid.fields.items()
        }
        masked_DA = grid.masked_DA | marks_DA
        return Grid(grid.dates_D, grid.tickers, fields, grid.row_DA, masked_DA), halted_DA
    return grid, halted_DA | marks_DA


def _finding(rule: Rule, level: Level, grid: Grid, d: int, a: int, shown_DA: np.ndarray) -> Finding:
    done = DONE[rule.scope] if level == "quarantine" else "named only"
    value = f"{shown_DA[d, a]:.6g}"
    return Finding(
        rule.name, level, grid.tickers[a], day(grid.dates_D[d]), value, rule.expected, done
    )
