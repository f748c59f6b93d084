"""Functors by name: ours, and those that installed packages declare as entry points.

A name in YAML can only be one of these: no import string is ever read from a configuration.
"""

import hashlib
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Optional, TypeVar

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
    model_validator,
)

from podracer.envs.functors import Observation, Reward, RewardParameters, Termination
from podracer.errors import ConfigError
from podracer.settings import Settings

F = TypeVar("F", Observation, Reward, Termination)


class FunctorSet(Settings):
    """Functors with their parameters, by name; a functor that is not chosen is None."""

    @model_validator(mode="before")
    @classmethod
    def _bare_names(cls, chosen: Any) -> Any:
        """Let `log_return:` stand for `log_return: {}`."""
        if isinstance(chosen, Mapping):
            return {name: {} if value is None else value for name, value in chosen.items()}
        return chosen

    @model_serializer(mode="wrap")
    def _chosen_only(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is not chosen, so that an installed package changes no hash."""
        return {name: value for name, value in handler(self).items() if value is not None}

    def chosen(self) -> dict[str, Settings]:
        """Return the parameters of the chosen functors, in the order of registration."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if value is not None}


def with_plugins(
    group: str, ours: Mapping[str, type[F]], bases: tuple[type[F], ...]
) -> dict[str, type[F]]:
    """Return our functors and those of installed packages.

    Args:
        group: of entry points.
        ours: functors by name.
        bases: of which every functor must be a subclass of one.

    Raises:
        ConfigError: if an entry point cannot be loaded, takes a name that is taken, or is no functor.
    """
    known = dict(ours)
    for point in sorted(entry_points(group=group), key=lambda p: p.name):
        package = point.dist.name if point.dist else point.value
        try:
            functor = point.load()
        except Exception as error:
            raise ConfigError(
                f"package {package}: its functor {point.name!r} ({point.value}) cannot be loaded "
                f"({type(error).__name__}: {error}). Mend or uninstall the package."
            ) from error
        if point.name in known:
            raise ConfigError(
                f"package {package}: its functor {point.name!r} takes a name of {group} that is taken. "
                f"Rename the entry point."
            )
        if not (isinstance(functor, type) and issubclass(functor, bases)):
            raise ConfigError(
                f"package {package}: its functor {point.name!r} ({point.value}) is not a subclass of "
                f"{' or '.join(f'podracer.envs.functors.{b.__name__}' for b in bases)}."
            )
        expected = RewardParameters if issubclass(functor, Reward) else Settings
        if not issubclass(functor.Parameters, expected):
            raise ConfigError(
                f"package {package}: the Parameters of its functor {point.name!r} are not a subclass of "
                f"{expected.__name__}. Mend or uninstall the package."
            )
        lacking = sorted(getattr(functor, "__abstractmethods__", ()))
        if lacking:
            raise ConfigError(
                f"package {package}: its functor {point.name!r} ({point.value}) does not define "
                f"{' and '.join(lacking)}. Mend or uninstall the package."
            )
        known[point.name] = functor
    return known


def functor_set(name: str, known: Mapping[str, type], module: str) -> type[FunctorSet]:
    """Return the settings model that has an optional field for each functor's parameters.

    It must be assigned to `name` in `module`, where pickle looks for it.
    """
    fields: dict[str, Any] = {
        key: (Optional[functor.Parameters], Field(None, description=summary(functor)))  # type: ignore[attr-defined]  # noqa: UP045
        for key, functor in known.items()
    }
    return create_model(
        name, __base__=FunctorSet, __module__=module, __doc__="Functors by name.", **fields
    )


def foreign_source_hash(functor: type) -> str:
    """Return the sha256 of the file that a functor is defined in: other code is another environment."""
    path = getattr(sys.modules[functor.__module__], "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else "no file"


def summary(functor: type) -> str:
    """Return the first line of a functor's docstring."""
    return (functor.__doc__ or "").strip().splitlines()[0] if functor.__doc__ else ""
