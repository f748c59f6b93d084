"""Files and folders that are there whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write a file or a folder to; it replaces `path` at the end.

    If the block fails, `path` stays as it was and what was written is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        yield part
        if part.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if part.is_file():
            part.unlink()


def check_writable(folder: Path) -> None:
    """Make and remove a file: root passes every check of permissions.

    Raises:
        OSError: if it cannot be made.
    """
    probe = folder / ".write-test"
    probe.touch()
    probe.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
