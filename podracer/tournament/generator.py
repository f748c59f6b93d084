"""The generator: parents from the leaderboard, and the hyper-parameters of their children.

Parents are drawn by a softmax over z-scored scores, the one concrete rule that was published with
ElegantRL-Podracer (arXiv:2112.05923).
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from podracer.agents.settings import Hyperparameters
from podracer.pods.spec import AgentSpec
from podracer.tournament.entry import Entry
from podracer.tournament.settings import TournamentSettings


def next_agents(
    settings: TournamentSettings,
    base: Hyperparameters,
    board: Sequence[Entry],
    pod: str,
    num_agents: int,
    seed: int,
) -> tuple[AgentSpec, ...]:
    """Specify the population of a pod: children of the board's entries, and some fresh blood.

    Args:
        settings: the tournament's.
        base: hyper-parameters that do not vary.
        board: entries to draw parents from; only those with a defined score are eligible.
        pod: name of the pod; with the seed it determines every draw.
        num_agents: P.
        seed: of the tournament.
    """
    digest = hashlib.sha256(f"{seed}/{pod}/generator".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    eligible = [e for e in board if e.score is not None]
    chances = parent_chances([e.score for e in eligible], settings.selection_temperature)
    agents = []
    for i in range(num_agents):
        name = f"{pod}-a{i + 1}"
        if not eligible or rng.random() < settings.fresh_share:
            agents.append(AgentSpec(name=name, hyperparameters=_fresh(settings, base, rng)))
            continue
        parent = eligible[rng.choice(len(eligible), p=chances)]
        agents.append(
            AgentSpec(
                name=name,
                hyperparameters=_mutated(settings, parent, rng),
                parent=parent.name,
                parent_hash=parent.weights_hash,
                parent_checkpoint=parent.checkpoint,
            )
        )
    return tuple(agents)


def parent_chances(scores: Sequence[float | None], temperature: float) -> np.ndarray:
    """Return the chance of each entry to be drawn: softmax of its z-score over the temperature."""
    values = np.array(scores, dtype=np.float64)
    if len(values) == 0:
        return values
    deviation = values.std()
    z = (values - values.mean()) / deviation if deviation > 0 else np.zeros_like(values)
    odds = np.exp((z - z.max()) / temperature)
    chances: np.ndarray = odds / odds.sum()
    return chances


def _fresh(
    settings: TournamentSettings, base: Hyperparameters, rng: np.random.Generator
) -> Hyperparameters:
    draws = {
        name: float(np.exp(rng.uniform(np.log(low), np.log(high))))
        for name, (low, high) in settings.ranges.items()
    }
    return Hyperparameters(**base.model_dump() | _clipped(settings, draws))


def _mutated(
    settings: TournamentSettings, parent: Entry, rng: np.random.Generator
) -> Hyperparameters:
    spread = np.log(settings.mutation_factor)
    changed = {
        name: parent.hyperparameters[name] * float(np.exp(rng.uniform(-spread, spread)))
        for name in settings.ranges
    }
    return Hyperparameters(**parent.hyperparameters | _clipped(settings, changed))


def _clipped(settings: TournamentSettings, values: dict[str, float]) -> dict[str, float]:
    return {n: min(max(v, settings.ranges[n][0]), settings.ranges[n][1]) for n, v in values.items()}
