"""How much a pod trains, with what, and where."""

from typing import Literal

from pydantic import Field, field_validator

from podracer.agents.settings import (
    AlgorithmName,
    NetworkSettings,
    PpoSettings,
    ReplaySettings,
)
from podracer.settings import Settings


class PodSettings(Settings):
    """The training of one pod."""

    agents: int = Field(
        8, ge=2, le=256, description="P, agents of a pod, trained together; an even number."
    )
    steps: int = Field(
        200_000, ge=1, description="Environment steps of each agent in one generation, at least."
    )
    cohorts: int = Field(
        16, ge=1, description="C, stretches of sessions that a rollout visits at once."
    )
    envs_per_cohort: int = Field(
        8, ge=2, description="E, accounts on each stretch; an even number (antithetic noise)."
    )
    horizon_bars: int = Field(32, ge=2, description="T, decisions of one rollout.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto takes a GPU if podracer can use one, and says so."
    )
    algorithm: AlgorithmName = Field("ppo", description="How agents learn.")
    ppo: PpoSettings = Field(
        default_factory=PpoSettings, description="Shared settings of PPO and A2C."
    )
    replay: ReplaySettings = Field(
        default_factory=ReplaySettings, description="Shared settings of DDPG, TD3, SAC and DQN."
    )
    network: NetworkSettings = Field(
        default_factory=NetworkSettings, description="What the agents are made of."
    )
    checkpoint_every: int = Field(
        20, ge=1, description="Rollouts between checkpoints: the most that a dead pod loses."
    )

    @field_validator("agents", "envs_per_cohort")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(
                f"must be even, got {value}: odd groups do not give the same bits per agent. "
                f"Use {value + 1}"
            )
        return value
