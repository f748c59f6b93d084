"""How orders are sized, filled, paid for and rewarded."""

from typing import Literal

from pydantic import Field

from podracer.settings import Settings


class EnvSettings(Settings):
    """What a trading environment needs besides prices."""

    initial_cash: float = Field(
        1_000_000,
        gt=0,
        le=100_000_000,
        description="Capital at the start, in dollars. Money is exact below 9e9 dollars over the number of "
        "assets; an account that grows beyond is refused.",
    )
    fee_bps: float = Field(
        10.0, ge=0, lt=1_000, description="Fee on traded notional, bought or sold, in basis points."
    )
    fill: Literal["next_close", "next_open", "same_close"] = Field(
        "next_close",
        description="Where an order decided after a close is filled; same_close is for parity "
        "tests only: it trades at the price it has just seen.",
    )
    no_trade_band: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="An agent leaves a position alone while it is off its target by less than this "
        "fraction of an equal weight.",
    )
    cash_action: bool = Field(False, description="Let agents keep part of the equity in cash.")
    reward: Literal["mean_variance", "excess", "log_return", "delta_equity"] = Field(
        "mean_variance",
        description="Of the return r from fill to fill, net: r - risk_aversion/2 r^2, r minus equal "
        "weight, r, or the change of equity as a fraction of the initial cash.",
    )
    risk_aversion: float = Field(
        10.0, ge=0, description="Weight of the squared return in reward: mean_variance."
    )
    delisting_haircut: float = Field(
        0.0,
        ge=0,
        le=1,
        description="A holding whose ticker ends is closed at its last price less this fraction.",
    )
    ruin_fraction: float = Field(
        0.05, ge=0, lt=1, description="Equity below this fraction of the initial cash is ruin."
    )
