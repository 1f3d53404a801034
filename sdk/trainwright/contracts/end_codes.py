"""The reasons why an attempt or a run ended, what the platform does about each, and the sentence that users read."""

from __future__ import annotations

from enum import StrEnum


class EndClass(StrEnum):
    """What the platform does when an attempt ends."""

    PLANNED = "planned"
    """The attempt did what it was asked to do."""
    USER = "user"
    """A retry would fail the same way: the run fails at once."""
    LOST = "lost"
    """The supervisor disappeared: the 2nd time in a row the run fails as `poison`."""
    LEASE_EXPIRED = "lease_expired"
    """The node stopped responding: the 10th time in a row the run fails as `unreachable`."""
    DIVERGED = "diverged"
    """The run resumes from its newest checkpoint and skips the data read since. It fails if it has no checkpoint, and
    the 2nd time in a row."""
    RETRYABLE = "retryable"
    """Anything else: the 3rd time in a row the run fails with this reason."""


RETRIES: dict[EndClass, int] = {
    EndClass.LOST: 2,
    EndClass.LEASE_EXPIRED: 10,
    EndClass.DIVERGED: 2,
    EndClass.RETRYABLE: 3,
}
"""The run fails at this many ends of a class since the newest committed checkpoint."""


class EndCode(StrEnum):
    """Why an attempt or a run ended. The first group is for attempts, the second for runs only. The last one is a code of a
    newer version."""

    FINISHED = "finished"
    SAVED = "saved"
    STOPPED = "stopped"
    BAD_JOB = "bad_job"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    RANK_LOST = "rank_lost"
    HANG = "hang"
    START_TIMEOUT = "start_timeout"
    FETCH_FAILED = "fetch_failed"
    CHECKPOINT_INVALID = "checkpoint_invalid"
    EXPORT_FAILED = "export_failed"
    DISK_FULL = "disk_full"
    SUPERVISOR_LOST = "supervisor_lost"
    NODE_REBOOTED = "node_rebooted"
    SELF_FENCED = "self_fenced"
    LEASE_EXPIRED = "lease_expired"

    DATA = "data"
    POISON = "poison"
    UNREACHABLE = "unreachable"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    MAX_HOURS = "max_hours"
    QUOTA_HOURS = "quota_hours"
    QUOTA_STORAGE = "quota_storage"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"

    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> EndCode | None:
        """Read an older name of a code, and a code of a newer version as unknown: parts are upgraded separately."""
        if not isinstance(value, str):
            return None
        return cls(OLDER_CODES[value]) if value in OLDER_CODES else cls.UNKNOWN


OLDER_CODES = {"lease_lapsed": "lease_expired"}
"""Codes by their names up to version 0.1, which stored rows and older agents still have."""


_RULES: dict[EndCode, tuple[EndClass, str]] = {
    EndCode.FINISHED: (EndClass.PLANNED, "Finished."),
    EndCode.SAVED: (EndClass.PLANNED, "Saved its state and exited, as requested."),
    EndCode.STOPPED: (EndClass.PLANNED, "Stopped, as requested."),
    EndCode.BAD_JOB: (
        EndClass.USER,
        "The trainer rejected the job. Read the message, change the configuration and start a new run.",
    ),
    EndCode.DIVERGED: (
        EndClass.DIVERGED,
        "Training diverged. Lower optimizer.learning_rate or lengthen the warm-up.",
    ),
    EndCode.OUT_OF_MEMORY: (
        EndClass.USER,
        "The device ran out of memory. Lower batch.micro_sequences or choose a smaller model.",
    ),
    EndCode.CRASHED: (
        EndClass.RETRYABLE,
        "A training process crashed. Read the log of that rank.",
    ),
    EndCode.RANK_LOST: (
        EndClass.RETRYABLE,
        "A rank lost contact with one on another node. Check the network between the nodes.",
    ),
    EndCode.HANG: (
        EndClass.RETRYABLE,
        "The ranks stopped making progress. The message names the rank that the others waited for; see also the log of stacks.",
    ),
    EndCode.START_TIMEOUT: (
        EndClass.RETRYABLE,
        "The run did not complete a step within the time allowed for starting. Read the logs of the ranks.",
    ),
    EndCode.FETCH_FAILED: (
        EndClass.RETRYABLE,
        "The data could not be fetched to the node. Check the node's network and disk.",
    ),
    EndCode.CHECKPOINT_INVALID: (
        EndClass.RETRYABLE,
        "A checkpoint did not match its manifest, so the previous one is used.",
    ),
    EndCode.EXPORT_FAILED: (EndClass.RETRYABLE, "The export ended with an error. Read export.log."),
    EndCode.DISK_FULL: (EndClass.RETRYABLE, "The node's disk is full. Free space on the node."),
    EndCode.SUPERVISOR_LOST: (
        EndClass.LOST,
        "The process that supervises the run was killed. If the node ran out of memory, use less.",
    ),
    EndCode.NODE_REBOOTED: (EndClass.LOST, "The node was restarted."),
    EndCode.SELF_FENCED: (
        EndClass.LEASE_EXPIRED,
        "The node could not reach the platform and stopped the run in time.",
    ),
    EndCode.LEASE_EXPIRED: (
        EndClass.LEASE_EXPIRED,
        "The node stopped responding. Check that it is up and can reach the platform.",
    ),
    EndCode.DATA: (
        EndClass.USER,
        "The dataset could not be prepared. The reason is on the dataset's page.",
    ),
    EndCode.POISON: (
        EndClass.USER,
        "The run's supervisor was killed twice in a row. The run probably needs more memory than the node has.",
    ),
    EndCode.UNREACHABLE: (
        EndClass.USER,
        "Its nodes stopped responding ten times in a row. Check their network.",
    ),
    EndCode.TOO_MANY_ATTEMPTS: (EndClass.USER, "The attempt limit, resources.max_attempts, was reached."),
    EndCode.MAX_HOURS: (
        EndClass.PLANNED,
        "The maximum run time, resources.max_hours, was reached. Resume the run to give it that many hours again.",
    ),
    EndCode.QUOTA_HOURS: (
        EndClass.PLANNED,
        "The hours of this month are used up. Ask for a higher limit or wait for the next month, then resume the run.",
    ),
    EndCode.QUOTA_STORAGE: (
        EndClass.PLANNED,
        "The next checkpoint would exceed the team's storage. Delete what nobody needs or ask for a higher limit, then resume "
        "the run.",
    ),
    EndCode.PREEMPTED: (
        EndClass.PLANNED,
        "It saved, gave up its slots to a run with precedence, and returned to its place in the queue.",
    ),
    EndCode.CANCELLED: (EndClass.PLANNED, "Cancelled."),
    EndCode.UNKNOWN: (
        EndClass.RETRYABLE,
        "It ended for a reason that this version does not know. Upgrade to the version that reported it.",
    ),
}


_REMEDIES = {
    EndCode.DIVERGED: "Lower optimizer.learning_rate or lengthen the warm-up.",
    EndCode.CRASHED: "Read the log of that rank.",
    EndCode.EXPORT_FAILED: "Read export.log.",
}


def end_class(code: EndCode) -> EndClass:
    """What the platform does about ``code``."""
    return _RULES[code][0]


def remedy(code: EndCode) -> str:
    """What users can do about it, if the cause is known; where both are one sentence, `sentence`."""
    return _REMEDIES.get(code, sentence(code))


def sentence(code: EndCode) -> str:
    """What happened, for users, and what they can do about it."""
    return _RULES[code][1]
