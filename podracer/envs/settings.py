"""How orders are sized, filled, paid for and rewarded."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from podracer.settings import Settings

Bps = Annotated[float, Field(ge=0, lt=1_000)]


class CostSettings(Settings):
    """What trading costs; every term appears in the breakdown of a step and in the report."""

    commission_bps: Bps = Field(
        10.0, description="Commission on traded notional, bought or sold, in basis points."
    )
    commission_per_share: NonNegativeFloat = Field(
        0.0,
        description="Commission in dollars a share, on top; only for prices that are not adjusted.",
    )
    commission_minimum: NonNegativeFloat = Field(
        0.0, description="The least that commission_per_share comes to, in dollars an order."
    )
    half_spread_bps: Bps = Field(
        0.0, description="Half of the bid-ask spread, paid on traded notional, in basis points."
    )
    slippage_bps: Bps = Field(
        0.0, description="Adverse move until the fill, paid on traded notional, in basis points."
    )
    impact_bps: float = Field(
        0.0,
        ge=0,
        lt=100_000,
        description="Market impact of an order of the session's whole volume, in basis points of its "
        "notional; it falls with the square root of the order's share of the volume.",
    )
    volume_cap: float | None = Field(
        None,
        gt=0,
        le=1,
        description="An order fills at most this fraction of the session's volume; null: no limit.",
    )
    unfilled: Literal["cancel", "carry"] = Field(
        "cancel",
        description="What happens to the rest of an order that the volume cap cuts: carried, it stays "
        "at work until a new order for the asset replaces it.",
    )

    @property
    def reads_volume(self) -> bool:
        """Whether a fill depends on the session's volume."""
        return self.impact_bps > 0 or self.volume_cap is not None

    @property
    def has_charges(self) -> bool:
        """Whether an order pays anything that is not proportional to its notional."""
        return max(self.commission_per_share, self.commission_minimum, self.impact_bps) > 0

    @property
    def carries(self) -> bool:
        """Whether the rest of a cut order stays at work."""
        return self.volume_cap is not None and self.unfilled == "carry"


class ActionSettings(Settings):
    """What an agent's action means."""

    mode: Literal["weights", "notional", "discrete", "shares"] = Field(
        "weights",
        description="weights: the portfolio to move towards; notional: an order a ticker as a fraction "
        "of equity; discrete: sell, hold or buy that much; shares: an order a ticker in shares.",
    )
    no_trade_band: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="Mode weights: a position is left alone while it is off its target by less than "
        "this fraction of an equal weight.",
    )
    cash_action: bool = Field(
        False, description="Mode weights: let agents keep part of the equity in cash."
    )
    max_trade_fraction: float = Field(
        0.1, gt=0, le=1, description="Modes notional and discrete: the largest order over equity."
    )
    max_trade_shares: float = Field(
        100, gt=0, le=1e6, description="Mode shares: the largest order (FinRL's hmax)."
    )


class EnvSettings(Settings):
    """What a trading environment needs besides prices."""

    initial_cash: float = Field(
        1_000_000,
        gt=0,
        le=100_000_000,
        description="Capital at the start, in dollars. Money is exact below 9e9 dollars over the number of "
        "assets; an account that grows beyond is refused.",
    )
    fill: Literal["next_close", "next_open", "same_close"] = Field(
        "next_close",
        description="Where an order decided after a close is filled; same_close is for parity "
        "tests only: it trades at the price it has just seen.",
    )
    shares: Literal["whole", "fractional"] = Field(
        "whole", description="Trade whole shares, or millionths of one."
    )
    costs: CostSettings = Field(default_factory=CostSettings, description="What trading costs.")
    cash_rate: float = Field(
        0.0, ge=0, le=0.5, description="Interest on cash a year of 252 sessions, as a fraction."
    )
    delisting_haircut: float = Field(
        0.0,
        ge=0,
        le=1,
        description="A holding whose ticker ends is closed at its last price less this fraction.",
    )
    action: ActionSettings = Field(
        default_factory=ActionSettings, description="What an agent's action means."
    )
    reward: Literal["mean_variance", "excess", "log_return", "delta_equity"] = Field(
        "mean_variance",
        description="Of the return r from fill to fill, net: r - risk_aversion/2 r^2, r minus equal "
        "weight, r, or the change of equity as a fraction of the initial cash.",
    )
    risk_aversion: float = Field(
        10.0, ge=0, description="Weight of the squared return in reward: mean_variance."
    )
    ruin_fraction: float = Field(
        0.05, ge=0, lt=1, description="Equity below this fraction of the initial cash is ruin."
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> "EnvSettings":
        if self.costs.unfilled == "carry" and self.costs.volume_cap is None:
            raise ValueError(
                "costs.unfilled: carry needs costs.volume_cap, without which every order is filled"
            )
        return self
