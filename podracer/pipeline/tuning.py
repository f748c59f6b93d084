"""`podracer pod tune`: the search for fast sizes, on the configured market."""

from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError
from ruamel.yaml import YAML

from podracer.config import PodracerSettings
from podracer.files import replacing
from podracer.market.market import open_market
from podracer.market.windows import resolve_windows
from podracer.pods import tuning
from podracer.pods.pod import open_pod
from podracer.pods.settings import PodSettings
from podracer.pods.spec import AgentSpec, PodSpec
from podracer.pods.trainer import Trainer
from podracer.pods.tuning import Tuning


def tune(
    settings: PodracerSettings, market_folder: Path, cores: int, memory_bytes: float, seconds: float
) -> Tuning:
    """Search for sizes of a pod that train faster on this machine.

    Raises:
        PodracerError: a subclass that names what went wrong.
    """
    market = open_market(market_folder)
    windows = resolve_windows(settings.windows, market.dates_D, market.meta["warmup_bars"])

    def is_allowed(pod: PodSettings) -> bool:
        """Let the whole configuration judge."""
        whole = dict(settings) | {"pod": pod}
        try:
            PodracerSettings(**whole)
        except ValidationError:
            return False
        return windows.train.num_bars - 1 > pod.horizon_bars

    def open_trainer(pod: PodSettings, folder: Path) -> Trainer:
        spec = PodSpec(
            name="tuning",
            generation=1,
            seed=settings.seed,
            agents=tuple(
                AgentSpec(name=f"a{i}", hyperparameters=settings.hyperparameters)
                for i in range(pod.agents)
            ),
            settings=pod,
            env=settings.env,
            windows=windows,
            market_hash=market.hash,
            market_folder=market_folder,
            folder=folder,
        )
        return open_pod(spec, market).trainer

    return tuning.tune(settings.pod, is_allowed, open_trainer, cores, memory_bytes, seconds)


def write(found: Tuning, params: Path) -> None:
    """Write the choice into a settings file, whose comments stay; a link to it stays a link."""
    yaml = YAML(typ="rt")
    tree = yaml.load(params.read_text(encoding="utf-8"))
    tree.setdefault("pod", {}).update(found.after._asdict())
    tree.setdefault("pool", {})["workers"] = found.workers
    with replacing(params.resolve()) as part, part.open("w", encoding="utf-8") as file:
        yaml.dump(tree, file)


def facts(found: Tuning) -> dict[str, object]:
    """Return the result as JSON would have it."""
    return asdict(found) | {"before": found.before._asdict(), "after": found.after._asdict()}
