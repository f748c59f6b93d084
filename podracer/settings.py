"""The base class of every package's settings, and the hash that names a configuration."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Immutable settings; an unknown key is an error, and every field carries its description."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=False, allow_inf_nan=False
    )


def canonical_hash(value: Any) -> str:
    """Return the sha256 (hex) of a JSON-compatible value, independent of key order and spacing."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
