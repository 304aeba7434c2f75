"""Who does the work: this process, several, or a Ray cluster. One interface, the same results in the same words.

Knows processes and Ray; knows neither plans nor points.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Any, Protocol, TypeVar

from geotrain import __version__
from geotrain.errors import InputError, RunError

Item = TypeVar("Item")
Done = TypeVar("Done")


class Workers(Protocol):
    """Somebody who applies a function to many items.

    `map` yields (index, what the function returned) as items get done, in any order. An item that fails takes none of
    the others with it: its error is raised after all that could be done was yielded. RunError if a worker died.
    Leaving the iterator early, or Ctrl-C, ends the work at once. The function must be importable by name.
    """

    def map(self, function: Callable[[Item], Done], items: Sequence[Item]) -> Iterator[tuple[int, Done]]:
        """(index, result) of every item."""
        ...


class InProcess:
    """One after the other, here."""

    def map(self, function: Callable[[Item], Done], items: Sequence[Item]) -> Iterator[tuple[int, Done]]:
        """In the order of the items."""
        failed: Exception | None = None
        for index, item in enumerate(items):
            try:
                done = function(item)
            except Exception as error:
                failed = failed or error
            else:
                yield index, done
        if failed is not None:
            raise failed


class Processes:
    """Several processes of this machine."""

    def __init__(self, number: int) -> None:
        self.number = number

    def map(self, function: Callable[[Item], Done], items: Sequence[Item]) -> Iterator[tuple[int, Done]]:
        """In the order in which they get done."""
        before = set(active_children())
        pool = ProcessPoolExecutor(
            max_workers=max(1, min(self.number, len(items))),
            mp_context=get_context("spawn"),
            initializer=_end_with_parent,
        )
        failed: Exception | None = None
        try:
            with _children_deaf_to_ctrl_c():
                futures = {pool.submit(function, item): index for index, item in enumerate(items)}
            for future in as_completed(futures):
                error = future.exception()
                if error is None:
                    yield futures[future], future.result()
                elif isinstance(error, Exception):
                    failed = failed or error
                else:
                    raise error
        except BaseException:
            for child in set(active_children()) - before:
                child.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        if isinstance(failed, BrokenProcessPool):
            raise RunError(
                "a worker process died: it was killed, or the machine ran out of memory; try fewer --workers"
            ) from failed
        if failed is not None:
            raise failed


_NO_CLUSTER = (
    "--on ray finds no Ray cluster: name one in RAY_ADDRESS, or start one with RAY_AUTH_MODE=token "
    "(without it, whoever reaches its ports can run commands) and `ray start --head`"
)


class Ray:
    """The workers of a Ray cluster that is running.

    None is started here: Ray listens on all addresses and runs what it is sent; whether a token guards it is for those
    to decide who start it.
    """

    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--on ray needs Ray: pip install 'geotrain[ray]'") from None
        self._ray: Any = ray

    def map(self, function: Callable[[Item], Done], items: Sequence[Item]) -> Iterator[tuple[int, Done]]:
        """In the order in which they get done."""
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            try:
                ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
            except ConnectionError:
                raise InputError(_NO_CLUSTER) from None
        pending: dict[Any, int] = {}
        failed: Exception | None = None
        try:
            remote = ray.remote(_checked)
            pending = {remote.remote(__version__, function, item): index for index, item in enumerate(items)}
            while pending:
                for reference in ray.wait(list(pending), num_returns=1)[0]:
                    index = pending.pop(reference)
                    try:
                        done = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        failed = failed or _plain(error)
                    else:
                        yield index, done
        finally:
            if ours:
                ray.shutdown()  # ends what is still running, too
            else:
                for reference in pending:
                    ray.cancel(reference)
        if failed is not None:
            raise failed


def _checked(version: str, function: Callable[[Item], Done], item: Item) -> Done:
    """On a Ray worker: only the same geotrain gives the same results."""
    if version != __version__:
        raise RunError(f"a Ray worker has geotrain {__version__} and must have {version}, as here")
    return function(item)


def _plain(error: Exception) -> Exception:
    """What the function raised, or a sentence about Ray itself."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception) and not isinstance(cause, ImportError):
        return cause
    return RunError(f"a Ray worker failed: {(str(cause or error).splitlines() or ['no reason given'])[0]}")


def _end_with_parent() -> None:
    """Workers of a parent that was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _children_deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started meanwhile inherit a blocked SIGINT: Ctrl-C is the parent's to answer, which ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
