"""Each augmentation against a slow computation of one image at a time, by Pillow, NumPy or colorsys."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from holdfast.core import augment
from holdfast.core.augment import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    color_jitter,
    contrastive_views,
    crop_and_flip,
    limits_of,
    masked,
    rand_augment,
    random_flip,
    random_grayscale,
    random_resized_crop,
    random_shift,
    resized_crop,
)

RANDOM = [
    rand_augment,
    contrastive_views,
    crop_and_flip,
    masked,
    random_flip,
    random_shift,
    partial(random_shift, padding="reflect"),
    random_resized_crop,
    color_jitter,
    random_grayscale,
]
each_random = pytest.mark.parametrize(
    "augmentation", RANDOM, ids=lambda f: getattr(f, "__name__", "random_shift reflect")
)
DTYPES = [torch.uint8, torch.float16, torch.float32, torch.float64]
UNIT = (0.0, 1.0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(*shape: int, dtype: torch.dtype = torch.uint8, seed: int = 0) -> Tensor:
    x = torch.randint(256, shape, generator=seeded(seed), dtype=torch.uint8)
    return x if dtype == torch.uint8 else (x.double() / 255).to(dtype)


def photo(x: Tensor) -> Image.Image:
    return Image.fromarray(x.permute(1, 2, 0).numpy())


def pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


# One image (3, h, w) of floats in [0, 1] at a time, one pixel after the other.


def per_pixel(x: Tensor, change: Callable[[list[float]], tuple[float, ...]]) -> Tensor:
    changed = x.clone()
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            rgb = [min(1.0, max(0.0, value)) for value in change(x[:, i, j].tolist())]
            changed[:, i, j] = torch.tensor(rgb, dtype=x.dtype)
    return changed


def grey_of(rgb: list[float]) -> float:
    return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]


def slow_brightness(x: Tensor, factor: float) -> Tensor:
    return per_pixel(x, lambda rgb: tuple(factor * v for v in rgb))


def slow_contrast(x: Tensor, factor: float) -> Tensor:
    greys = [grey_of(rgb) for rgb in x.flatten(1).T.tolist()]
    mean = sum(greys) / len(greys)
    return per_pixel(x, lambda rgb: tuple(mean + factor * (v - mean) for v in rgb))


def slow_saturation(x: Tensor, factor: float) -> Tensor:
    return per_pixel(x, lambda rgb: tuple(grey_of(rgb) + factor * (v - grey_of(rgb)) for v in rgb))


def slow_hue(x: Tensor, turns: float) -> Tensor:
    def turned(rgb: list[float]) -> tuple[float, ...]:
        h, s, v = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb((h + turns) % 1, s, v)

    return per_pixel(x, turned)


@pytest.mark.parametrize(
    ("adjust", "slow", "amounts"),
    [
        (adjust_brightness, slow_brightness, [0.0, 0.6, 1.0, 1.4]),
        (adjust_contrast, slow_contrast, [0.0, 0.6, 1.0, 1.4]),
        (adjust_saturation, slow_saturation, [0.0, 0.6, 1.0, 1.4]),
        (adjust_hue, slow_hue, [-0.5, -0.1, 0.0, 0.37]),
    ],
)
def test_a_change_of_colour_is_that_of_each_pixel_alone(adjust, slow, amounts):
    x = images(4, 3, 4, 5, dtype=torch.float64)
    x[:, :, 0, 0] = 0.5  # grey has no hue
    x[:, :, 0, 1] = torch.tensor([1.0, 0.0, 0.0])  # and some colours tie for the brightest or darkest channel
    x[:, :, 0, 2] = torch.tensor([0.3, 0.8, 0.8])
    x[:, :, 0, 3] = torch.tensor([0.8, 0.3, 0.8])
    expected = torch.stack([slow(image, amount) for image, amount in zip(x, amounts, strict=True)])
    found = adjust(x, torch.tensor(amounts, dtype=torch.float64), UNIT)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("adjust", "enhancer"),
    [
        (adjust_brightness, ImageEnhance.Brightness),
        (adjust_contrast, ImageEnhance.Contrast),
        (adjust_saturation, ImageEnhance.Color),
    ],
)
def test_changes_of_bytes_are_pillows_but_for_rounding(adjust, enhancer):
    x, factors = images(5, 3, 16, 12), [0.6, 0.8, 1.0, 1.2, 1.4]
    ours = adjust(x.float(), torch.tensor(factors), limits_of(x))
    theirs = torch.stack([pixels(enhancer(photo(i)).enhance(f)) for i, f in zip(x, factors, strict=True)])
    # Pillow blends with a rounded grey, which is off by 0.4 at most, and rounds the result down.
    difference = ours - theirs
    assert difference.min() >= -0.4
    assert difference.max() < 1.4


def test_the_hue_turns_alike_in_every_range():
    x, turns = images(4, 3, 6, 6, dtype=torch.float64), torch.tensor([-0.3, -0.1, 0.1, 0.2], dtype=torch.float64)
    moved = adjust_hue(4 * x - 2.5, turns, (-2.5, 1.5))
    torch.testing.assert_close(moved, 4 * adjust_hue(x, turns, UNIT) - 2.5)


def test_brightness_and_clipping_go_by_the_limits():
    x = torch.tensor([-2.0, 0.0, 1.0]).expand(1, 1, 1, 3)
    assert adjust_brightness(x, torch.tensor([1.5]), (-2.0, 2.0)).flatten().tolist() == [-2.0, 1.0, 2.0]


def test_limits_are_those_of_bytes_or_unit_floats_or_else_the_extremes():
    assert limits_of(images(2, 3, 4, 4)) == (0, 255)
    assert limits_of(torch.tensor([0.2, 0.9])) == (0, 1)
    assert limits_of(torch.tensor([-1.5, 0.9])) == (-1.5, pytest.approx(0.9))


def test_jitter_makes_its_changes_one_after_the_other_in_an_order_that_varies(monkeypatch):
    strengths = {"brightness": 0.1, "contrast": 0.2, "saturation": 0.3, "hue": 0.05}
    slow_by_lowest = {0.9: slow_brightness, 0.8: slow_contrast, 0.7: slow_saturation, -0.05: slow_hue}
    made: list[tuple[Callable[[Tensor, float], Tensor], Tensor]] = []
    uniform = augment._uniform

    def recorded(shape, low, high, rng):
        made.append((slow_by_lowest[round(low, 6)], uniform(shape, low, high, rng)))
        return made[-1][1]

    monkeypatch.setattr(augment, "_uniform", recorded)
    rng, orders = seeded(), set()
    for i in range(8):
        made.clear()
        x = images(2, 3, 3, 4, dtype=torch.float64, seed=i)
        found = color_jitter(x, rng, **strengths, p=1.0)
        expected = x
        for slow, amounts in made:
            expected = torch.stack([slow(image, float(a)) for image, a in zip(expected, amounts, strict=True)])
        torch.testing.assert_close(found, expected)
        assert {slow for slow, _ in made} == set(slow_by_lowest.values())
        orders.add(tuple(slow for slow, _ in made))
    assert len(orders) > 3


def test_jitter_draws_a_factor_for_each_image_and_leaves_some_images_alone():
    x = torch.full((2000, 3, 2, 2), 0.5)
    found = color_jitter(x, seeded(), contrast=0, saturation=0, hue=0)
    factors = found[:, 0, 0, 0] / 0.5
    assert (found == found[:, :1, :1, :1]).all()
    changed = factors[factors != 1]
    assert len(changed.unique()) > 1500
    assert 0.6 <= changed.min() < 0.62
    assert 1.38 < changed.max() <= 1.4
    assert len(changed) / 2000 == pytest.approx(0.8, abs=0.03)


def test_jitter_draws_a_hue_for_each_image():
    x = torch.tensor([1.0, 0.0, 0.0])[None, :, None, None].expand(1000, 3, 1, 1)
    found = color_jitter(x, seeded(), brightness=0, contrast=0, saturation=0, p=1.0)
    turns = torch.tensor([math.remainder(colorsys.rgb_to_hsv(*rgb)[0], 1) for rgb in found.flatten(1).tolist()])
    assert -0.1 <= turns.min() < -0.09
    assert 0.09 < turns.max() <= 0.1


def test_grey_images_are_pillows_but_for_rounding():
    x = images(40, 3, 8, 9)
    found = random_grayscale(x, seeded(), p=1.0)
    theirs = torch.stack([torch.from_numpy(np.array(photo(image).convert("L"))) for image in x])
    assert (found == found[:, :1]).all()
    assert (found[:, 0].int() - theirs).abs().max() <= 1
    assert (found[:, 0] == theirs).double().mean() > 0.99


def test_some_images_turn_grey_and_the_others_stay():
    x = images(1000, 3, 2, 2)
    found = random_grayscale(x, seeded())
    is_grey = (found == found[:, :1]).flatten(1).all(dim=1)
    assert is_grey.double().mean() == pytest.approx(0.2, abs=0.04)
    assert torch.equal(found[~is_grey], x[~is_grey])


@pytest.mark.parametrize("shape", [(16, 16), (12, 20), (20, 12)])
def test_a_resized_crop_is_pillows_resize_of_the_box(shape):
    height, width = shape
    x = images(6, 3, height, width, dtype=torch.float32)
    generator = seeded(1)
    size = (0.2 + 0.8 * torch.rand(6, 2, generator=generator)) * torch.tensor([width, height])
    corner = torch.rand(6, 2, generator=generator) * (torch.tensor([width, height]) - size)
    boxes = torch.cat([corner, size], dim=1)
    boxes[0] = torch.tensor([0, 0, width, height])
    found = resized_crop(x, boxes)
    for image, (left, top, w, h), ours in zip(x, boxes.tolist(), found, strict=True):
        for channel, our_channel in zip(image, ours, strict=True):
            box = (left, top, min(left + w, width), min(top + h, height))
            theirs = Image.fromarray(channel.numpy()).resize((width, height), Image.Resampling.BILINEAR, box=box)
            torch.testing.assert_close(our_channel, torch.from_numpy(np.array(theirs)), rtol=0, atol=1e-5)


def boxes_of(height: int, width: int, n: int = 3000, **options) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Left, top, right and bottom of random crops, read off images whose numbers are their coordinates."""
    ramp = torch.zeros(n, 2, height, width, dtype=torch.float64)
    ramp[:, 0] = torch.arange(width) + 0.5
    ramp[:, 1] = torch.arange(height)[:, None] + 0.5
    crop = random_resized_crop(ramp, seeded(), **options)
    # Away from the edges, where pixels are repeated, the crop of a ramp is a ramp.
    column, row = crop[:, 0, height // 2], crop[:, 1, :, width // 2]
    j, i = width // 2, height // 2
    step_x, step_y = column[:, j] - column[:, j - 1], row[:, i] - row[:, i - 1]
    left, top = column[:, j] - (j + 0.5) * step_x, row[:, i] - (i + 0.5) * step_y
    return left, top, left + width * step_x, top + height * step_y


@pytest.mark.parametrize(("height", "width", "largest"), [(32, 32, 1.0), (24, 36, 24 * 32 / (24 * 36))])
def test_crops_lie_within_the_image_and_have_the_area_and_shape_asked_for(height, width, largest):
    left, top, right, bottom = boxes_of(height, width)
    slack = 1e-3
    assert min(left.min(), top.min()) > -slack
    assert right.max() < width + slack
    assert bottom.max() < height + slack
    share, ratio = (right - left) * (bottom - top) / (height * width), (right - left) / (bottom - top)
    assert 0.2 - slack < share.min() < 0.21
    assert 0.95 * largest < share.max() < largest + slack
    assert 3 / 4 - slack < ratio.min() < 0.76
    assert 1.31 < ratio.max() < 4 / 3 + slack
    middle = (left + right) / 2
    assert middle.unique().numel() > 2900  # each image has its own
    assert middle.mean() == pytest.approx(width / 2, abs=0.3)


def test_where_no_box_fits_the_crop_is_the_largest_in_the_middle():
    left, top, right, bottom = boxes_of(8, 32, n=4, scale=(0.9, 0.9), ratio=(1.0, 2.0))
    for edge, expected in ((left, 8.0), (right, 24.0), (top, 0.0), (bottom, 8.0)):
        torch.testing.assert_close(edge, torch.full((4,), expected, dtype=torch.float64), rtol=0, atol=1e-4)


def test_each_image_is_itself_or_its_mirror_image_to_the_bit():
    for dtype in DTYPES:
        x = images(200, 3, 5, 6, dtype=dtype)
        found = random_flip(x, seeded())
        is_flipped = torch.tensor([torch.equal(a, b.flip(2)) for a, b in zip(found, x, strict=True)])
        assert all(torch.equal(a, b) for a, b in zip(found[~is_flipped], x[~is_flipped], strict=True))
        assert is_flipped.double().mean() == pytest.approx(0.5, abs=0.1)
        assert torch.equal(random_flip(x, seeded(), p=1.0), x.flip(-1))


@pytest.mark.parametrize("padding", ["constant", "reflect"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_shift_is_a_crop_of_the_padded_image(padding, dtype):
    x = images(300, 3, 6, 7, dtype=dtype)
    found = random_shift(x, seeded(), pad=2, padding=padding)
    offsets = set()
    for image, ours in zip(x.numpy(), found.numpy(), strict=True):
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode=padding)
        crops = {(i, j): padded[:, i : i + 6, j : j + 7] for i in range(5) for j in range(5)}
        (offset,) = (where for where, crop in crops.items() if np.array_equal(crop, ours))
        offsets.add(offset)
    assert len(offsets) == 25


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 8, 8), (3, 12, 7), (4, 7, 9)])
@pytest.mark.parametrize("n", [1, 6])
@each_random
def test_shape_dtype_and_range_stay(augmentation, n, shape, dtype):
    x = images(n, *shape, dtype=dtype)
    before = x.clone()
    found = augmentation(x, seeded())
    assert (found.shape, found.dtype) == (x.shape, dtype)
    assert torch.equal(x, before)
    assert found.double().min() >= 0
    assert found.double().max() <= (255 if dtype == torch.uint8 else 1 + 1e-6)


