"""A side stream for work that runs in order while the backward pass continues.

On a GPU it is a CUDA stream: the host enqueues work and continues. On a CPU it is a thread, because gloo's collectives
and the arithmetic between them block their caller. With one rank, no work waits for another rank, so it runs at once.

Collectives on the stream run in the order of submission. So that all ranks agree on it, the caller submits the same
work in the same order on all ranks, and uses no other collective until ``wait`` has returned. Failed work may have
skipped a collective, and the next collective would match an earlier one of another rank. So no work runs after a
failure.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis


class SideStream:
    """Runs work in order, asynchronously if that helps."""

    def __init__(self, axis: Axis) -> None:
        """``axis`` is the one that the work communicates on."""
        asynchronous = axis.ranks > 1
        on_gpu = axis.device.type == "cuda"
        self._stream = torch.cuda.Stream(axis.device) if asynchronous and on_gpu else None
        self._in_thread = asynchronous and not on_gpu
        self._thread: ThreadPoolExecutor | None = None
        self._submitted: list[Future[None]] = []
        self._failed = False

    def submit(self, work: Callable[[], None], reads: list[Tensor]) -> None:
        """Run ``work`` after everything submitted before; ``reads`` are the training's tensors that it uses."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                work()
            for tensor in reads:
                tensor.record_stream(self._stream)
        elif self._in_thread:
            if self._thread is None:
                # torch's number of threads is a property of the calling thread.
                self._thread = ThreadPoolExecutor(
                    1, "side-stream", initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)
                )
            self._submitted.append(self._thread.submit(self._do, work))
        else:
            work()

    def wait(self) -> None:
        """Make the training's next work wait for everything submitted.

        Raises the error of the first work that failed. The stream cannot be used afterwards.
        """
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        given, self._submitted = self._submitted, []
        for future in given:
            future.result()

    def _do(self, work: Callable[[], None]) -> None:
        if self._failed:
            return
        self._failed = True  # until the work returns: after an error all later work is skipped
        work()
        self._failed = False
