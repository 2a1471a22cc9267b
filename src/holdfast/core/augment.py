"""Batched augmentations: every image of a batch is changed by random numbers of its own, without a loop over images.

Images are (n, channels, height, width), bytes or floats; what comes out has the same shape, dtype and range. All
random numbers come from a generator on the CPU, so that a saved one goes on to the same images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Limits = tuple[float, float]  # the numbers for black and white

CROP_TRIES = 10  # boxes drawn for an image before the largest is taken
GREY_WEIGHTS = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
MASKED_SHARE = 0.1


def contrastive_views(x: Tensor, rng: torch.Generator) -> Tensor:
    """Return a view of each sample as Supervised Contrastive Replay makes it.

    Of an image: flipped or not, a random part of it in other colours, sometimes grey. An input that is no image
    (vectors, say) has no such views: here every entry is set to zero with a probability of a tenth ("masked").
    """
    if x.ndim != 4:
        return masked(x, rng)
    limits = limits_of(x)
    views = _floats(random_flip(x, rng))  # bytes become floats once and are rounded once
    views = random_resized_crop(views, rng)
    views = color_jitter(views, rng, limits=limits)
    return _restored(random_grayscale(views, rng), x.dtype)


def crop_and_flip(x: Tensor, rng: torch.Generator) -> Tensor:
    """Images shifted by up to four pixels and flipped or not, as is usual for CIFAR; what is no image is masked.

    Example:
        >>> images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
        >>> views = crop_and_flip(images, torch.Generator().manual_seed(0))
        >>> views.shape, views.dtype
        (torch.Size([2, 3, 8, 8]), torch.uint8)
    """
    if x.ndim != 4:
        return masked(x, rng)
    return random_flip(random_shift(x, rng), rng)


def rand_augment(x: Tensor, rng: torch.Generator, *, strength: float = 14 / 30) -> Tensor:
    """Images each changed by one operation that is drawn for it (RandAugment); what is no image is masked.

    Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space", NeurIPS 2020. The
    fourteen operations and their ranges are those of that paper; directions are drawn.

    Args:
        strength: of an operation, from 0 to 1.
    """
    if x.ndim != 4:
        return masked(x, rng)
    low, high = limits_of(x)
    unit = (_floats(x) - low) / max(high - low, 1e-12)
    drawn = torch.randint(len(_OPERATIONS), (len(x),), generator=rng)
    sign = 2.0 * torch.randint(2, (len(x),), generator=rng) - 1
    for i in sorted(set(drawn.tolist())):
        chosen = (drawn == i).nonzero().flatten()
        amount = (strength * sign[chosen]).to(x.device)
        chosen = chosen.to(x.device)
        unit = unit.index_copy(0, chosen, _OPERATIONS[i](unit[chosen], amount).clamp(0, 1))
    return _restored(unit * (high - low) + low, x.dtype)


def masked(x: Tensor, rng: torch.Generator, *, share: float = MASKED_SHARE) -> Tensor:
    """Return the inputs (n, …) with every entry set to zero with the probability `share`."""
    return x.masked_fill((torch.rand(x.shape, generator=rng) < share).to(x.device), 0)


def random_flip(x: Tensor, rng: torch.Generator, *, p: float = 0.5) -> Tensor:
    """Mirror left and right with probability p."""
    chosen = _chosen(x, p, rng)
    return x.index_copy(0, chosen, x.index_select(0, chosen).flip(-1))


def random_shift(
    x: Tensor, rng: torch.Generator, *, pad: int = 4, padding: Literal["constant", "reflect"] = "constant"
) -> Tensor:
    """Move each image by up to `pad` pixels each way; what comes in is zero (`constant`) or the mirrored image."""
    n, _, height, width = x.shape
    top, left = torch.randint(2 * pad + 1, (2, n), generator=rng).to(x.device)
    padded = F.pad(x, (pad, pad, pad, pad), mode=padding)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view, by (n, channels, top, left, height, width)
    return windows[torch.arange(n, device=x.device), :, top, left]


def random_resized_crop(
    x: Tensor,
    rng: torch.Generator,
    *,
    scale: tuple[float, float] = (0.2, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Return a random part of each image, enlarged to the size of the whole.

    Args:
        scale: least and greatest share of the area. ratio: least and greatest width over height, in pixels.
    """
    n, _, height, width = x.shape
    boxes = _random_boxes(n, height, width, rng, scale, ratio)
    return resized_crop(x, boxes.to(x.device))


