"""A lane beside the training's own: work that is given to it runs in order while the backward pass goes on.

On a GPU the lane is a stream: the host enqueues and goes on. On a CPU it is a thread, because gloo's collectives and
the arithmetic between them keep whoever calls them waiting. With one rank there is nothing to wait for, and work is
done at once.

Collectives of a lane come in the order in which work was given to it. So that all ranks agree on the order, the caller
gives the same work in the same order everywhere, and uses no other collective until ``wait`` has returned. Work that
failed may have left out a collective, and a later one would meet another rank's earlier one: nothing is done after it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainwright_trainer.mesh import Axis


class Lane:
    """Runs work in order, aside where that helps."""

    def __init__(self, axis: Axis) -> None:
        """``axis`` is what the work speaks on."""
        aside = axis.ranks > 1
        on_gpu = axis.device.type == "cuda"
        self._stream = torch.cuda.Stream(axis.device) if aside and on_gpu else None  # type: ignore[no-untyped-call]
        self._in_thread = aside and not on_gpu
        self._thread: ThreadPoolExecutor | None = None
        self._given: list[Future[None]] = []
        self._failed = False

    def give(self, work: Callable[[], None], reads: list[Tensor]) -> None:
        """Do ``work`` after everything given before; ``reads`` are tensors of the training that it uses."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                work()
            for tensor in reads:
                tensor.record_stream(self._stream)
        elif self._in_thread:
            if self._thread is None:
                # The number of threads of a product is a property of the thread that asks for it.
                self._thread = ThreadPoolExecutor(
                    1, "lane", initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)
                )
            self._given.append(self._thread.submit(self._do, work))
        else:
            work()

    def wait(self) -> None:
        """What was given is done as far as the training's own next work is concerned.

        Raises what the first work that failed raised. A lane with a failure is of no more use.
        """
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        given, self._given = self._given, []
        for one in given:
            one.result()

    def _do(self, work: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            work()
        except BaseException:
            self._failed = True
            raise
