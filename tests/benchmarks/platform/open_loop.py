"""Open-loop load: requests are due at fixed times, whether or not earlier ones were answered, and waiting counts from then.

One thread hands each request out when it is due, and any free connection sends it. A server that stalls therefore delays the
requests that are due meanwhile, as it would delay independent people; a caller that waited for each response would send fewer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from statistics import quantiles

from tests.benchmarks.platform.server import Caller, StatusError

Call = Callable[[Caller], object]
Due = queue.SimpleQueue[tuple[float, str, Call] | None]

NO_ANSWER = 0
"""Stands for a status where a request got no answer, or an unexpected one."""


@dataclass
class Responses:
    """The responses to a stream of requests."""

    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Milliseconds from the time when each request was due, by kind; also of refused requests."""

    errors: list[Exception] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    """Milliseconds by which each request was handed out too late: large ones mean that the generator is the bottleneck."""

    seconds: float = 0.0
    """From the first request until the last answer."""

    give_up_at: float = float("inf")
    """By `time.perf_counter`: requests that no connection has sent by then are not sent any more."""

    @property
    def count(self) -> int:
        """All requests, also refused ones."""
        return sum(map(len, self.waits.values()))

    @property
    def accepted_per_second(self) -> float:
        """Requests that were answered with 2xx, per second."""
        return (self.count - len(self.errors)) / self.seconds

    @property
    def statuses(self) -> Counter[int]:
        """How many requests were refused with each status, and how many got no answer (`NO_ANSWER`)."""
        return Counter(error.status if isinstance(error, StatusError) else NO_ANSWER for error in self.errors)

    def p95(self, *kinds: str) -> float:
        """95th percentile of the waits of these kinds, or of all; milliseconds. Infinite if nothing was asked."""
        chosen = [wait for kind in kinds or tuple(self.waits) for wait in self.waits[kind]]
        return p95(chosen) if len(chosen) > 1 else float("inf")


def ask(
    callers: Sequence[Caller],
    calls: Iterable[tuple[str, Call]],
    per_second: float,
    patience_seconds: float = float("inf"),
) -> Responses:
    """Make each call at its time, from any of the connections that is free, and wait for all responses.

    Args:
        calls: the kind of each call, and the call.
        per_second: requests that are due in a second.
        patience_seconds: from when the last request is due; those that still wait for a connection then are dropped, and count as
            requests without a response.
    """
    responses, due = Responses(), Due()
    threads = [threading.Thread(target=_serve, args=(caller, due, responses)) for caller in callers]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    for number, (kind, call) in enumerate(calls):
        at = started + number / per_second
        time.sleep(max(0.0, at - time.perf_counter()))
        responses.late.append((time.perf_counter() - at) * 1_000)
        due.put((at, kind, call))
    responses.give_up_at = time.perf_counter() + patience_seconds
    for _ in threads:
        due.put(None)
    for thread in threads:
        thread.join()
    responses.seconds = time.perf_counter() - started
    return responses


def p95(values: Sequence[float]) -> float:
    """95th percentile of at least two values."""
    return quantiles(values, n=20, method="inclusive")[-1]


def _serve(caller: Caller, due: Due, responses: Responses) -> None:
    while (asked := due.get()) is not None:
        at, kind, call = asked
        try:
            if time.perf_counter() > responses.give_up_at:
                raise TimeoutError("the request waited too long for a free connection, and was not sent")
            call(caller)
        except (OSError, HTTPException, RuntimeError, ValueError, queue.Empty) as error:
            responses.errors.append(error)
        responses.waits[kind].append((time.perf_counter() - at) * 1_000)
    caller.close()
