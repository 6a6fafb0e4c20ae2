"""The 15 corruptions of Hendrycks & Dietterich (2019) at 5 severities, with the constants of their CIFAR pictures.

Constants and arithmetic are those of ImageNet-C/create_c/make_cifar_c.py in github.com/hendrycks/robustness, which made CIFAR-10-C.
Random numbers are drawn differently, so the pictures are similar, not equal. Where that code does not do what it seems to, this
module does the same as the published files: see `_glass_blur`. `frost` needs photographs, which only the published files have.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlrsnet_lab import checks
from mlrsnet_lab.datasets.extras import need

SIDE = 32
SEVERITIES = 5
CHUNK = 1000  # pictures converted to floats at a time
PUBLISHED_ONLY = "frost"

Array = np.ndarray[Any, Any]
Random = np.random.Generator
Corruption = Callable[[Array, Any, Random], Array]
"""Pixels (floats, (N, 32, 32, 3), 0 to 255), a severity's constants and random numbers -> pixels, which may exceed the range."""


def corrupt(images: Array, name: str, severity: int, *, seed: int = 0) -> Array:
    """Corrupted copies of pictures, uint8 (N, 32, 32, 3); the same arguments give the same pictures.

    Args:
        images: the clean pictures.
        name: one of `CORRUPTIONS`, but `frost`.
        severity: 1 to 5.
        seed: of the random numbers.

    >>> grey = np.full((1, 32, 32, 3), 100, np.uint8)
    >>> corrupt(grey, "brightness", 5)[0, 0, 0]
    array([176, 176, 176], dtype=uint8)
    """
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, 3):
        raise ValueError(
            f"images must be uint8 of shape (N, {SIDE}, {SIDE}, 3), got {images.dtype} {images.shape}: the constants "
            "are for CIFAR's pictures"
        )
    change, constants = CORRUPTIONS[checks.one_of("corruption", name, CORRUPTIONS)]
    constant = constants[check_severity(severity) - 1]
    random = np.random.default_rng((checks.whole_number("seed", seed, 0), list(CORRUPTIONS).index(name), severity))
    result = np.empty_like(images)
    for first in range(0, len(images), CHUNK):
        pixels = change(images[first : first + CHUNK].astype(np.float64), constant, random)
        result[first : first + CHUNK] = pixels.clip(0, 255)  # truncates fractions, as the published files do
    return result


def check_severity(severity: object) -> int:
    """Return a whole number from 1 to 5, or raise."""
    number = checks.whole_number("severity", severity)
    if number > SEVERITIES:
        raise ValueError(f"severity must be from 1 to {SEVERITIES}, got {severity!r}")
    return number


# Noise


def _gaussian_noise(pixels: Array, deviation: float, random: Random) -> Array:
    return pixels + 255 * deviation * random.standard_normal(pixels.shape)


def _shot_noise(pixels: Array, light: float, random: Random) -> Array:
    """Photons are counted; a white pixel receives `light` of them on average."""
    return random.poisson(pixels / 255 * light) / light * 255


def _impulse_noise(pixels: Array, amount: float, random: Random) -> Array:
    """Salt and pepper: each colour of each pixel becomes 0 or 255 with this probability."""
    hit, salt = random.random(pixels.shape) < amount, random.random(pixels.shape) < 0.5
    return np.where(hit, 255.0 * salt, pixels)


# Blur


def _defocus_blur(pixels: Array, constants: tuple[float, float], random: Random) -> Array:
    radius, smoothing = constants
    cv2 = _cv2("defocus_blur")
    x, y = np.meshgrid(np.arange(-4, 5), np.arange(-4, 5))
    disk = (x**2 + y**2 <= radius**2).astype(np.float64)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (3, 3), smoothing)
    return np.stack([cv2.filter2D(picture, -1, kernel) for picture in pixels])


