"""Numbers and settings in words."""

from collections.abc import Mapping

_CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {ord("\n"), ord("\t")}, "\ufffd")


def printable(text: str) -> str:
    """Without what a terminal would act upon: names from files of others may hold anything."""
    return text.translate(_CONTROLS)


def count(number: int, what: str) -> str:
    """`1 seed`, `2,000 seeds`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def figure(x: float | None) -> str:
    """Three digits of a number; whole numbers in full. NaN is unknown, too."""
    if x is None or x != x:
        return "–"
    return f"{x:,.0f}" if abs(x) >= 1000 and float(x).is_integer() else f"{x:.3g}"


def interval(score: Mapping[str, float | None]) -> str:
    low, high = figure(score["low"]), figure(score["high"])
    return low if low == high == figure(None) else f"{low} to {high}"


def as_words(value: object) -> str:
    """A setting's value for a reader."""
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "none"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 10 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def speed(steps_per_second: float, seeds: int = 1) -> str:
    """Of all seeds together, which is said if there are several."""
    together = f", {seeds:,} seeds together" if seeds > 1 else ""
    return f"{steps_per_second:,.0f} steps/s{together}"


def size(number: int | float) -> str:
    """Of bytes: `800 B`, `1.5 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:,.3g} {unit}" if number < 1000 else f"{number:,.0f} {unit}"
        number /= 1000
    raise AssertionError
