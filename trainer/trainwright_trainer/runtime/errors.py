"""Errors that have their own end codes; ``process.outcome`` maps them."""

from __future__ import annotations


class BadJobError(ValueError):
    """The job cannot run as written; the message names field, value and rule."""


class CheckpointInvalidError(Exception):
    """A checkpoint does not match its manifest or this job."""


class DivergedError(ArithmeticError):
    """The loss or the gradient norm of a step is not finite. All ranks raise this error in the same step.

    The optimizer has not updated the weights, except in runs with the optimizer in the backward pass: their state is
    unusable.

    Args:
        message: all that is known of the steps.
        cause: what happened and where, in a few words; default: the message.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause or message


class ReaderError(Exception):
    """The process that reads the shards for the ranks of this node failed, ended, or does not read."""
