"""The declaration of an environment: what agents see, do, pay and earn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator, model_validator

from podracer.envs.functors import (
    AccountObservation,
    AssetObservation,
    MarketObservation,
    Reward,
    Termination,
)
from podracer.envs.observations import OBSERVATIONS
from podracer.envs.registry import FunctorSet, foreign_source_hash, functor_set, with_plugins
from podracer.envs.rewards import REWARDS
from podracer.envs.terminations import TERMINATIONS
from podracer.settings import Settings, canonical_hash

Bps = Annotated[float, Field(ge=0, lt=1_000)]

KNOWN_OBSERVATIONS = with_plugins(
    "podracer.observations",
    OBSERVATIONS,
    (AssetObservation, MarketObservation, AccountObservation),
)
KNOWN_REWARDS = with_plugins("podracer.rewards", REWARDS, (Reward,))
KNOWN_TERMINATIONS = with_plugins("podracer.terminations", TERMINATIONS, (Termination,))

KNOWN: dict[str, Mapping[str, type]] = {
    "observations": KNOWN_OBSERVATIONS,
    "rewards": KNOWN_REWARDS,
    "terminations": KNOWN_TERMINATIONS,
}

if TYPE_CHECKING:
    ObservationSet = FunctorSet
    RewardSet = FunctorSet
    TerminationSet = FunctorSet
else:
    ObservationSet = functor_set("ObservationSet", KNOWN_OBSERVATIONS, __name__)
    RewardSet = functor_set("RewardSet", KNOWN_REWARDS, __name__)
    TerminationSet = functor_set("TerminationSet", KNOWN_TERMINATIONS, __name__)

DEFAULT_OBSERVATIONS = ("asset_features", "market_features", "cash", "holdings")


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
        0.0,
        description="The least that commission_per_share comes to, in dollars an order; with 0 a share it "
        "is a fee an order.",
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
        description="What happens to the rest of an order that the volume cap cuts, and to one that "
        "meets a session without trading: carried, it stays at work until a new decision about the "
        "asset replaces it.",
    )

    @property
    def summary(self) -> str:
        """What a trade costs, in words."""
        rate = self.commission_bps + self.half_spread_bps + self.slippage_bps
        parts = [f"{rate:g} bp a trade"]
        if self.commission_per_share or self.commission_minimum:
            parts.append(
                f"${self.commission_per_share:g} a share, ${self.commission_minimum:g} an order at least"
            )
        if self.impact_bps:
            parts.append(f"market impact of {self.impact_bps:g} bp at a session's whole volume")
        if self.volume_cap is not None:
            parts.append(f"at most {100 * self.volume_cap:g} % of a session's volume an order")
        return ", ".join(parts)

    @property
    def reads_volume(self) -> bool:
        """Whether a fill depends on the session's volume."""
        return self.impact_bps > 0 or self.volume_cap is not None

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
    gain: float = Field(
        3.0,
        gt=0,
        le=20,
        description="Mode weights in the Gymnasium faces: the target is softmax(gain x action); a pod's "
        "agents have gains of their own.",
    )
    speed: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Mode weights in the Gymnasium faces: the fraction of the way to the target to trade "
        "a session; a pod's agents have speeds of their own.",
    )
    max_trade_fraction: float = Field(
        0.1, gt=0, le=1, description="Modes notional and discrete: the largest order over equity."
    )
    max_trade_shares: float = Field(
        100, gt=0, le=1e6, description="Mode shares: the largest order (FinRL's hmax)."
    )


class EpisodeSettings(Settings):
    """How episodes begin and how long they are."""

    start: Literal["uniform", "first"] = Field(
        "uniform",
        description="Where an episode of a Gymnasium face starts: anywhere in the window, or at its start.",
    )
    sessions: PositiveInt | None = Field(
        None,
        description="Longest episode of a Gymnasium face in bars; to the window's end if null.",
    )
    cost_scales: tuple[float, ...] = Field(
        (1.0,),
        min_length=1,
        max_length=16,
        description="Domain randomisation: a training episode multiplies all costs by one of these, drawn "
        "at random. Evaluation is at 1.",
    )

    @field_validator("cost_scales")
    @classmethod
    def _are_scales(cls, scales: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 <= scale <= 10 for scale in scales):
            raise ValueError(f"a cost scale lies in 0 … 10, got {', '.join(map(str, scales))}")
        return scales


def _by_name(kind: type[FunctorSet], *names: str) -> FunctorSet:
    chosen: dict[str, Any] = {name: {} for name in names}
    return kind(**chosen)


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
    observability: Literal["partial", "full"] = Field(
        "partial",
        description="full: agents also see the hidden state of a market that has one; for diagnosis.",
    )
    observations: ObservationSet = Field(
        default_factory=lambda: _by_name(ObservationSet, *DEFAULT_OBSERVATIONS),
        description="What agents see.",
    )
    rewards: RewardSet = Field(
        default_factory=lambda: _by_name(RewardSet, "mean_variance"),
        description="What agents are paid: a weighted sum.",
    )
    terminations: TerminationSet = Field(
        default_factory=lambda: _by_name(TerminationSet, "ruin"),
        description="What ends an episode before its window does.",
    )
    episode: EpisodeSettings = Field(
        default_factory=EpisodeSettings, description="How episodes begin."
    )

    @property
    def patient(self) -> "EnvSettings":
        """The same for a yardstick: what the volume cap cuts stays at work, whatever agents are told."""
        if self.costs.volume_cap is None:
            return self
        return self.model_copy(
            update={"costs": self.costs.model_copy(update={"unfilled": "carry"})}
        )

    @property
    def hash(self) -> str:
        """The hash of the resolved environment, a tag of every model trained in it."""
        return canonical_hash([self.model_dump(mode="json"), self._foreign_sources()])

    def _foreign_sources(self) -> dict[str, str]:
        """Return the hash of the code behind each chosen functor that is another package's."""
        return {
            f"{kind}.{name}": foreign_source_hash(functors[name])
            for kind, functors in KNOWN.items()
            for name in getattr(self, kind).chosen()
            if not functors[name].__module__.startswith("podracer.")
        }

    @model_validator(mode="after")
    def _something_is_declared(self) -> "EnvSettings":
        for key in ("observations", "rewards"):
            if not getattr(self, key).chosen():
                known = ", ".join(type(getattr(self, key)).model_fields)
                raise ValueError(f"{key} names none; choose of {known}")
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> "EnvSettings":
        if self.cash_rate and self.fill == "same_close":
            raise ValueError(
                "cash_rate: interest needs a fill after the close, not fill same_close"
            )
        if self.costs.unfilled == "carry" and self.costs.volume_cap is None:
            raise ValueError(
                "costs.unfilled: carry needs costs.volume_cap, without which every order is filled"
            )
        return self
