"""DVC stages, served deployments, the closed lockbox and mistakes, with the real tools."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from filelock import FileLock
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from flows import server
from podracer.errors import ServerError
from podracer.market.snapshot import read_snapshot
from tests.flows.workspace import PODRACER, environment, podracer, run_folder, stages, workspace

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(400)


def test_the_lockbox_stays_closed_until_a_backtest_and_its_openings_are_counted(tmp_path):
    folder = workspace(tmp_path / "w", seed=3)
    refused = podracer(folder, "backtest")
    assert refused.returncode == 2
    assert "there is no finished tournament" in refused.stderr
    assert podracer(folder, "tournament").returncode == 0
    assert "skipped: nothing is new since run" in podracer(folder, "tournament").stdout
    assert not (folder / "store/ledger/openings.jsonl").exists()
    assert podracer(folder, "backtest").returncode == 0
    assert len((folder / "store/ledger/openings.jsonl").read_text().splitlines()) == 1


def test_a_run_belongs_to_one_process_and_survives_the_loss_of_its_store(tmp_path):
    folder = workspace(tmp_path / "w")
    assert stages(folder, "ingest", "features", "tournament").returncode == 0
    before = podracer(folder, "leaderboard", "--json").stdout
    assert len(json.loads(before)) == 4
    shutil.rmtree(folder / "store")
    assert stages(folder, "tournament").returncode == 0
    assert podracer(folder, "leaderboard", "--json").stdout == before
    shutil.rmtree(folder / "store")
    with FileLock(run_folder(folder) / ".lock"):
        refused = stages(folder, "tournament")
    assert "another process is at work on the same run" in refused.stderr
    assert refused.returncode == 2


def test_servers_that_cannot_be_used_are_refused(tmp_path):
    folder = workspace(tmp_path / "w")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = podracer(folder, "serve", "--port", str(port))
        assert f"port {port} is taken" in refused.stderr
        assert refused.returncode == 2
    done = subprocess.run(
        [PODRACER, "run"],
        cwd=folder,
        env=environment() | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "no Prefect server answers there" in done.stderr
    crashed = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    crashed.wait()
    with pytest.raises(ServerError, match="ended with code 3 while starting"):
        server._wait(crashed, f"http://127.0.0.1:{port}/api", tmp_path / "log")


def test_ctrl_c_ends_with_one_line(tmp_path):
    folder = workspace(tmp_path / "w", pod={"agents": 2, "steps": 10_000_000, "cohorts": 4})
    process = subprocess.Popen(
        [PODRACER, "tournament"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not list((folder / "runs").glob("*/pods/*/progress.json")):
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; finished pods are kept" in errors
    assert "Traceback" not in errors


def test_mistakes_end_with_one_line_and_code_2(tmp_path):
    folder = workspace(tmp_path / "w")
    for override, message in (
        (
            "env.costs.comission_bps=1",
            "'env.costs.comission_bps' is not a setting. Did you mean 'env.costs.commission_bps'?",
        ),
        ("data.tickers=[AAPL, TSLA]", "the data has no ticker 'TSLA'"),
        ("pod.device=cuda", "pod.device: cuda was asked for, but"),
    ):
        done = podracer(folder, "run", "--set", override)
        assert done.returncode == 2, override
        assert message in done.stderr
        assert "Traceback" not in done.stderr + done.stdout
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (folder / "runs").exists()


def test_dvc_repro_does_the_work_of_a_run_and_then_nothing(tmp_path):
    pipeline = workspace(tmp_path / "dvc")
    # The stages depend on the package's sources; here they are a copy beside the pipeline.
    shutil.copytree(
        ROOT / "podracer", pipeline / "podracer", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "data" / "bundled", pipeline / "data" / "bundled")
    shutil.copy(ROOT / "dvc.yaml", pipeline)
    shutil.copy(ROOT / ".dvcignore", pipeline)

    def dvc(*arguments):
        done = subprocess.run(
            [PODRACER.with_name("dvc"), *arguments],
            cwd=pipeline,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    dvc("repro")
    same = (pipeline / "pipeline/leaderboard.json").read_text()
    assert same == podracer(pipeline, "leaderboard", "--json").stdout
    skipped = podracer(pipeline, "run")
    assert "skipped: nothing is new" in skipped.stdout
    assert same == (run_folder(pipeline) / "leaderboard.json").read_text()
    assert "Data and pipelines are up to date" in dvc("repro")
    dvc("remote", "add", "-d", "local", str(tmp_path / "remote"))
    dvc("config", "remote.local.verify", "true")
    dvc("push")
    shutil.rmtree(pipeline / "data/raw/current")
    shutil.rmtree(pipeline / ".dvc/cache")
    dvc("pull")
    assert read_snapshot(pipeline / "data/raw/current").name == "mega6"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@retry(
    # On two busy cores the server answers 503 while its database is locked.
    retry=retry_if_exception(lambda e: isinstance(e, urllib.error.HTTPError) and e.code == 503),
    stop=stop_after_delay(60),
    wait=wait_fixed(1),
    reraise=True,
)
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
    log = (tmp_path / "log").open("w")
    serving = subprocess.Popen(
        [PODRACER, "serve", "--port", str(port)],
        cwd=folder,
        env=environment(),
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
                assert serving.poll() is None, (tmp_path / "log").read_text()
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
        serving.terminate()
        serving.wait(timeout=120)
    (run,) = (folder / "runs").iterdir()
    assert (run / "report.html").exists()
