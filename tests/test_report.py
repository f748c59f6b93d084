"""The report of a champion that never trades."""

import pytest

from podracer.backtest.backtest import backtest
from podracer.envs.frozen_agents import load_agents
from podracer.envs.settings import EnvSettings
from podracer.evaluation.metrics import Metric
from podracer.market.market import open_market
from podracer.market.quality import check
from podracer.market.settings import DataSettings
from podracer.pods import pod
from podracer.report.report import Provenance, write_report
from podracer.tournament.gate import Evidence
from podracer.tournament.ledger import Opening, Stretch
from podracer.tournament.orchestrator import GenerationSummary, TournamentSummary
from tests.market.prices import clean_frame, raw
from tests.pods.test_pods import WINDOWS, market, spec  # noqa: F401


@pytest.mark.parametrize(("cash", "never_traded"), [(1.0, True), (1_000_000.0, False)])
def test_e02_a_report_says_that_the_agent_never_traded_and_why(
    market,  # noqa: F811
    tmp_path,
    cash,
    never_traded,
):
    trained = pod.train(spec(market, tmp_path / "pod", 2))
    agents, opened = load_agents([trained.agents[0].checkpoint]), open_market(market)
    env = EnvSettings(initial_cash=cash)
    result = backtest(opened, WINDOWS, env, agents, agents, seed=1)
    none = Metric(None, "not weighed")
    evidence = Evidence(1.0, none, 1, none, none, "not enough evidence", "not enough evidence")
    generation = GenerationSummary(1, None, None, None, None, 0, 0, 1, 1.0)
    opening = Opening("run", Stretch(("A",), "2020-01-01", "2021-01-01"), 1, 0)
    provenance = Provenance(
        "made up", 1, 1, "planted", "d" * 64, "v", "m" * 64, "c" * 64, "g", 1, env.costs.summary,
        "weights", env.fill, cash, opening, (),
    )  # fmt: skip
    _, quality = check(raw(clean_frame()), DataSettings().quality)
    tournament = TournamentSummary((), (generation,), 1)
    path = write_report(tmp_path / "report.html", result, tournament, evidence, quality, provenance)
    html = path.read_text(encoding="utf-8")
    # 89 decisions on 4 assets, no share of which a dollar buys.
    said = "The agent never traded in the lockbox: insufficient cash for one share, 356 times."
    assert (said in html) == never_traded
    assert "nan" not in html.split("<svg")[0]
    assert (result.sharpe_difference == (None, None, None)) == never_traded
