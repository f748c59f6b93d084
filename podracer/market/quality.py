"""The gate that all prices pass before anything is trained on them.

It refuses what cannot be trusted, takes single cells and tickers out of trading, and names the rest.
Shapes: D bars, A assets.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pydantic import Field, field_validator

from podracer.errors import MarketDataError, NotFinalError
from podracer.market.prices import PricePanel
from podracer.market.raw import KEYS, RawPrices, used_columns, value_columns
from podracer.market.rules import RULES, Grid, Level, Rule
from podracer.market.sessions import (
    DAILY,
    bars_of,
    closed_bars,
    open_bars,
    session_of_bars,
    sessions_of,
)
from podracer.settings import Settings

ROW_RULES: dict[str, Level] = {"unsorted": "warn", "twin_row": "warn", "unfinished_bar": "warn"}
LEVELS: dict[str, Level] = {**ROW_RULES, **{rule.name: rule.default for rule in RULES}}
LATE_SESSIONS = 6
DONE = {
    "price": "price not used",
    "trade": "not tradable",
    "ticker": "ticker not used from there on",
}


class QualitySettings(Settings):
    """How strict the gate is."""

    levels: dict[str, Level] = Field(
        default_factory=dict,
        description="Rule to stop, quarantine, warn or off, where it is not to be the default: "
        + ", ".join(f"{name} {level}" for name, level in LEVELS.items())
        + ".",
    )

    @field_validator("levels")
    @classmethod
    def _known(cls, levels: dict[str, Level]) -> dict[str, Level]:
        if unknown := [name for name in levels if name not in LEVELS]:
            raise ValueError(f"there is no rule {unknown[0]!r}; the rules are {', '.join(LEVELS)}")
        return levels

    def level(self, rule: str) -> Level:
        """Return the level of a rule."""
        return self.levels.get(rule, LEVELS[rule])


@dataclass(frozen=True)
class Finding:
    """One cell that broke a rule, and what was done about it."""

    rule: str
    level: Level
    tic: str
    date: str
    value: str
    expected: str
    done: str


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
    frame = _schema(raw)
    findings: list[Finding] = []
    frame = _rows(raw, frame, settings, now or datetime.now(UTC), findings)
    grid = _grid(raw, frame)
    grid, tradable_DA = _apply_rules(raw.name, grid, settings, findings)
    if not tradable_DA.any():
        rules = ", ".join(sorted({f.rule for f in findings})) or "no row has a price"
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
        starts_D=None if raw.bar == DAILY else grid.dates_D,
    )
    report = QualityReport(
        name=raw.name,
        content_hash=panel.content_hash,
        first=_day(grid.dates_D[0]),
        last=_day(grid.dates_D[-1]),
        rows_in=len(raw.frame),
        rows_used=int(tradable_DA.sum()),
        requested=raw.requested or grid.tickers,
        tickers=grid.tickers,
        failures=tuple((f.tic, f.kind, f.detail) for f in raw.failures),
        findings=tuple(findings),
    )
    return panel, report


def _schema(raw: RawPrices) -> pd.DataFrame:
    """Return the frame with numbers as float64, or refuse a wrong column or cell by name."""
    frame = raw.frame.reset_index(drop=True)
    if missing := [c for c in (*KEYS, "close") if c not in frame.columns]:
        raise MarketDataError(
            f"{raw.name}: column {', '.join(map(repr, missing))} is missing; there are "
            f"{', '.join(map(repr, map(str, frame.columns)))}. "
            f"Name the columns date, tic and close (or map them in data.columns)."
        )
    if frame.empty:
        raise MarketDataError(f"{raw.name}: there is no row. Give prices.")
    columns = {
        "date": pa.Column("datetime64[ns]"),
        "tic": pa.Column(str, pa.Check.str_length(min_value=1)),
    }
    columns |= {name: pa.Column(float, nullable=True) for name in value_columns(frame)}
    schema = pa.DataFrameSchema(columns, coerce=True, strict="filter")
    try:
        return schema.validate(frame, lazy=True)
    except pa.errors.SchemaErrors as error:
        first = error.failure_cases.iloc[0]
        where = "" if pd.isna(first["index"]) else f" in row {int(first['index']) + 1}"
        raise MarketDataError(
            f"{raw.name}: {first['failure_case']!r}{where} of column {first['column']} is not what it "
            f"should be ({first['check']}). Correct the value."
        ) from error


def _rows(
    raw: RawPrices,
    frame: pd.DataFrame,
    settings: QualitySettings,
    now: datetime,
    findings: list[Finding],
) -> pd.DataFrame:
    """Sort the rows, and drop twins and bars that have not ended."""
    keys = list(KEYS)
    ordered = frame.sort_values(keys, kind="stable").reset_index(drop=True)
    is_moved = (ordered[keys] != frame[keys]).any(axis=1)
    if is_moved.any() and not frame["date"].is_monotonic_increasing:
        row = frame[frame["date"].diff() < np.timedelta64(0)].iloc[0]
        _note(raw.name, "unsorted", settings, [row], "date", "dates in order", "sorted", findings)
    ordered = _without_twins(raw.name, ordered, settings, findings)
    ordered = _without_empty_end(raw.name, ordered, settings, findings)
    dates = ordered["date"].to_numpy("datetime64[s]")
    first = sessions_of(raw.exchange)[0]
    if ordered["date"].iloc[0] < first:
        raise MarketDataError(
            f"{raw.name}: the calendar of {raw.exchange} begins on {first.date()}, the prices on "
            f"{_day(ordered['date'].iloc[0])}. Drop the rows before."
        )
    closed = closed_bars(np.unique(dates), raw.exchange, raw.bar)
    if len(closed):
        row = ordered[dates == closed[0]].iloc[0]
        raise MarketDataError(
            f"{raw.name}: {len(closed)} dates are not sessions of {raw.exchange}, the first row is "
            f"{row['tic']} on {_day(row['date'])}. "
            f"Remove them or set data.exchange to the market's calendar."
        )
    is_open = np.isin(dates, open_bars(np.unique(dates), raw.exchange, raw.bar, now))
    if is_open.any():
        rows = [row for _, row in ordered[is_open].iterrows()]
        _note(
            raw.name,
            "unfinished_bar",
            settings,
            rows,
            "close",
            "a bar that has ended",
            "dropped",
            findings,
        )
        ordered = ordered[~is_open].reset_index(drop=True)
    _require_final(raw, ordered)
    return ordered


def _without_twins(
    name: str, frame: pd.DataFrame, settings: QualitySettings, findings: list[Finding]
) -> pd.DataFrame:
    """Drop a row that repeats its twin or has no close; two that differ are refused."""
    keys = list(KEYS)
    is_twin = frame.duplicated(keys, keep=False)
    if not is_twin.any():
        return frame
    twins = frame[is_twin]
    kept = twins.dropna(subset="close").drop_duplicates()
    conflict = kept[kept.duplicated(keys, keep=False)]
    if len(conflict):
        row = conflict.iloc[0]
        both = conflict[(conflict["date"] == row["date"]) & (conflict["tic"] == row["tic"])]
        shown = " and ".join(
            ", ".join(f"{c} {r[c]:g}" for c in value_columns(frame)) for _, r in both.iterrows()
        )
        raise MarketDataError(
            f"{name}: {row['tic']} on {_day(row['date'])} stands twice with different values: "
            f"{shown}. Keep one row per date and tic."
        )
    gone = twins.drop(index=kept.index)
    rows = [row for _, row in gone.iterrows()]
    _note(
        name, "twin_row", settings, rows, "close", "one row per date and tic", "dropped", findings
    )
    return frame.drop(index=gone.index).reset_index(drop=True)


def _without_empty_end(
    name: str, frame: pd.DataFrame, settings: QualitySettings, findings: list[Finding]
) -> pd.DataFrame:
    """Drop the newest bars if no ticker has a price or a volume on them yet."""
    has_any = frame["close"].notna() | (frame.get("volume", 0) > 0)
    if not has_any.any():
        return frame
    is_empty = frame["date"] > frame.loc[has_any, "date"].max()
    rows = [row for _, row in frame[is_empty].iterrows()]
    _note(
        name, "unfinished_bar", settings, rows, "close", "a bar that has ended", "dropped", findings
    )
    return frame[~is_empty].reset_index(drop=True)


def _require_final(raw: RawPrices, frame: pd.DataFrame) -> None:
    """Refuse a newest bar that has volume but no price yet, or a session that a live source left out.

    A ticker without a price for five sessions or more has ended, one for fewer is late, unless the
    source itself says why it did not deliver.
    """
    last = frame["date"].max()
    newest = frame[frame["date"] == last]
    late = list(newest.loc[newest["close"].isna() & (newest.get("volume", 0) > 0), "tic"])
    if raw.asof is not None:
        days = session_of_bars(frame["date"].to_numpy("datetime64[s]"), raw.exchange, raw.bar)
        has = frame["close"].notna().to_numpy()
        recent = days >= np.unique(days)[-LATE_SESSIONS:][0]
        here = set(frame.loc[has & (days == days.max()), "tic"]) | {f.tic for f in raw.failures}
        late += sorted(set(frame.loc[has & recent, "tic"]) - here)
    if late:
        raise NotFinalError(
            f"{raw.name}: data not final for {_day(last)}: {late[0]} has no price yet. "
            f"Run again later; nothing was changed."
        )


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


def _apply_rules(
    name: str, grid: Grid, settings: QualitySettings, findings: list[Finding]
) -> tuple[Grid, np.ndarray]:
    """Apply the rules in order; each sees the prices that the ones before have left."""
    halted_DA = np.zeros(grid.row_DA.shape, dtype=bool)
    for rule in RULES:
        level = settings.level(rule.name)
        if level == "off" or not rule.applies(grid):
            continue
        marks_DA = rule.find(grid)
        cells = np.argwhere(marks_DA)
        if not len(cells):
            continue
        shown_DA = (
            marks_DA if marks_DA.dtype != bool else grid.fields.get(rule.column, grid.close_DA)
        )
        found = [_finding(rule, level, grid, d, a, shown_DA) for d, a in cells]
        if level == "stop":
            _refuse(name, found)
        findings += found
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
        rule.name, level, grid.tickers[a], _day(grid.dates_D[d]), value, rule.expected, done
    )


def _note(
    name: str,
    rule: str,
    settings: QualitySettings,
    rows: Iterable[pd.Series],
    column: str,
    expected: str,
    done: str,
    findings: list[Finding],
) -> None:
    level = settings.level(rule)
    found = [
        Finding(rule, level, str(r["tic"]), _day(r["date"]), str(r[column]), expected, done)
        for r in rows
    ]
    if level == "stop":
        _refuse(name, found)
    if level != "off":
        findings += found


def _refuse(name: str, found: list[Finding]) -> None:
    first = found[0]
    raise MarketDataError(
        f"{name}: rule {first.rule}: expected {first.expected}, got {first.value} for {first.tic} on "
        f"{first.date} ({len(found)} such cells). Mend the prices, drop the ticker, or set "
        f"data.quality.levels.{first.rule} to quarantine or warn."
    )


def _day(moment: Any) -> str:
    stamp = pd.Timestamp(moment)
    return str(stamp.date()) if stamp == stamp.normalize() else stamp.strftime("%Y-%m-%d %H:%M UTC")
