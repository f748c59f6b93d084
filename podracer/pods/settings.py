"""How much a pod trains, with what, and where."""

from typing import Literal

from pydantic import Field, field_validator

from podracer.agents.settings import (
    OFF_POLICY,
    ON_POLICY,
    WIDE,
    AlgorithmName,
    NetworkSettings,
    PpoSettings,
    ReplaySettings,
)
from podracer.settings import Settings

MAX_WORKERS = 1_024

# Settings that only some algorithms read; all others are read by every one.
READ_BY: dict[str, tuple[str, ...]] = {
    "ppo.epochs": ("ppo",),
    "ppo.minibatches": ("ppo",),
    "ppo.normalise_advantages": ON_POLICY,
    "replay.capacity_steps": OFF_POLICY,
    "replay.capacity_mb": OFF_POLICY,
    "replay.batch_size": OFF_POLICY,
    "replay.warmup_steps": OFF_POLICY,
    "replay.updates_per_step": OFF_POLICY,
    "replay.policy_delay": ("td3",),
    "replay.double": ("dqn",),
    "replay.duelling": ("dqn",),
    "replay.exploration_steps": ("dqn",),
    "network.critic_hidden": (*ON_POLICY, "ddpg", "td3", "sac"),
}


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

    def unread(self) -> dict[str, str]:
        """Return the settings that make no difference here, and what each would need."""
        found = {
            key: f"pod.algorithm {' or '.join(readers)}"
            for key, readers in READ_BY.items()
            if self.algorithm not in readers
        }
        network = self.network
        if not network.head:
            found["network.head_hidden"] = "pod.network.head true"
        if not network.mlp_hidden and not network.critic_hidden:
            found["network.activation"] = "pod.network.mlp_hidden or critic_hidden above 0"
        if max(network.mlp_hidden, network.critic_hidden) < WIDE:
            found["network.precision"] = f"pod.network.mlp_hidden or critic_hidden from {WIDE} on"
        if network.memory == "none":
            found["network.memory_bars"] = "pod.network.memory stack, gru or lstm"
        if network.memory not in ("gru", "lstm"):
            found["network.memory_hidden"] = "pod.network.memory gru or lstm"
        return found

    @field_validator("agents", "envs_per_cohort")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(
                f"must be even, got {value}: odd groups do not give the same bits per agent. "
                f"Use {value + 1}"
            )
        return value
