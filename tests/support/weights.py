"""Published weights, which come with an extra."""

from __future__ import annotations

import importlib.util

import pytest

from holdfast.backbones.efficientnet_lite0 import EfficientnetLite0
from holdfast.backbones.efficientnet_lite1 import EfficientnetLite1
from holdfast.backbones.efficientnet_lite2 import EfficientnetLite2

SIZES = [EfficientnetLite0, EfficientnetLite1, EfficientnetLite2]
installed = all(importlib.util.find_spec(size.weights.package) for size in SIZES)
needs_weights = pytest.mark.skipif(not installed, reason="without the extra 'pretrained'")
