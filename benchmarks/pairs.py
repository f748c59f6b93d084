"""The protocol: cases in rotating order, CPU seconds of this process, ratios per repeat."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch

PACKAGES = ("torch", "numpy", "numba", "gymnasium", "stable-baselines3")


class Ratio(NamedTuple):
    """A claim: `fast` makes at least `floor` times the steps of `slow` per CPU second."""

    fast: str
    slow: str
    floor: float
    goal: float


def arguments() -> argparse.Namespace:
    """Parse --quick and --json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="under 50 s")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    return parser.parse_args()


def machine() -> str:
    """Return date, processor, load and versions in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {names[0] if names else platform.machine()}, "
        f"{torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}, Python {platform.python_version()}, {', '.join(versions)}"
    )


def run(
    cases: dict[str, tuple[Callable[[], object], int]],
    claims: list[Ratio],
    repeats: int,
    as_json: bool,
) -> None:
    """Time every case `repeats` times, print the ratios, exit 1 below a floor.

    Args:
        cases: name → (a call, environment steps that it makes).
        claims: what to compare.
        repeats: rounds; each starts with another case.
        as_json: print JSON instead of text.
    """
    for call, _ in cases.values():
        call()
    rates: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for i in range(repeats):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            call, steps = cases[name]
            started = time.process_time()
            call()
            rates[name].append(steps / (time.process_time() - started))
    rows = []
    for claim in claims:
        ratios = [f / s for f, s in zip(rates[claim.fast], rates[claim.slow], strict=True)]
        rows.append(
            {
                "case": f"{claim.fast} / {claim.slow}",
                "each": ratios,
                "median": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
                "floor": claim.floor,
                "goal": claim.goal,
            }
        )
    medians = {name: statistics.median(r) for name, r in rates.items()}
    if as_json:
        print(json.dumps({"machine": machine(), "ratios": rows, "steps_per_cpu_second": medians}))
    else:
        print(machine())
        for name, rate in medians.items():
            print(f"{name:46s} {rate:14,.0f} steps per CPU second")
        for row in rows:
            print(
                f"{row['case']}: {row['median']:.3g}x ({row['least']:.3g}-{row['most']:.3g}), "
                f"floor {row['floor']:g}, goal {row['goal']:.3g}; "
                f"each {' '.join(f'{ratio:.3g}' for ratio in row['each'])}"
            )
    if any(row["median"] < row["floor"] for row in rows):
        sys.exit(1)
