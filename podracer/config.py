"""One configuration: params.yaml becomes one frozen tree, checked before anything runs."""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args
from zoneinfo import available_timezones

from cronsim import CronSim, CronSimError
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from podracer.agents.settings import OFF_POLICY, Hyperparameters, read_by, require_fit
from podracer.envs.functors import AssetObservation
from podracer.envs.registry import FunctorSet
from podracer.envs.settings import KNOWN_OBSERVATIONS, EnvSettings
from podracer.errors import ConfigError
from podracer.leaderboard.settings import StoreSettings
from podracer.market.settings import DataSettings, FeatureSettings
from podracer.market.windows import WindowSettings
from podracer.pods.settings import MAX_WORKERS, PodSettings
from podracer.settings import Settings, canonical_hash
from podracer.source import source_hash
from podracer.tournament.settings import DEFAULT_RANGES, TournamentSettings

# Parts that say where and how fast, not what; they do not change a result.
NOT_IN_HASH = frozenset({"name", "seed", "pool", "store", "schedule"})


class PoolSettings(Settings):
    """How pods are spread over the machine."""

    launcher: Literal["process", "inline"] = Field(
        "process", description="process: persistent single-thread workers; inline: in this process."
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=MAX_WORKERS,
        description="Worker processes; one for each usable core if null.",
    )

    def num_workers(self, num_pods: int) -> int:
        """Return the workers to start: no more than pods that can run at once."""
        return min(self.workers or len(os.sched_getaffinity(0)), num_pods)


