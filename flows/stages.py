"""The bodies of the DVC stages: the same podracer calls as the flows make, without Prefect and DVC."""

import json
import shutil
from pathlib import Path

from ruamel.yaml import YAML

from podracer.config import PodracerSettings
from podracer.market.market import open_market
from podracer.pipeline import datasets

RAW, MARKET, OUTPUT = Path("data/raw/current"), Path("data/features/current"), Path("pipeline")


def ingest(settings: PodracerSettings) -> None:
    """Write the snapshot of the prices."""
    datasets.ingest(settings, RAW)


def features(settings: PodracerSettings) -> None:
    """Write the market of the snapshot."""
    datasets.features(settings, RAW, MARKET)


def tournament(settings: PodracerSettings) -> None:
    """Train, unless the same run is complete, and keep the leaderboard."""
    from podracer.pipeline import runs, training
    from podracer.pipeline.preflight import preflight
    from podracer.pods.pools import InlinePool, ProcessPool, Workers

    preflight(settings)
    dataset_hash = open_market(MARKET).meta["dataset_hash"]
    folder = runs.run_folder(settings, dataset_hash)
    if not runs.has_champion(settings, dataset_hash):
        lineage = runs.Lineage(_dvc_hash_of(RAW), runs.git_commit())
        if settings.pool.launcher == "inline":
            training.tournament(settings, MARKET, InlinePool(), lineage)
        else:
            with Workers(settings.pool.num_workers(settings.tournament.pods)) as workers:
                training.tournament(settings, MARKET, ProcessPool(workers), lineage)
    OUTPUT.mkdir(exist_ok=True)
    shutil.copy(folder / "leaderboard.json", OUTPUT / "leaderboard.json")
    generations = json.loads((folder / "tournament.json").read_text(encoding="utf-8"))[
        "generations"
    ]
    for generation in generations:
        generation.pop("cpu_seconds")
    (OUTPUT / "generations.json").write_text(json.dumps(generations, indent=1), encoding="utf-8")


def backtest(settings: PodracerSettings) -> None:
    """Write the report and its numbers."""
    from podracer.pipeline import lockbox, runs

    dataset_hash = open_market(MARKET).meta["dataset_hash"]
    folder = runs.run_folder(settings, dataset_hash)
    if runs.finished(settings, dataset_hash) is None:
        lockbox.run_backtest(settings, MARKET)
    for name in ("report.html", "metrics.json", "equity.csv"):
        shutil.copy(folder / name, OUTPUT / name)


def _dvc_hash_of(path: Path) -> str:
    """Read a stage output's hash from dvc.lock, which DVC writes before the next stage starts."""
    lock = Path("dvc.lock")
    if not lock.exists():
        return "untracked"
    stages = YAML(typ="safe").load(lock.read_text(encoding="utf-8"))["stages"]
    outs = [out for stage in stages.values() for out in stage.get("outs", [])]
    return next((out["md5"] for out in outs if out["path"] == str(path)), "untracked")
