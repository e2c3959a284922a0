import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

import dnlnet
from dnlnet.artifacts.model_file import ModelFile, find_model, read_model_file, write_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.attention import PRESETS, VARIANTS
from dnlnet.backbones.pixels import normalised
from dnlnet.cli.main import app
from dnlnet.data.classes import Classes
from dnlnet.data.scenes import scene
from dnlnet.deployment import portable
from dnlnet.deployment.programs import computed, largest_difference, read_onnx, write_onnx
from dnlnet.deployment.runtimes import write_network
from dnlnet.lens.trace.capture import capture
from dnlnet.recipes.override import override
from dnlnet.registry import find_recipe
from dnlnet.runs.export import DifferenceError, export
from dnlnet.segmentation.export import ExportableSegmentor
from dnlnet.segmentation.network import SegmentorOutput
from dnlnet.video.data.videos import named_classes

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's exporters warn about themselves
QUERIES = [(0.5, 0.5), (0.1, 0.9)]


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)], env={"COLUMNS": "120"})


class Blocks(nn.Module):
    """Blocks of every variant and preset in sequence, including pooled keys."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=4, padding=1)
        presets = [*PRESETS, "paper"]
        self.blocks = nn.ModuleList(
            dnlnet.NonLocalBlock(8, variant, preset=preset) for variant, preset in zip(VARIANTS, presets, strict=True)
        )
        for parameter in self.blocks.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x: torch.Tensor) -> SegmentorOutput:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return SegmentorOutput(x)


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "scenes.onnx"
    points = [word for x, y in QUERIES for word in ("--with-maps", f"{x},{y}")]
    done = command(run, "--format", "onnx", *points, "-o", path, "--json", path.with_suffix(".json"))
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "street.pt2"
    done = command("street", "--format", "torch", "--dynamic", "batch,height,width", "--size", "96x128", "-o", path)
    assert done.exit_code == 0, done.output
    return path


def names_this_machine(path: Path) -> bool:
    """Return whether a file contains the folder of the package (as stack traces do) or of a run."""
    content = path.read_bytes()
    return any(str(folder).encode() in content for folder in (Path(dnlnet.__file__).parent, Path.home(), path.parent))


def test_an_exported_model_contains_no_local_paths(exported: Path, program: Path, run: Path, tmp_path: Path) -> None:
    weights = export(run, tmp_path / "scenes.safetensors", "safetensors").path
    for path in (exported, program, weights):
        assert not names_this_machine(path)


def test_an_exported_model_computes_the_same_at_every_size(exported: Path, run: Path) -> None:
    session = onnxruntime.InferenceSession(exported)
    network = load_network(read_model_file(find_model(str(run)))).eval()
    for batch, height, width in ((1, 64, 96), (3, 80, 72)):
        pixels = torch.stack([torch.from_numpy(scene(seed, (height, width))[0]) for seed in range(batch)]) * 255
        with torch.no_grad():
            expected = network(normalised(pixels)).logits
        (found,) = session.run(["logits"], {"image": pixels.numpy()})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_exported_maps_equal_those_of_the_block(exported: Path, run: Path) -> None:
    pixels = torch.from_numpy(scene(5, (64, 96))[0])[None] * 255
    names = ("pairwise", "unary")
    found = onnxruntime.InferenceSession(exported).run(names, {"image": pixels.numpy()})
    network = load_network(read_model_file(find_model(str(run)))).eval()
    with capture(network) as blocks, torch.no_grad():
        network(normalised(pixels))
    (terms,) = blocks.values()
    height, width = terms.size
    maps = terms.maps([(int(y * height), int(x * width)) for x, y in QUERIES])
    for name, one in zip(names, found, strict=True):
        np.testing.assert_allclose(one, getattr(maps, name), atol=1e-6)
        np.testing.assert_allclose(one.sum(axis=(-2, -1)), 1, rtol=1e-5)


def test_an_exported_model_describes_itself(exported: Path, run: Path) -> None:
    model = onnx.load(exported)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(about["classes"])["names"][0] == "sky"
    assert json.loads(about["recipe"])["name"] == read_model_file(find_model(str(run))).recipe.name
    axes = [axis.dim_param or axis.dim_value for axis in model.graph.input[0].type.tensor_type.shape.dim]
    assert axes == ["batch", 3, "height", "width"]
    assert not any("dnlnet" in node.domain for node in model.graph.node)
    report = json.loads(exported.with_suffix(".json").read_text())
    assert report["outputs"] == ["logits", "pairwise", "unary"]
    assert len(report["differences"]) == 2
    assert 0 < report["largest"] < 1e-4


def test_every_variant_and_preset_stays_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Blocks().eval()
    x = torch.rand(2, 3, 48, 64) * 255
    write_onnx(ExportableSegmentor(portable(network), (64, 64), QUERIES), tmp_path / "blocks.onnx", x, (), {})
    expected = computed(ExportableSegmentor(network, (64, 64), QUERIES))(x)
    differences = largest_difference(expected, read_onnx(tmp_path / "blocks.onnx")(x))
    assert len(differences) == 1 + 5 + 6  # logits, variants with a pairwise term, variants with a unary term
    assert max(differences.values()) < 1e-4


def test_a_torch_program_accepts_every_size_without_dnlnet(program: Path, tmp_path: Path) -> None:
    """The output is cropped if a side is not a multiple of the stride."""
    graph = str(torch.export.load(program).graph)
    assert "dnlnet" not in graph
    assert "scan" in graph  # the loop over blocks of queries
    pairs = tmp_path / "pairs"
    network = load_network(read_model_file(find_model("street"))).eval()
    sizes = ((1, 96, 128), (2, 97, 131), (1, 64, 101), (3, 33, 40), (1, 200, 264))
    pixels = [torch.rand(batch, 3, height, width) * 255 for batch, height, width in sizes]
    with torch.no_grad():
        torch.save([(x, network(normalised(x)).logits.clone()) for x in pixels], pairs)
    script = f"""
