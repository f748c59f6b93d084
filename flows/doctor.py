"""What `podracer doctor` looks at."""

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from podracer.config import load_settings
from podracer.errors import PodracerError
from podracer.leaderboard.store import open_store
from podracer.market.loading import load_raw
from podracer.market.quality import check
from podracer.pods.device import resolve_device

PACKAGES = ("torch", "prefect", "mlflow", "dvc", "pandas", "numpy", "numba", "yfinance")
SMALLEST_FREE_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    what: str
    found: str
    remark: str = ""
    is_fine: bool = True


def examine(params: Path, overrides: list[str]) -> list[Finding]:
    """Look at versions, machine, settings, data and stores; nothing is changed but an empty store."""
    findings = [Finding("python", sys.version.split()[0])]
    for package in PACKAGES:
        try:
            findings.append(Finding(package, version(package)))
        except PackageNotFoundError:
            findings.append(Finding(package, "missing", "install it: make setup", is_fine=False))
    findings.append(Finding("usable cores", str(len(os.sched_getaffinity(0)))))
    free = shutil.disk_usage(Path.cwd()).free
    enough = free >= SMALLEST_FREE_BYTES
    findings.append(
        Finding("free disk", f"{free / 2**30:.1f} GiB", "" if enough else "under 2 GiB", enough)
    )
    for program in ("git", "chromium", "docker"):
        found = shutil.which(program) or "missing"
        findings.append(Finding(program, found, "" if found != "missing" else "optional"))
    return findings + _settings(params, overrides)


def _settings(params: Path, overrides: list[str]) -> list[Finding]:
    try:
        settings = load_settings(params, overrides)
    except PodracerError as error:
        return [Finding("settings", "refused", str(error), is_fine=False)]
    findings = [Finding("settings", str(params), f"config hash {settings.config_hash[:12]}")]
    try:
        device, remark = resolve_device(settings.pod.device)
        findings.append(Finding("device", device, remark or ""))
    except PodracerError as error:
        findings.append(Finding("device", "refused", str(error), is_fine=False))
    try:
        panel, _ = check(load_raw(settings.data)[0], settings.data.quality)
        span = f"{len(panel.tickers)} tickers, {panel.dates_D[0]} … {panel.dates_D[-1]}"
        findings.append(Finding("prices", panel.name, span))
    except PodracerError as error:
        findings.append(Finding("prices", "refused", str(error), is_fine=False))
    try:
        open_store(settings.store)
        findings.append(Finding("MLflow store", settings.store.tracking_uri))
    except PodracerError as error:
        findings.append(Finding("MLflow store", "refused", str(error), is_fine=False))
    return findings
