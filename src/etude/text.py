"""Numbers in words."""


def duration(seconds: float) -> str:
    """`42 s`, `3 min 10 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