import sys
sys.modules["dnlnet"] = None  # importing it is an error
import torch
program = torch.export.load({str(program)!r}).module()
for x, expected in torch.load({str(pairs)!r}):
    found = program(x)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_half_precision_halves_the_file_and_stays_close(run: Path, tmp_path: Path) -> None:
    model = read_model_file(find_model(str(run)))
    export(model, tmp_path / "whole.safetensors", "safetensors")
    halved = export(model, tmp_path / "half.safetensors", "safetensors", half=True)
    assert 0 < halved.largest < 2e-2
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.75 * sizes[1]  # both files contain the recipe
    again = read_model_file(halved.path)
    assert (again.recipe, again.classes, again.scores) == (model.recipe, model.classes, model.scores)
    pixels = (scene(3, 64)[0].transpose(1, 2, 0) * 255).astype(np.uint8)
    agreeing = dnlnet.load(halved.path).predict(pixels).labels == dnlnet.load(run).predict(pixels).labels
    assert agreeing.mean() > 0.98


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    torch.manual_seed(0)
    small = ["model.backbone=resnet18", "model.proposals=20", "data.short_side=64", "data.long_side=96"]
    recipe = override(find_recipe("coco-micro-dnl-c4"), [*small, "model.weights=null"])
    path = tmp_path_factory.mktemp("detector") / "model.safetensors"
    network = recipe.build(2, pretrained=False)
    classes = Classes(("cat", "dog"), ((255, 0, 0), (0, 255, 0)), (3, 9))
    write_model_file(path, network.state_dict(), ModelFile(path, recipe, classes, 0, None))
    return read_model_file(path)


def test_a_whole_detector_is_exported_and_finds_the_same_objects(detector: ModelFile, tmp_path: Path) -> None:
    result = export(detector, tmp_path / "detector.onnx")
    assert result.outputs == ("boxes", "labels", "scores", "masks")
    assert not names_this_machine(result.path)
    assert "older" in result.remark
    assert len(result.differences) == 2
    found = read_onnx(result.path)(torch.rand(3, 70, 90) * 255)
    assert len(found["boxes"]) > 0
    assert found["masks"].shape[1:] == (1, 70, 90)


def test_a_detector_predicts_with_torch_alone(detector: ModelFile) -> None:
    with pytest.raises(ValueError, match=r"detection .*only with torch"):
        dnlnet.load(detector.path, backend="onnxruntime")


def test_a_detectors_pyramid_is_exported_on_its_own(detector: ModelFile, tmp_path: Path) -> None:
    result = export(detector, tmp_path / "pyramid.onnx", part="pyramid", free=("batch",))
    assert result.outputs == ("p2", "p3", "p4", "p5", "p6")
    assert not result.remark
    assert result.largest < 1e-4


def test_a_network_without_free_axes_gets_a_fixed_size_and_says_so(detector: ModelFile, tmp_path: Path) -> None:
    result = export(detector, tmp_path / "pyramid.pt2", "torch", part="pyramid")
    assert result.takes == "image (1, 3, 64, 85)"
    assert "1 x 3 x 64 x 85" in result.remark
    assert "--dynamic" in result.remark
    assert len(torch.export.load(result.path).module()(torch.rand(1, 3, 64, 85))) == 5


