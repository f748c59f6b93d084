"""Immutable snapshots of checked prices, named by their content.

Shapes: D sessions, A assets.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pandas as pd

from podracer.errors import MarketDataError
from podracer.market.prices import PricePanel, panel_from_frame
from podracer.market.settings import DataSettings
from podracer.market.sources.bundled import datasets, load_bundled
from podracer.market.sources.file import load_file


def load_prices(settings: DataSettings) -> PricePanel:
    """Load prices from the configured source through the quality gate.

    Raises:
        MarketDataError: if the source cannot be read or its prices are refused.
    """
    if settings.source == "file" and settings.path is not None:
        return load_file(settings.path, settings.exchange, settings.columns, settings.tickers)
    return load_bundled(settings.dataset, settings.tickers)


def dataset_name(settings: DataSettings) -> str:
    """Return what to call the data in reports and tags."""
    if settings.source == "file" and settings.path is not None:
        return settings.path.name
    return settings.dataset


def caveats(settings: DataSettings) -> tuple[str, ...]:
    """Return what a reader of results on this data must know."""
    if settings.source == "file":
        return ("a universe that was chosen with hindsight makes every long-only rule look good",)
    facts = next(d.facts for d in datasets() if d.name == settings.dataset)
    return tuple(facts[k] for k in ("survivorship", "seen_before") if k in facts)


def write_snapshot(panel: PricePanel, folder: Path, name: str) -> Path:
    """Write prices and their manifest, whole or not at all; equal content is left as it is."""
    if (folder / "manifest.json").exists():
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["content_hash"] == panel.content_hash:
            return folder
    part = folder.with_name(f".{folder.name}.{uuid4().hex[:8]}")
    part.mkdir(parents=True)
    panel.to_frame().to_parquet(part / "prices.parquet", compression="zstd", index=False)
    if panel.index_D is not None:
        index = pd.DataFrame({"date": panel.dates_D, "close": panel.index_D})
        index.to_parquet(part / "index.parquet", compression="zstd", index=False)
    manifest = {
        "name": name,
        "content_hash": panel.content_hash,
        "tickers": list(panel.tickers),
        "columns": list(panel.fields),
        "sessions": len(panel.dates_D),
        "first": str(panel.dates_D[0]),
        "last": str(panel.dates_D[-1]),
    }
    (part / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    return part.rename(folder)


def read_snapshot(folder: Path) -> tuple[PricePanel, str]:
    """Read a snapshot and compare its content with its hash; also returns its name.

    Raises:
        MarketDataError: if it is missing, or its content is not what its manifest names.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        frame = pd.read_parquet(folder / "prices.parquet")
        panel = panel_from_frame(frame, str(folder), tuple(manifest["tickers"]))
        panel = replace(panel, fields={c: panel.fields[c] for c in manifest["columns"]})
        if (folder / "index.parquet").exists():
            index = pd.read_parquet(folder / "index.parquet")
            panel = replace(panel, index_D=index["close"].to_numpy(dtype=np.float64))
    except (OSError, ValueError, KeyError) as error:
        raise MarketDataError(
            f"{folder}: not a readable snapshot ({error}). Ingest again."
        ) from error
    if panel.content_hash != manifest["content_hash"]:
        raise MarketDataError(
            f"{folder}: expected content {manifest['content_hash'][:12]}…, found "
            f"{panel.content_hash[:12]}…: the prices have changed since they were written (a damaged "
            f"DVC cache is checked out without an error). Delete the folder and ingest again."
        )
    return panel, str(manifest["name"])
