"""Plots of a few lines or bars as SVG text. They are too simple to need a plotting library.

Coordinates are rounded to a tenth of a pixel, so that equal data give equal files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 60
_COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7d5ba6", "#b8860b", "#555555")
_DASHES = ("", "6 4", "2 3", "8 3 2 3", "1 4", "10 4")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """The range of values on one axis of a plot."""

    title: str
    low: float
    high: float
    ticks: Sequence[float]
    log: bool = False

    def share(self, value: float) -> float:
        """The position of ``value`` between both ends, 0 to 1; values outside are clamped."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)


def lines(title: str, x: Axis, y: Axis, series: Mapping[str, Points]) -> str:
    """A line chart; lines differ by colour and by dashes."""
    drawn = []
    for number, (name, points) in enumerate(series.items()):
        colour, dash = _COLOURS[number], _DASHES[number]
        path = " ".join(f"{_across(x, a):.1f},{_up(y, b):.1f}" for a, b in points)
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        drawn.append(f'<polyline points="{path}" {style}/>')
        row = _TOP + 16 * number + 12
        drawn.append(
            f'<line x1="{_WIDTH - 250}" y1="{row}" x2="{_WIDTH - 222}" y2="{row}" {style}/>'
            + _text(_WIDTH - 216, row + 4, name, "start")
        )
    return _picture(title, [*_x_axis(x), *_y_axis(y), *drawn])


def bars(title: str, y: Axis, values: Mapping[str, float]) -> str:
    """A bar chart, with each bar's name below, on several lines, and its value above."""
    wide = (_WIDTH - _LEFT - _RIGHT) / len(values)
    drawn = []
    for number, (name, value) in enumerate(values.items()):
        left, top = _LEFT + wide * (number + 0.2), _up(y, value)
        height = _HEIGHT - _BOTTOM - top
        drawn.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide * 0.6:.1f}" height="{height:.1f}" fill="{_COLOURS[0]}"/>'
        )
        middle = left + wide * 0.3
        drawn.append(_text(middle, top - 5, _short(value), "middle"))
        for row, word in enumerate(name.split("\n")):
            drawn.append(_text(middle, _HEIGHT - _BOTTOM + 16 + 14 * row, word, "middle"))
    return _picture(title, [*_y_axis(y), *drawn])


def _x_axis(x: Axis) -> list[str]:
    floor = _HEIGHT - _BOTTOM
    drawn = [_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14, x.title, "middle")]
    for tick in x.ticks:
        at = _across(x, tick)
        drawn.append(f'<line x1="{at:.1f}" y1="{floor}" x2="{at:.1f}" y2="{floor + 5}" stroke="#333"/>')
        drawn.append(_text(at, floor + 19, f"{tick:g}", "middle"))
    return drawn


def _y_axis(y: Axis) -> list[str]:
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    drawn = [
        f'<text x="16" y="{middle:.1f}" text-anchor="middle" transform="rotate(-90 16 {middle:.1f})">{escape(y.title)}</text>'
    ]
    for tick in y.ticks:
        at = _up(y, tick)
        drawn.append(
            f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}" stroke="#ddd"/>'
            + _text(_LEFT - 8, at + 4, f"{tick:g}", "end")
        )
    return drawn


def _picture(title: str, drawn: Sequence[str]) -> str:
    floor, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'font-family="sans-serif" font-size="12" fill="#222" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="26" font-size="15" font-weight="bold">{escape(title)}</text>',
            *drawn,
            f'<polyline points="{_LEFT},{_TOP} {_LEFT},{floor} {right},{floor}" fill="none" stroke="#333"/>',
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _across(x: Axis, value: float) -> float:
    return _LEFT + x.share(value) * (_WIDTH - _LEFT - _RIGHT)


def _up(y: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - y.share(value) * (_HEIGHT - _TOP - _BOTTOM)


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"
