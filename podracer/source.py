"""The version of podracer's own code, by content: other code may give other results."""

import hashlib
from functools import cache
from pathlib import Path


@cache
def source_hash() -> str:
    """Return the sha256 over podracer's Python sources and templates."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".j2")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
