import pytest
import timm
import torch
import torchvision

import dnlnet
from dnlnet.backbones import BACKBONES, Backbone
from dnlnet.backbones.pixels import CAFFE, normalised

SIZE = (64, 96)


@pytest.mark.parametrize("name", BACKBONES)
def test_maps_have_the_declared_channels_and_strides(name: str) -> None:
    for stride in BACKBONES[name].output_strides:
        with torch.device("meta"):
            backbone = Backbone(name, stride)
            maps = backbone(torch.empty(2, 3, *SIZE))
        assert backbone.strides[-1] == stride
        assert [tuple(x.shape) for x in maps] == [
            (2, channels, -(-SIZE[0] // step), -(-SIZE[1] // step))
            for channels, step in zip(backbone.channels, backbone.strides, strict=True)
        ]


@pytest.mark.parametrize("name", [name for name in BACKBONES if name != "vit_s"])  # its layers return tokens
def test_a_block_can_be_inserted_at_every_place(name: str) -> None:
    with torch.device("meta"):
        backbone = Backbone(name)
    assert len(backbone.places) >= 8
    before = set(backbone.state_dict())
    chosen = {backbone.places[0]: "dnl", backbone.places[-1]: "gc"}
    dnlnet.insert(backbone, chosen)
    assert before < set(backbone.state_dict())


def test_the_papers_backbone_has_its_parameters() -> None:
    with torch.device("meta"):
        backbone = Backbone("resnet101s", 8)
    assert sum(p.numel() for p in backbone.parameters()) == 42_623_936
    assert backbone.channels == (256, 512, 1024, 2048)


def test_hrnet_gives_the_branches_before_the_classifier() -> None:
    with torch.device("meta"):
        assert Backbone("hrnet_w48").channels == (48, 96, 192, 384)
        assert Backbone("hrnet_w18").channels == (18, 36, 72, 144)


def test_stride_in_the_first_convolution_equals_torchvisions_network_changed_by_hand() -> None:
    torch.manual_seed(0)
    backbone = Backbone("resnet50", 32, stride_in_1x1=True).eval()
    for module in backbone.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.ones_(module.weight)  # timm starts every residual branch at zero
    reference = torchvision.models.resnet50().eval()
    reference.load_state_dict(backbone.body.state_dict(), strict=False)
    for layer in (reference.layer2, reference.layer3, reference.layer4):
        layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
    x = torch.rand(1, 3, *SIZE)
    stem = reference.maxpool(reference.relu(reference.bn1(reference.conv1(x))))
    expected = reference.layer4(reference.layer3(reference.layer2(reference.layer1(stem))))
    with torch.no_grad():
        torch.testing.assert_close(backbone(x)[-1], expected)
        backbone_3x3 = Backbone("resnet50", 32).eval()
        backbone_3x3.load_state_dict(backbone.state_dict())
        assert not torch.allclose(backbone_3x3(x)[-1], expected)


def test_dilations_apply_to_the_convolutions_and_keep_the_size_of_the_maps() -> None:
    with torch.device("meta"):
        usual, given = Backbone("resnet50", 8), Backbone("resnet50", 8, dilations=[[1], [1], [1, 2], [2, 4]])
        grid = Backbone("resnet50", 8, dilations=((1,), (1,), (2,), (4, 8, 16)))
        sizes = [[x.shape for x in backbone(torch.rand(1, 3, 64, 96))] for backbone in (usual, grid)]

    def rates(backbone: Backbone) -> list[list[int]]:
        layers = (getattr(backbone.body, f"layer{stage}") for stage in range(1, 5))
        return [[block.conv2.dilation[0] for block in layer] for layer in layers]

    assert sizes[0] == sizes[1]
    assert rates(given) == rates(usual) == [[1] * 3, [1] * 4, [1, 2, 2, 2, 2, 2], [2, 4, 4]]
    assert rates(grid) == [[1] * 3, [1] * 4, [2] * 6, [4, 8, 16]]


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown backbone 'resnet51'; did you mean 'resnet50'"):
        Backbone("resnet51")
    with pytest.raises(ValueError, match="resnet50 has no output stride 4; choose one of: 8, 16, 32"):
        Backbone("resnet50", 4)
    with pytest.raises(ValueError, match="hrnet_w18 has no output stride 8"):
        Backbone("hrnet_w18", 8)
    with pytest.raises(ValueError, match="resnet18 has no bottleneck blocks"):
        Backbone("resnet18", stride_in_1x1=True)
    with pytest.raises(ValueError, match="resnet18 has no bottleneck blocks, so dilations"):
        Backbone("resnet18", dilations=((1,), (1,), (1,), (1,)))
    for dilations in (((1,),) * 3, ((1,), (1,), (1,), ()), ((1,), (1,), (1,), (0,))):
        with pytest.raises(ValueError, match="expected four stages of at least one dilation"):
            Backbone("resnet50", dilations=dilations)
    with pytest.raises(ValueError, match="mobilenetv2 has no max-pool in its stem"):
        Backbone("mobilenetv2", ceil_pool=True)


def test_a_max_pool_that_rounds_up_adds_positions_only_where_the_stem_is_even() -> None:
    with torch.device("meta"):
        plain, up = Backbone("resnet18", 8), Backbone("resnet18", 8, ceil_pool=True)
        assert [x.shape[2:] for x in plain(torch.rand(1, 3, 65, 97))] == [
            x.shape[2:] for x in up(torch.rand(1, 3, 65, 97))
        ]
        assert [tuple(x.shape[2:]) for x in up(torch.rand(1, 3, 64, 96))] == [(17, 25), (9, 13), (9, 13), (9, 13)]


def test_caffe_pixels_are_bgr_minus_the_caffe_mean() -> None:
    plain, caffe = Backbone("resnet18").eval(), Backbone("resnet18", pixels=CAFFE).eval()
    caffe.load_state_dict(plain.state_dict())
    pixels = torch.randint(0, 256, (1, 3, 40, 48)).float()
    blue_first = pixels.flip(1) - torch.tensor([102.9801, 115.9465, 122.7717]).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(caffe(normalised(pixels))[-1], plain(blue_first)[-1], rtol=1e-3, atol=1e-3)


def test_the_papers_detectors_start_from_torchvisions_first_weights() -> None:
    """The authors' configurations start from `torchvision://resnet50`."""
    assert timm.get_pretrained_cfg(BACKBONES["resnet50"].timm).tag == "tv_in1k"


def test_missing_pretrained_weights_give_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise RuntimeError("no connection")

    monkeypatch.setattr("timm.create_model", unreachable)
    with pytest.raises(OSError, match=r"could not be fetched .* --weights FILE.* mobilenetv2 .*none .*random"):
        Backbone("resnet50", pretrained=True)
