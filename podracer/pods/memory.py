"""What a pod needs of the machine's memory, and what to do when it is not there."""

import ctypes
import errno
import os
import sys

import torch

from podracer.errors import ConfigError, PodError
from podracer.pods.settings import PodSettings

# Weights, gradient, two moments, and target networks where there are any; float32.
BYTES_A_WEIGHT = 5 * 4
# glibc's numbers for mallopt, and the largest threshold that it takes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST = -1, -3, 32 * 2**20


def machine_bytes() -> float:
    """Return the memory of this machine."""
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def keep_freed_memory() -> None:
    """Let the allocator keep what arrays of a rollout leave behind.

    glibc gives large pieces back to the system and gets them again, page by page, a thousand times a
    second; kept, a pod of one agent trained a quarter faster (measured). Elsewhere this does nothing.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST)
            libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def require_memory(num_agents: int, num_weights: int, available_bytes: float) -> None:
    """Refuse networks that no memory holds, before any is taken.

    Raises:
        ConfigError: with the number of agents that fit.
    """
    needed = float(BYTES_A_WEIGHT * num_agents * num_weights)
    if needed <= available_bytes:
        return
    fit = int(available_bytes / (BYTES_A_WEIGHT * num_weights))
    lower = f"lower pod.agents to {fit - fit % 2} or " if fit >= 2 else ""
    raise ConfigError(
        f"pod.network: {num_agents} agents of {num_weights:,} weights take {needed / 1e9:.1f} GB with "
        f"gradients and moments, and this machine has {available_bytes / 1e9:.1f} GB; {lower}make the "
        f"networks narrower."
    )


def out_of_memory(error: BaseException, name: str, settings: PodSettings) -> PodError | None:
    """Return what to say of an error, None if it is not one of memory."""
    is_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    is_memory |= isinstance(error, OSError) and error.errno == errno.ENOMEM
    if not is_memory and "can't allocate memory" not in str(error):
        return None
    half = max(settings.cohorts // 2, 1)
    return PodError(
        f"pod {name}: out of memory in a rollout of {settings.cohorts} cohorts of "
        f"{settings.envs_per_cohort} accounts for {settings.agents} agents. Lower pod.cohorts from "
        f"{settings.cohorts} to {half} (or pod.horizon_bars to "
        f"{max(settings.horizon_bars // 2, 2)}), which halves it, or pool.workers; the pod goes on "
        f"where it was only with the same settings."
    )
