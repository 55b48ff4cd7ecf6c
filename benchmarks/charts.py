# SPDX-License-Identifier: Apache-2.0
"""Charts with two logarithmic axes, as small SVG files, for docs/benchmarks."""

import html
import math

WIDTH, HEIGHT = 680, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"]


def ticks(low, high, base):
    """Powers of `base` around the values, at most ten."""
    first = math.floor(math.log(low, base) + 1e-9)
    last = math.ceil(math.log(high, base) - 1e-9)
    step = max(1, math.ceil((last - first) / 9))
    return [base**power for power in range(first, last + step, step)]


def short(value):
    """1500000 as 1.5M, 0.25 as 0.25."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def binary(value):
    for factor, unit in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


class Chart:
    """`curves`: (label, [(x, y)], dashed). Curves of one colour share the label up to " (fit)"."""

    def __init__(self, title, x_label, y_label, curves, x_base=10, x_text=short):
        self.title, self.x_label, self.y_label = title, x_label, y_label
        positive = [
            (label, [(x, y) for x, y in points if x > 0 and y > 0], dashed)
            for label, points, dashed in curves
        ]
        self.curves = [curve for curve in positive if curve[1]]
        points = [point for _, points, _ in self.curves for point in points]
        self.x_ticks = ticks(min(x for x, _ in points), max(x for x, _ in points), x_base)
        self.y_ticks = ticks(min(y for _, y in points), max(y for _, y in points), 10)
        self.x_text = x_text

    def x(self, value):
        return self.place(value, self.x_ticks, LEFT, WIDTH - RIGHT)

    def y(self, value):
        return self.place(value, self.y_ticks, HEIGHT - BOTTOM, TOP)

    @staticmethod
    def place(value, marks, low, high):
        if len(marks) == 1:
            return (low + high) / 2
        share = math.log(value / marks[0]) / math.log(marks[-1] / marks[0])
        return low + share * (high - low)

    def svg(self):
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            text(LEFT, TOP - 16, self.title, "start", 'font-weight="bold"'),
            text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, self.x_label),
            text(0, 0, self.y_label, more=f'transform="translate(16 {HEIGHT / 2}) rotate(-90)"'),
        ]
        for mark in self.x_ticks:
            x = self.x(mark)
            lines.append(line([(x, TOP), (x, HEIGHT - BOTTOM)], "#ddd"))
            lines.append(text(x, HEIGHT - BOTTOM + 16, self.x_text(mark)))
        for mark in self.y_ticks:
            y = self.y(mark)
            lines.append(line([(LEFT, y), (WIDTH - RIGHT, y)], "#ddd"))
            lines.append(text(LEFT - 6, y + 4, short(mark), "end"))
        colours = {}
        for label, points, dashed in self.curves:
            colour = colours.setdefault(
                label.removesuffix(" (fit)"), COLOURS[len(colours) % len(COLOURS)]
            )
            places = [(self.x(x), self.y(y)) for x, y in points]
            lines.append(line(places, colour, 1.8, 'stroke-dasharray="5 4"' if dashed else ""))
            if not dashed:
                lines += [
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'
                    for x, y in places
                ]
        for row, (label, colour) in enumerate(colours.items()):
            y = TOP + 10 + 18 * row
            x = WIDTH - RIGHT + 12
            lines.append(line([(x, y), (x + 18, y)], colour, 1.8))
            lines.append(text(x + 24, y + 4, label, "start"))
        return "\n".join([*lines, "</svg>", ""])


def text(x, y, words, anchor="middle", more=""):
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place} {more}>{html.escape(words)}</text>"


def line(points, colour, width=1, more=""):
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}" {more}/>'
    )
