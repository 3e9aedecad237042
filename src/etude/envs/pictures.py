"""Drawing environments as RGB arrays: coloured boards, a cart and pole, or bars."""

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


def bars(values: np.ndarray) -> np.ndarray:
    """A bar for each number, up or down from the middle, squashed to fit."""
    image, draw = _canvas(SIZE, SIZE)
    width = SIZE / len(values)
    for i, value in enumerate(np.tanh(values)):
        left, right, tip = i * width + 1, (i + 1) * width - 1, SIZE / 2 * (1 - 0.95 * value)
        box = [left, min(tip, SIZE / 2), max(left + 1, right), max(tip, SIZE / 2)]
        draw.rectangle(box, fill=tuple(int(c) for c in PALETTE[i % len(PALETTE)]))
    draw.line([(0, SIZE / 2), (SIZE, SIZE / 2)], fill=(90, 100, 115))
    return np.asarray(image)
