"""Write pictures as SVG: boxes with arrows, and sequences of messages between parties.

A picture is data. The writer needs no package and no browser, and equal data give equal bytes.
It refuses a picture in which a text is wider than its place, or in which a label, a line or a box
covers another one. Widths are those of DejaVu Sans, which is wider than most fonts of browsers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple
from xml.sax.saxutils import escape

SIZE = 14
LINE = 18
"""Height of a line of text, in pixels."""
PAD = 9
MARGIN = 14
AROUND = 24
"""How far a line from a side to the same side of another box goes around, in pixels."""

STYLE = """
text{font:14px "DejaVu Sans",Verdana,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.bold{font-weight:bold}
.page{fill:#ffffff}
.part{fill:#eaf2fd;stroke:#2f6db5}
.store{fill:#fdf3dc;stroke:#a8761a}
.outside{fill:#f1f2f4;stroke:#656d76}
.state{fill:#e8f6ec;stroke:#2c8a4b}
.group{fill:none;stroke:#8c959f;stroke-dasharray:6 4}
.line{fill:none;stroke:#424a53;stroke-width:1.6}
.dashed{stroke-dasharray:5 4}
.life{stroke:#8c959f;stroke-dasharray:3 4}
.head{fill:#424a53;stroke:none}
.lost{stroke:#c0392b;stroke-width:2.2;fill:none}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.page{fill:#0d1117}
.part{fill:#12263f;stroke:#6cb0ff}
.store{fill:#35270a;stroke:#e0b04d}
.outside{fill:#22272e;stroke:#9aa4af}
.state{fill:#10301c;stroke:#5ac47a}
.group,.life{stroke:#768390}
.line{stroke:#c3ccd5}
.head{fill:#c3ccd5}
.lost{stroke:#ff7b72}
}
"""

_NARROW = dict.fromkeys("iljI.,:;'|!", 0.36) | dict.fromkeys("ftr()[]/ -", 0.42)
_WIDE = dict.fromkeys("mwMW@%", 0.98) | dict.fromkeys("ABCDGHKNOQRUVXY&", 0.76)


def width_of(text: str, *, bold: bool = False) -> float:
    """Return the width of a text in pixels, a little more than most fonts need."""
    ems = sum(_NARROW.get(letter) or _WIDE.get(letter, 0.63) for letter in text)
    return ems * SIZE * (1.1 if bold else 1.0)


class Rect(NamedTuple):
    """A rectangle in pixels."""

    x: float
    y: float
    w: float
    h: float

    def meets(self, other: Rect) -> bool:
        """Return whether the two have an area in common."""
        return (
            self.x < other.x + other.w
            and other.x < self.x + self.w
            and self.y < other.y + other.h
            and other.y < self.y + self.h
        )


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a picture. The first line of its text is bold."""

    name: str
    x: float
    y: float
    w: float
    text: str
    kind: str = "part"
    """``part``, ``store``, ``outside``, ``state``, or ``group``: a frame around others."""
    h: float = 0
    """0: as high as the text."""

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.split("\n")

    @property
    def rect(self) -> Rect:
        """The place of the box."""
        return Rect(self.x, self.y, self.w, self.h or len(self.lines) * LINE + 2 * PAD)

    def point(self, side: str, share: float) -> tuple[float, float]:
        """Return the point of a side, ``share`` of its length from the left or the top."""
        x, y, w, h = self.rect
        return {
            "left": (x, y + h * share),
            "right": (x + w, y + h * share),
            "top": (x + w * share, y),
            "bottom": (x + w * share, y + h),
        }[side]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line between two boxes: ``name:side`` or ``name:side@share`` each."""

    start: str
    end: str
    label: str = ""
    put: str = "above"
    """Where the label is: ``above`` or ``below`` the horizontal part, ``left`` or ``right`` of the
    vertical one.
    """
    bend: float = 0.5
    """Where between the ends a line with two corners turns."""
    dashed: bool = False


class Say(NamedTuple):
    """One message of a sequence; ``lost`` ends half-way."""

    start: str
    end: str
    label: str
    lost: bool = False


class Note(NamedTuple):
    """What a party does between two messages."""

    party: str
    text: str


Point = tuple[float, float]


def _end(spec: str, boxes: dict[str, Box]) -> tuple[Point, str]:
    name, _, place = spec.partition(":")
    side, _, share = place.partition("@")
    return boxes[name].point(side, float(share or 0.5)), side


def _route(arrow: Arrow, boxes: dict[str, Box]) -> list[Point]:
    (x0, y0), side0 = _end(arrow.start, boxes)
    (x1, y1), side1 = _end(arrow.end, boxes)
    across0, across1 = side0 in ("left", "right"), side1 in ("left", "right")
    if side0 == side1 and across0:
        x = max(x0, x1) + AROUND if side0 == "right" else min(x0, x1) - AROUND
        return [(x0, y0), (x, y0), (x, y1), (x1, y1)]
    if side0 == side1:
        y = max(y0, y1) + AROUND if side0 == "bottom" else min(y0, y1) - AROUND
        return [(x0, y0), (x0, y), (x1, y), (x1, y1)]
    if x0 == x1 or y0 == y1:
        return [(x0, y0), (x1, y1)]
    if across0 and across1:
        middle = x0 + (x1 - x0) * arrow.bend
        return [(x0, y0), (middle, y0), (middle, y1), (x1, y1)]
    if not across0 and not across1:
        middle = y0 + (y1 - y0) * arrow.bend
        return [(x0, y0), (x0, middle), (x1, middle), (x1, y1)]
    return [(x0, y0), (x1, y0) if across0 else (x0, y1), (x1, y1)]


def _label(arrow: Arrow, route: Sequence[Point]) -> Rect:
    """Return the place of a label: at the middle of the longest part of its direction."""
    flat = arrow.put in ("above", "below")
    parts = [(a, b) for a, b in pairwise(route) if (a[1] == b[1]) is flat]
    (xa, ya), (xb, yb) = max(parts, key=lambda p: abs(p[0][0] - p[1][0]) + abs(p[0][1] - p[1][1]))
    lines = arrow.label.split("\n")
    w, h = max(map(width_of, lines)), LINE * len(lines)
    x, y = (xa + xb) / 2, (ya + yb) / 2
    return {
        "above": Rect(x - w / 2, y - h - 4, w, h),
        "below": Rect(x - w / 2, y + 4, w, h),
        "left": Rect(x - w - 7, y - h / 2, w, h),
        "right": Rect(x + 7, y - h / 2, w, h),
    }[arrow.put]


def _thin(a: Point, b: Point) -> Rect:
    x, y = min(a[0], b[0]), min(a[1], b[1])
    return Rect(x + 1, y + 1, abs(a[0] - b[0]) - 2, abs(a[1] - b[1]) - 2)


def faults(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Iterator[str]:
    """Yield what covers something else, and each text that is wider than its box."""
    solid = {box.name: box.rect for box in boxes if box.kind != "group"}
    heads = {
        f"the title of {box.name}": Rect(box.x, box.y, width_of(box.text, bold=True) + 2 * PAD, 26)
        for box in boxes
        if box.kind == "group"
    }
    for box in boxes:
        for number, line in enumerate(box.lines):
            if width_of(line, bold=number == 0) > box.w - 8:
                yield f"box {box.name} is too narrow for {line!r}"
    by_name = {box.name: box for box in boxes}
    routes = [_route(arrow, by_name) for arrow in arrows]
    labels = {
        f"the label {arrow.label!r}": _label(arrow, route)
        for arrow, route in zip(arrows, routes, strict=True)
        if arrow.label
    }
    for (name, one), (other, two) in combinations((solid | heads | labels).items(), 2):
        if one.meets(two):
            yield f"{name} covers {other}"
    for arrow, route in zip(arrows, routes, strict=True):
        ends = {arrow.start.partition(":")[0], arrow.end.partition(":")[0]}
        covered = {name: rect for name, rect in solid.items() if name not in ends} | heads | labels
        for part in pairwise(route):
            for name, rect in covered.items():
                if _thin(*part).meets(rect):
                    yield f"the line {arrow.start} {arrow.end} crosses {name}"


def _text(x: float, y: float, line: str, *, bold: bool = False, anchor: str = "start") -> str:
    kind = ' class="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}>{escape(line)}</text>'


def _box(box: Box) -> Iterator[str]:
    x, y, w, h = box.rect
    corner = 9 if box.kind == "state" else 5
    place = f'x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}"'
    yield f'<rect class="{box.kind}" {place} rx="{corner}"/>'
    above = PAD if box.kind == "group" else (h - LINE * len(box.lines)) / 2
    for number, line in enumerate(box.lines):
        place = y + above + LINE * number + 13
        if box.kind == "group":
            yield _text(x + PAD, place, line, bold=True)
        else:
            yield _text(x + w / 2, place, line, bold=number == 0, anchor="middle")


def _head(a: Point, b: Point) -> str:
    """Return the head of an arrow that ends at ``b``."""
    dx, dy = (b[0] > a[0]) - (b[0] < a[0]), (b[1] > a[1]) - (b[1] < a[1])
    back = b[0] - 9 * dx, b[1] - 9 * dy
    wings = (back[0] + 4.5 * dy, back[1] + 4.5 * dx), (back[0] - 4.5 * dy, back[1] - 4.5 * dx)
    points = " ".join(f"{x:g},{y:g}" for x, y in (b, *wings))
    return f'<polygon class="head" points="{points}"/>'


def _arrow(arrow: Arrow, boxes: dict[str, Box]) -> Iterator[str]:
    route = _route(arrow, boxes)
    points = " ".join(f"{x:g},{y:g}" for x, y in route)
    kind = "line dashed" if arrow.dashed else "line"
    yield f'<polyline class="{kind}" points="{points}"/>'
    yield _head(route[-2], route[-1])
    if arrow.label:
        x, y, w, _ = _label(arrow, route)
        for number, line in enumerate(arrow.label.split("\n")):
            yield _text(x + w / 2, y + 13 + LINE * number, line, anchor="middle")


def _page(title: str, w: float, h: float, content: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:g} {h:g}" width="{w:g}" '
        f'height="{h:g}" role="img">'
    )
    rect = f'<rect class="page" width="{w:g}" height="{h:g}"/>'
    lines = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", rect, *content]
    return "\n".join([*lines, "</svg>"]) + "\n"


def drawing(title: str, boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """Return boxes and arrows as SVG. Raises :class:`ValueError` if something covers another."""
    if found := list(faults(boxes, arrows)):
        raise ValueError(f"{title}: " + "; ".join(found))
    by_name = {box.name: box for box in boxes}
    labels = [_label(arrow, _route(arrow, by_name)) for arrow in arrows if arrow.label]
    places = [*(box.rect for box in boxes), *labels]
    if min(min(place.x, place.y) for place in places) < 0:
        raise ValueError("a part of the picture is left of or above its edge")
    ends = [point for arrow in arrows for point in _route(arrow, by_name)]
    w = max(*(place.x + place.w for place in places), *(x for x, _ in ends)) + MARGIN
    h = max(*(place.y + place.h for place in places), *(y for _, y in ends)) + MARGIN
    groups = sorted(boxes, key=lambda box: box.kind != "group")
    content = [line for box in groups for line in _box(box)]
    content += [line for arrow in arrows for line in _arrow(arrow, by_name)]
    return _page(title, w, h, content)


def sequence(title: str, parties: Sequence[str], steps: Sequence[Say | Note], apart: float) -> str:
    """Return messages between parties as SVG, from top to bottom."""
    x = {name: MARGIN + apart * (0.5 + number) for number, name in enumerate(parties)}
    y, content = MARGIN + 76.0, list[str]()
    for step in steps:
        if isinstance(step, Note):
            lines = step.text.split("\n")
            box = Box(step.party, 0, y - 26, max(map(width_of, lines)) + 2 * PAD, step.text)
            rect = Box("", max(2, x[step.party] - box.w / 2), box.y, box.w, step.text).rect
            if box.w > apart + 40:
                raise ValueError(f"the note {step.text!r} is too wide")
            content.append(
                f'<rect class="store" x="{rect.x:g}" y="{rect.y:g}" width="{rect.w:g}" '
                f'height="{rect.h:g}" rx="5"/>'
            )
            for number, line in enumerate(lines):
                place = rect.y + PAD + 13 + LINE * number
                content.append(_text(rect.x + rect.w / 2, place, line, anchor="middle"))
            y += rect.h + 20
            continue
        a, b = (x[step.start], y), (x[step.end], y)
        if width_of(step.label) > abs(a[0] - b[0]) - 20:
            raise ValueError(f"the label {step.label!r} is too wide")
        content.append(_text((a[0] + b[0]) / 2, y - 6, step.label, anchor="middle"))
        if step.lost:
            b = (a[0] + (b[0] - a[0]) * 0.6, y)
        content.append(f'<polyline class="line" points="{a[0]:g},{y:g} {b[0]:g},{y:g}"/>')
        if step.lost:
            cross = f"M{b[0] - 6:g} {y - 6:g}l12 12m0 -12l-12 12"
            content.append(f'<path class="lost" d="{cross}"/>')
        else:
            content.append(_head(a, b))
        y += 40
    h = y - 8
    lives = [
        f'<line class="life" x1="{at:g}" y1="{MARGIN + 36}" x2="{at:g}" y2="{h:g}"/>'
        for at in x.values()
    ]
    heads = [
        line
        for name, at in x.items()
        for line in _box(Box(name, at - apart * 0.32, MARGIN, apart * 0.64, name, "outside"))
    ]
    return _page(title, 2 * MARGIN + apart * len(parties), h + MARGIN, [*lives, *heads, *content])
