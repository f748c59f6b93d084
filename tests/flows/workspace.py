"""A workspace of a user: settings, DVC, and the command line in it."""

import os
import subprocess
import sys
from pathlib import Path

from dvc.repo import Repo
from ruamel.yaml import YAML

PODRACER = Path(sys.executable).with_name("podracer")
SMALL = {
    "name": "mega6",
    "seed": 1,
    "data": {"source": "bundled", "dataset": "mega6"},
    "features": {
        "asset": ["momentum_12_1", "reversal_1m"],
        "market": ["log_return_1", "turbulence"],
    },
    "windows": {
        "train": "2014-02-01 .. 2018-12-31",
        "selection": "2019-01-01 .. 2020-12-31",
        "lockbox": "2021-01-01 .. 2023-09-21",
    },
    "env": {"costs": {"commission_bps": 10}},
    "pod": {"agents": 2, "steps": 2000, "cohorts": 4},
    "hyperparameters": {"discount": 0.9},
    "tournament": {"generations": 2, "pods": 2, "board_size": 4, "ensemble_size": 3},
}


def workspace(folder, **changes):
    """A folder with settings and DVC, as after a clone."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "params.yaml").open("w") as file:
        YAML().dump(SMALL | changes, file)
    Repo.init(str(folder), no_scm=True).close()
    return folder


def environment():
    """The environment of a user: the commands on the path, no Prefect settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
    return kept | {"PATH": f"{PODRACER.parent}:{kept['PATH']}"}


def podracer(folder, *arguments, stdin=None):
    """Run a command to its end."""
    return subprocess.run(
        [PODRACER, *arguments],
        cwd=folder,
        env=environment(),
        input=stdin,
        capture_output=True,
        text=True,
    )


def stages(folder, *names):
    """Run stages of the DVC pipeline, which need no Prefect server; returns the last."""
    for name in names:
        done = podracer(folder, "stage", name)
        if done.returncode:
            break
    return done


def run_folder(folder):
    """The folder of the only run."""
    (found,) = (folder / "runs").iterdir()
    return found
