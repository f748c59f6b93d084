"""Pods as Prefect task runs, trained in persistent workers."""

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture, as_completed

from podracer.pods.pools import Workers
from podracer.pods.spec import PodResult, PodSpec


@task(task_run_name="pod-{spec.name}", cache_policy=NO_CACHE, persist_result=False)
def train_pod(spec: PodSpec, workers: Workers) -> PodResult:
    """Train one pod in the next free worker; see `podracer.pods.pod.train`."""
    result = workers.train(spec)
    rate = result.steps / max(result.cpu_seconds, 1e-9)
    get_run_logger().info(
        "pod=%s steps=%d steps_per_cpu_second=%.0f", spec.name, result.steps, rate
    )
    return result


class PrefectPool:
    """A training pool whose pods are task runs of the current flow run."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._running: list[PrefectFuture[PodResult]] = []

    def submit(self, spec: PodSpec) -> None:
        """Queue a pod."""
        self._running.append(train_pod.submit(spec, self._workers))

    def next_finished(self) -> PodResult:
        """Wait for the next pod to finish."""
        future = next(iter(as_completed(self._running)))
        self._running.remove(future)
        return future.result()
