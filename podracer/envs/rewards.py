"""Rewards, credited from fill to fill.

An order decided at the close of t earns from its fill to the next fill; crediting it with the return
from close t to close t + 1 would pay it for yesterday's holdings.

Shapes: T decisions, B blocks, E environments, D sessions.
"""

import numpy as np

from podracer.envs.settings import EnvSettings
from podracer.envs.tables import PriceTables
from podracer.market.market import UNITS_PER_DOLLAR


def equal_weight_growth(tables: PriceTables) -> np.ndarray:
    """Return the growth (D,) of one dollar in equal parts from the fill of t to the fill of t + 1.

    Over the assets that can be filled at both; 1 where none can, and on the last session.
    """
    ratio_DA = tables.fill_DA[1:] / np.where(tables.fill_DA[:-1] > 0, tables.fill_DA[:-1], np.inf)
    both_DA = tables.fillable_DA[1:] & tables.fillable_DA[:-1]
    counts_D = both_DA.sum(1)
    growth_D = np.where(both_DA, ratio_DA, 0.0).sum(1) / np.maximum(counts_D, 1)
    return np.append(np.where(counts_D > 0, growth_D, 1.0), 1.0)


def fill_to_fill(
    value_TE: np.ndarray, benchmark_growth_TE: np.ndarray, settings: EnvSettings
) -> np.ndarray:
    """Return the reward (T, E) of each decision.

    Args:
        value_TE: (T + 1, E): the accounts before the fill of each decision, and of the one after
            the last; money units. It includes the cost of the decision's own orders.
        benchmark_growth_TE: growth of equal weight over the same spans, broadcastable to (T, E).
        settings: names the reward.
    """
    log_return_TE = np.log(value_TE[1:] / value_TE[:-1])
    if settings.reward == "excess":
        excess_TE: np.ndarray = log_return_TE - np.log(benchmark_growth_TE)
        return excess_TE
    if settings.reward == "mean_variance":
        penalty_TE: np.ndarray = 0.5 * settings.risk_aversion * np.square(log_return_TE)
        return log_return_TE - penalty_TE
    if settings.reward == "delta_equity":
        gain_TE: np.ndarray = np.diff(value_TE, axis=0)
        return gain_TE / (settings.initial_cash * UNITS_PER_DOLLAR)
    return log_return_TE
