"""A wall clock that is wrong: Python imports this first if its folder is on the path.

The file that the environment names has the number of seconds to add, which may change at any time, as when a clock is set. With
the second variable, the clocks that cannot be set jump too, as no real ones do.
"""

import datetime
import os
import time

FILE = "TEST_CLOCK_SHIFT_FILE"
SHIFTS_ALL = "TEST_CLOCK_SHIFTS_ALL"

_time, _gettime, _datetime = time.time, time.clock_gettime, datetime.datetime


def _shift() -> float:
    with open(os.environ[FILE], "rb") as file:  # noqa: PTH123 - pathlib is not imported yet
        return float(file.read() or b"0")


class _ShiftedDatetime(_datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_ShiftedDatetime":
        return cls.fromtimestamp(time.time(), tz)


if FILE in os.environ:
    time.time = lambda: _time() + _shift()
    datetime.datetime = _ShiftedDatetime  # type: ignore[misc]
    if SHIFTS_ALL in os.environ:
        time.clock_gettime = lambda clock: _gettime(clock) + _shift()