def color_jitter(
    x: Tensor,
    rng: torch.Generator,
    *,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
    p: float = 0.8,
    limits: Limits | None = None,
) -> Tensor:
    """Change an image's colours with probability p, in an order drawn for the batch.

    Images without three channels have no saturation and no hue.

    Args:
        brightness, contrast, saturation: b, at most 1: the factor is drawn from 1 - b to 1 + b.
        hue: at most 0.5: the turns are drawn from -hue to hue.
        limits: of the numbers, if not as `limits_of` finds them.
    """
    limits = limits or limits_of(x)
    chosen = _chosen(x, p, rng)
    jittered = _floats(x.index_select(0, chosen))
    drawn_around = (
        (adjust_brightness, 1.0, brightness),
        (adjust_contrast, 1.0, contrast),
        (adjust_saturation, 1.0, saturation),
        (adjust_hue, 0.0, hue),
    )
    for i in torch.randperm(len(drawn_around), generator=rng).tolist():
        adjust, neutral, strength = drawn_around[i]
        if strength:
            amount = _uniform(len(chosen), neutral - strength, neutral + strength, rng)
            jittered = adjust(jittered, amount.to(x.device), limits)
    return x.index_copy(0, chosen, _restored(jittered, x.dtype))


def random_grayscale(x: Tensor, rng: torch.Generator, *, p: float = 0.2) -> Tensor:
    """Take the colour away with probability p; images without three channels have none."""
    if x.shape[1] != 3:
        return x
    chosen = _chosen(x, p, rng)
    grey = _restored(brightness_of(_floats(x.index_select(0, chosen))), x.dtype)
    return x.index_copy(0, chosen, grey.expand(-1, 3, -1, -1))


def limits_of(x: Tensor) -> Limits:
    """Return the numbers for black and white: 0 and 255 of bytes, 0 and 1 of floats in that range, else extremes."""
    if x.dtype == torch.uint8:
        return 0.0, 255.0
    low, high = (float(extreme) for extreme in x.aminmax())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def resized_crop(x: Tensor, boxes: Tensor) -> Tensor:
    """Return the part of each image in its box, enlarged to the size of the whole by linear interpolation.

    Args:
        boxes: (n, 4) left, top, width and height in pixels, which need not be whole.
    """
    n, _, height, width = x.shape
    left, top, box_width, box_height = boxes.T[:, :, None, None]
    columns = torch.arange(width, device=x.device) + 0.5  # the middles of pixels
    rows = torch.arange(height, device=x.device)[:, None] + 0.5
    grid = torch.empty(n, height, width, 2, device=x.device)  # where each pixel comes from; -1 and 1 are the edges
    grid[..., 0] = (left + columns * (box_width / width)) * (2 / width) - 1
    grid[..., 1] = (top + rows * (box_height / height)) * (2 / height) - 1
    pixels = _floats(x)
    cropped = F.grid_sample(pixels, grid.to(pixels.dtype), padding_mode="border", align_corners=False)
    return _restored(cropped, x.dtype)


def adjust_brightness(x: Tensor, factor: Tensor, limits: Limits) -> Tensor:
    """Away from black (factor > 1) or towards it; x are floats, factor is (n,)."""
    return _blended(x, torch.full((1, 1, 1, 1), limits[0], dtype=x.dtype, device=x.device), factor, limits)


