import pytest
import torch
from torch import nn

from dnlnet.backbones import Backbone, SlowOnly
from dnlnet.backbones.fold import fold_batch_norms
from dnlnet.segmentation.network import Segmentor
from dnlnet.video.network import VideoClassifier
from dnlnet.video.schema import VideoClassifierModel


def with_statistics(network: nn.Module) -> nn.Module:
    """Give the batch norms non-trivial statistics, as after training."""
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            for tensor in (module.weight, module.bias, module.running_mean):
                nn.init.normal_(tensor, 0.5, 0.2, generator=generator)
            nn.init.uniform_(module.running_var, 0.5, 2, generator=generator)
    return network.eval()


@pytest.mark.parametrize("backbone", ["resnet18", "mobilenetv2", "hrnet_w18"])
def test_a_folded_network_is_the_same_function_without_batch_norms(backbone: str) -> None:
    torch.manual_seed(0)
    network = Segmentor(Backbone(backbone), 4, "dnl", width=16, auxiliary=False)
    network = with_statistics(network).double()
    folded = fold_batch_norms(network, torch.rand(1, 3, 64, 64, dtype=torch.float64))
    assert not [module for module in folded.modules() if isinstance(module, nn.BatchNorm2d)]
    images = torch.rand(2, 3, 96, 64, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(folded(images).logits, network(images).logits, rtol=1e-8, atol=1e-8)
    assert [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def test_a_folded_video_network_is_the_same_function_without_batch_norms() -> None:
    torch.manual_seed(0)
    network = with_statistics(
        VideoClassifier(
            SlowOnly("slow_only_tiny"), 4, VideoClassifierModel(variant="dnl", preset="paper", block={"pool": 2})
        )
    ).double()
    folded = fold_batch_norms(network, torch.rand(1, 3, 2, 64, 64, dtype=torch.float64))
    assert not [module for module in folded.modules() if isinstance(module, nn.BatchNorm3d)]
    clips = torch.rand(2, 3, 4, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(folded(clips), network(clips), rtol=1e-8, atol=1e-8)


def test_a_batch_norm_without_a_preceding_convolution_stays() -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1), nn.ReLU(), nn.BatchNorm2d(4)).eval()
    folded = fold_batch_norms(network, torch.rand(1, 3, 4, 4))
    assert [type(module) for module in folded] == [type(module) for module in network]


def test_folding_that_would_change_the_result_is_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.convolution(x)
            return self.norm(y) + y

    network = with_statistics(Twice())
    with pytest.raises(ValueError, match="folding changes the result"):
        fold_batch_norms(network, torch.rand(1, 3, 4, 4))
    with pytest.raises(ValueError, match="in evaluation mode only"):
        fold_batch_norms(network.train(), torch.rand(1, 3, 4, 4))


def test_folding_takes_one_pass_to_find_the_pairs_and_one_to_check_them() -> None:
    passes: list[nn.Module] = []
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    network.register_forward_hook(lambda module, *_: passes.append(module))  # copied with the network
    folded = fold_batch_norms(network, torch.rand(1, 3, 4, 4))
    assert passes == [network, folded]
