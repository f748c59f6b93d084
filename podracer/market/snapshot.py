"""Immutable snapshots of raw prices, named by their content."""

import json
import logging
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from podracer.errors import MarketDataError
from podracer.files import replacing, write_text
from podracer.market.raw import KEYS, Failure, RawPrices, value_columns

logger = logging.getLogger(__name__)

SNAPSHOTS = Path("data/raw")
MANIFEST, PRICES, INDEX = "manifest.json", "prices.parquet", "index.parquet"


def write_snapshot(raw: RawPrices, folder: Path, facts: dict[str, Any] | None = None) -> Path:
    """Write prices and their manifest, whole or not at all; equal content is left as it is.

    Args:
        raw: the prices.
        folder: where to.
        facts: what else the manifest should say, such as what changed since the version before.
    """
    content_hash = raw.content_hash
    frame = raw.frame[[*KEYS, *value_columns(raw.frame)]].sort_values(list(KEYS), kind="stable")
    manifest = {
        "name": raw.name,
        "content_hash": content_hash,
        "exchange": raw.exchange,
        "bar": raw.bar,
        "requested": list(raw.requested),
        "received": list(raw.tickers),
        "failures": [asdict(f) for f in raw.failures],
        "columns": value_columns(frame),
        "rows": len(frame),
        "first": str(frame["date"].iloc[0]),
        "last": str(frame["date"].iloc[-1]),
        "asof": None if raw.asof is None else raw.asof.isoformat(),
        "notes": list(raw.notes),
        "is_adjusted": raw.is_adjusted,
    }
    manifest |= facts or {}
    with suppress(MarketDataError):
        if read_snapshot(folder).content_hash == content_hash:
            told = read_manifest(folder)
            # A later look alone is no news: DVC and whoever caches by bytes stay quiet.
            if {**told, "asof": None} != {**manifest, "asof": None}:
                write_text(folder / MANIFEST, json.dumps(manifest, indent=1))
            return folder
    with replacing(folder) as part:
        part.mkdir()
        frame.to_parquet(part / PRICES, compression="zstd", index=False)
        if raw.index is not None:
            index = pd.DataFrame({"date": raw.index.index, "close": raw.index.to_numpy()})
            index.to_parquet(part / INDEX, compression="zstd", index=False)
        (part / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return folder


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what a snapshot says of itself.

    Raises:
        MarketDataError: if there is no snapshot.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MarketDataError(
            f"{folder}: not a readable snapshot ({error}). Ingest again."
        ) from error
    return manifest


def read_snapshot(folder: Path) -> RawPrices:
    """Read a snapshot and compare its content with its hash.

    Raises:
        MarketDataError: if it is missing, or its content is not what its manifest names.
    """
    manifest = read_manifest(folder)
    try:
        frame = pd.read_parquet(folder / PRICES)
        index = None
        if (folder / INDEX).exists():
            index = pd.read_parquet(folder / INDEX).set_index("date")["close"]
        raw = RawPrices(
            frame=frame,
            name=manifest["name"],
            exchange=manifest["exchange"],
            bar=manifest["bar"],
            index=index,
            requested=tuple(manifest["requested"]),
            failures=tuple(Failure(**f) for f in manifest["failures"]),
            asof=None if manifest["asof"] is None else datetime.fromisoformat(manifest["asof"]),
            notes=tuple(manifest["notes"]),
            is_adjusted=manifest.get("is_adjusted", False),
        )
        found = raw.content_hash
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MarketDataError(
            f"{folder}: not a readable snapshot ({str(error).splitlines()[0]}). Fetch it again with "
            f"`dvc pull`, or delete the folder and ingest again."
        ) from error
    if found != manifest["content_hash"]:
        raise MarketDataError(
            f"{folder}: expected content {manifest['content_hash'][:12]}…, found {found[:12]}…: the "
            f"prices have changed since they were written (a damaged DVC cache is checked out "
            f"without an error). Fetch it again with `dvc pull`, or delete the folder and ingest again."
        )
    return raw


def find_snapshot(name: str, root: Path = SNAPSHOTS) -> Path:
    """Return the folder that a path or the start of a content hash means.

    Raises:
        MarketDataError: if there is none, or more than one.
    """
    if (Path(name) / MANIFEST).exists():
        return Path(name)
    found = {
        manifest["content_hash"]: folder
        for folder, manifest in _manifests(root)
        if name and manifest["content_hash"].startswith(name)
    }
    if len(found) != 1:
        raise MarketDataError(
            f"{name!r}: expected a snapshot's folder or the start of one's hash, {len(found)} of those "
            f"in {root} fit. See the folders there."
        )
    return next(iter(found.values()))


def newest(root: Path, request: str) -> RawPrices | None:
    """Return the last snapshot that answered a request to a live source, None if there is none.

    Raises:
        MarketDataError: if that snapshot is damaged.
    """
    taken = [
        (manifest["asof"], folder)
        for folder, manifest in _manifests(root)
        if manifest.get("request") == request
    ]
    return read_snapshot(max(taken)[1]) if taken else None


def _manifests(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the snapshots of a folder; what a killed process left half-written is passed over."""
    found = []
    for path in sorted(root.glob(f"[!.]*/{MANIFEST}")):
        try:
            found.append((path.parent, read_manifest(path.parent)))
        except MarketDataError as error:
            logger.warning("%s", error)
    return found
