import copy
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from torch import nn

from dnlnet import NonLocalBlock, insert


def resnet() -> nn.Module:
    return timm.create_model("resnet18", num_classes=5).eval()


@pytest.mark.parametrize(
    ("build", "place", "channels"),
    [
        (resnet, "layer3.1", 256),
        (resnet, "layer2", 128),
        (lambda: timm.create_model("mobilenetv2_035"), "blocks.3", 24),
        (lambda: timm.create_model("convnext_atto"), "stages.2", 160),
        (lambda: torchvision.models.resnet50(), "layer3.4", 1024),
        (lambda: torchvision.models.video.r3d_18(), "layer3", 256),
    ],
)
def test_channels_are_found(build, place: str, channels: int) -> None:
    model = build()
    blocks = insert(model, {place: "dnl"})
    assert blocks[place].channels == channels
    assert blocks[place] in list(model.modules())


def test_existing_parameters_keep_their_names_and_weights_load() -> None:
    plain, model = resnet(), resnet()
    insert(model, {"layer3.1": "dnl", "layer4": "nl"}, gate="scalar")
    result = model.load_state_dict(plain.state_dict(), strict=False)
    assert not result.unexpected_keys
    assert {key.split("non_local")[0] for key in result.missing_keys} == {"layer3.1.", "layer4.1."}
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(model(x), plain(x))


def test_the_block_acts_on_the_output_of_the_submodule() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    plain = copy.deepcopy(net)
    block = insert(net, {"1": "dnl"})["1"]
    x = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(net(x), plain[2](block(plain[1](plain[0](x)))))


def test_a_block_runs_once_after_a_sequential() -> None:
    net = nn.Sequential(nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU()), nn.Conv1d(8, 4, 1))
    plain = copy.deepcopy(net)
    block = insert(net, {"0": "gc"})["0"]
    x = torch.randn(2, 3, 9)
    assert block.dims == 1
    torch.testing.assert_close(net(x), plain[1](block(plain[0](x))))


def test_an_inserted_model_can_be_copied_saved_and_trained() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    insert(net, {"1": "dnl"})
    twin = copy.deepcopy(net)
    twin.load_state_dict(net.state_dict())
    x = torch.randn(1, 3, 8, 8)
    torch.testing.assert_close(twin(x), net(x))
    twin(x).sum().backward()
    assert all(p.grad is not None for p in twin.parameters())
    assert net[1].non_local.value.weight.grad is None


def test_an_inserted_model_compiles() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    insert(net, {"1": "dnl"})
    x = torch.randn(1, 3, 8, 8)
    torch.testing.assert_close(torch.compile(net, backend="aot_eager", fullgraph=True)(x), net(x))


def test_the_block_takes_the_models_dtype_and_mode() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).double().eval()
    block = insert(net, {"1": "dnl"}, preset="mmseg")["1"]
    assert block.value.weight.dtype == torch.float64
    assert not block.training


def test_finding_channels_computes_and_changes_nothing() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    net[1].eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    insert(net, {"2": "dnl"})
    assert net.training
    assert not net[1].training
    for key, value in before.items():
        torch.testing.assert_close(net.state_dict()[key], value)


class SharedLayers(nn.Module):
    """Modules with two names, and a parameter shared by two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.block = nn.Sequential(self.c1, self.bn)
        self.left = nn.Conv2d(8, 8, 1)
        self.right = self.left
        self.tied = nn.Conv2d(8, 8, 1)
        self.tied.twin = self.tied.bias
        self.tied.weight = self.left.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tied(self.right(self.left(self.block(x)))) + self.tied.twin[:, None, None]


@pytest.mark.filterwarnings("ignore:'left' runs 2 times")
@pytest.mark.parametrize("place", ["left", "block", "tied"])
def test_weights_with_several_names_stay_as_they_were(place: str) -> None:
    torch.manual_seed(0)
    net = SharedLayers().eval()
    state = net.state_dict()
    addresses = {name: tensor.data_ptr() for name, tensor in state.items()}
    before = {name: tensor.clone() for name, tensor in state.items()}
    insert(net, {place: "dnl"}, gate="scalar")
    after = {name: tensor for name, tensor in net.state_dict().items() if "non_local" not in name}
    assert {name: tensor.data_ptr() for name, tensor in after.items()} == addresses
    for name, tensor in after.items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    assert net.right is net.left
    assert net.tied.weight is net.left.weight
    assert net(torch.randn(1, 3, 8, 8)).isfinite().all()


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"layer3.9": "dnl"}, r"unknown submodule 'layer3.9'; did you mean 'layer3.\d'"),
        ({"layer3.1": "dln"}, r"unknown variant 'dln'; did you mean"),
        ({"fc": "dnl"}, r"'fc' returns a tensor of shape \(1, 5\); a block needs \(B, C, L\)"),
        ({"layer3": "dnl", "layer3.1": "nl"}, r"two of layer3, layer3.1 name the same place"),
    ],
)
def test_a_wrong_placement_is_refused_and_nothing_inserted(placement: dict, message: str) -> None:
    model = resnet()
    names = list(model.state_dict())
    with pytest.raises(ValueError, match=message):
        insert(model, placement)
    assert list(model.state_dict()) == names
    assert not any(m._forward_hooks for m in model.modules())


def test_one_block_per_place() -> None:
    model = resnet()
    insert(model, {"layer3.1": "dnl"})
    with pytest.raises(ValueError, match=r"'layer3.1' already has a block"):
        insert(model, {"layer3.1": "dnl"})


def test_a_place_that_runs_twice_is_reported() -> None:
    """torchvision's BasicBlock calls its only ReLU after each of its two convolutions."""
    model = torchvision.models.resnet18()
    with pytest.warns(UserWarning, match=r"'layer3.1.relu' runs 2 times per forward pass.* such as 'layer3.1'"):
        block = insert(model, {"layer3.1.relu": "dnl"})["layer3.1.relu"]
    calls: list[int] = []
    block.register_forward_hook(lambda *_: calls.append(1))
    model.eval()(torch.randn(1, 3, 32, 32))
    assert len(calls) == 2


