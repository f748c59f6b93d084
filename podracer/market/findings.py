"""What the gate finds, and how strict it is."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from pydantic import Field, field_validator

from podracer.errors import MarketDataError
from podracer.market.rules import RULES, Level
from podracer.settings import Settings

ROW_RULES: dict[str, Level] = {"unsorted": "warn", "twin_row": "warn", "unfinished_bar": "warn"}
LEVELS: dict[str, Level] = {**ROW_RULES, **{rule.name: rule.default for rule in RULES}}


class QualitySettings(Settings):
    """How strict the gate is."""

    levels: dict[str, Level] = Field(
        default_factory=dict,
        description="Rule to stop, quarantine, warn or off, where it is not to be the default: "
        + ", ".join(f"{name} {level}" for name, level in LEVELS.items())
        + ".",
    )

    @field_validator("levels")
    @classmethod
    def _known(cls, levels: dict[str, Level]) -> dict[str, Level]:
        if unknown := [name for name in levels if name not in LEVELS]:
            raise ValueError(f"there is no rule {unknown[0]!r}; the rules are {', '.join(LEVELS)}")
        return levels

    def level(self, rule: str) -> Level:
        """Return the level of a rule."""
        return self.levels.get(rule, LEVELS[rule])


@dataclass(frozen=True)
class Finding:
    """One cell that broke a rule, and what was done about it."""

    rule: str
    level: Level
    tic: str
    date: str
    value: str
    expected: str
    done: str


@dataclass(frozen=True)
class Findings:
    """What is found in one dataset; a level of `stop` refuses it, `off` forgets it."""

    name: str
    settings: QualitySettings
    found: list[Finding] = field(default_factory=list)

    def add(self, rule: str, findings: list[Finding]) -> None:
        """Take in the findings of a rule.

        Raises:
            MarketDataError: naming the first, if the rule's level is stop.
        """
        level = self.settings.level(rule)
        if findings and level == "stop":
            first = findings[0]
            raise MarketDataError(
                f"{self.name}: rule {first.rule}: expected {first.expected}, got {first.value} for "
                f"{first.tic} on {first.date} ({len(findings)} such cells). Mend the prices, drop the "
                f"ticker, or set data.quality.levels.{first.rule} to quarantine or warn."
            )
        if level != "off":
            self.found.extend(findings)

    def add_rows(
        self, rule: str, rows: pd.DataFrame, column: str, expected: str, done: str
    ) -> None:
        """Take in rows that broke a rule, showing one of their columns."""
        level = self.settings.level(rule)
        self.add(
            rule,
            [
                Finding(
                    rule, level, str(row["tic"]), day(row["date"]), str(row[column]), expected, done
                )
                for _, row in rows.iterrows()
            ],
        )


def day(moment: Any) -> str:
    """Show a session as its date, a bar within a day with its time."""
    stamp = pd.Timestamp(moment)
    return str(stamp.date()) if stamp == stamp.normalize() else stamp.strftime("%Y-%m-%d %H:%M UTC")