def test_a_size_fixes_all_axes(run: Path, tmp_path: Path) -> None:
    result = export(run, tmp_path / "fixed.onnx", size=(32, 48))
    assert (result.takes, result.remark) == ("image (1, 3, 32, 48)", "")


def test_the_exporters_warn_about_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    logging.getLogger("torch").addHandler(caplog.handler)
    try:
        write_network(network, tmp_path / "a.onnx", torch.rand(1, 3, 64, 64), free=True)
    finally:
        logging.getLogger("torch").removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_video_model_is_exported_with_maps_over_time(tmp_path: Path) -> None:
    torch.manual_seed(0)
    small = ["model.backbone=slow_only_tiny", "data.frames=3", "evaluation.short_side=64", "model.weights=null"]
    recipe = override(find_recipe("ucf6-r50-dnl"), small)
    network = recipe.build(4, pretrained=False)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)  # including the norms that start at zero
    path = tmp_path / "model.safetensors"
    file = ModelFile(path, recipe, named_classes(["down", "left", "right", "up"]), 0, None)
    write_model_file(path, network.state_dict(), file)
    result = export(file, tmp_path / "video.onnx", free=("batch", "height"), queries=[(0.5, 0.5, 0.9)])
    assert result.takes == "clip (batch, 3, 3, height, 64)"
    assert result.largest < 1e-4
    shapes = {name: value.shape for name, value in read_onnx(result.path)(torch.rand(1, 3, 3, 64, 64)).items()}
    assert shapes["logits"] == (1, 4)
    assert shapes["backbone.layer2.1.non_local.pairwise"] == (1, 1, 3, 4, 4)
    assert shapes["backbone.layer3.1.non_local.unary"] == (1, 3, 2, 2)


def test_a_difference_sets_the_exit_code_and_leaves_no_file(run: Path, tmp_path: Path) -> None:
    done = command(run, "--format", "safetensors", "--half", "--tolerance", 0, "-o", tmp_path / "a.safetensors")
    assert done.exit_code == 1
    assert "was not written" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "onnx", "--with-maps", "120,80"), "in 0..1"),
        (("--format", "onnx", "--with-maps", "a"), "such as 0.5,0.25"),
        (("--format", "onnx", "--dynamic", "hight"), "did you mean 'height'"),
        (("--format", "onnx", "--size", "10"), "such as 512x1024"),
        (("--format", "onnx", "--size", "65536x65536"), "an input of 65536 x 65536 pixels takes at least"),
        (("--format", "onnx", "--size", "8x8"), "expected sides of 16 to 65536 pixels"),
        (("--format", "onnx", "--half"), "--half is for safetensors"),
        (("--format", "onnx", "--part", "pyramid"), "--part: not for a segmentation model; it takes --with-maps"),
        (("--format", "safetensors", "--dynamic", "all"), "weights alone"),
    ],
)
def test_invalid_options_are_refused_with_a_reason(run: Path, tmp_path: Path, arguments: tuple, message: str) -> None:
    done = command(run, *arguments, "-o", tmp_path / "x")
    assert message in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_detector_has_neither_torch_program_nor_maps(detector: ModelFile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--part pyramid"):
        export(detector, tmp_path / "a.pt2", "torch")
    with pytest.raises(ValueError, match="--with-maps: not for a detection model; it takes --part"):
        export(detector, tmp_path / "a.onnx", queries=QUERIES)
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_run_is_not_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path):
        def compute(x: torch.Tensor):
            raise RuntimeError("a long story\nReshape node: wrong shape")

        return compute

    monkeypatch.setattr("dnlnet.runs.export._PROGRAMS", {"onnx": (lambda *_: _[1].touch(), broken)})
    with pytest.raises(DifferenceError, match=r"does not run on an input of .*: Reshape node: wrong shape"):
        export(read_model_file(find_model(str(run))), tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


def test_an_exporter_that_refuses_free_axes_is_quoted(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no rule for ceil\na long story")

    monkeypatch.setattr("dnlnet.runs.export._PROGRAMS", {"onnx": (refuse, None)})
    with pytest.raises(ValueError, match=r"free axes: no rule for ceil; .*--dynamic"):
        export(run, tmp_path / "a.onnx", free=("height",))
    assert not list(tmp_path.iterdir())


def test_sizes_come_from_the_recipe(detector: ModelFile, run: Path) -> None:
    assert detector.recipe.exportable(load_network(detector)).size == (64, 85)
    model = read_model_file(find_model(str(run)))
    assert model.recipe.exportable(load_network(model)).size == model.recipe.data.crop


def test_export_leaves_the_network_unchanged() -> None:
    network = Blocks().eval()
    copy = portable(network)
    assert "forward" not in vars(network.blocks[0])
    assert "forward" in vars(copy.blocks[0])