def adjust_contrast(x: Tensor, factor: Tensor, limits: Limits) -> Tensor:
    """Away from the image's mean brightness (factor > 1) or towards it."""
    return _blended(x, brightness_of(x).mean(dim=(1, 2, 3), keepdim=True), factor, limits)


def adjust_saturation(x: Tensor, factor: Tensor, limits: Limits) -> Tensor:
    """Away from grey (factor > 1) or towards it."""
    return _blended(x, brightness_of(x), factor, limits) if x.shape[1] == 3 else x


def adjust_hue(x: Tensor, turns: Tensor, limits: Limits) -> Tensor:
    """Turn the hue of the HSV cylinder by (n,) turns; brightest and darkest channel keep their numbers."""
    if x.shape[1] != 3:
        return x
    red, green, blue = torch.split(x, 1, dim=1)
    high, low = x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True)
    chroma = high - low
    divisor = chroma.clamp(min=torch.finfo(x.dtype).tiny)
    # In sixths of a turn from red; choosing by `lerp` takes a fraction of the time of `where`.
    hue = (red - green).div_(divisor).add_(4)
    hue.lerp_((blue - red).div_(divisor).add_(2), (high == green).to(x.dtype))
    hue.lerp_((green - blue).div_(divisor), (high == red).to(x.dtype))
    hue.add_(6 * turns[:, None, None, None].to(x.dtype))
    hue.sub_(torch.floor(hue / 6).mul_(6))
    # The share of chroma in red is 1 within a sixth of 0 = 6, and 0 from two sixths on; green lies at 2, blue at 4.
    sign, centre, offset = x.new_tensor([[1, -1, -1], [3, 2, 4], [-1, 2, 2]])[:, :, None, None]
    share: Tensor = (hue - centre).abs_().mul_(sign).add_(offset).clamp_(0, 1)
    return share.mul_(chroma).add_(low).clamp_(*limits)


def brightness_of(x: Tensor) -> Tensor:
    """Return (n, 1, height, width), the brightness that each pixel of a float image seems to have."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    red, green, blue = torch.split(x, 1, dim=1)
    return GREY_WEIGHTS[0] * red + GREY_WEIGHTS[1] * green + GREY_WEIGHTS[2] * blue


def _blended(x: Tensor, other: Tensor, factor: Tensor, limits: Limits) -> Tensor:
    return torch.lerp(other, x, factor[:, None, None, None].to(x.dtype)).clamp_(*limits)


def _random_boxes(
    n: int, height: int, width: int, rng: torch.Generator, scale: tuple[float, float], ratio: tuple[float, float]
) -> Tensor:
    """Return (n, 4), left, top, width and height: the first of some boxes that lies within, or else the largest."""
    area = height * width * _uniform((n, CROP_TRIES), *scale, rng)
    shape = _uniform((n, CROP_TRIES), math.log(ratio[0]), math.log(ratio[1]), rng).exp()
    tried = torch.stack([(area * shape).sqrt(), (area / shape).sqrt()], dim=2)
    whole = torch.tensor([width, height])
    fits = (tried <= whole + 1e-3).all(dim=2)  # the square root of the whole area may round to more
    largest = torch.tensor([min(width, height * ratio[1]), min(height, width / ratio[0])])
    first = tried[torch.arange(n), fits.byte().argmax(dim=1)]
    size = torch.where(fits.any(dim=1, keepdim=True), first, largest)
    # The largest lies in the middle.
    where = torch.where(fits.any(dim=1, keepdim=True), torch.rand(n, 2, generator=rng), 0.5)
    return torch.cat([(whole - size) * where, size], dim=1)


def _chosen(x: Tensor, p: float, rng: torch.Generator) -> Tensor:
    """Return the numbers of the images to change, each image with probability p."""
    return (torch.rand(len(x), generator=rng) < p).nonzero().flatten().to(x.device)


def _uniform(shape: int | tuple[int, ...], low: float, high: float, rng: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=rng) * (high - low) + low


def _floats(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _restored(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Floats as they were before: bytes are rounded to the nearest."""
    return x.round().to(dtype) if dtype == torch.uint8 else x.to(dtype)


