"""The product as a user has it: the command line, a real Prefect server, MLflow, DVC and Chromium."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from tests.conftest import chromium_page

ROOT = Path(__file__).parents[2]
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
    "env": {"fee_bps": 10},
    "pod": {"agents": 2, "steps": 2000, "cohorts": 4},
    "hyperparameters": {"discount": 0.9},
    "tournament": {"generations": 2, "pods": 2, "board_size": 4, "ensemble_size": 3},
}

pytestmark = pytest.mark.timeout(400)


def workspace(folder, **changes):
    """A folder with settings and DVC, as after a clone."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "params.yaml").open("w") as file:
        YAML().dump(SMALL | changes, file)
    Repo.init(str(folder), no_scm=True).close()
    return folder


def podracer(folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
    environment["PATH"] = f"{PODRACER.parent}:{environment['PATH']}"
    return subprocess.run(
        [PODRACER, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A workspace after `podracer run`."""
    folder = workspace(tmp_path_factory.mktemp("run") / "one")
    done = podracer(folder, "run")
    assert done.returncode == 0, done.stderr + done.stdout
    return folder, done.stdout


def run_folder(folder):
    (found,) = (folder / "runs").iterdir()
    return found


def test_a_run_ends_with_a_verdict_and_a_report(finished):
    folder, printed = finished
    assert "lockbox Sharpe: champion" in printed
    assert "s in all: server" in printed
    assert "Traceback" not in printed
    assert (run_folder(folder) / "report.html").stat().st_size < 2_000_000
    outcome = json.loads((run_folder(folder) / "outcome.json").read_text())
    assert outcome["num_trials"] == 8


def test_a_second_run_is_skipped_with_the_earlier_report(finished):
    folder, _ = finished
    again = podracer(folder, "run")
    assert again.returncode == 0
    assert "skipped: nothing is new" in again.stdout
    assert "report.html" in again.stdout


def test_one_worker_gives_the_bytes_of_two_and_another_seed_does_not(finished, tmp_path):
    folder, _ = finished
    board = podracer(folder, "leaderboard", "--json")
    other = workspace(tmp_path / "other")
    assert podracer(other, "run", "--set", "pool.workers=1").returncode == 0
    assert podracer(other, "leaderboard", "--json").stdout == board.stdout
    assert len(json.loads(board.stdout)) == 4
    seeded = workspace(tmp_path / "seeded", seed=2)
    assert podracer(seeded, "tournament").returncode == 0
    hashes = [
        {row["weights_hash"] for row in json.loads(podracer(f, "leaderboard", "--json").stdout)}
        for f in (folder, seeded)
    ]
    assert hashes[0].isdisjoint(hashes[1])


def test_models_carry_the_hashes_of_the_data_and_the_snapshot_is_in_dvc(finished):
    import mlflow

    folder, _ = finished
    client = mlflow.MlflowClient(f"sqlite:///{folder}/store/mlflow.db")
    champion = client.get_model_version_by_alias("podracer-mega6", "champion")
    (tracked,) = (folder / "data" / "raw").glob("*.dvc")
    md5 = YAML(typ="safe").load(tracked.read_text())["outs"][0]["md5"]
    manifest = json.loads((tracked.with_suffix("") / "manifest.json").read_text())
    assert champion.tags["dvc_hash"] == md5
    assert champion.tags["dataset_hash"] == manifest["content_hash"]
    assert champion.tags["verdict"] == "not enough evidence"
    run = client.get_run(champion.run_id)
    assert run.inputs.dataset_inputs[0].dataset.name == "mega6"
    assert len(client.get_metric_history(champion.run_id, "board_best_score")) == 2
    assert run.data.params["seed"] == "1"


@pytest.mark.parametrize("width", [1200, 390])
def test_the_report_opens_without_errors_and_asks_the_network_for_nothing(finished, width):
    folder, _ = finished
    with chromium_page(width) as page:
        problems, requests = [], []
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: problems.append(str(e)))
        page.on("request", lambda r: requests.append(r.url))
        page.goto((run_folder(folder) / "report.html").as_uri())
        assert problems == []
        assert [r for r in requests if not r.startswith(("file:", "data:"))] == []
        shown = page.locator("figure svg:visible")
        assert shown.count() == 4
        assert page.locator("text=Not enough evidence").count() == 1
        assert "Sharpe" in page.locator("table").first.inner_text()
        # No sideways scrolling of the page itself: wide tables scroll in their own boxes.
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_lockbox_stays_closed_until_a_backtest_and_its_openings_are_counted(tmp_path):
    folder = workspace(tmp_path / "w", seed=3)
    refused = podracer(folder, "backtest")
    assert refused.returncode == 2
    assert "there is no finished tournament" in refused.stderr
    assert podracer(folder, "tournament").returncode == 0
    assert not (folder / "store/ledger/openings.jsonl").exists()
    assert podracer(folder, "backtest").returncode == 0
    assert len((folder / "store/ledger/openings.jsonl").read_text().splitlines()) == 1


def test_mistakes_end_with_one_line_and_code_2(tmp_path):
    folder = workspace(tmp_path / "w")
    for override, message in (
        ("env.fee_bsp=1", "'env.fee_bsp' is not a setting. Did you mean 'fee_bps'?"),
        ("data.tickers=[AAPL, TSLA]", "the data has no ticker 'TSLA'"),
        ("pod.device=cuda", "pod.device: cuda was asked for, but"),
        ("windows.train=2013-02-01 .. 2018-12-31", "need 253 sessions before the first day"),
        ("windows.selection=2018-06-01 .. 2020-12-31", "selection starts on 2018-06-01"),
    ):
        done = podracer(folder, "run", "--set", override)
        assert done.returncode == 2, override
        assert message in done.stderr
        assert "Traceback" not in done.stderr + done.stdout
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (folder / "runs").exists()


def test_dvc_repro_does_the_work_of_a_run_and_then_nothing(finished, tmp_path):
    folder, _ = finished
    pipeline = workspace(tmp_path / "dvc")
    # The stages depend on the package's sources; here they are a copy beside the pipeline.
    shutil.copytree(
        ROOT / "podracer", pipeline / "podracer", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "data" / "bundled", pipeline / "data" / "bundled")
    shutil.copy(ROOT / "dvc.yaml", pipeline)
    shutil.copy(ROOT / ".dvcignore", pipeline)
    environment = os.environ | {"PATH": f"{PODRACER.parent}:{os.environ['PATH']}"}

    def dvc(*arguments):
        done = subprocess.run(
            [PODRACER.with_name("dvc"), *arguments],
            cwd=pipeline,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    dvc("repro")
    same = (pipeline / "pipeline/leaderboard.json").read_bytes()
    assert same == (run_folder(folder) / "leaderboard.json").read_bytes()
    assert "Data and pipelines are up to date" in dvc("repro")
    dvc("remote", "add", "-d", "local", str(tmp_path / "remote"))
    dvc("config", "remote.local.verify", "true")
    dvc("push")
    shutil.rmtree(pipeline / "data/raw/current")
    shutil.rmtree(pipeline / ".dvc/cache")
    dvc("pull")
    from podracer.market.snapshot import read_snapshot

    panel, name = read_snapshot(pipeline / "data/raw/current")
    assert name == "mega6"
    assert panel.content_hash


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def api(port, method, path, body=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def test_a_served_deployment_runs_with_changed_parameters(tmp_path):
    folder, port = workspace(tmp_path / "serve"), free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
    environment["PATH"] = f"{PODRACER.parent}:{environment['PATH']}"
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen(
        [PODRACER, "serve", "--port", str(port)],
        cwd=folder,
        env=environment,
        stdout=log,
        stderr=log,
    )
    try:
        deadline = time.monotonic() + 120
        deployment = None
        while deployment is None and time.monotonic() < deadline:
            time.sleep(1)
            try:
                deployment = api(port, "GET", "/deployments/name/retrain/retrain")
            except OSError:
                assert server.poll() is None, (tmp_path / "log").read_text()
        assert deployment["schedules"][0]["schedule"]["cron"] == "0 23 * * 1-5"
        settings = deployment["parameters"]["settings"]
        settings["seed"] = 7
        started = api(
            port,
            "POST",
            f"/deployments/{deployment['id']}/create_flow_run",
            {"parameters": {"settings": settings}},
        )
        state = "SCHEDULED"
        while state not in ("COMPLETED", "FAILED", "CRASHED") and time.monotonic() < deadline + 120:
            time.sleep(1)
            state = api(port, "GET", f"/flow_runs/{started['id']}")["state_type"]
        assert state == "COMPLETED"
        artifacts = {a["key"] for a in api(port, "POST", "/artifacts/filter", {})}
        assert {"mega6-leaderboard", "mega6-generations", "mega6-report"} <= artifacts
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)
    (run,) = (folder / "runs").iterdir()
    assert (run / "report.html").exists()
