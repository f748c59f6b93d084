"""The look-ahead audit: change everything after a close and see whether anything before it moves.

Shapes: D sessions, A assets, E environments.
"""

from dataclasses import dataclass, replace

import numpy as np

from podracer.envs.declared import observation_functors, observation_tables
from podracer.envs.faces import StockTrading, flat_observations
from podracer.envs.functors import AssetObservation, MarketObservation
from podracer.envs.settings import EnvSettings
from podracer.errors import MarketDataError
from podracer.market.adjustment import adjusted
from podracer.market.market import Market, build_market
from podracer.market.prices import PricePanel
from podracer.market.scaling import Scaler
from podracer.market.settings import FeatureSettings
from podracer.market.windows import Window

# How far before a probe the accounts are walked, and in how many environments.
WALK_BARS, NUM_ENVS = 40, 8


@dataclass(frozen=True)
class Leak:
    """Something that knew what came later.

    Attributes:
        what: a functor by its key, or what an account did.
        detail: which column, and when.
    """

    what: str
    detail: str


@dataclass(frozen=True)
class AuditReport:
    """What was looked at and what leaks.

    Attributes:
        checked: everything that was compared.
        probes: the closes after which the future was changed.
        leaks: the first leak of each.
    """

    checked: tuple[str, ...]
    probes: tuple[np.datetime64, ...]
    leaks: tuple[Leak, ...]


def audit(
    panel: PricePanel,
    features: FeatureSettings,
    settings: EnvSettings,
    probes: int = 3,
    seed: int = 0,
) -> AuditReport:
    """Compare a market with ones whose future is another, probe by probe.

    Adjusted prices are taken as they are: a later dividend re-bases them all by one factor, which is no
    leak. The sessions on which a ticker trades stay as they are.

    Args:
        panel: prices that have passed the gate.
        features: of the market.
        settings: the declared environment.
        probes: closes to look at, spread over the sessions after the warm-up.
        seed: of the changes and of the random actions.

    Raises:
        MarketDataError: if there are too few sessions.
    """
    scaled = adjusted(panel)
    truth = build_market(scaled, features)
    first = int(truth.meta["warmup_bars"])
    stop = len(truth.dates_D)
    if stop - first < WALK_BARS + 3:
        raise MarketDataError(
            f"{panel.name}: an audit needs {WALK_BARS + 3} sessions after the warm-up, there are "
            f"{max(stop - first, 0)}. Give a longer history."
        )
    rows = np.linspace(first + WALK_BARS, stop - 3, probes).astype(int)
    scaler = observation_tables(truth, settings).fit(Window("train", first, int(rows[0])))
    leaks: dict[str, Leak] = {}
    rng = np.random.default_rng(seed)
    for t in rows:
        other = build_market(_with_another_future(scaled, int(t), rng), features)
        for leak in (
            *_functor_leaks(truth, other, settings, int(t)),
            *_account_leaks(truth, other, settings, scaler, int(t), seed),
        ):
            leaks.setdefault(leak.what, leak)
    names = [f"env.observations.{name}" for name in settings.observations.chosen()]
    return AuditReport(
        (*names, *COMPARED), tuple(truth.dates_D[t] for t in rows), tuple(leaks.values())
    )


def _with_another_future(panel: PricePanel, t: int, rng: np.random.Generator) -> PricePanel:
    """Multiply everything after row t by random factors."""

    def changed(values: np.ndarray) -> np.ndarray:
        factor = np.ones(values.shape)
        factor[t + 1 :] = np.exp(rng.uniform(-0.5, 0.5, size=factor[t + 1 :].shape))
        return values * factor

    index_D = None if panel.index_D is None else changed(panel.index_D)
    fields = {name: changed(values) for name, values in panel.fields.items()}
    return replace(panel, fields=fields, index_D=index_D)


def _functor_leaks(truth: Market, other: Market, settings: EnvSettings, t: int) -> list[Leak]:
    """Compare what each functor says of sessions up to t."""
    leaks = []
    for name, functor in observation_functors(settings).items():
        if not isinstance(functor, AssetObservation | MarketObservation):
            continue  # an account sees no market; the walk compares it
        columns = functor.columns(truth)
        ours, theirs = columns.values[: t + 1], functor.columns(other).values[: t + 1]
        moved = np.argwhere(~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs))))
        if len(moved):
            d, k = int(moved[-1][0]), int(moved[-1][-1])
            leaks.append(
                Leak(
                    f"env.observations.{name}",
                    f"{columns.names[k]!r} on {truth.dates_D[d]} changes with prices after "
                    f"{truth.dates_D[t]}",
                )
            )
    return leaks


COMPARED = ("observation", "reward", "end of episode", "cash", "holdings")


def _account_leaks(
    truth: Market, other: Market, settings: EnvSettings, scaler: Scaler, t: int, seed: int
) -> list[Leak]:
    """Walk the same accounts with the same actions through both markets, up to the close of t."""
    one, two = (_walk(market, settings, scaler, t, seed) for market in (truth, other))
    leaks = []
    for what in COMPARED:
        pairs = list(zip(one[what], two[what], strict=True))
        moved = [i for i, (a, b) in enumerate(pairs) if not np.array_equal(a, b, equal_nan=True)]
        if moved:
            date = truth.dates_D[t - WALK_BARS + 1 + moved[0]]
            leaks.append(Leak(what, f"on {date} it changes with prices after {truth.dates_D[t]}"))
    return leaks


def _walk(
    market: Market, settings: EnvSettings, scaler: Scaler, t: int, seed: int
) -> dict[str, list[np.ndarray]]:
    window = Window("audit", t - WALK_BARS, t + 2)
    fixed = settings.episode.model_copy(update={"start": "first", "sessions": None})
    observations = flat_observations(observation_tables(market, settings), scaler)
    face = StockTrading(
        market, settings.model_copy(update={"episode": fixed}), window, observations, NUM_ENVS, 1
    )
    rng = np.random.default_rng(seed)
    face.reset(np.ones(NUM_ENVS, dtype=bool), [rng])
    found: dict[str, list[np.ndarray]] = {what: [] for what in COMPARED}
    for _ in range(WALK_BARS):
        if settings.action.mode == "discrete":
            actions = rng.integers(0, 3, (NUM_ENVS, face.sizes.num_actions)).astype(np.float32)
        else:
            actions = rng.uniform(-1, 1, (NUM_ENVS, face.sizes.num_actions)).astype(np.float32)
        reward_E, terminated_E, _ = face.step(actions)
        values = (face.observation, reward_E, terminated_E, face.env.cash_E, face.env.lots_AE)
        for what, value in zip(COMPARED, values, strict=True):
            found[what].append(value.copy())
    return found