def _glass_blur(pixels: Array, constants: tuple[float, int], random: Random) -> Array:
    """Blur, pixels that move to the side, blur.

    The benchmark wants to swap each pixel with a neighbour, but its tuple assignment of numpy views copies instead, and its
    `randint(-1, 1)` never gives 1. So each pixel becomes itself or a neighbour above, to the left, or both. It works from the last
    pixel to the first and copies pixels that have not moved yet, which is the same as moving all at once.
    """
    deviation, times = constants
    moved = np.floor(_smoothed(pixels, deviation))
    row, column = np.meshgrid(np.arange(2, SIDE), np.arange(2, SIDE), indexing="ij")
    picture = np.arange(len(pixels))[:, None, None]
    for _ in range(times):
        up, left = random.integers(0, 2, (2, len(pixels), SIDE - 2, SIDE - 2))
        moved[:, 2:, 2:] = moved[picture, row - up, column - left]
    return _smoothed(moved, deviation)


def _motion_blur(pixels: Array, constants: tuple[int, float], random: Random) -> Array:
    angles = random.uniform(-45, 45, len(pixels))
    return np.stack([np.rint(_streaked(p, *constants, angle)) for p, angle in zip(pixels, angles, strict=True)])


def _zoom_blur(pixels: Array, largest: float, random: Random) -> Array:
    factors = np.arange(1, largest, 0.01)
    return (pixels + sum(_zoomed(pixels, factor) for factor in factors)) / (len(factors) + 1)


# Weather


def _snow(pixels: Array, constants: tuple[float, ...], random: Random) -> Array:
    """Flakes are the largest of random numbers, magnified and blurred downwards. The picture below them turns pale."""
    mean, deviation, zoom, threshold, length, blur, kept = constants
    flakes = _zoomed(random.normal(mean, deviation, (*pixels.shape[:3], 1)), zoom)
    flakes = 255 * np.where(flakes < threshold, 0, flakes).clip(0, 1)
    angles = random.uniform(-135, -45, len(pixels))
    fall = np.stack([_streaked(f, int(length), blur, angle) for f, angle in zip(flakes, angles, strict=True)])
    grey = pixels @ np.array([0.299, 0.587, 0.114])[:, None]
    pale = kept * pixels + (1 - kept) * np.maximum(pixels, 1.5 * grey + 127.5)
    return pale + fall + fall[:, ::-1, ::-1]


def _frost(pixels: Array, constants: Any, random: Random) -> Array:
    raise ValueError(
        "corruption must not be frost, which adds photographs: put the published frost.npy beside the data"
    )


def _fog(pixels: Array, constants: tuple[float, float], random: Random) -> Array:
    amount, decay = constants
    lightest = pixels.max(axis=(1, 2, 3), keepdims=True)
    foggy = pixels + 255 * amount * _plasma(len(pixels), decay, random)[..., None]
    return foggy * lightest / (lightest + 255 * amount)


def _brightness(pixels: Array, amount: float, random: Random) -> Array:
    colour = need("skimage.color", "brightness", "corruptions")
    hsv = colour.rgb2hsv(pixels / 255)
    hsv[..., 2] = (hsv[..., 2] + amount).clip(0, 1)
    return 255 * colour.hsv2rgb(hsv)


# Digital


def _contrast(pixels: Array, kept: float, random: Random) -> Array:
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    return (pixels - mean) * kept + mean


