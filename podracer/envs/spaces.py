"""The spaces of one environment in the Gymnasium faces, and what they follow from."""

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from podracer.envs.settings import ActionSettings


class Sizes(NamedTuple):
    """What the spaces follow from.

    Attributes:
        limit: every column of an observation lies within ± this.
        width: columns of an observation, stacked ones side by side.
        num_actions: N.
        mode: of the actions.
    """

    limit: float
    width: int
    num_actions: int
    mode: str


def num_actions(num_assets: int, action: ActionSettings) -> int:
    """Return N: one action for each asset, and in mode weights maybe one for cash."""
    return num_assets + int(action.cash_action and action.mode == "weights")


def single_spaces(sizes: Sizes) -> tuple[spaces.Box, spaces.Space[Any]]:
    """Return the observation and the action space of one environment."""
    observation = spaces.Box(-sizes.limit, sizes.limit, (sizes.width,), np.float32)
    if sizes.mode == "discrete":
        return observation, spaces.MultiDiscrete([3] * sizes.num_actions)
    return observation, spaces.Box(-1.0, 1.0, (sizes.num_actions,), np.float32)
