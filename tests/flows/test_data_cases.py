"""Public bug reports about market data, each as a small trial of the command line.

The numbers are those of the project's list of cases; the report's repository stands beside each.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import numpy as np
import pandas as pd
import pytest

from podracer.envs.policies import ScheduledPolicy, equal_weights
from podracer.envs.rollout import rollout
from podracer.envs.settings import EnvSettings
from podracer.market.market import open_market
from podracer.market.sessions import is_last_of_month, last_closed_session, sessions_of
from podracer.market.snapshot import read_manifest, read_snapshot
from podracer.market.windows import Window, WindowSettings, resolve_windows
from tests.flows.workspace import PODRACER, environment, podracer, workspace
from tests.market.prices import DATES, cell, clean_frame
from tests.market.yahoo_standin import StandIn

pytestmark = pytest.mark.timeout(400)

FRAME = clean_frame(400)
PRICES = ["open", "high", "low", "close"]
FILE = {
    "name": "cases",
    "data": {"source": "file", "path": "prices.csv"},
    "features": {"asset": ["reversal_1m", "volatility_60"], "market": ["log_return_1", "rsi_30"]},
    "windows": {
        "train": "2019-05-01 .. 2019-09-30",
        "selection": "2019-10-01 .. 2020-02-28",
        "lockbox": "2020-03-01 .. 2020-07-31",
        "embargo_sessions": 32,
    },
}


def trial(tmp_path, frame, **changes):
    folder = workspace(tmp_path / "w", **FILE | changes)
    frame.to_csv(folder / "prices.csv", index=False)
    return folder


def check(folder, *arguments):
    done = podracer(folder, "data", "check", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return report, {(f["rule"], f["tic"]): f for f in report["findings"]}


def market_of(folder):
    for stage in ("ingest", "features"):
        done = podracer(folder, "stage", stage)
        assert done.returncode == 0, done.stderr
    return open_market(folder / "data/features/current")


def refused(folder, message, code=2, command=("stage", "ingest")):
    done = podracer(folder, *command)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (folder / "data").exists(), "a refusal leaves nothing behind"


def test_d01_a_ticker_that_starts_later_stays_masked(tmp_path):  # FinRL#137, #1257
    frame = FRAME.drop(index=FRAME.index[FRAME["tic"] == "C"][:120])
    folder = trial(tmp_path, frame)
    _, found = check(folder)
    assert found[("late_start", "C")]["date"] == str(FRAME["date"].unique()[120].date())
    market = market_of(folder)
    assert market.tickers == ("A", "B", "C")
    assert market.tradable_DA[:, 2].tolist() == [False] * 120 + [True] * 280
    assert not market.feature_valid_DA[:180, 2].any()  # a look-back of 60 sessions
    assert market.feature_valid_DA[180:, 2].all()
    assert market.feature_valid_DA[60:, :2].all()


def test_d02_a_missing_day_costs_no_ticker(tmp_path):  # FinRL#376
    folder = trial(tmp_path, FRAME.drop(index=cell(FRAME, "A", 200)))
    report, found = check(folder)
    assert ("missing", "A") in found
    assert report["tickers"] == report["requested"] == ["A", "B", "C"]
    market = market_of(folder)
    assert market.tradable_DA.sum() == 1199
    assert not market.tradable_DA[200, 0]
    assert market.feature_valid_DA[60:].all()
    assert "hindsight" in market.meta["notes"][0]


def test_d03_nothing_of_the_future_reaches_back(tmp_path):  # FinRL#189
    frame = FRAME.drop(index=FRAME.index[FRAME["tic"] == "B"][:30])
    one = market_of(trial(tmp_path / "1", frame))
    later = frame["date"] > frame["date"].unique()[250]
    factor = np.random.default_rng(0).uniform(0.9, 1.1, later.sum())
    frame.loc[later, PRICES] = frame.loc[later, PRICES].mul(factor, axis=0)
    other = market_of(trial(tmp_path / "2", frame))
    for name in (
        "price_DA",
        "tradable_DA",
        "feature_valid_DA",
        "asset_features_DAK",
        "market_features_DF",
    ):
        before = (np.asarray(getattr(m, name))[:251] for m in (one, other))
        assert np.array_equal(*before, equal_nan=True), name
    assert not one.feature_valid_DA[:90, 1].any()


def test_d04_a_missed_split_is_adjusted_once(tmp_path):  # yfinance#1531, #2002
    frame = FRAME.copy()
    frame.loc[(frame["tic"] == "B") & (frame["date"] < frame["date"].unique()[150]), PRICES] *= 4
    frame.loc[cell(frame, "B", 150), "split"] = 4.0
    folder = trial(tmp_path / "missed", frame)
    _, found = check(folder)
    assert found[("announced_split", "B")]["value"] == "4"
    market, clean = market_of(folder), market_of(trial(tmp_path / "clean", FRAME))
    assert market.price_DA == pytest.approx(np.asarray(clean.price_DA))
    returns = np.asarray(market.price_DA[1:] / market.price_DA[:-1] - 1)
    assert returns.min() > -0.05
    assert np.array_equal(market_of(folder).price_DA, market.price_DA)


def test_d06_twins(tmp_path):  # yfinance#765, pandas-datareader#610
    empty = FRAME.iloc[[40]].assign(**dict.fromkeys([*PRICES, "volume"], np.nan))
    _, found = check(trial(tmp_path / "1", pd.concat([FRAME, empty])))
    assert found[("twin_row", "B")]["done"] == "dropped"
    other = FRAME.iloc[[40]].assign(close=FRAME["close"].iloc[40] + 0.01)
    folder = trial(tmp_path / "2", pd.concat([FRAME, other]))
    refused(folder, "B on 2019-01-22 stands twice with different values: open ")


def test_d07_a_day_that_is_not_final_is_waited_for(tmp_path):  # yfinance#2895, #2925
    frame = FRAME.copy()
    frame.loc[cell(frame, "B", 399), PRICES] = np.nan
    folder = trial(tmp_path, frame)
    refused(
        folder, "skipped: prices.csv: data not final for 2020-08-03: B has no price yet", code=3
    )
    refused(folder, "data not final for 2020-08-03", code=3, command=("run",))
    assert not (folder / "runs").exists()


def recent(num_sessions=60, seed=0):
    """Clean prices up to the last closed session, as a live source would have them."""
    last = last_closed_session("XNYS", pd.Timestamp.now("UTC").to_pydatetime())
    first = DATES[pd.Timestamp(last) >= DATES][-num_sessions]
    return clean_frame(num_sessions, seed=seed, first=str(first.date()))


def live(tmp_path, **yahoo):
    frame = recent()
    folder = workspace(
        tmp_path / "w",
        name="live",
        data={
            "source": "yahoo",
            "tickers": ["A", "B", "C"],
            "start": str(frame["date"].min().date()),
            "yahoo": {"attempts": 2, "backoff_seconds": 0.05, "request_seconds": 5, **yahoo},
        },
    )
    return folder, frame


def serve(frame):
    return StandIn({t: r.drop(columns="tic") for t, r in frame.groupby("tic")}, tls=True)


def ingest(folder, stand_in):
    return subprocess.run(
        [PODRACER, "stage", "ingest"],
        cwd=folder,
        env=environment() | stand_in.environment(),
        capture_output=True,
        text=True,
    )


def test_d09_a_ticker_that_fails_is_named_and_min_universe_decides(tmp_path):  # yfinance#183, #359
    folder, frame = live(tmp_path)
    with serve(frame) as yahoo:
        yahoo.fail("A", "ratelimit")
        yahoo.fail("B", "empty")
        done = ingest(folder, yahoo)
        assert done.returncode == 2
        assert "1 of 3 tickers arrived" in done.stderr
        assert "rate limited: A; no data: B" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (folder / "data").exists()
        folder, _ = live(tmp_path / "2", min_universe=0.3)
        assert ingest(folder, yahoo).returncode == 0
    manifest = read_manifest(folder / "data/raw/current")
    assert manifest["requested"] == ["A", "B", "C"]
    assert manifest["received"] == ["C"]
    assert [(f["tic"], f["kind"]) for f in manifest["failures"]] == [
        ("A", "rate limited"),
        ("B", "no data"),
    ]


def test_d10_a_new_dividend_leaves_old_rows_as_they_were(tmp_path):  # yfinance#687, #2510
    folder, frame = live(tmp_path)
    days = frame["date"].unique()
    with serve(frame[frame["date"] < days[-1]]) as yahoo:
        # The last session is not published yet: the stand-in has one day less.
        settings = (folder / "params.yaml").read_text()
        (folder / "params.yaml").write_text(
            settings.replace("attempts", "close_delay_minutes: 0\n    attempts")
        )
        assert ingest(folder, yahoo).returncode == 0
        old = read_snapshot(folder / "data/raw/current")
        shutil.copytree(folder / "data/raw/current", folder / "data/raw/before")
        frame.loc[(frame["tic"] == "A") & (frame["date"] == days[-1]), "dividend"] = 0.4
        yahoo.data = {t: r.drop(columns="tic") for t, r in frame.groupby("tic")}
        assert ingest(folder, yahoo).returncode == 0
    new = read_snapshot(folder / "data/raw/current")
    pd.testing.assert_frame_equal(new.frame.iloc[: len(old.frame)], old.frame)
    assert new.frame["dividend"].sum() == pytest.approx(0.4)
    assert new.content_hash != old.content_hash
    assert read_manifest(folder / "data/raw/current")["restated"] == []
    shown = podracer(folder, "data", "diff", "data/raw/before", new.content_hash[:10])
    assert shown.stdout.startswith("3 rows added: ")
    assert (
        podracer(folder, "data", "diff", old.content_hash[:10], "data/raw/before").stdout
        == "no difference\n"
    )


def test_d11_a_zero_close_is_one_cell_not_an_equity_of_nan(tmp_path):  # bt#340, Lean#2203
    frame = FRAME.copy()
    frame.loc[cell(frame, "B", 200), ["close", "low"]] = 0.0
    folder = trial(tmp_path, frame)
    _, found = check(folder)
    assert found[("bad_price", "B")]["done"] == "price not used"
    market = market_of(folder)
    assert not market.tradable_DA[200, 1]
    held = ScheduledPolicy(equal_weights(market), np.arange(400) == 100)
    result = rollout(held, market, Window("w", 100, 400), EnvSettings())
    assert np.isfinite(result.returns_RE).all()
    assert np.abs(result.returns_RE).max() < 0.03
    strict = podracer(folder, "data", "check", "--set", "data.quality.levels={bad_price: stop}")
    assert strict.returncode == 2
    assert "rule bad_price: expected positive prices, got 0 for B on" in strict.stderr


def test_d13_a_ticker_that_ends_is_sold_at_its_last_price(tmp_path):  # bt#63, vectorbt#83
    folder = trial(tmp_path, FRAME.drop(index=FRAME.index[FRAME["tic"] == "B"][300:]))
    _, found = check(folder)
    assert ("early_end", "B") in found
    market = market_of(folder)
    held = ScheduledPolicy(equal_weights(market), np.arange(400) == 200)
    result = rollout(held, market, Window("w", 200, 400), EnvSettings())
    (closing,) = result.closings
    assert (market.tickers[closing.asset], closing.date) == ("B", market.dates_D[300])
    last = FRAME.loc[cell(FRAME, "B", 299), "close"]
    shares = closing.dollars_E[0] / last
    assert shares == pytest.approx(round(shares), abs=1e-6)
    assert shares > 0
    assert np.isfinite(result.equity_RE).all()
    assert (result.weights_RAE[100:, 1] == 0).all()


def test_d14_without_volume_nothing_is_sold(tmp_path):  # qlib#717
    frame = FRAME.copy()
    for i in (200, 201, 202):
        frame.loc[cell(frame, "B", i), "volume"] = 0
    folder = trial(tmp_path, frame)
    report, found = check(folder)
    assert found[("zero_volume", "B")]["done"] == "not tradable"
    assert report["rows_used"] == 1197
    market = market_of(folder)
    target = equal_weights(market)
    target[199:] = 0.0
    result = rollout(
        ScheduledPolicy(target, np.ones(400)), market, Window("w", 150, 230), EnvSettings()
    )
    weights = result.weights_RAE[:, 1, 0]  # row r is session 151 + r
    assert (weights[200 - 151 : 203 - 151 + 1] > 0).all()
    assert weights[204 - 151] == 0
    assert result.dropped_E[0] == 1


def test_d16_shuffled_rows_are_sorted_or_refused(tmp_path):  # bt PR #539
    folder = trial(tmp_path, FRAME.sample(frac=1, random_state=0))
    report, found = check(folder)
    assert {rule for rule, _ in found} == {"unsorted"}
    clean, _ = check(trial(tmp_path / "clean", FRAME))
    assert report["content_hash"] == clean["content_hash"]
    strict = podracer(folder, "data", "check", "--set", "data.quality.levels={unsorted: stop}")
    assert (strict.returncode, "rule unsorted" in strict.stderr) == (2, True)


def test_d18_too_short_a_history_names_what_is_needed(tmp_path):  # FinRL#658, #645
    features = {"asset": ["reversal_1m"], "market": ["turbulence"]}
    folder = trial(tmp_path, FRAME[FRAME["date"] < FRAME["date"].unique()[100]], features=features)
    assert podracer(folder, "stage", "ingest").returncode == 0
    done = podracer(folder, "stage", "features")
    assert done.returncode == 2
    assert "the features need 253 sessions to warm up, there are 100" in done.stderr
    assert not (folder / "data/features").exists()


def test_d21_a_strange_csv_is_mapped_or_named(tmp_path):  # FinRL#263, #1065
    strange = FRAME.replace({"tic": {"A": "BRK.B", "B": "7203", "C": "0005"}})
    strange = strange.rename(columns={"date": "Date", "tic": "Symbol", "close": "Adj Close"})
    strange = strange[["Date", "Symbol", "Adj Close"]].assign(Extra="x")
    folder = workspace(tmp_path / "w", **FILE)
    strange.to_csv(folder / "prices.csv", index=False, encoding="utf-8-sig", sep=";", decimal=",")
    refused(folder, "is not a number. Correct it or set data.decimal to ','")
    data = FILE["data"] | {"decimal": ","}
    folder = workspace(tmp_path / "comma", **FILE | {"data": data})
    strange.to_csv(folder / "prices.csv", index=False, encoding="utf-8-sig", sep=";", decimal=",")
    refused(folder, "column 'close' is missing; there are 'date', 'tic', 'adj_close'")
    folder = workspace(
        tmp_path / "mapped", **FILE | {"data": data | {"columns": {"close": "Adj Close"}}}
    )
    strange.to_csv(folder / "prices.csv", index=False, encoding="utf-8-sig", sep=";", decimal=",")
    report, _ = check(folder)
    assert report["tickers"] == ["0005", "7203", "BRK.B"]
    asked = podracer(folder, "data", "check", "--json", "--set", "data.tickers=[BRK-B]")
    assert json.loads(asked.stdout)["tickers"] == ["BRK.B"]


def test_d22_leap_days_and_ends_of_months():  # quantstats PR #96, bt#346
    years = pd.Series(sessions_of("XNYS").year).value_counts()
    assert [years[y] for y in (2020, 2023, 2024)] == [253, 250, 252]
    dates = sessions_of("XNYS")
    dates = dates[(dates >= "2019-01-02") & (dates <= "2024-02-29")].to_numpy("datetime64[D]")
    windows = resolve_windows(
        WindowSettings(train="2y", selection="1y", lockbox="1y", embargo_sessions=0), dates, 61
    )
    # From 29 February 2024 one year back: from 1 March 2023.
    assert str(dates[windows.lockbox.start]) == "2023-03-01"
    ends = dates[is_last_of_month(dates)].astype(str)
    assert "2023-12-29" in ends  # the 31st is a Sunday
    assert "2024-01-31" in ends


def dvc(folder, *arguments):
    return subprocess.run(
        [PODRACER.with_name("dvc"), *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )


def test_v01_a_damaged_cache_is_found_before_anything_is_trained(tmp_path):  # dvc#5978, #9641
    folder = trial(tmp_path, FRAME)
    assert podracer(folder, "ingest").returncode == 0
    (tracked,) = (folder / "data/raw").glob("*.dvc")
    snapshot = tracked.with_suffix("")
    damaged = 0
    for path in (folder / ".dvc/cache").rglob("*"):
        if path.is_file() and path.stat().st_size > 5_000:
            path.chmod(0o644)
            data = bytearray(path.read_bytes())
            data[2_000] ^= 0xFF
            path.write_bytes(data)
            damaged += 1
    assert damaged
    subprocess.run(["rm", "-rf", snapshot], check=True)
    dvc(folder, "checkout", "--force")
    done = podracer(folder, "data", "diff", str(snapshot), str(snapshot))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "ngest again" in done.stderr
    # Ingesting again puts the right content back.
    assert podracer(folder, "ingest").returncode == 0
    assert read_snapshot(snapshot).content_hash.startswith(snapshot.name)


ADD = "import sys; from pathlib import Path; from tasks.datasets import track; print(track(Path(sys.argv[1])))"


def test_v02_four_flows_version_data_at_once(tmp_path):  # dvc#10752, #3783
    folder = trial(tmp_path, FRAME)
    names = [f"data/raw/{i}" for i in range(4)]
    for i, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        (folder / name / "x").write_text(str(i) * 1000)
    command = [PODRACER.with_name("python"), "-c", ADD]
    running = [
        subprocess.Popen(
            [*command, name], cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    hashes = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(hashes) == 4
    assert all((folder / f"{name}.dvc").exists() for name in names)


def test_v03_a_full_disk_keeps_what_was_there(tmp_path):  # dvc#10413
    folder = trial(tmp_path, FRAME)
    limited = f"ulimit -f 20; exec {PODRACER} stage ingest"  # files of 10 KiB at most
    assert podracer(folder, "stage", "ingest").returncode == 0
    before = read_snapshot(folder / "data/raw/current").content_hash
    clean_frame(400, seed=1).to_csv(folder / "prices.csv", index=False)
    done = subprocess.run(
        ["bash", "-c", limited], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "error: the disk is full" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [p.name for p in (folder / "data/raw").iterdir()] == ["current"]
    assert read_snapshot(folder / "data/raw/current").content_hash == before
    assert podracer(folder, "stage", "ingest").returncode == 0
    assert read_snapshot(folder / "data/raw/current").content_hash != before


def killed(tmp_path, times):
    folder = trial(tmp_path, FRAME)
    assert podracer(folder, "stage", "ingest").returncode == 0
    good = read_snapshot(folder / "data/raw/current").content_hash
    started = time.monotonic()
    assert podracer(folder, "stage", "ingest").returncode == 0
    whole = time.monotonic() - started
    rng = random.Random(0)
    for i in range(times):
        clean_frame(400, seed=i + 1).to_csv(folder / "prices.csv", index=False)
        process = subprocess.Popen([PODRACER, "stage", "ingest"], cwd=folder, env=environment())
        time.sleep(whole * rng.uniform(0.5, 1.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        # Either version, whole.
        assert read_snapshot(folder / "data/raw/current").frame["tic"].nunique() == 3
    FRAME.to_csv(folder / "prices.csv", index=False)
    assert podracer(folder, "stage", "ingest").returncode == 0
    assert read_snapshot(folder / "data/raw/current").content_hash == good


def test_an_ingest_that_is_killed_leaves_a_whole_snapshot(tmp_path):
    killed(tmp_path, 4)


@pytest.mark.slow
def test_an_ingest_that_is_killed_twenty_times_leaves_a_whole_snapshot(tmp_path):
    killed(tmp_path, 20)
