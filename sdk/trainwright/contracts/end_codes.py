"""Why an attempt or a run ended, what the platform does about each reason, and the sentence a person reads."""

from __future__ import annotations

from enum import StrEnum


class EndClass(StrEnum):
    """What the platform does when an attempt ends so."""

    PLANNED = "planned"
    """Wanted: the attempt did what it was asked."""
    USER = "user"
    """Trying again gives the same: the run fails at once."""
    LOST = "lost"
    """The supervisor vanished: the 2nd in a row fails the run as `poison`."""
    LAPSE = "lapse"
    """The node fell silent: the 10th in a row fails the run as `unreachable`."""
    RETRYABLE = "retryable"
    """Anything else: the 3rd in a row fails the run with its own reason."""


RETRIES: dict[EndClass, int] = {EndClass.LOST: 2, EndClass.LAPSE: 10, EndClass.RETRYABLE: 3}
"""At this many ends of the class since the newest committed checkpoint the run fails."""


class EndCode(StrEnum):
    """Reason of an end. The first group ends attempts, the second only whole runs; the last stands for one
    that a newer version gave."""

    FINISHED = "finished"
    SAVED = "saved"
    STOPPED = "stopped"
    BAD_JOB = "bad_job"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    START_TIMEOUT = "start_timeout"
    FETCH_FAILED = "fetch_failed"
    CHECKPOINT_INVALID = "checkpoint_invalid"
    EXPORT_FAILED = "export_failed"
    DISK_FULL = "disk_full"
    SUPERVISOR_LOST = "supervisor_lost"
    NODE_REBOOTED = "node_rebooted"
    SELF_FENCED = "self_fenced"
    LEASE_LAPSED = "lease_lapsed"

    DATA = "data"
    POISON = "poison"
    UNREACHABLE = "unreachable"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    CANCELLED = "cancelled"

    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> EndCode | None:
        """A word of a newer version is read as the unknown that it is: parts are upgraded apart."""
        return cls.UNKNOWN if isinstance(value, str) else None


_RULES: dict[EndCode, tuple[EndClass, str]] = {
    EndCode.FINISHED: (EndClass.PLANNED, "Finished."),
    EndCode.SAVED: (EndClass.PLANNED, "Saved its state and left, as asked."),
    EndCode.STOPPED: (EndClass.PLANNED, "Stopped, as asked."),
    EndCode.BAD_JOB: (
        EndClass.USER,
        "The trainer refused the job. Read the message, change the configuration and start a new run.",
    ),
    EndCode.DIVERGED: (
        EndClass.USER,
        "The loss or the gradient norm was not finite. Lower optimizer.learning_rate or lengthen the warm-up.",
    ),
    EndCode.OUT_OF_MEMORY: (
        EndClass.USER,
        "The device ran out of memory. Lower batch.micro_sequences or choose a smaller model.",
    ),
    EndCode.CRASHED: (
        EndClass.RETRYABLE,
        "A training process ended without giving a reason. Read the log of the rank that is named.",
    ),
    EndCode.START_TIMEOUT: (
        EndClass.RETRYABLE,
        "No step was made in the time allowed for starting. Read the logs of the ranks.",
    ),
    EndCode.FETCH_FAILED: (
        EndClass.RETRYABLE,
        "The data could not be fetched to the node. Check the node's network and disk.",
    ),
    EndCode.CHECKPOINT_INVALID: (
        EndClass.RETRYABLE,
        "A checkpoint did not match its manifest, so the one before it is used.",
    ),
    EndCode.EXPORT_FAILED: (EndClass.RETRYABLE, "The export ended with an error. Read its log."),
    EndCode.DISK_FULL: (EndClass.RETRYABLE, "The node's disk is full. Free space on the node."),
    EndCode.SUPERVISOR_LOST: (
        EndClass.LOST,
        "The process that watches over the run was killed. If the node ran out of memory, ask for less.",
    ),
    EndCode.NODE_REBOOTED: (EndClass.LOST, "The node was restarted."),
    EndCode.SELF_FENCED: (
        EndClass.LAPSE,
        "The node could not reach the platform and stopped the run in time.",
    ),
    EndCode.LEASE_LAPSED: (
        EndClass.LAPSE,
        "The node fell silent. Check that it is up and can reach the platform.",
    ),
    EndCode.DATA: (
        EndClass.USER,
        "The dataset could not be prepared. Read the reason on the dataset's page.",
    ),
    EndCode.POISON: (
        EndClass.USER,
        "The run twice took its supervising process down. It probably asks for more memory than the node has.",
    ),
    EndCode.UNREACHABLE: (EndClass.USER, "Its nodes fell silent ten times in a row. Check their network."),
    EndCode.TOO_MANY_ATTEMPTS: (EndClass.USER, "It used up resources.max_attempts."),
    EndCode.CANCELLED: (EndClass.PLANNED, "Cancelled."),
    EndCode.UNKNOWN: (
        EndClass.RETRYABLE,
        "It ended for a reason that this version does not know. Upgrade it to the version that wrote the reason.",
    ),
}


def end_class(code: EndCode) -> EndClass:
    """What the platform does about ``code``."""
    return _RULES[code][0]


def sentence(code: EndCode) -> str:
    """What a person is told of ``code``: what happened and, where something can be done, what to do."""
    return _RULES[code][1]