def test_a_container_that_runs_its_own_children_is_refused() -> None:
    model = torchvision.models.densenet121()
    with pytest.raises(ValueError, match=r"is a _DenseBlock, which may run a new child on its own"):
        insert(model, {"features.denseblock1": "dnl"})


def test_a_model_with_unknown_input_needs_an_example() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(x[:, ::2])

    with pytest.raises(ValueError, match="no convolution to guess its input from; pass an input as example="):
        insert(Halves(), {"act": "dnl"})
    assert insert(Halves(), {"act": "dnl"}, example=torch.randn(1, 8, 4, 4))["act"].channels == 4
    with pytest.raises(ValueError, match="did not run on an input of shape"):
        insert(resnet(), {"layer1": "dnl"}, example=torch.randn(1, 7, 4, 4))


def test_names_alone_get_a_dnl_block() -> None:
    for placement in ("layer3.1", ["layer3.1"], ("layer3.1",)):
        blocks = insert(resnet(), placement)
        assert {name: block.variant.name for name, block in blocks.items()} == {"layer3.1": "dnl"}
    with pytest.raises(ValueError, match=r"unknown submodule 'layer3\.9'"):
        insert(resnet(), "layer3.9")


def test_a_model_with_several_inputs_takes_a_tuple_as_example() -> None:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Conv2d(3, 8, 3), nn.Conv2d(1, 8, 3)
            self.mid = nn.ReLU()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            assert y.shape[1] == 1
            return self.mid(self.left(x) + self.right(y))

    example = torch.randn(1, 3, 9, 9), torch.randn(1, 1, 9, 9)
    net = Siamese()
    assert insert(net, "mid", example=example)["mid"].channels == 8
    assert net(*example).shape == (1, 8, 7, 7)
    with pytest.raises(ValueError, match=r"tuple of several"):
        insert(Siamese(), "mid")


def test_real_pretrained_weights_still_load(real_data: Path) -> None:
    weights = torch.load(real_data / "weights" / "resnet50_imagenet_caffestride_fp16.pth", weights_only=True)
    model = torchvision.models.resnet50().eval()
    blocks = insert(model, {"layer3.4": "dnl"}, gate="scalar")
    result = model.load_state_dict(weights, strict=False)
    assert not result.unexpected_keys
    assert all(key.startswith("layer3.4.non_local.") or "num_batches" in key for key in result.missing_keys)
    image = torch.randn(1, 3, 96, 96)
    assert model(image).isfinite().all()
    assert isinstance(blocks["layer3.4"], NonLocalBlock)


def test_before_a_submodule_the_block_gets_its_input() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Conv2d(8, 5, 1)).eval()
    x = torch.randn(1, 3, 9, 9)
    expected_input = net[0](x)
    block = insert(net, {"1": "dnl"}, before=True)["1"]
    nn.init.normal_(block.value.weight)
    assert block.channels == 8
    torch.testing.assert_close(net(x), net[2](block(expected_input).relu()))
    assert [name for name, _ in net.named_parameters() if "non_local" not in name] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]


def test_before_a_sequential_means_before_its_first_layer() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(8, 6, 1), nn.ReLU()))
    insert(net, {"1": "gc"}, before=True)
    assert [name for name, _ in net.named_modules() if name.endswith("non_local")] == ["1.0.non_local"]
