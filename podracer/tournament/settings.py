"""How long a tournament lasts, who enters the board, and what children look like."""

from pydantic import Field, ValidationError, model_validator

from podracer.agents.settings import Hyperparameters
from podracer.settings import Settings

DEFAULT_RANGES = {
    "learning_rate": (2e-3, 1e-2),
    "gain": (0.3, 3.0),
    "speed": (0.05, 1.0),
    "initial_std": (0.3, 0.7),
}


class TournamentSettings(Settings):
    """The generational tournament of FinRL-Podracer: a barrier after every generation."""

    generations: int = Field(3, ge=1, le=1000, description="G, rounds of training.")
    pods: int = Field(4, ge=1, le=1000, description="Pods trained in each generation.")
    board_size: int = Field(32, ge=1, description="K, entries that the leaderboard holds at most.")
    ensemble_size: int = Field(
        16, ge=1, description="M, best entries whose average target weights are the champion."
    )
    fresh_share: float = Field(
        0.25, ge=0, le=1, description="Chance that an agent starts new instead of from a parent."
    )
    selection_temperature: float = Field(
        1.0, gt=0, description="Of the softmax over z-scores that draws parents; high is uniform."
    )
    mutation_factor: float = Field(
        1.5,
        ge=1,
        description="A child's hyper-parameter is its parent's times or divided by up to this.",
    )
    ranges: dict[str, tuple[float, float]] = Field(
        default_factory=lambda: dict(DEFAULT_RANGES),
        description="Hyper-parameters that vary, with their lowest and highest value; new agents "
        "draw them log-uniformly.",
    )

    @model_validator(mode="after")
    def _sensible(self) -> "TournamentSettings":
        if self.ensemble_size > self.board_size:
            raise ValueError(
                f"ensemble_size {self.ensemble_size} exceeds board_size {self.board_size}: "
                f"the champion is made of entries of the board"
            )
        for name, (low, high) in self.ranges.items():
            if name not in Hyperparameters.model_fields:
                raise ValueError(
                    f"ranges.{name}: no such hyper-parameter; choose among "
                    f"{', '.join(Hyperparameters.model_fields)}"
                )
            if not 0 < low <= high:
                raise ValueError(f"ranges.{name}: expected 0 < low <= high, got {low}, {high}")
            for value in (low, high):
                try:
                    Hyperparameters(**{name: value})
                except ValidationError as error:
                    said = error.errors(include_url=False)[0]["msg"]
                    raise ValueError(
                        f"ranges.{name}: {said[0].lower() + said[1:]}, got {value}"
                    ) from error
        return self
