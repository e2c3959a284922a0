from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet

import dnlnet
from dnlnet.backbones import VIDEO_BACKBONES, Backbone, SlowOnly, inflate, load_weights

LAYERS = (1, 1, 1, 1)


def tiny(**options) -> SlowOnly:
    return SlowOnly("slow_only_tiny", layers=LAYERS, **options)


def shaken(model: nn.Module) -> nn.Module:
    """Give the norms values other than zero and one, which would hide mistakes."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def image_resnet(stride_in_1x1: bool) -> ResNet:
    """Return torchvision's network with one bottleneck per stage and the strides moved by hand."""
    model = ResNet(Bottleneck, list(LAYERS), num_classes=2)
    for layer in (model.layer2, model.layer3, model.layer4) if stride_in_1x1 else ():
        layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
    return shaken(model).double().eval()


def image_maps(model: ResNet, images: Tensor) -> list[Tensor]:
    x = model.maxpool(model.relu(model.bn1(model.conv1(images))))
    maps = []
    for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
        x = layer(x)
        maps.append(x)
    return maps


@pytest.mark.parametrize("name", VIDEO_BACKBONES)
def test_maps_have_the_declared_channels_and_strides_and_all_frames(name: str) -> None:
    with torch.device("meta"):
        backbone = SlowOnly(name)
        maps = backbone(torch.empty(2, 3, 5, 64, 96))
    assert [tuple(x.shape) for x in maps] == [
        (2, channels, 5, 64 // step, 96 // step)
        for channels, step in zip(backbone.channels, backbone.strides, strict=True)
    ]


@pytest.mark.parametrize("name", VIDEO_BACKBONES)
def test_a_block_can_be_inserted_at_every_place(name: str) -> None:
    with torch.device("meta"):
        backbone = SlowOnly(name)
        before = set(backbone.state_dict())
        blocks = dnlnet.insert(backbone, dict.fromkeys(backbone.places, "gc"))
    assert len(blocks) == sum(VIDEO_BACKBONES[name].layers)
    assert {block.dims for block in blocks.values()} == {3}
    assert before < set(backbone.state_dict())


@pytest.mark.parametrize(("ours", "theirs"), [("slow_only_r50", "resnet50"), ("slow_only_r101", "resnet101")])
def test_names_and_shapes_equal_the_image_network_except_for_time(ours: str, theirs: str) -> None:
    with torch.device("meta"):
        video = SlowOnly(ours).state_dict()
        image = torchvision.models.get_model(theirs).state_dict()
    assert set(video) == set(image) - {"fc.weight", "fc.bias"}
    for name, tensor in video.items():
        assert (tensor[:, :, 0] if tensor.dim() == 5 else tensor).shape == image[name].shape, name


def test_only_the_first_convolutions_of_the_last_two_stages_span_three_frames() -> None:
    with torch.device("meta"):
        backbone = SlowOnly("slow_only_r50")
    convolutions = {name: module for name, module in backbone.named_modules() if isinstance(module, nn.Conv3d)}
    in_time = {name for name, convolution in convolutions.items() if convolution.kernel_size[0] > 1}
    assert in_time == {f"layer3.{i}.conv1" for i in range(6)} | {f"layer4.{i}.conv1" for i in range(3)}
    assert {convolutions[name].kernel_size for name in in_time} == {(3, 1, 1)}
    assert {convolution.stride[0] for convolution in convolutions.values()} == {1}
    assert backbone.maxpool.kernel_size == (1, 3, 3)


def test_each_late_bottleneck_adds_one_neighbouring_frame() -> None:
    torch.manual_seed(0)
    backbone = shaken(tiny()).double().eval()
    clip = torch.rand(1, 3, 9, 32, 32, dtype=torch.float64)
    other = clip.clone()
    other[:, :, 4] += 1
    with torch.no_grad():
        pairs = zip(backbone(clip), backbone(other), strict=True)
        changed = [[t for t in range(9) if not torch.equal(a[:, :, t], b[:, :, t])] for a, b in pairs]
    assert changed == [[4], [4], [3, 4, 5], [2, 3, 4, 5, 6]]


@pytest.mark.parametrize("stride_in_1x1", [False, True])
def test_a_still_clip_has_the_features_of_its_image(stride_in_1x1: bool) -> None:
    torch.manual_seed(0)
    image_net = image_resnet(stride_in_1x1)
    video_net = tiny(width=64, stride_in_1x1=stride_in_1x1).double().eval()
    result = video_net.load_state_dict(inflate(image_net.state_dict(), video_net), strict=False)
    assert result.missing_keys == []
    assert result.unexpected_keys == ["fc.weight", "fc.bias"]
    images = torch.rand(2, 3, 32, 48, dtype=torch.float64)
    with torch.no_grad():
        expected = image_maps(image_net, images)
        found = video_net(images[:, :, None].expand(-1, -1, 7, -1, -1))
    for x, y, border in zip(expected, found, (0, 0, 1, 2), strict=True):
        inner = y[:, :, border : 7 - border]
        torch.testing.assert_close(inner, x[:, :, None].expand_as(inner), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(found[-1][:, :, 0], expected[-1])  # the clip ends before the first frame


def test_thirds_of_half_precision_weights_sum_to_the_weights() -> None:
    torch.manual_seed(0)
    weight = torch.randn(8, 4, 1, 1).half()
    video = inflate({"weight": weight}, nn.Conv3d(4, 8, (3, 1, 1)))["weight"]
    torch.testing.assert_close(video.sum(2), weight.float(), rtol=1e-6, atol=0)


def test_files_of_the_image_network_and_of_the_video_network_both_load(tmp_path: Path) -> None:
    torch.manual_seed(0)
    image_net, video_net, other = image_resnet(False), tiny(width=64), tiny(width=64)
    torch.save({"state_dict": {f"module.{k}": v for k, v in image_net.state_dict().items()}}, tmp_path / "image.pth")
    report = load_weights(video_net, tmp_path / "image.pth")
    assert report.missing == report.unused == report.misshapen == ()
    assert report.classifier == ("fc.weight", "fc.bias")
    assert report.loaded == len(video_net.state_dict())
    torch.testing.assert_close(
        video_net.get_parameter("layer4.0.conv1.weight").sum(2), image_net.layer4[0].conv1.weight.float()
    )
    torch.save(video_net.state_dict(), tmp_path / "video.pth")
    load_weights(other, tmp_path / "video.pth")
    for name, tensor in video_net.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "resnet18.pth")
    with pytest.raises(ValueError, match=r"resnet18.pth: .*slow_only_tiny"):
        load_weights(tiny(width=64), tmp_path / "resnet18.pth")


def test_bottlenecks_start_as_the_identity_by_default() -> None:
    for zero_init in (True, False):
        norms = [block.bn3.weight for block in map(tiny(zero_init=zero_init).get_submodule, ("layer1.0", "layer4.0"))]
        assert all(bool((weight == (not zero_init)).all()) for weight in norms)
    assert not tiny().get_parameter("layer1.0.bn3.weight").any()


def test_channels_last_memory_gives_the_same_maps() -> None:
    torch.manual_seed(0)
    backbone = shaken(tiny()).eval()
    clip = torch.rand(2, 3, 4, 32, 32)
    with torch.no_grad():
        expected = backbone(clip)
        found = backbone.to(memory_format=torch.channels_last_3d)(
            clip.contiguous(memory_format=torch.channels_last_3d)
        )
    for x, y in zip(expected, found, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown video backbone 'slow_only_r5'; did you mean 'slow_only_r50'"):
        SlowOnly("slow_only_r5")
    with pytest.raises(ValueError, match=r"four stages of at least one layer and one channel, got \(1, 1, 1\) of 8"):
        SlowOnly("slow_only_tiny", layers=(1, 1, 1))
    with pytest.raises(ValueError, match=r"got \(1, 2, 2, 1\) of 0"):
        SlowOnly("slow_only_tiny", width=0)


def test_the_real_weights_give_a_still_clip_the_features_of_its_image(real_data: Path) -> None:
    file = real_data / "weights" / "resnet50_imagenet_caffestride_fp16.pth"
    video_net = SlowOnly("slow_only_r50", stride_in_1x1=True)
    report = load_weights(video_net, file)
    assert report.missing == report.unused == report.misshapen == ()
    image_net = Backbone("resnet50", 32, stride_in_1x1=True)
    load_weights(image_net, file)
    pixels = np.asarray(Image.open(real_data / "photos" / "chelsea.png").convert("RGB").resize((64, 64)))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    image = ((torch.from_numpy(pixels.copy()) / 255 - mean) / std).permute(2, 0, 1)[None].double()
    frames, border = 19, 9  # one frame of border for each bottleneck of the last two stages
    with torch.no_grad():
        expected = image_net.double().eval()(image)[-1]
        found = video_net.double().eval()(image[:, :, None].expand(-1, -1, frames, -1, -1))[-1]
    assert expected.std() > 0.1
    torch.testing.assert_close(found[:, :, border], expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found[:, :, 0], expected, rtol=1e-2)
