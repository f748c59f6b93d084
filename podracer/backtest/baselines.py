"""What anyone can do without learning, on the same dates and at the same costs.

Shapes: D sessions, A assets, T trailing sessions.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from sklearn.covariance import ledoit_wolf

from podracer.envs.policies import Policy, ScheduledPolicy, equal_weight_monthly, equal_weights
from podracer.market.features import log_returns
from podracer.market.market import Market
from podracer.market.sessions import is_last_of_month, session_ends

BENCHMARK = "equal weight, monthly"
TRAILING_SESSIONS = 252
VOLATILITY_SESSIONS = 60
SHORT_PAUSE_SESSIONS = 5

Weigh = Callable[[np.ndarray], np.ndarray]


def baselines(market: Market, first_session: int) -> dict[str, Policy]:
    """Return the baseline policies by name; those that look back use sessions up to each decision.

    All start by buying after the close of `first_session`.
    """
    equal_DA = equal_weights(market)
    tradable_DA = np.asarray(market.tradable_DA)
    never_D = np.zeros(len(market.dates_D), dtype=bool)
    once_D = never_D.copy()
    once_D[first_session] = True
    monthly_D = is_last_of_month(market.dates_D) | once_D

    def looking_back(weigh: Weigh) -> Policy:
        return ScheduledPolicy(
            _monthly_targets(market, monthly_D, first_session, weigh), monthly_D, tradable_DA
        )

    return {
        BENCHMARK: equal_weight_monthly(market, first_session),
        "equal weight, daily": ScheduledPolicy(equal_DA, session_ends(market.dates_D), tradable_DA),
        "equal weight, buy and hold": ScheduledPolicy(equal_DA, once_D, tradable_DA),
        "inverse volatility": looking_back(inverse_volatility),
        "minimum variance": looking_back(minimum_variance),
        "momentum 12-1": looking_back(momentum_12_1),
        "cash": ScheduledPolicy(np.zeros_like(equal_DA), never_D),
    }


def inverse_volatility(returns_TA: np.ndarray) -> np.ndarray:
    """Weights proportional to one over the deviation of the last 60 sessions."""
    inverse_A = 1.0 / np.maximum(returns_TA[-VOLATILITY_SESSIONS:].std(0, ddof=1), 1e-9)
    weights_A: np.ndarray = inverse_A / inverse_A.sum()
    return weights_A


def minimum_variance(returns_TA: np.ndarray) -> np.ndarray:
    """Long-only weights of least variance, covariance shrunk after Ledoit and Wolf (2004)."""
    covariance_AA, _ = ledoit_wolf(returns_TA)
    scaled_AA = covariance_AA / np.trace(covariance_AA)
    num_assets = len(scaled_AA)
    found = minimize(
        lambda w: w @ scaled_AA @ w,
        np.full(num_assets, 1.0 / num_assets),
        jac=lambda w: 2.0 * scaled_AA @ w,
        bounds=[(0.0, 1.0)] * num_assets,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    weights_A: np.ndarray = np.maximum(found.x, 0.0) / np.maximum(found.x, 0.0).sum()
    return weights_A


def momentum_12_1(returns_TA: np.ndarray) -> np.ndarray:
    """Equal weight in the third of names with the highest return over 252 sessions less the last 21."""
    past_A = returns_TA[:-21].sum(0)
    chosen_A = np.zeros(len(past_A))
    chosen_A[np.argsort(-past_A, kind="stable")[: max(1, len(past_A) // 3)]] = 1.0
    return chosen_A / chosen_A.sum()


def _monthly_targets(
    market: Market, rebalance_D: np.ndarray, first_session: int, weigh: Weigh
) -> np.ndarray:
    """Weigh the names that traded on all trailing sessions, on each rebalancing session."""
    ends = np.flatnonzero(session_ends(market.dates_D))
    price_DA = pd.DataFrame(np.asarray(market.price_DA[ends])).ffill(limit=SHORT_PAUSE_SESSIONS)
    returns_DA = log_returns(price_DA.to_numpy())
    tradable_DA = np.asarray(market.tradable_DA[ends])
    target_DA = np.zeros(market.price_DA.shape)
    for t, row in enumerate(ends):
        if not rebalance_D[row] or row < first_session:
            continue
        trailing_TA = returns_DA[max(0, t - TRAILING_SESSIONS + 1) : t + 1]
        names = np.flatnonzero(np.isfinite(trailing_TA).all(0) & tradable_DA[t])
        if len(names) and len(trailing_TA) == TRAILING_SESSIONS:
            target_DA[row, names] = weigh(trailing_TA[:, names])
    return target_DA