def _moved(x: Tensor, matrix: list[list[Tensor | float]]) -> Tensor:
    """Return images (n, …) seen through an affine map (2, 3) of places, each entry (n,); black where nothing was."""
    rows = [torch.stack([torch.as_tensor(entry).to(x).expand(len(x)) for entry in row], dim=1) for row in matrix]
    grid = F.affine_grid(torch.stack(rows, dim=1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=False)


def _rotated(x: Tensor, amount: Tensor) -> Tensor:
    cos, sin = torch.cos(amount * math.pi / 6), torch.sin(amount * math.pi / 6)
    return _moved(x, [[cos, -sin, 0.0], [sin, cos, 0.0]])


def _posterised(x: Tensor, amount: Tensor) -> Tensor:
    levels = 2.0 ** (8 - torch.round(4 * amount.abs()))[:, None, None, None]
    return torch.floor(x * 255 / (256 / levels)) * (256 / levels) / 255


def _solarised(x: Tensor, amount: Tensor) -> Tensor:
    return torch.where(x < 1 - amount.abs()[:, None, None, None], x, 1 - x)


def _sharpened(x: Tensor, amount: Tensor) -> Tensor:
    """Return images between their blurred selves and beyond; the outermost pixels stay."""
    weights = x.new_ones(1, 1, 3, 3)
    weights[0, 0, 1, 1] = 5.0
    blurred = x.clone()
    inner = F.conv2d(x.flatten(0, 1)[:, None], weights / 13)
    blurred[:, :, 1:-1, 1:-1] = inner.view(*x.shape[:2], *inner.shape[2:])
    return _blended(x, blurred, 1 + 0.9 * amount, (0.0, 1.0)) if min(x.shape[2:]) > 2 else x


def _stretched(x: Tensor, _: Tensor) -> Tensor:
    """Return images whose channels each reach from 0 to 1; a channel of one colour stays."""
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-12), x)


def _equalised(x: Tensor, _: Tensor) -> Tensor:
    """Return images whose channels have each level of brightness about equally often, as Pillow does it."""
    levels = (x * 255).round().long().flatten(2)
    ones = torch.ones_like(levels, dtype=torch.float)
    counts = ones.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, ones)
    below = counts.cumsum(dim=2) - counts
    brightest = counts.gather(2, levels.amax(dim=2, keepdim=True))
    step = torch.floor((levels.shape[2] - brightest) / 255)  # pixels for each level; none for a channel of one colour
    equal = torch.floor((torch.floor(step / 2) + below.gather(2, levels)) / step.clamp(min=1)).clamp(max=255) / 255
    return torch.where(step > 0, equal.to(x.dtype), x.flatten(2)).view_as(x)


_OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, _: x,
    lambda x, a: _moved(x, [[1.0, 0.3 * a, 0.0], [0.0, 1.0, 0.0]]),  # sheared
    lambda x, a: _moved(x, [[1.0, 0.0, 0.0], [0.3 * a, 1.0, 0.0]]),
    lambda x, a: _moved(x, [[1.0, 0.0, 0.9 * a], [0.0, 1.0, 0.0]]),  # moved by up to 0.45 of the width
    lambda x, a: _moved(x, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.9 * a]]),
    _rotated,  # by up to 30 degrees
    lambda x, a: adjust_brightness(x, 1 + 0.9 * a, (0.0, 1.0)),
    lambda x, a: adjust_contrast(x, 1 + 0.9 * a, (0.0, 1.0)),
    lambda x, a: adjust_saturation(x, 1 + 0.9 * a, (0.0, 1.0)),
    _sharpened,
    _posterised,
    _solarised,
    _stretched,
    _equalised,
)
