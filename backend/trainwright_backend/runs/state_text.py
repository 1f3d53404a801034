"""The text that is shown with a run's state: why it waits, what it does, how it ended. It is plain and short, and
numbers have units."""

from trainwright.contracts.api.runs import RunSummary
from trainwright.contracts.end_codes import EndCode, remedy, sentence
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState, Verdict
from trainwright_backend.runs.tables import Run

MORE_THAN_NOISE = 1.1
"""The factor by which a loss must rise to be mentioned: the loss of a single step varies by a few percent."""

PAUSED_BY_LIMITS = (EndCode.MAX_HOURS, EndCode.QUOTA_HOURS, EndCode.QUOTA_STORAGE)


def state_text(run: Run, spec: RunSpec, summary: RunSummary) -> str:
    """The text that is shown with the state of ``run``."""
    if run.state is RunState.QUEUED:
        return queue_text(run.waiting_reason)
    if run.state in (RunState.LEASED, RunState.STARTING):
        return run.progress or "starting on the node"
    if run.state is RunState.RUNNING:
        return _running(spec, summary)
    if run.state is RunState.COMPLETING:
        return run.progress or f"exporting step {spec.schedule.steps:,}"
    if run.state is RunState.SUCCEEDED:
        return _done(summary)
    if run.state is RunState.FAILED:
        return run.message
    if run.state is RunState.RETRY_WAIT:
        return _closed(run.message)
    if run.state is RunState.PAUSED:
        paused = _paused(spec, summary)
        return (
            f"{paused}: {run.message.removeprefix('Paused: ')}" if run.reason in PAUSED_BY_LIMITS else paused
        )
    if run.verdict is Verdict.PAUSE:
        return _pausing(spec, summary)
    at_step = f" at step {summary.step:,}" if summary.step and run.state is not RunState.STOPPING else ""
    return f"{run.message.rstrip('.')}{at_step}"


def queue_text(waiting_reason: str) -> str:
    """What a queued run waits for. It has no reason yet before the next round, or far behind others."""
    return waiting_reason or "waiting for its turn"


def end_text(code: EndCode, message: str) -> str:
    """A sentence with the cause and one with the remedy."""
    cause = message.strip()
    if not cause:
        return sentence(code)
    closed = _closed(cause)
    return closed if remedy(code) in closed else f"{closed} {remedy(code)}"


def _closed(text: str) -> str:
    """Text that ends like a sentence."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def failed_text(code: EndCode, exit: Outcome) -> str:
    """As `end_text`, for an end that is not retried because of ``code``."""
    if code is EndCode.TOO_MANY_ATTEMPTS:
        return f"{end_text(exit.code, exit.message)} {sentence(code)}"
    if code is not EndCode.CHECKPOINT_INVALID:
        return end_text(code, exit.message)
    return "Its checkpoints were damaged repeatedly. Check the disks of the node and of the object store."


def lost_resume_point_text(run: Run) -> str:
    """Why a fork without any valid checkpoint fails."""
    return (
        f"It was forked from the checkpoint of {run.forked_from_name} at step {run.forked_step:,}, which is damaged, and "
        "has no valid checkpoint itself. Fork from another checkpoint."
    )


def duration(seconds: float) -> str:
    """A duration for people: `42 s`, `18 min`, `1 h 15 min`, `2 d 3 h`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, … `11th`, … `21st`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _running(spec: RunSpec, summary: RunSummary) -> str:
    words = f"step {summary.step:,} of {spec.schedule.steps:,}"
    if summary.step >= spec.schedule.steps:
        return f"{words}, saving the last checkpoint"
    left = summary.values.get("eta_seconds")
    return words if left is None else f"{words}, {duration(left)} left"


def _pausing(spec: RunSpec, summary: RunSummary) -> str:
    if summary.step >= spec.schedule.steps:
        return "stopping the export to pause"
    return f"saving step {summary.step:,} to pause" if summary.step else "stopping to pause"


def _paused(spec: RunSpec, summary: RunSummary) -> str:
    if not summary.step:
        return "Paused before its first step"
    return f"Paused at step {summary.step:,} of {spec.schedule.steps:,}"


def decimal(value: float) -> str:
    """The number as the pages show it: 3.124, 437.1, 1,901, 0.00312."""
    if 0.1 <= value < 100:
        return f"{value:.3f}"
    if 1_000 <= value < 1e6:
        return f"{value:,.0f}"
    return f"{value:.4g}" if value >= 100 else f"{value:.3g}"


def _done(summary: RunSummary) -> str:
    parts = []
    if "loss" in summary.values:
        loss = summary.values["loss"]
        first = summary.spark[0] if summary.spark else loss
        rose = f" (it rose from {decimal(first)})" if loss > MORE_THAN_NOISE * first else ""
        parts.append(f"loss {decimal(loss)}{rose}")
    if "mfu" in summary.values:
        parts.append(f"{100 * summary.values['mfu']:.1f} % MFU")
    elif summary.mfu_unknown is not None and summary.peak_name is not None:
        parts.append(f"MFU: {summary.mfu_unknown}")
    return ", ".join(parts) or "done"
