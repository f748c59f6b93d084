"""Updater, generator, ledger, gate and the whole loop in memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from podracer.agents.settings import Hyperparameters, NetworkSettings
from podracer.envs.backends import Decision
from podracer.envs.frozen_agents import load_agents
from podracer.envs.policies import equal_weight_monthly
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.errors import CheckpointError, LeaderboardError
from podracer.evaluation.statistics import bootstrap_indices
from podracer.market.synthetic import PlantedSettings, planted_market
from podracer.market.windows import Window, Windows
from podracer.pods.pools import InlinePool
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentResult, PodResult
from podracer.tournament import gate, orchestrator
from podracer.tournament.entry import Entry, ranked
from podracer.tournament.generator import next_agents, parent_chances
from podracer.tournament.ledger import Ledger, Opening, Trials, stretch
from podracer.tournament.memory_board import MemoryBoard
from podracer.tournament.orchestrator import TournamentJob, load_summary
from podracer.tournament.selection import Judge, Yardstick
from podracer.tournament.settings import TournamentSettings
from podracer.tournament.updater import update
from tests.conftest import market_of, random_closes


def entry(name, score, **changes):
    facts = {
        "generation": 1,
        "pod": "p",
        "parent": None,
        "hyperparameters": {},
        "checkpoint": Path(name),
    }
    reason = None if score is not None else "never traded"
    return Entry(
        **{"name": name, "weights_hash": name, "score": score, "reason": reason}
        | {"train_score": None, "sharpe": None}
        | facts
        | changes
    )


def test_the_board_is_bounded_undefined_scores_are_last_and_ties_go_to_the_earlier():
    board = [entry("old", 1.0), entry("none", None)]
    change = update(board, [entry("new", 1.0), entry("best", 2.0), entry("low", 0.5)], 4)
    assert [e.name for e in change.entries] == ["best", "old", "new", "low"]
    assert [e.name for e in change.entered] == ["best", "new", "low"]
    assert [e.name for e in change.evicted] == ["none"]
    again = update(change.entries, [entry("best", 2.0)], 4)
    assert (again.entered, again.evicted) == ([], [])
    assert [e.name for e in ranked([entry("x", None), entry("y", -3.0)])] == ["y", "x"]


def test_parents_are_drawn_by_a_softmax_over_z_scores():
    scores = [1.0, 2.0, 3.0]
    z = (np.array(scores) - 2.0) / np.std(scores)
    expected = np.exp(z) / np.exp(z).sum()
    assert parent_chances(scores, 1.0) == pytest.approx(expected)
    assert parent_chances([5.0, 5.0], 1.0).tolist() == [0.5, 0.5]
    hyper = Hyperparameters().model_dump()
    board = [entry(f"e{i}", s, hyperparameters=hyper) for i, s in enumerate(scores)]
    board.append(entry("undefined", None, hyperparameters=hyper))
    settings = TournamentSettings(fresh_share=0.0)
    agents = next_agents(settings, Hyperparameters(), board, "g2-p1", 6000, seed=1)
    counts = [sum(a.parent == f"e{i}" for a in agents) / 6000 for i in range(3)]
    assert counts == pytest.approx(expected, abs=0.02)


def test_children_mutate_inside_the_ranges_and_new_agents_fill_them():
    settings = TournamentSettings(fresh_share=0.5, mutation_factor=1.5)
    parent = Hyperparameters(gain=2.9, speed=0.5).model_dump()
    board = [entry("e", 1.0, hyperparameters=parent)]
    agents = next_agents(settings, Hyperparameters(discount=0.7), board, "g2-p1", 400, seed=1)
    children = [a.hyperparameters for a in agents if a.parent]
    fresh = [a.hyperparameters for a in agents if not a.parent]
    assert 150 < len(fresh) < 250
    assert all(2.9 / 1.5 - 1e-9 <= c.gain <= 3.0 for c in children)
    assert max(c.gain for c in children) == 3.0
    assert all(f.discount == 0.7 for f in fresh)
    gains = np.log([f.gain for f in fresh])
    assert (gains.min(), gains.max()) == pytest.approx(np.log([0.3, 3.0]), abs=0.1)
    again = next_agents(settings, Hyperparameters(discount=0.7), board, "g2-p1", 400, seed=1)
    assert again == agents


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ensemble_size": 40}, "ensemble_size 40 exceeds board_size 32"),
        ({"ranges": {"gaim": (1, 2)}}, "no such hyper-parameter"),
        ({"ranges": {"gain": (3, 2)}}, "expected 0 < low <= high"),
        ({"ranges": {"clip": (0.1, 2)}}, "less than 1"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TournamentSettings(**change)


def result(names, returns, failed=()):
    def agent(name, r):
        bad = name in failed
        return AgentResult(
            name, None, {}, Path(name), name, "non-finite loss" if bad else None,
            None if bad else r, None if bad else r, not bad,
        )  # fmt: skip

    return PodResult(
        "p", 1, tuple(agent(n, r) for n, r in zip(names, returns, strict=True)), 1, 1.0
    )


def test_a_score_that_is_undefined_on_some_resamples_stays_off_the_ranking():
    rng = np.random.default_rng(0)
    benchmark = rng.normal(0, 0.01, 100)
    indices = bootstrap_indices(100, "m", "selection")
    judge = Judge(Yardstick(benchmark, indices), Yardstick(benchmark, indices))
    rare = np.zeros(100)
    rare[[10, 50, 90]] = 0.01, -0.02, 0.01
    entries = judge.entries(result("ab", [rare, rng.normal(0, 0.01, 100)]))
    assert (entries[0].score, entries[0].reason) == (None, "too few moves for a score")
    assert entries[0].train_score is None
    assert np.isfinite(entries[1].score)


def days(first, count):
    return np.datetime64(first) + np.arange(count)


def test_the_ledger_counts_failed_and_earlier_trials_that_share_a_name_and_a_day(tmp_path):
    ledger = Ledger(tmp_path)
    rng = np.random.default_rng(0)
    dates = days("2015-01-01", 100)
    benchmark, returns = rng.normal(0, 0.01, 100), rng.normal(0, 0.01, (5, 100))
    for _ in range(2):
        ledger.record("r1", "XY", result("abc", returns[:3], failed="b"), dates, benchmark)
    ledger.record("years later", "XY", result("a", returns[:1]), dates + 1000, benchmark)
    ledger.record("other names", "Z", result("a", returns[:1]), dates, benchmark)
    # A night later and one name more: nearly the same window, other costs, another benchmark.
    ledger.record("next night", "YZ", result("a", returns[3:4]), dates + 1, benchmark / 2)
    ledger.record("half a window", "X", result("a", returns[4:]), dates + 50, benchmark)
    trials = ledger.trials(stretch("XY", dates))
    excess = returns - np.array([1, 1, 1, 0.5, 1])[:, None] * benchmark
    # Files are read in order of their names.
    expected = {n: excess[n].mean() / excess[n].std(ddof=1) for n in (4, 3, 0, 2)}
    assert trials.count == 5
    assert trials.excess_sharpe_N == pytest.approx(list(expected.values()))
    assert trials.variance == pytest.approx(np.var(list(expected.values()), ddof=1))
    shared = [excess[3][:99], excess[0][1:], excess[2][1:]]
    assert trials.excess_RN == pytest.approx(np.stack(shared, axis=1))


def test_a_lockbox_remembers_who_opened_it_and_who_chose_on_its_days(tmp_path):
    ledger = Ledger(tmp_path)
    year = stretch("XY", days("2018-01-01", 365))

    def looks(run, window):
        opening = ledger.open_lockbox(run, window)
        return opening.number, opening.selections

    assert looks("r1", year) == (1, 0)
    assert ledger.open_lockbox("r1", year).is_first_look
    assert looks("r2", stretch("XY", days("2018-12-31", 365))) == (2, 0)
    assert looks("r3", stretch("Y", days("2018-06-01", 365))) == (3, 0)
    assert looks("r4", stretch("Z", days("2018-06-01", 365))) == (1, 0)
    assert looks("r5", stretch("XY", days("2020-01-01", 365))) == (1, 0)
    assert looks("r1", year) == (1, 0)
    returns = np.zeros((1, 365))
    ledger.record("r6", "XW", result("a", returns), days("2021-01-01", 365), returns[0])
    assert looks("r6", stretch("XW", days("2022-03-01", 365))) == (1, 0)
    seen = ledger.open_lockbox("r7", stretch("XY", days("2021-06-01", 180)))
    assert (seen.number, seen.selections, seen.is_first_look) == (1, 1, False)


def test_the_gate_supports_a_planted_lead_and_refuses_noise_and_a_laggard():
    rng = np.random.default_rng(1)
    benchmark = rng.normal(0.0005, 0.01, 750)
    noise = rng.normal(0, 0.002, (750, 20)) + benchmark[:, None]
    ratios = rng.normal(0, 0.03, 20)
    in_vain = Trials(20, ratios, noise - benchmark[:, None])
    found = Trials(20, ratios, noise + 0.0006 - benchmark[:, None])
    first = Opening("r", stretch("XY", days("2018-01-01", 750)), 1, 0)
    refused = gate.weigh(noise[:, 0], benchmark, in_vain, first)
    assert refused.verdict == "not enough evidence"
    winner = noise[:, 0] + 0.0006
    strong = gate.weigh(winner, benchmark, found, first)
    assert (strong.verdict, strong.statement) == ("strong", "strong by the evidence")
    for seen in (replace(first, number=2), replace(first, selections=1)):
        statement = gate.weigh(winner, benchmark, found, seen).statement
        assert statement == "strong by the evidence, but in a lockbox that was looked at before"
    behind = gate.weigh(benchmark - 0.001, benchmark, found, first)
    assert behind.verdict == "not enough evidence"
    lagging = gate.weigh(noise[:, 1] - 0.001, benchmark, found, first)
    assert lagging.verdict == "not enough evidence"
    assert "was not ahead of equal weight" in lagging.statement
    same = gate.weigh(benchmark, benchmark, found, first)
    assert same.deflated_sharpe.reason == "the champion is the benchmark"


WINDOWS = Windows(
    Window("train", 0, 900), Window("selection", 960, 1300), Window("lockbox", 1360, 1800)
)


def job(market, folder, seed=1, **changes):
    market_folder = market.save(folder / "market")
    facts = {
        "settings": TournamentSettings(generations=2, pods=2, board_size=6, ensemble_size=3),
        "pod": PodSettings(agents=2, steps=500, cohorts=4, envs_per_cohort=4, horizon_bars=8),
        "hyperparameters": Hyperparameters(),
        "env": EnvSettings(),
    }
    return TournamentJob(
        run="r", seed=seed, market=market, market_folder=market_folder, windows=WINDOWS,
        folder=folder / "run", **facts | changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def small_market():
    return planted_market(PlantedSettings(num_sessions=1800, num_assets=4))


def test_a_tournament_fills_its_board_and_is_the_same_whatever_order_pods_finish_in(
    small_market, tmp_path
):
    class Backwards(InlinePool):
        def next_finished(self):
            self._waiting.reverse()
            return super().next_finished()

    boards = []
    for name, pool in (("a", InlinePool()), ("b", Backwards())):
        summary = orchestrator.run(
            job(small_market, tmp_path / name), pool, MemoryBoard(6), Ledger(tmp_path / name / "l")
        )
        boards.append([(e.name, e.score, e.weights_hash, e.parent) for e in summary.entries])
        assert summary.num_trials == 8
        assert len(summary.entries) == 6
        summary.save(tmp_path / name / "run" / "tournament.json")
        assert load_summary(tmp_path / name / "run" / "tournament.json") == summary
    assert boards[0] == boards[1]
    other = orchestrator.run(
        job(small_market, tmp_path / "c", seed=2),
        InlinePool(),
        MemoryBoard(6),
        Ledger(tmp_path / "c"),
    )
    assert {e.weights_hash for e in other.entries}.isdisjoint({b[2] for b in boards[0]})


def test_a_tournament_that_is_started_again_ends_with_the_same_board(small_market, tmp_path):
    board = MemoryBoard(6)
    first = orchestrator.run(job(small_market, tmp_path), InlinePool(), board, Ledger(tmp_path))
    # The stored board now holds entries of the last generation, as after a kill.
    again = orchestrator.run(job(small_market, tmp_path), InlinePool(), board, Ledger(tmp_path))
    assert again == first
    assert tuple(board.entries()) == first.entries


def test_a_tournament_in_which_every_agent_fails_ends_with_the_reason(small_market, tmp_path):
    broken = job(
        small_market,
        tmp_path,
        hyperparameters=Hyperparameters(learning_rate=1e38),
        settings=TournamentSettings(generations=1, pods=1, ranges={}),
    )
    with pytest.raises(LeaderboardError, match=r"no agent has a defined score .non-finite loss"):
        orchestrator.run(broken, InlinePool(), MemoryBoard(4), Ledger(tmp_path))


def test_agents_refuse_a_market_of_other_tickers_and_mixed_ensembles(small_market, tmp_path):
    summary = orchestrator.run(
        job(small_market, tmp_path), InlinePool(), MemoryBoard(6), Ledger(tmp_path)
    )
    agents = load_agents([e.checkpoint for e in summary.scored])
    with pytest.raises(CheckpointError, match="trained on other tickers"):
        agents.policy(market_of(random_closes(50, 4)))
    other_market = planted_market(PlantedSettings(num_sessions=1800, num_assets=4, seed=5))
    other = orchestrator.run(
        job(other_market, tmp_path / "o"), InlinePool(), MemoryBoard(6), Ledger(tmp_path / "o")
    )
    with pytest.raises(CheckpointError, match="an ensemble needs agents of one tournament"):
        load_agents([summary.entries[0].checkpoint, other.entries[0].checkpoint])


class Rule:
    """Softmax of the signal: one member of the family that the oracle is searched in."""

    num_policies = 1

    def __init__(self, signal_DA, gain, speed, band):
        self.signal_DA, self.gain, self.speed, self.band = signal_DA, gain, speed, band

    def decide(self, session, weights_AE):
        odds = np.exp(self.gain * self.signal_DA[session])
        target = (odds / odds.sum()).astype(np.float32)[:, None]
        return Decision(target, np.array([self.speed]), np.array([self.band]))


def lead(policy, market, window, env):
    """Daily net return over equal weight rebalanced monthly."""
    benchmark = rollout(equal_weight_monthly(market, window.start), market, window, env)
    return rollout(policy, market, window, env).returns_RE[:, 0] - benchmark.returns_RE[:, 0]


PLANTED_WINDOWS = Windows(
    Window("train", 10, 1610), Window("selection", 1670, 2300), Window("lockbox", 2360, 3398)
)
# Such a signal multiplies capital by thousands: less of it keeps money exact.
PLANTED_ENV = EnvSettings(initial_cash=100_000)


def planted_champion(market, folder, seed, critic_hidden=0):
    planted = replace(
        job(market, folder, seed),
        windows=PLANTED_WINDOWS,
        env=PLANTED_ENV,
        settings=TournamentSettings(
            generations=1, pods=1, board_size=8, ensemble_size=8, ranges={}
        ),
        pod=PodSettings(steps=100_000, network=NetworkSettings(critic_hidden=critic_hidden)),
        hyperparameters=Hyperparameters(gain=3.0, speed=1.0, initial_std=1.0, discount=0.5),
    )
    summary = orchestrator.run(planted, InlinePool(), MemoryBoard(8), Ledger(folder))
    return load_agents([e.checkpoint for e in summary.scored]).policy(market)


@pytest.mark.parametrize(("seed", "critic_hidden"), [(0, 0), (1, 32), (2, 0)])
def test_the_champion_earns_70_percent_of_the_oracle_on_a_planted_market(
    tmp_path, seed, critic_hidden
):
    market = planted_market(PlantedSettings(num_sessions=3400, seed=seed))
    signal_DA = np.array(market.asset_features_DAK[:, :, 0])
    searched = Window("search", 10, 1010)
    family = [
        Rule(signal_DA, gain, speed, band)
        for gain in (1, 2, 3, 4, 6)
        for speed in (0.25, 0.5, 1.0)
        for band in (0.0, 0.02)
    ]
    oracle = max(family, key=lambda rule: lead(rule, market, searched, PLANTED_ENV).mean())
    champion = planted_champion(market, tmp_path, seed, critic_hidden)
    earned = lead(champion, market, PLANTED_WINDOWS.lockbox, PLANTED_ENV).mean()
    possible = lead(oracle, market, PLANTED_WINDOWS.lockbox, PLANTED_ENV).mean()
    assert possible > 0.003
    assert earned >= 0.7 * possible


@pytest.mark.slow
def test_without_a_signal_the_champion_proves_nothing(tmp_path):

    refused = 0
    for seed in range(20):
        market = planted_market(PlantedSettings(num_sessions=3400, seed=seed, permuted=True))
        champion = planted_champion(market, tmp_path / str(seed), seed)
        excess_R = lead(champion, market, PLANTED_WINDOWS.lockbox, PLANTED_ENV)
        rows = bootstrap_indices(len(excess_R), market.hash, "lockbox")
        refused += np.quantile(excess_R[rows].mean(1), 0.05) <= 0
    assert refused >= 18
