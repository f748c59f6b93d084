"""Finds or starts a Prefect server on loopback, and stops what it started."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podracer.errors import ServerError

STARTUP_SECONDS = 120
PR_SET_PDEATHSIG = 1
# V1 UI: the newer one asks a session-replay service for its configuration even with analytics off.
QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # People see the progress display and one line per error; the whole log is in the UI.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(STARTUP_SECONDS),
}


@contextmanager
def prefect_server(home: Path, port: int | None = None) -> Iterator[str]:
    """Use the server of PREFECT_API_URL if there is one, else run one here; yields its API address.

    Call it before anything imports prefect: its settings come from the environment.

    Raises:
        ServerError: if the named server does not answer, or ours does not start.
    """
    os.environ.update({k: v for k, v in QUIET.items() if k not in os.environ})
    if url := os.environ.get("PREFECT_API_URL"):
        if not _answers(url):
            raise ServerError(
                f"PREFECT_API_URL is {url}, but no Prefect server answers there. "
                f"Start it, or unset PREFECT_API_URL to have one started here."
            )
        yield url
        return
    os.environ["PREFECT_HOME"] = str(home.resolve())
    home.mkdir(parents=True, exist_ok=True)
    port = _usable(port) if port else _free_port()
    url = f"http://127.0.0.1:{port}/api"
    with (home / "server.log").open("ab") as log:
        process = _start(port, log.fileno())
    try:
        _wait(process, url, home / "server.log")
        os.environ["PREFECT_API_URL"] = url
        yield url
    finally:
        os.environ.pop("PREFECT_API_URL", None)
        _drain()
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _drain() -> None:
    """Send the logs and events that are still queued: at exit they would wait for a stopped server."""
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        APILogWorker.drain_all(timeout=10)
        EventsWorker.drain_all(timeout=10)


def _start(port: int, log: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "prefect", "server", "start"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    return subprocess.Popen(
        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent
    )


def _end_with_parent() -> None:
    """Ask Linux to stop the server if this process is killed; elsewhere it would be left running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + STARTUP_SECONDS
    while not _answers(url):
        if process.poll() is not None:
            raise ServerError(
                f"the Prefect server ended with code {process.returncode} while starting; "
                f"its log is {log}."
            )
        if time.monotonic() > deadline:
            raise ServerError(
                f"the Prefect server did not answer at {url} within {STARTUP_SECONDS} s; "
                f"its log is {log}."
            )
        time.sleep(0.25)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _usable(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ServerError(
                f"port {port} is taken ({error.strerror}). Choose another with --port, or set "
                f"PREFECT_API_URL to the Prefect server that runs there."
            ) from error
    return port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