class ScheduleSettings(Settings):
    """When `podracer serve` retrains."""

    cron: str = Field("0 23 * * 1-5", description="Cron line of the retrain deployment.")
    timezone: str = Field("America/New_York", description="Time zone of the cron line.")

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, line: str) -> str:
        try:
            CronSim(line, datetime.now(UTC))
        except CronSimError as error:
            raise ValueError(f"{line!r} is not a cron line ({error})") from error
        return line

    @field_validator("timezone")
    @classmethod
    def _is_timezone(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError(f"there is no time zone {name!r}; write it as America/New_York")
        return name


class PodracerSettings(Settings):
    """Everything that a run can be told."""

    name: str = Field(
        "us20",
        pattern=r"^[a-z][a-z0-9-]{0,62}$",
        description="Name of the leaderboard: registered model podracer-<name>.",
    )
    seed: int = Field(1, ge=0, lt=2**31, description="Seed of every random draw.")
    data: DataSettings = Field(default_factory=DataSettings, description="Prices.")
    features: FeatureSettings = Field(default_factory=FeatureSettings, description="Features.")
    windows: WindowSettings = Field(description="Train, selection and lockbox.")
    env: EnvSettings = Field(default_factory=EnvSettings, description="Trading rule and costs.")
    pod: PodSettings = Field(default_factory=PodSettings, description="Training of one pod.")
    hyperparameters: Hyperparameters = Field(
        default_factory=Hyperparameters,
        description="Of new agents, where tournament.ranges does not vary them.",
    )
    tournament: TournamentSettings = Field(
        default_factory=TournamentSettings, description="Generations, leaderboard, children."
    )
    pool: PoolSettings = Field(default_factory=PoolSettings, description="Workers.")
    store: StoreSettings = Field(default_factory=StoreSettings, description="What outlives a run.")
    schedule: ScheduleSettings = Field(
        default_factory=ScheduleSettings, description="For `podracer serve`."
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> "PodracerSettings":
        network = self.pod.network
        reach = self.pod.horizon_bars + (network.memory_bars if network.memory != "none" else 0)
        if self.windows.embargo_sessions < reach:
            raise ValueError(
                f"windows.embargo_sessions {self.windows.embargo_sessions} is shorter than the {reach} of "
                f"pod.horizon_bars and pod.network.memory_bars: rewards and memories of one window would "
                f"reach into the next"
            )
        if self.pod.algorithm == "ppo" and self.pod.ppo.minibatches > self.pod.cohorts:
            raise ValueError(
                f"pod.ppo.minibatches {self.pod.ppo.minibatches} exceeds pod.cohorts "
                f"{self.pod.cohorts}: a minibatch is made of whole cohorts"
            )
        if self.pod.algorithm == "ppo" and self.pod.cohorts % self.pod.ppo.minibatches:
            fits = [m for m in range(1, self.pod.cohorts + 1) if self.pod.cohorts % m == 0]
            near = min(fits, key=lambda m: abs(m - self.pod.ppo.minibatches))
            raise ValueError(
                f"pod.ppo.minibatches {self.pod.ppo.minibatches} does not divide pod.cohorts "
                f"{self.pod.cohorts}: a minibatch is made of whole cohorts; use {near}"
            )
        self._agents_can_learn()
        self._pods_can_trade()
        return self

    def _agents_can_learn(self) -> None:
        algorithm = self.pod.algorithm
        has_choices = self.env.action.mode == "discrete"
        require_fit(algorithm, self.pod.network, self.pod.replay, has_choices)
        if algorithm in OFF_POLICY:
            self._replay_is_used()
        self._pod_reads_what_is_said()
        self._agents_read_what_is_said()

    def _pod_reads_what_is_said(self) -> None:
        for key, needs in self.pod.unread().items():
            part, name = key.split(".")
            given = getattr(self.pod, part)
            usual = type(given).model_fields[name].default
            if getattr(given, name) != usual:
                raise ValueError(
                    f"pod.{key}: it is read only with {needs}; leave it out, or set it to {_yaml(usual)}"
                )

    def _agents_read_what_is_said(self) -> None:
        algorithm, read = self.pod.algorithm, self.read
        usual = Hyperparameters()
        said = {
            f"hyperparameters.{n}": n
            for n, value in self.hyperparameters
            if value != getattr(usual, n)
        }
        said |= {
            f"tournament.ranges.{n}": n
            for n, limits in self.tournament.ranges.items()
            if limits != DEFAULT_RANGES.get(n)
        }
        for key, name in said.items():
            if name not in read:
                raise ValueError(
                    f"{key}: {algorithm} does not read it here; it reads {', '.join(sorted(read))}"
                )

    def _replay_is_used(self) -> None:
        replay, steps = self.pod.replay, self.pod.steps
        if replay.warmup_steps >= steps:
            raise ValueError(
                f"pod.replay.warmup_steps {replay.warmup_steps} is not below pod.steps {steps}: nothing "
                f"would be learnt"
            )
        learning = steps - max(replay.warmup_steps, replay.batch_size)
        if learning * replay.updates_per_step < 1:
            raise ValueError(
                f"pod.replay.updates_per_step {replay.updates_per_step:g} does not make one update of the "
                f"{max(learning, 0)} steps after the warm-up and the first batch; raise it, or pod.steps"
            )

    @property
    def read(self) -> frozenset[str]:
        """The hyper-parameters that make a difference."""
        has_critic = self.pod.network.critic_hidden > 0
        return read_by(self.pod.algorithm, self.env.action.mode, has_critic)

    def _pods_can_trade(self) -> None:
        if self.env.action.mode == "shares":
            raise ValueError(
                "env.action.mode: what an order of shares is worth depends on the price, which a "
                "registered model is not told; use weights or notional (for shares pass env={...} to "
                "gymnasium.make)"
            )
        if self.env.cash_rate:
            raise ValueError(
                "env.cash_rate: scores and Sharpe ratios take cash to earn nothing, so that interest "
                "would make an account in cash look best; leave it 0 here (for a face pass env={...} "
                "to gymnasium.make)"
            )
        seen = [KNOWN_OBSERVATIONS[name] for name in self.env.observations.chosen()]
        if self.pod.network.head and not any(issubclass(o, AssetObservation) for o in seen):
            raise ValueError(
                "pod.network.head: it reads asset columns, and env.observations names none; add "
                "asset_features, or set pod.network.head to false and pod.network.mlp_hidden above 0"
            )
        for name in self.env.observations.chosen():
            if KNOWN_OBSERVATIONS[name].needs_history:
                raise ValueError(
                    f"env.observations.{name}: it reads more of an account than its holdings, which "
                    f"pods do not carry; pass it as env={{...}} to gymnasium.make"
                )

    @property
    def config_hash(self) -> str:
        """The hash of all that may change a result, but for the seed and the prices themselves."""
        facts = self.model_dump(mode="json", exclude=set(NOT_IN_HASH))
        for name in ("path", "yahoo"):
            facts["data"].pop(name)
        return canonical_hash(facts)

    def run_key(self, dataset_hash: str) -> str:
        """The name of the one run that these prices, settings, seed and code have."""
        return canonical_hash(
            [self.name, dataset_hash, self.config_hash, self.env.hash, self.seed, source_hash()]
        )[:16]


def load_settings(path: Path, overrides: Sequence[str] = ()) -> PodracerSettings:
    """Read and check a params.yaml.

    Args:
        path: the file.
        overrides: `key.subkey=value` pairs that replace values of the file; values are YAML.

    Raises:
        ConfigError: if the file cannot be read, a key is unknown or doubled, or a value is refused.
    """
    try:
        tree = YAML(typ="rt").load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: there is no such file. Run in the repository, or give --params FILE."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable ({error}). Give a YAML file.") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = (error.problem or "not YAML").splitlines()[0]
        raise ConfigError(f"{path}:{line}: {problem}. Correct the YAML.") from error
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path}: expected settings as `key: value`, got {type(tree).__name__}.")
    for override in overrides:
        _apply(tree, override)
    try:
        return PodracerSettings.model_validate(_plain(tree))
    except ValidationError as error:
        raise ConfigError(_explain(error, tree, path, overrides)) from error


