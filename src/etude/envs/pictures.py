"""Drawing environments as RGB arrays: coloured boards, a cart and pole, or quantities by name."""

import numpy as np

SIZE = 240
BACKGROUND = (16, 20, 28)


def rgb(colours: str) -> np.ndarray:
    """Colours written in hexadecimal, one per row."""
    return np.array([list(bytes.fromhex(x)) for x in colours.split()], float)


PALETTE = rgb("5ec8ff ffc44d ff6b6b 7ae282 c494ff ff94d6 78e6dc e6e6e6 aa8c64 8ca0b4")


def board(image: np.ndarray) -> np.ndarray:
    """A grid of cells; each channel has its colour, and later channels cover earlier ones."""
    planes = image[..., None] if image.ndim == 2 else image
    low, high = planes.min(), planes.max()
    planes = (planes - low) / (high - low) if high > low else np.zeros_like(planes)
    colours = np.empty((*planes.shape[:2], 3))
    colours[:] = BACKGROUND
    for channel in range(planes.shape[-1]):
        strength = planes[..., channel, None]
        colours = (1 - strength) * colours + strength * PALETTE[channel % len(PALETTE)]
    return cells(colours)


def cells(colours: np.ndarray, agent: tuple[int, int] | None = None) -> np.ndarray:
    """A grid of coloured cells, with a white square where the agent is, if there is one."""
    scale = max(1, SIZE // max(colours.shape[:2]))
    picture = np.kron(colours, np.ones((scale, scale, 1)))
    if scale >= 8:  # thin lines between the cells
        picture[::scale] *= 0.6
        picture[:, ::scale] *= 0.6
    if agent is not None:
        margin = scale // 4
        top, left = (x * scale + margin for x in agent)
        picture[top : top + scale - 2 * margin, left : left + scale - 2 * margin] = 255
    return picture.astype(np.uint8)


def _canvas(height: int, width: int):
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), BACKGROUND)
    return image, ImageDraw.Draw(image)


def cart_pole(x: float, theta: float, limit: float) -> np.ndarray:
    width, height = int(1.5 * SIZE), SIZE
    image, draw = _canvas(height, width)
    ground = int(0.78 * height)
    centre = width / 2 + x / limit * (width / 2 - 24)
    draw.line([(0, ground), (width, ground)], fill=(90, 100, 115), width=2)
    draw.rectangle([centre - 22, ground - 22, centre + 22, ground - 4], fill=(94, 200, 255))
    tip = (centre + 110 * np.sin(theta), ground - 22 - 110 * np.cos(theta))
    draw.line([(centre, ground - 22), tip], fill=(255, 196, 77), width=8)
    return np.asarray(image)


ROWS = 16


def quantities(named: dict[str, float]) -> np.ndarray:
    """A row for each number, with its name and a bar to the right or left, squashed to fit. Of
    many, so many as there is room for are drawn, and the rest is counted."""
    shown = dict(list(named.items())[:ROWS])
    width, row = int(1.5 * SIZE), SIZE // max(6, min(ROWS, len(named)) + (len(named) > ROWS))
    image, draw = _canvas(SIZE, width)
    middle, reach = 0.72 * width, 0.26 * width
    for i, (name, value) in enumerate(shown.items()):
        top, tip = i * row + 2, middle + reach * float(np.tanh(value))
        colour = tuple(int(c) for c in PALETTE[i % len(PALETTE)])
        draw.text((4, top), f"{name[:18]} = {value:.3g}", fill=(230, 230, 230))
        draw.rectangle([min(tip, middle), top, max(tip, middle), top + row - 5], fill=colour)
    if len(named) > ROWS:
        draw.text((4, ROWS * row + 2), f"and {len(named) - ROWS} more", fill=(140, 150, 165))
    draw.line([(middle, 0), (middle, SIZE)], fill=(90, 100, 115))
    return np.asarray(image)
