"""Checkpoints: safetensors for numbers, JSON for everything else; never pickle.

Shapes: W weights of one agent.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from podracer.errors import CheckpointError
from podracer.files import replacing, write_text

FORMAT = 2


def weights_hash(weights_W: Tensor) -> str:
    """Return the sha256 of one agent's weights, little-endian float32."""
    return hashlib.sha256(weights_W.contiguous().numpy().astype("<f4").tobytes()).hexdigest()


def save(stem: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write `stem`.safetensors and then `stem`.json, which has the hashes of the tensors and of itself.

    The JSON is the commit: a crash in between leaves the older pair or none.

    Raises:
        OSError: if the disk is full or refuses.
    """
    # Bytes first: safetensors' own writing has an error of its own for a full disk.
    content = safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    with replacing(stem.with_name(f"{stem.name}-{digest[:16]}.safetensors")) as part:
        part.write_bytes(content)
    facts = {"format": FORMAT, "tensors": digest} | facts
    text = json.dumps(facts | {"sha256": _facts_hash(facts)}, indent=1, sort_keys=True)
    write_text(stem.with_suffix(".json"), text)
    for older in stem.parent.glob(f"{stem.name}-*.safetensors"):
        if digest[:16] not in older.name:
            older.unlink(missing_ok=True)


def load(stem: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint.

    Raises:
        CheckpointError: if a file is missing, damaged, changed, or of another format.
    """
    path = stem.with_suffix(".json")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts.get("format") != FORMAT:
            raise CheckpointError(
                f"{path}: expected format {FORMAT}, found {facts.get('format')}. Train the agent again."
            )
        _require_same(path, facts.pop("sha256"), _facts_hash(facts))
        path = stem.with_name(f"{stem.name}-{facts['tensors'][:16]}.safetensors")
        content = path.read_bytes()
        _require_same(path, facts["tensors"], hashlib.sha256(content).hexdigest())
        return safetensors.torch.load(content), facts
    except (OSError, ValueError, TypeError, AttributeError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"{stem}: not a readable checkpoint ({error}). Train the agent again."
        ) from error


def generator(*names: int | str) -> torch.Generator:
    """Return a generator whose seed is a hash of the names, e.g. (seed, generation, pod, purpose)."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def _facts_hash(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _require_same(path: Path, expected: str, found: str) -> None:
    if found != expected:
        raise CheckpointError(
            f"{path}: expected sha256 {expected[:12]}…, found {found[:12]}…: damaged or changed. Train "
            f"the agent again."
        )
