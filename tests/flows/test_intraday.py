"""The whole job on generated 15-minute bars."""

import json

import numpy as np
import pytest

from tests.flows.workspace import podracer, run_folder, workspace
from tests.market.prices import DATES
from tests.market.test_intraday import bars_frame

pytestmark = pytest.mark.timeout(400)


def test_a_tournament_on_fifteen_minute_bars(tmp_path):
    folder = workspace(
        tmp_path / "w",
        name="bars",
        data={"source": "file", "path": "bars.csv", "bar": "15m"},
        features={"asset": ["reversal_1m", "volatility_60"], "market": ["log_return_1", "rsi_30"]},
        windows={
            "train": "2021-06-01 .. 2021-09-30",
            "selection": "2021-10-01 .. 2022-03-31",
            "lockbox": "2022-04-01 .. 2022-08-31",
            "embargo_sessions": 40,
        },
    )
    bars_frame("2021-01-04", "2022-08-31", bar="15m").to_csv(folder / "bars.csv", index=False)
    done = podracer(folder, "run")
    assert done.returncode == 0, done.stderr
    run = run_folder(folder)
    equity = (run / "equity.csv").read_text().splitlines()
    # Daily figures: one row a session of the lockbox after the embargo.
    sessions = ((DATES >= "2022-04-01") & (DATES <= "2022-08-31")).sum()
    assert len(equity) - 1 == sessions - 40 - 1
    metrics = json.loads((run / "metrics.json").read_text())
    assert np.isfinite(metrics["lockbox"]["champion"]["metrics"]["sharpe"]["value"])
    assert "split like" not in (run / "report.html").read_text()