def _apply(tree: Any, override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"--set {override}: expected key=value, e.g. --set pod.steps=50000.")
    *parents, last = key.strip().split(".")
    for parent in parents:
        if not isinstance(tree.get(parent), dict):
            tree[parent] = {}
        tree = tree[parent]
    try:
        tree[last] = YAML(typ="safe").load(value)
    except MarkedYAMLError as error:
        raise ConfigError(f"--set {override}: {error.problem}. Correct the YAML.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value


def _explain(error: ValidationError, tree: Any, path: Path, overrides: Sequence[str]) -> str:
    """Say in one line where the first problem is, what came, and what was expected."""
    found = error.errors(include_url=False)
    # A mistyped key is both unknown and missing under its right name.
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
    keys = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    dotted = ".".join(keys)
    where = f"{path}:{line}" if (line := _line_of(tree, keys)) else str(path)
    if first["type"] == "value_error" and (named := _named_setting(first["msg"], tree)):
        dotted, where = named[0], f"{path}:{named[1]}"
    for override in overrides:
        key = override.partition("=")[0].strip()
        is_of_model = first["type"] == "value_error" and key.startswith(f"{dotted}.")
        if key and (f"{dotted}.".startswith(f"{key}.") or is_of_model):
            where = f"--set {override}"
    if first["type"] == "extra_forbidden":
        known = _fields_at(keys[:-1])
        nearest = difflib.get_close_matches(keys[-1], known, n=1, cutoff=0.5)
        paths = [".".join([*keys[:-1], n]) for n in nearest]
        hint = f"Known here: {', '.join(known)}." if known else "It takes no parameters: write {}."
        hint = f"Did you mean {paths[0]!r}?" if nearest else hint
        return f"{where}: {dotted!r} is not a setting. {hint}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{where}: {dotted!r} is missing. Add it; see `podracer config explain`."
    if first["type"] == "value_error":
        return f"{where}: {_joined(dotted, keys, message)}."
    came = str(first["input"])[:80]
    if first["type"] == "model_type":
        return f"{where}: {dotted}: expected settings as `key: value`, got {came!r}."
    return f"{where}: {dotted}: {message[0].lower() + message[1:]}, got {came!r}."


def _joined(dotted: str, keys: Sequence[str], message: str) -> str:
    """Put the section before a message, as one path where the message begins with a setting of it."""
    if not dotted or message.startswith(dotted):
        return message
    first = re.split(r"[ .:]", message, maxsplit=1)[0]
    return f"{dotted}{'.' if first in _fields_at(keys) else ': '}{message}"


def _named_setting(message: str, tree: Any) -> tuple[str, int] | None:
    """Return the setting that a message about several settings begins with, and its line."""
    dotted = re.split(r"[ :]", message.removeprefix("Value error, "), maxsplit=1)[0]
    line = _line_of(tree, dotted.split(".")) if "." in dotted else None
    return None if line is None else (dotted, line)


def _line_of(tree: Any, keys: Sequence[str]) -> int | None:
    line = None
    for key in keys:
        if not isinstance(tree, Mapping) or key not in tree:
            break
        positions = getattr(tree, "lc", None)
        if positions is not None and positions.data and key in positions.data:
            line = positions.key(key)[0] + 1
        tree = tree[key]
    return line


def _fields_at(keys: Sequence[str]) -> list[str]:
    fields = PodracerSettings.model_fields
    for key in keys:
        annotation: Any = fields[key].annotation if key in fields else None
        # The parameters of a functor are optional: Optional[Parameters].
        model = next((a for a in get_args(annotation) if a is not NoneType), annotation)
        is_section = isinstance(model, type) and issubclass(model, BaseModel)
        fields = model.model_fields if is_section else {}
    return list(fields)


def _yaml(value: bool | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def explain(settings: Settings, prefix: str = "") -> list[tuple[str, Any, str]]:
    """Return (key, value, description) of every setting."""
    rows: list[tuple[str, Any, str]] = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if value is None and isinstance(settings, FunctorSet):
            continue  # not chosen
        if isinstance(value, Settings) and not type(value).model_fields:
            rows.append((f"{prefix}{name}", "", field.description or ""))
        elif isinstance(value, Settings):
            rows += explain(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", value, field.description or ""))
    return rows
