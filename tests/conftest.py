"""Fixtures shared by the tests: small made-up markets, nothing from the network."""

import os
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from podracer.envs.settings import EnvSettings
from podracer.market.market import UNITS_PER_DOLLAR, Market, with_hash
from podracer.market.sessions import sessions_of


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def usd(amounts) -> np.ndarray:
    """Dollars as money units."""
    return np.round(np.asarray(amounts, dtype=np.float64) * UNITS_PER_DOLLAR)


def market_of(
    dollars_DA, features_DAK=None, open_DA=None, first="2010-01-04", volume_DA=None
) -> Market:
    """A market with given closes (NaN: no price) and asset features."""
    dollars_DA = np.asarray(dollars_DA, dtype=np.float64)
    num_sessions, num_assets = dollars_DA.shape
    sessions = sessions_of("XNYS")
    dates = sessions[sessions >= first][:num_sessions].to_numpy("datetime64[D]")
    if features_DAK is None:
        features_DAK = np.zeros((num_sessions, num_assets, 1))
    tickers = [f"T{a}" for a in range(num_assets)]
    return with_hash(
        Market(
            dates_D=dates,
            price_DA=np.round(dollars_DA * UNITS_PER_DOLLAR),
            open_DA=None if open_DA is None else usd(open_DA),
            tradable_DA=np.isfinite(dollars_DA),
            asset_features_DAK=np.asarray(features_DAK, dtype=np.float32),
            feature_valid_DA=np.isfinite(dollars_DA),
            market_features_DF=np.asarray(features_DAK, dtype=np.float32).reshape(num_sessions, -1),
            index_D=None,
            volume_DA=None if volume_DA is None else np.asarray(volume_DA, dtype=np.float64),
            meta={
                "name": "made up",
                "tickers": tickers,
                "asset_features": [f"f{k}" for k in range(features_DAK.shape[2])],
                "market_features": [f"m{k}" for k in range(features_DAK[0].size)],
                "warmup_bars": 0,
                "dataset_hash": "made up",
            },
        )
    )


def random_closes(num_sessions, num_assets, seed=0, volatility=0.02) -> np.ndarray:
    """A random walk around 100 dollars, on the cent."""
    rng = np.random.default_rng(seed)
    walk = np.cumsum(volatility * rng.normal(size=(num_sessions, num_assets)), axis=0)
    return np.round(100 * np.exp(walk), 2)


@pytest.fixture
def free_trading() -> EnvSettings:
    """No fee, no band."""
    return EnvSettings(costs={"commission_bps": 0}, action={"no_trade_band": 0})


@contextmanager
def chromium_page(width):
    """A page of the system's Chromium; without it the test is skipped, but not in CI."""
    from playwright.sync_api import sync_playwright

    binary = shutil.which("chromium")
    if binary is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must have Chromium; .ci/run installs it")
        pytest.skip("Chromium is not installed")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    quiet += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=quiet)
        yield browser.new_page(viewport={"width": width, "height": 900})
        browser.close()
