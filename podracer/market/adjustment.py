"""Adjustment of prices for splits and dividends: all four prices by one factor.

Shapes: D bars, A assets.
"""

from dataclasses import replace

import numpy as np

from podracer.market import splits
from podracer.market.prices import PricePanel
from podracer.market.raw import PRICES, knows_actions


def adjusted(panel: PricePanel) -> PricePanel:
    """Return the panel with open, high, low and close on the scale of total returns.

    The factor comes from the source's own actions where it gives them, else from its adjusted
    close. `dollar_volume` is added as it was printed; the columns about adjustment are dropped.
    """
    fields = dict(panel.fields)
    if "volume" in fields:
        fields["dollar_volume"] = fields["volume"] * fields["close"]
    factor_DA = factors(fields)
    for name in ("adj_close", "dividend", "split"):
        fields.pop(name, None)
    for name in PRICES:
        if name in fields:
            fields[name] = fields[name] * factor_DA
    return replace(panel, fields=fields)


def factors(fields: dict[str, np.ndarray]) -> np.ndarray:
    """Return what raw prices are multiplied with; 1 from the last action on.

    Dividends and splits are used if both are known, or there is no adjusted close.
    """
    close_DA = fields["close"]
    if not knows_actions(fields):
        factor_DA: np.ndarray = fields["adj_close"] / close_DA
        return factor_DA
    actions = splits.carried(fields)
    last_DA = splits.last_close(close_DA)
    step_DA = np.ones(close_DA.shape)
    if "split" in actions:
        split_DA = actions["split"]
        is_missed_DA = splits.missed(split_DA, fields.get("open"), close_DA)
        step_DA = np.where(is_missed_DA, 1.0 / np.where(is_missed_DA, split_DA, 1.0), step_DA)
    if "dividend" in actions:
        # The holder of the day before gets the dividend, so his price, on the scale of the new
        # shares, was worth that much less.
        paid_DA = actions["dividend"] / np.where(last_DA > 0, last_DA * step_DA, np.inf)
        step_DA = step_DA * (1.0 - paid_DA)
    # A step on session t scales every price before t.
    later_DA = np.cumprod(step_DA[::-1], axis=0)[::-1]
    return np.vstack([later_DA[1:], np.ones((1, close_DA.shape[1]))])
