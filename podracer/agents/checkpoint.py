"""Checkpoints: safetensors for numbers, JSON for everything else; never pickle.

Shapes: W weights of one agent.
"""

import hashlib
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from podracer.errors import CheckpointError
from podracer.files import write_text

FORMAT = 1


def weights_hash(weights_W: Tensor) -> str:
    """Return the sha256 of one agent's weights, little-endian float32."""
    return hashlib.sha256(weights_W.contiguous().numpy().astype("<f4").tobytes()).hexdigest()


def save(stem: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write `stem`.safetensors and then `stem`.json, which names the tensors' hash.

    The JSON is the commit: a crash in between leaves the older pair or none.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    part = stem.with_name(f".{stem.name}.{uuid4().hex[:8]}")
    save_file({k: v.contiguous() for k, v in tensors.items()}, part)
    digest = hashlib.sha256(part.read_bytes()).hexdigest()
    part.replace(stem.with_name(f"{stem.name}-{digest[:16]}.safetensors"))
    facts = {"format": FORMAT, "tensors": digest} | facts
    write_text(stem.with_suffix(".json"), json.dumps(facts, indent=1, sort_keys=True))
    for older in stem.parent.glob(f"{stem.name}-*.safetensors"):
        if digest[:16] not in older.name:
            older.unlink(missing_ok=True)


def load(stem: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint.

    Raises:
        CheckpointError: if a file is missing, damaged, or of another format.
    """
    try:
        facts = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
        path = stem.with_name(f"{stem.name}-{facts['tensors'][:16]}.safetensors")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if facts.get("format") != FORMAT or found != facts["tensors"]:
            raise CheckpointError(
                f"{path}: expected format {FORMAT} with sha256 {facts['tensors'][:12]}…, found "
                f"format {facts.get('format')} with {found[:12]}…. Train the agent again."
            )
        return load_file(path), facts
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"{stem}: not a readable checkpoint ({error}). Train the agent again."
        ) from error


def generator(*names: int | str) -> torch.Generator:
    """Return a generator whose seed is a hash of the names, e.g. (seed, generation, pod, purpose)."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
