"""Prices → snapshot → market."""

from pathlib import Path

from podracer.config import PodracerSettings
from podracer.files import write_text
from podracer.market.loading import load_raw
from podracer.market.market import build_market
from podracer.market.quality import QualityReport, check, load_quality
from podracer.market.snapshot import SNAPSHOTS, read_snapshot, write_snapshot
from podracer.market.windows import resolve_windows

QUALITY = "quality.json"


def ingest(settings: PodracerSettings, folder: Path | None = None) -> Path:
    """Load prices through the quality gate and write a snapshot.

    Args:
        settings: of the run.
        folder: where to; `data/raw/<hash>` if None.

    Raises:
        MarketDataError: if the prices are refused.
    """
    raw, facts = load_raw(settings.data)
    check(raw, settings.data.quality)
    return write_snapshot(raw, folder or SNAPSHOTS / raw.content_hash[:16], facts)


def features(settings: PodracerSettings, snapshot: Path, folder: Path | None = None) -> Path:
    """Build the market of a snapshot and check that the windows fit it.

    Raises:
        MarketDataError: if the snapshot is damaged or too short.
        ConfigError: if a feature or a window does not fit the data.
    """
    panel, report = check(read_snapshot(snapshot), settings.data.quality)
    market = build_market(panel, settings.features)
    resolve_windows(settings.windows, market.dates_D, market.meta["warmup_bars"])
    target = market.save(
        folder or Path("data/features") / f"{market.hash[:16]}-{panel.content_hash[:8]}"
    )
    write_text(target / QUALITY, report.to_json())
    return target


def read_quality(market_folder: Path) -> QualityReport:
    """Return what the gate found in the prices of a market."""
    return load_quality((market_folder / QUALITY).read_text(encoding="utf-8"))
