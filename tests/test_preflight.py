"""What is refused before a run is started, with the message a user sees."""

import re

import pytest
from ruamel.yaml import YAML

from podracer.config import load_settings
from podracer.errors import PodracerError
from podracer.pipeline.preflight import preflight
from tests.flows.workspace import SMALL


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.tickers=[AAPL, TSLA]"], "the data has no ticker 'TSLA'"),
        (["data.tickers=[AAPL]"], "mega6 has 1 ticker; agents divide capital between tickers"),
        (["store.folder=/proc/nowhere"], "store.folder: /proc/nowhere cannot be written"),
        (["pod.device=cuda"], "pod.device: cuda was asked for, but"),
        (["data.dataset=us20", "windows.lockbox=2021-01-01 .. 2022-12-28", "env.fill=next_open"], "env.fill: next_open needs opening prices, which dataset 'us20'"),
        (["data.dataset=us20", "windows.lockbox=2021-01-01 .. 2022-12-28", "env.costs.impact_bps=5"], "env.costs.impact_bps: market impact and volume caps need volumes, which dataset 'us20'"),
        (["env.costs.commission_minimum=1"], "env.costs.commission_per_share: the prices of dataset 'mega6' are adjusted"),
        (["data.dataset=us20", "features.market=[cci_30]"], "features.market: cci_30 needs the column high, low"),
        (["windows.train=2013-02-01 .. 2018-12-31"], "need 253 sessions before the first day"),
        (["windows.selection=2018-06-01 .. 2020-12-31"], "selection starts on 2018-06-01"),
        (["windows.train=2014-02-01 .. 2014-05-15", "windows.embargo_sessions=90", "pod.horizon_bars=90"], "windows.train: 72 bars are too few for a rollout of 90"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(tmp_path, monkeypatch, overrides, message):
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(SMALL, file)
    settings = load_settings(tmp_path / "params.yaml", overrides)
    with pytest.raises(PodracerError, match=re.escape(message)) as refused:
        preflight(settings)
    assert "\n" not in str(refused.value)
    assert [p.name for p in tmp_path.iterdir()] == ["params.yaml"], "nothing is left behind"
