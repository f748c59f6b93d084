"""`podracer run` as a user has it: a real Prefect server, MLflow, DVC and Chromium."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from ruamel.yaml import YAML
from stable_baselines3 import PPO

import podracer.envs.gym
from podracer.config import load_settings
from podracer.envs.guests import read_weights, seat
from podracer.envs.rollout import rollout
from podracer.errors import LeaderboardError
from podracer.leaderboard.board import read_board
from podracer.pipeline import datasets
from podracer.pipeline.guests import declare, enter, training_face
from podracer.tournament.ledger import Ledger, stretch
from tests.conftest import chromium_page
from tests.flows.workspace import podracer, run_folder, stages, workspace

# One worker, so that the run they look at is made once.
pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("end to end")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A workspace after `podracer run`."""
    folder = workspace(tmp_path_factory.mktemp("run") / "one")
    done = podracer(folder, "run")
    assert done.returncode == 0, done.stderr + done.stdout
    return folder, done.stdout


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
    other = workspace(tmp_path / "other", pool={"workers": 1})
    assert stages(other, "ingest", "features", "tournament").returncode == 0
    assert podracer(other, "leaderboard", "--json").stdout == board.stdout
    assert len(json.loads(board.stdout)) == 4
    seeded = workspace(tmp_path / "seeded", seed=2)
    assert stages(seeded, "ingest", "features", "tournament").returncode == 0
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


def test_a_guest_is_scored_counted_once_and_shown(finished):
    folder, _ = finished
    with contextlib.chdir(folder):
        arguments = training_face("params.yaml")
        trained = PPO(
            "MlpPolicy", gymnasium.make("podracer/StockTrading-v0", **arguments), n_steps=64
        )
        trained.learn(64)
        trained.save("mine.zip")
        settings, market = load_settings(Path("params.yaml")), arguments["market"]
        windows = arguments["windows"]
        ledger = Ledger(settings.store.ledger)
        seen = stretch(market.tickers, windows["selection"].return_dates(market.dates_D))
        before = ledger.trials(seen).count
        wrong = podracer(
            folder, "enter", "--sb3", "mine.zip", "--algorithm", "ppo", "--net-arch", "8"
        )
        assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
        assert "the weights are not those of ppo with net_arch (8,)" in wrong.stderr.replace(
            "\n", ""
        )
        assert ledger.trials(seen).count == before
        done = podracer(folder, "enter", "--sb3", "mine.zip", "--algorithm", "ppo")
        assert done.returncode == 0, done.stderr + done.stdout
        assert "mine: score" in done.stdout
        market_folder = datasets.features(settings, datasets.ingest(settings))
        file = declare(Path("mine.zip"), "PPO", None, None, 1, None)
        enter(settings, market_folder, file)
        assert ledger.trials(seen).count == before + 1
        agents = [e.name for e in read_board(settings.store, settings.name) if e.kind == "agent"]
        with pytest.raises(LeaderboardError, match="an agent of this tournament is called that"):
            enter(settings, market_folder, replace(file, name=agents[0]))
        # The same tensors read another way are another trial.
        enter(settings, market_folder, declare(Path("mine.zip"), "ppo", None, "relu", 1, "mine"))
        assert ledger.trials(seen).count == before + 2
        enter(settings, market_folder, replace(file, name="again"))
        assert ledger.trials(seen).count == before + 3
        file = replace(file, name="again")
        (entry,) = [e for e in read_board(settings.store, settings.name) if e.name == "again"]
        assert entry.kind == "guest"
        guest = seat(file.declared, read_weights(file.path), market, windows["train"], settings.env)
        returns = rollout(guest, market, windows["selection"], settings.env).returns_RE[:, 0]
    expected = np.sqrt(252) * returns.mean() / returns.std(ddof=1)
    assert entry.sharpe == pytest.approx(expected, rel=1e-6)