def _elastic_transform(pixels: Array, constants: tuple[float, float, float], random: Random) -> Array:
    """A random affine map, then a random smooth shift of each pixel. Constants are in units of the picture's side."""
    amount, smoothness, corner = (SIDE * constant for constant in constants)
    cv2, filters = _cv2("elastic_transform"), need("skimage.filters", "elastic_transform", "corruptions")
    middle, third = SIDE // 2, SIDE // 3
    points = np.array([[third, third], [third, -third], [-third, -third]], np.float32) + middle
    at = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)))  # x, y
    result = np.empty_like(pixels)
    for i, picture in enumerate(pixels):
        moved = points + random.uniform(-corner, corner, points.shape).astype(np.float32)
        affine = cv2.getAffineTransform(points, moved)
        picture = cv2.warpAffine(picture, affine, (SIDE, SIDE), borderMode=cv2.BORDER_REFLECT_101)
        noise = random.uniform(-1, 1, at.shape)
        shift = [amount * filters.gaussian(plane, smoothness, mode="reflect", truncate=3) for plane in noise]
        x, y = (at + np.stack(shift)).astype(np.float32)
        result[i] = cv2.remap(picture, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    return result


def _pixelate(pixels: Array, kept: float, random: Random) -> Array:
    image = need("PIL.Image", "pixelate")
    few, box = int(SIDE * kept), image.Resampling.BOX
    return _as_pictures(pixels, lambda picture: picture.resize((few, few), box).resize((SIDE, SIDE), box))


def _jpeg_compression(pixels: Array, quality: int, random: Random) -> Array:
    image = need("PIL.Image", "jpeg_compression")

    def compressed(picture: Any) -> Any:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return image.open(file)

    return _as_pictures(pixels, compressed)


CORRUPTIONS: dict[str, tuple[Corruption, Sequence[Any]]] = {
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": (_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (_glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": (_motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (_zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),
    "snow": (
        _snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    PUBLISHED_ONLY: (_frost, (None,) * SEVERITIES),
    "fog": (_fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (_brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": (
        _elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (_jpeg_compression, (80, 65, 58, 50, 40)),
}
"""Each corruption's function, and its constants at severities 1 to 5. The keys are the names of the published files."""


# What they share


def _smoothed(pixels: Array, deviation: float) -> Array:
    filters = need("skimage.filters", "glass_blur", "corruptions")
    return filters.gaussian(pixels, (0, deviation, deviation, 0))


def _streaked(picture: Array, radius: int, deviation: float, angle: float) -> Array:
    """Motion blur as in ImageMagick: half a Gaussian along a line, in whole pixels; edges are repeated outwards."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * deviation**2))
    turn = np.deg2rad(angle)
    right, down = (np.ceil(steps * part - 0.5).astype(int) + len(steps) for part in (np.cos(turn), np.sin(turn)))
    wide = np.pad(picture, ((len(steps), len(steps)), (len(steps), len(steps)), (0, 0)), mode="edge")
    shifted = (wide[y : y + SIDE, x : x + SIDE] for x, y in zip(right, down, strict=True))
    return sum(weight * part for weight, part in zip(weights / weights.sum(), shifted, strict=True))


def _zoomed(pixels: Array, factor: float) -> Array:
    """The middle of each picture, magnified by linear interpolation between the centres of the outermost pixels."""
    seen = int(np.ceil(SIDE / factor))
    size = round(seen * factor)
    at = np.arange(size)[(size - SIDE) // 2 :][:SIDE] * (seen - 1) / (size - 1)
    below = np.minimum(at.astype(int), seen - 2)
    weights = np.zeros((SIDE, SIDE))
    first = (SIDE - seen) // 2
    weights[np.arange(SIDE), first + below] = 1 - (at - below)
    weights[np.arange(SIDE), first + below + 1] = at - below
    planes = np.moveaxis(pixels, -1, 1)
    return np.moveaxis(weights @ planes @ weights.T, 1, -1)


def _plasma(count: int, decay: float, random: Random) -> Array:
    """Clouds from 0 to 1, (count, 32, 32), on a torus: the diamond-square algorithm."""
    heights = np.zeros((count, SIDE, SIDE))
    step, wobble = SIDE, 100.0

    def between(four: Array) -> Array:
        return four / 4 + wobble * random.uniform(-wobble, wobble, four.shape)

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        rows = corners + np.roll(corners, -1, axis=1)
        heights[:, half::step, half::step] = between(rows + np.roll(rows, -1, axis=2))
        middles = heights[:, half::step, half::step]
        across = corners + np.roll(corners, -1, axis=2) + middles + np.roll(middles, 1, axis=1)
        heights[:, ::step, half::step] = between(across)
        along = corners + np.roll(corners, -1, axis=1) + middles + np.roll(middles, 1, axis=2)
        heights[:, half::step, ::step] = between(along)
        step, wobble = half, wobble / decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    return heights / heights.max(axis=(1, 2), keepdims=True)


def _as_pictures(pixels: Array, change: Callable[[Any], Any]) -> Array:
    image = need("PIL.Image", "corrupted pictures")
    changed = [np.asarray(change(image.fromarray(picture))) for picture in pixels.astype(np.uint8)]
    return np.stack(changed).astype(np.float64)


def _cv2(what_for: str) -> Any:
    return need("cv2", what_for, "corruptions")
