import pytest
import timm
import torch
from torch import Tensor, nn

from dnlnet.backbones.mobilenet import MobileNetV2


@pytest.mark.parametrize("output_stride", [8, 16, 32])
def test_names_initial_weights_features_and_gradients_equal_timms(output_stride: int) -> None:
    torch.manual_seed(0)
    own = MobileNetV2(output_stride)
    after = torch.rand(4)
    torch.manual_seed(0)
    theirs = timm.create_model(
        "mobilenetv2_100", features_only=True, out_indices=(1, 2, 3, 4), output_stride=output_stride
    )
    assert torch.equal(after, torch.rand(4))  # the layers built next start with the same weights
    assert own.channels == tuple(theirs.feature_info.channels())
    assert own.strides == tuple(theirs.feature_info.reduction())
    assert_same_state(own, theirs)
    for training in (True, False):
        images = torch.rand(2, 3, 65, 97)
        maps = own.train(training)(images)
        expected = theirs.train(training)(images)
        assert all(torch.equal(x, y) for x, y in zip(maps, expected, strict=True))
        total(maps).backward()
        total(expected).backward()
    assert_same_state(own, theirs)  # running statistics
    for (name, parameter), other in zip(own.named_parameters(), theirs.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, other.grad), name


def total(maps: list[Tensor]) -> Tensor:
    return torch.stack([x.square().sum() for x in maps]).sum()


def assert_same_state(own: nn.Module, theirs: nn.Module) -> None:
    state, expected = own.state_dict(), theirs.state_dict()
    assert list(state) == list(expected)
    for name, tensor in state.items():
        assert torch.equal(tensor, expected[name]), name
