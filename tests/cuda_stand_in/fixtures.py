"""``cuda``: the fixture of tests that need a GPU. It runs twice: on a GPU (mark ``gpu``), and anywhere on the
stand-in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_SITE = Path(__file__).parent / "site"
_ROOT = Path(__file__).resolve().parents[2]

_ON_EITHER = [pytest.param("gpu", marks=pytest.mark.gpu), "stand-in"]


@pytest.fixture(params=_ON_EITHER)
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A process with GPUs: the device of the first."""
    yield from _device(request.param, monkeypatch)


@pytest.fixture(params=["cpu", *_ON_EITHER])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The CPU and a GPU."""
    yield from _device(request.param, monkeypatch)


def _device(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if kind != "stand-in":
        yield "cpu" if kind == "cpu" else "cuda:0"
        return
    from tests.cuda_stand_in.driver import cuda_stand_in

    paths = [str(_SITE), str(_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    with cuda_stand_in():
        yield "cuda:0"