@each_random
def test_floats_of_any_range_stay_in_it(augmentation):
    x = 3 * torch.randn(50, 3, 8, 8, generator=seeded(1)) - 1
    found = augmentation(x, seeded())
    assert found.min() >= x.min() - 1e-5
    assert found.max() <= x.max() + 1e-5


def test_an_image_in_other_units_has_the_same_view():
    x = images(64, 3, 9, 8)
    of_bytes, of_floats = contrastive_views(x, seeded()), contrastive_views(x.double() / 255, seeded())
    torch.testing.assert_close(of_bytes.double(), 255 * of_floats, rtol=0, atol=0.5 + 1e-3)


@each_random
def test_the_generator_decides_and_goes_on(augmentation):
    x, state = images(20, 3, 8, 8), torch.get_rng_state()
    rng, same = seeded(5), seeded(5)
    first, second = augmentation(x, rng), augmentation(x, rng)
    assert not torch.equal(first, second)
    assert torch.equal(augmentation(x, same), first)
    resumed = torch.Generator()
    resumed.set_state(same.get_state())
    assert torch.equal(augmentation(x, resumed), second)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    "nothing",
    [
        partial(random_flip, p=0.0),
        partial(random_shift, pad=0),
        partial(random_shift, pad=0, padding="reflect"),
        partial(color_jitter, p=0.0),
        partial(color_jitter, brightness=0, contrast=0, saturation=0, hue=0),
        partial(random_grayscale, p=0.0),
        partial(masked, share=0.0),
    ],
)
def test_without_strength_nothing_changes(nothing, dtype):
    x = images(20, 3, 8, 9, dtype=dtype)
    assert torch.equal(nothing(x, seeded()), x)


