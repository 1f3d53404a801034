"""Rows of the platform: data on its way in, tokens, and the way from submitting to the first step.

What people look at while they wait (charts, lists, logs) is in ``platform_reads``.
"""

from __future__ import annotations

from tests.benchmarks.api_load import API_ROWS
from tests.benchmarks.platform_start import START_ROWS
from tests.benchmarks.preparing import PREPARING_ROWS
from tests.benchmarks.trainer_rows import Row
from tests.benchmarks.transfers import TRANSFER_ROWS

DATA_AND_START_ROWS: dict[str, Row] = {**TRANSFER_ROWS, **PREPARING_ROWS, **START_ROWS, **API_ROWS}
