"""The MLflow registry as the board: a real SQLite store, real models."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import mlflow
import numpy as np
import pytest

from podracer.envs import rule
from podracer.envs.frozen_agents import load_agents
from podracer.errors import LeaderboardError
from podracer.leaderboard.board import Identity, MlflowBoard, read_board
from podracer.leaderboard.settings import StoreSettings
from podracer.pods.pools import InlinePool
from podracer.tournament import orchestrator
from podracer.tournament.ledger import Ledger
from tests.tournament.test_tournament import job, small_market  # noqa: F401

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.xdist_group("leaderboard"),
]


@pytest.fixture(scope="module")
def played(small_market, tmp_path_factory):  # noqa: F811
    """A finished tournament with its board."""
    folder = tmp_path_factory.mktemp("board")
    store = StoreSettings(folder=folder / "store")
    market = small_market
    width = 1 + 4 + 4 * 1 + 4
    observations = np.random.default_rng(0).random((8, width)).astype(np.float32)
    identity = Identity("demo", "run1", market.tickers, {"market_hash": market.hash})
    board = MlflowBoard(store, identity, 6, observations)
    summary = orchestrator.run(job(market, folder), InlinePool(), board, Ledger(folder / "l"))
    version = board.crown(summary.scored[:3])
    return store, board, summary, version, observations


def test_the_registry_gives_back_the_entries_in_order(played):
    store, board, summary, _, _ = played
    assert tuple(board.entries()) == summary.entries
    assert tuple(read_board(store, "demo")) == summary.entries
    assert len(summary.entries) == 6


def test_versions_carry_score_and_lineage_and_evicted_ones_stay(played):
    _, board, summary, _, _ = played
    client = mlflow.MlflowClient(mlflow.get_tracking_uri())
    versions = client.search_model_versions("name = 'podracer-demo'")
    tags = {v.tags.get("agent"): v.tags for v in versions if v.tags["kind"] == "agent"}
    best = summary.entries[0]
    assert float(tags[best.name]["score"]) == best.score
    assert tags[best.name]["weights_hash"] == best.weights_hash
    assert tags[best.name]["market_hash"] == board.identity.tags["market_hash"]
    on_board = [name for name, t in tags.items() if t["board"] == "in"]
    assert sorted(on_board) == sorted(e.name for e in summary.entries)


def test_champion_and_leader_act_as_their_checkpoints_do(played):
    _, _, summary, version, observations = played
    client = mlflow.MlflowClient(mlflow.get_tracking_uri())
    assert int(client.get_model_version_by_alias("podracer-demo", "champion").version) == version
    for alias, members in (("champion", summary.scored[:3]), ("leader", summary.scored[:1])):
        model = mlflow.pyfunc.load_model(f"models:/podracer-demo@{alias}")
        agents = load_agents([m.checkpoint for m in members])
        assert np.array_equal(model.predict(observations), agents.desired_weights(observations))


def test_desired_weights_are_where_the_policy_would_go(played, small_market):  # noqa: F811
    _, _, summary, _, _ = played
    agents = load_agents([m.checkpoint for m in summary.scored[:3]])
    held = np.array([[0.4], [0.1], [0.2], [0.1]])
    policy = agents.policy(small_market)
    held[3] = policy.decide(50, held).wanted_AE[3] + 0.001  # inside the no-trade band
    decision = policy.decide(50, held)
    equity, price = 1e12, np.full(4, 1e4)  # a million dollars, shares of a cent: fine enough steps
    orders = rule.size_orders(
        np,
        np.array([(1 - held.sum()) * equity]),
        np.round(held * equity / price[:, None]),
        SimpleNamespace(close=price[:, None], visible=np.ones((4, 1), dtype=bool)),
        *decision,
    )
    assert orders[3] == 0
    expected = held + orders * price[:, None] / equity
    row = np.concatenate(
        [
            [1 - held.sum()],
            held[:, 0],
            small_market.asset_features_DAK[50].ravel(),
            small_market.market_features_DF[50],
        ]
    )
    assert agents.desired_weights(row[None])[0] == pytest.approx(expected[:, 0], abs=1e-5)


def test_a_name_belongs_to_one_universe(played):
    store, board, _, _, observations = played
    other = replace(board.identity, tickers=("X", "Y"))
    with pytest.raises(LeaderboardError, match="leaderboard 'demo' holds agents of other tickers"):
        MlflowBoard(store, other, 6, observations)


def test_crowning_and_offering_again_add_nothing(played):
    _, board, summary, version, _ = played
    client = mlflow.MlflowClient(mlflow.get_tracking_uri())
    before = len(client.search_model_versions("name = 'podracer-demo'"))
    assert board.crown(summary.scored[:3]) == version
    assert tuple(board.offer(summary.entries)) == summary.entries
    assert len(client.search_model_versions("name = 'podracer-demo'")) == before


def test_a_board_that_is_opened_again_goes_on_where_it_was(played):
    store, board, summary, version, observations = played
    again = MlflowBoard(store, board.identity, 6, observations)
    assert again.run_id == board.run_id
    assert tuple(again.offer(summary.entries)) == summary.entries
    assert again.crown(summary.scored[:3]) == version


def test_agents_trained_again_with_other_weights_replace_the_stored_ones(played):
    store, board, summary, _, observations = played
    identity = Identity("again", "run1", board.identity.tickers, board.identity.tags)
    first = MlflowBoard(store, identity, 6, observations)
    first.offer(summary.entries)
    old = first.crown(summary.scored[:2])
    second = MlflowBoard(store, identity, 6, observations)
    retrained = [
        replace(e, weights_hash=f"x{e.weights_hash[1:]}", score=e.score + 1)
        for e in summary.entries
    ]
    assert second.offer(retrained) == retrained
    assert second.crown(retrained[:2]) > old


def test_a_run_shows_whether_it_is_at_work_has_finished_or_has_failed(played):
    store, board, summary, _, observations = played
    identity = Identity("status", "run1", board.identity.tickers, board.identity.tags)
    fresh = MlflowBoard(store, identity, 6, observations)

    def status():
        return mlflow.MlflowClient(mlflow.get_tracking_uri()).get_run(fresh.run_id).info.status

    def fail():
        with fresh.at_work():
            fresh.offer(summary.entries[:1])
            assert status() == "RUNNING"
            raise LeaderboardError("the store is gone")

    with pytest.raises(LeaderboardError, match="the store is gone"):
        fail()
    assert status() == "FAILED"
    with fresh.at_work():
        fresh.crown(summary.entries[:1])
        assert status() == "RUNNING"
    assert status() == "FINISHED"


def test_an_unknown_board_is_refused(played):
    with pytest.raises(LeaderboardError, match="there is no leaderboard 'nobody'"):
        read_board(played[0], "nobody")


def test_a_store_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LeaderboardError, match="cannot be written"):
        read_board(StoreSettings(folder=tmp_path / "file" / "store"), "demo")
    unreachable = StoreSettings(folder=tmp_path, mlflow_uri="sqlite:////proc/none/mlflow.db")
    with pytest.raises(LeaderboardError, match="cannot be written"):
        read_board(unreachable, "demo")


def test_two_processes_may_create_the_store_at_once(tmp_path):
    code = (
        "from podracer.leaderboard.store import open_store\n"
        "from podracer.leaderboard.settings import StoreSettings\n"
        f"open_store(StoreSettings(folder={str(tmp_path / 's')!r}))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [p.wait(timeout=120) for p in running] == [0, 0]


def test_the_leaderboard_as_json_has_no_paths_and_no_times(played):
    from podracer.tournament.entry import leaderboard_json

    rows = json.loads(leaderboard_json(played[2].entries))
    assert [r["rank"] for r in rows] == [1, 2, 3, 4, 5, 6]
    assert "checkpoint" not in rows[0]
    assert "/" not in leaderboard_json(played[2].entries)