@pytest.mark.parametrize(("shape", "ratio"), [((8, 8), 1.0), ((9, 6), 6 / 9), ((32, 32), 1.0)])
def test_a_crop_of_everything_changes_nothing(shape, ratio):
    x = images(20, 3, *shape)
    crop = partial(random_resized_crop, rng=seeded(), scale=(1.0, 1.0), ratio=(ratio, ratio))
    assert torch.equal(crop(x), x)
    torch.testing.assert_close(crop(x.double()), x.double(), rtol=0, atol=1e-3)


def test_what_is_no_image_is_masked_in_a_tenth_of_its_entries():
    x = torch.rand(400, 50, generator=seeded(1)) + 1
    for view in (contrastive_views(x, seeded()), crop_and_flip(x, seeded())):
        is_masked = view == 0
        assert torch.equal(view[~is_masked], x[~is_masked])
        assert is_masked.double().mean() == pytest.approx(0.1, abs=0.01)
        assert len(is_masked.unique(dim=0)) > 300  # each sample has its own


def smooth_photo(height: int = 40, width: int = 36) -> np.ndarray:
    """A smooth picture with some noise, so that all levels come up."""
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(height)[:, None, None] / 9 + np.arange(width)[:, None] / 7 + np.arange(3))
    return (110 + 80 * wave + rng.integers(-30, 30, (height, width, 3))).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("operation", "by_pillow", "levels"),
    [
        ("_posterised", lambda image: ImageOps.posterize(image, 6), 0),
        ("_solarised", lambda image: ImageOps.solarize(image, 128), 0),
        ("_equalised", ImageOps.equalize, 0),
        ("_stretched", ImageOps.autocontrast, 1),
        ("_sharpened", lambda image: ImageEnhance.Sharpness(image).enhance(1.45), 1),
        ("_rotated", lambda image: image.rotate(15, Image.Resampling.BILINEAR), 2),
    ],
)
def test_an_operation_of_rand_augment_is_pillows(
    operation: str, by_pillow: Callable[[Image.Image], Image.Image], levels: int
) -> None:
    pixels = smooth_photo(40, 40)
    expected = np.asarray(by_pillow(Image.fromarray(pixels))).astype(float)
    x = torch.from_numpy(pixels).permute(2, 0, 1)[None].double() / 255
    found = 255 * getattr(augment, operation)(x, torch.tensor([0.5])).clamp(0, 1)[0].permute(1, 2, 0).numpy()
    assert np.abs(found - expected)[9:-9, 9:-9].max() <= levels + 0.51


def test_rand_augment_changes_most_images_each_by_an_operation_of_its_own() -> None:
    x = torch.from_numpy(smooth_photo()).permute(2, 0, 1).expand(200, -1, -1, -1).contiguous()
    views = rand_augment(x, torch.Generator().manual_seed(0))
    kinds = {tuple(view.flatten().tolist()) for view in views}
    assert 20 <= len(kinds) <= 28  # fourteen operations, in two directions where they have any
    assert 0 < (views == x).flatten(1).all(dim=1).sum() < 40


def test_rand_augment_without_strength_moves_nothing() -> None:
    moves = augment._OPERATIONS[:9]
    x = torch.rand(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    for operation in moves:
        torch.testing.assert_close(operation(x, torch.zeros(2)), x)
