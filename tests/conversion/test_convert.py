from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from dnlnet.artifacts.model_file import read_model_file
from dnlnet.conversion.converting import FAMILIES, convert, read, recognise
from dnlnet.conversion.segmentation.data_sets import find_data
from foreign import SMALL, State, filled, mmseg_shapes

NAME = "nonlocal_r50-d8_512x1024_40k_cityscapes.pth"


@pytest.fixture
def state() -> State:
    return filled(mmseg_shapes(SMALL, "nl_block"))


def test_a_damaged_file_is_refused(state: State, tmp_path: Path) -> None:
    torch.save(state, tmp_path / NAME)
    whole = (tmp_path / NAME).read_bytes()
    for damaged in (b"", b"text", whole[: len(whole) // 2]):
        (tmp_path / NAME).write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            convert(tmp_path / NAME, tmp_path / "m.safetensors")
    with pytest.raises(FileNotFoundError, match=r"none\.pth: no such file"):
        convert(tmp_path / "none.pth", tmp_path / "m.safetensors")


def test_all_missing_tensors_are_listed_and_nothing_is_written(state: State, tmp_path: Path) -> None:
    missing = ["backbone.layer2.0.bn1.bias", "backbone.layer4.1.conv2.weight", "decode_head.nl_block.phi.conv.bias"]
    torch.save({name: x for name, x in state.items() if name not in missing}, tmp_path / NAME)
    for partial in (False, True):
        with pytest.raises(ValueError, match="3 missing") as error:
            convert(tmp_path / NAME, tmp_path / "m.safetensors", partial=partial)
        for name in missing:  # with the names in the file
            assert f"\n  {name} (here " in str(error.value)
        assert "decode_head.nl_block.phi.conv.bias (here head.block.key.bias)" in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_tensors_of_another_shape_are_listed_with_both_shapes(state: State, tmp_path: Path) -> None:
    state["decode_head.convs.1.conv.weight"] = torch.ones(12, 12, 1, 1)
    torch.save(state, tmp_path / NAME)
    with pytest.raises(ValueError, match="1 of another shape") as error:
        convert(tmp_path / NAME, tmp_path / "m.safetensors")
    both = "decode_head.convs.1.conv.weight (here head.refine.0.weight)"
    assert f"{both} is (12, 12, 1, 1), expected (12, 12, 3, 3)" in str(error.value)


@pytest.mark.parametrize("kind", [torch.Tensor.cfloat, torch.Tensor.to_sparse])
def test_tensors_of_another_type_are_refused(kind: Callable[[Tensor], Tensor], state: State, tmp_path: Path) -> None:
    torch.save({**state, "decode_head.conv_seg.bias": kind(state["decode_head.conv_seg.bias"])}, tmp_path / NAME)
    with pytest.raises(ValueError, match=r"1 of an unsupported type:\n  decode_head\.conv_seg\.bias"):
        convert(tmp_path / NAME, tmp_path / "m.safetensors")


def test_tensors_without_any_finite_number_are_refused(state: State, tmp_path: Path) -> None:
    torch.save({**state, "decode_head.nl_block.g.conv.weight": torch.ones(0, 12, 1, 1)}, tmp_path / NAME)
    with pytest.raises(ValueError, match=r"has the shape \(0, 12, 1, 1\), which no layer has"):
        convert(tmp_path / NAME, tmp_path / "m.safetensors")
    torch.save({**state, "decode_head.conv_seg.weight": torch.ones(2**40, 0, 1, 1)}, tmp_path / NAME)
    with pytest.raises(ValueError, match=r"has the shape \(1099511627776, 0, 1, 1\), which no layer has"):
        convert(tmp_path / NAME, tmp_path / "m.safetensors")


@pytest.mark.parametrize("name", ["strange\nerror: done", "\x1b[31mred", "\u202eback"])
def test_a_name_with_control_characters_is_refused(name: str, state: State, tmp_path: Path) -> None:
    torch.save({**state, name: torch.ones(1)}, tmp_path / "a.pth")
    save_file({**state, name: torch.ones(1)}, tmp_path / "a.safetensors")
    for path in (tmp_path / "a.pth", tmp_path / "a.safetensors"):
        with pytest.raises(ValueError, match="has a tensor named '") as error:
            convert(path, tmp_path / "m.safetensors", partial=True)
        assert str(error.value).isprintable()


def test_unknown_tensors_are_an_error_unless_allowed(state: State, tmp_path: Path) -> None:
    strange = {"auxiliary_head.more.weight": torch.ones(1), "discriminator.weight": torch.ones(1)}
    torch.save({**state, **strange}, tmp_path / NAME)
    with pytest.raises(ValueError, match=r".*--partial.*\n2 unknown") as error:
        convert(tmp_path / NAME, tmp_path / "m.safetensors")
    assert all(name in str(error.value) for name in strange)
    assert not (tmp_path / "m.safetensors").exists()
    assert convert(tmp_path / NAME, tmp_path / "m.safetensors", partial=True).unused == tuple(strange)
    assert (tmp_path / "m.safetensors").exists()


def test_layers_without_a_counterpart_are_never_dropped(state: State, tmp_path: Path) -> None:
    strange = {"decode_head.convs.2.conv.weight": torch.ones(1), "neck.weight": torch.ones(1)}
    torch.save({**state, **strange, "discriminator.weight": torch.ones(1)}, tmp_path / NAME)
    for partial in (False, True):
        with pytest.raises(ValueError, match=r"layers that ours lacks.*\n2 unknown") as error:
            convert(tmp_path / NAME, tmp_path / "m.safetensors", partial=partial)
        assert all(name in str(error.value) for name in strange)
        assert "--partial" not in str(error.value)
    torch.save(state, tmp_path / NAME)
    with pytest.raises(ValueError, match="layers that ours lacks") as error:
        convert(tmp_path / NAME, tmp_path / "m.safetensors", ["model.variant=null"], partial=True)
    assert "decode_head.nl_block.theta.conv.weight" in str(error.value)
    assert not (tmp_path / "m.safetensors").exists()


def test_batch_counters_may_be_missing(state: State, tmp_path: Path) -> None:
    old = {name: x for name, x in state.items() if not name.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / NAME)
    assert len(convert(tmp_path / NAME, tmp_path / "m.safetensors").state) == len(state)


def test_a_foreign_file_is_not_recognised_and_the_supported_ones_are_listed(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.ones(2, 2)}, tmp_path / "a.pth")
    assert recognise(read(tmp_path / "a.pth")) is None
    with pytest.raises(ValueError, match=r"tensors fc.weight, \.\.\.") as error:
        convert(tmp_path / "a.pth", tmp_path / "m.safetensors")
    assert all(family.name in str(error.value) for family in FAMILIES)


def test_a_file_is_recognised_in_any_container_and_precision(state: State, tmp_path: Path) -> None:
    wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
    torch.save({"model": wrapped}, tmp_path / "a.pth")
    save_file({name: tensor.half() for name, tensor in state.items()}, tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        family = recognise(read(tmp_path / name))
        assert family is not None
        assert family.name == "mmsegmentation"
        settings = ("model.output_stride=8", "model.block.attention=softmax")
        converted = convert(tmp_path / name, tmp_path / "m.safetensors", settings)
        assert converted.state["head.classifier.weight"].dtype == torch.float32


def test_a_failed_write_keeps_the_old_file(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(state, tmp_path / NAME)

    def half(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr("dnlnet.engine.checkpoint.save_file", half)
    out = tmp_path / "out" / "m.safetensors"
    with pytest.raises(OSError, match="disk is full"):
        convert(tmp_path / NAME, out)
    assert not list(out.parent.iterdir())


def test_the_model_file_differs_from_the_inputs_and_has_its_suffix(state: State, tmp_path: Path) -> None:
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="is the checkpoint itself"):
        convert(tmp_path / "a.safetensors", tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"expected .*\.safetensors"):
        convert(tmp_path / "a.safetensors", tmp_path / "m.pth")


def test_a_setting_that_does_not_fit_the_weights_is_refused(state: State, tmp_path: Path) -> None:
    torch.save(state, tmp_path / NAME)
    with pytest.raises(ValueError, match="1 missing") as error:
        convert(tmp_path / NAME, tmp_path / "m.safetensors", ["model.auxiliary_bias=true"])
    assert "auxiliary_head.convs.0.conv.bias (here auxiliary.0.bias)" in str(error.value)
    with pytest.raises(ValueError, match="unknown key of model 'corners'"):
        convert(tmp_path / NAME, tmp_path / "m.safetensors", ["model.corners=true"])


def test_the_iteration_comes_from_the_checkpoint(state: State, tmp_path: Path) -> None:
    torch.save({"state_dict": state, "meta": {"iter": 1234}}, tmp_path / NAME)
    convert(tmp_path / NAME, tmp_path / "m.safetensors")
    assert read_model_file(tmp_path / "m.safetensors").iteration == 1234


def test_classes_without_names_are_numbered() -> None:
    data, classes, note = find_data(3, ["too", "few"], palette="no colours")
    assert (data, classes.names) == ("folder", ("class 0", "class 1", "class 2"))
    assert note is not None
    assert "numbered" in note
