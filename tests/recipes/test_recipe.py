import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from dnlnet.detection.recipe import DetectionRecipe
from dnlnet.detection.schema import MOST_DETECTED
from dnlnet.recipes.model import Model
from dnlnet.recipes.override import override
from dnlnet.registry import RECIPES, find_recipe, parse_recipe
from dnlnet.video.recipe import VideoRecipe
from dnlnet.video.schema import MOST_SEEN

STORED = Path(__file__).parents[1] / "artifacts" / "stored"
RECIPE = find_recipe("cityscapes-r101-dnl")


def test_values_are_replaced_with_their_types() -> None:
    changed = override(RECIPE, ["optim.lr=0.5", "data.crop=[65, 97]", "model.variant=null", "loss.ohem.kept=7"])
    assert changed.optim.lr == 0.5
    assert changed.data.crop == (65, 97)
    assert changed.model.variant is None
    assert changed.loss.ohem is not None
    assert changed.loss.ohem.kept == 7
    assert changed.loss.ohem.threshold == 0.7
    assert RECIPE.optim.lr == 0.01


def test_an_absent_section_can_be_set() -> None:
    recipe = find_recipe("pascal_context-r101-dnl")
    assert recipe.loss.ohem is None
    changed = override(recipe, ["loss.ohem.kept=7"])
    assert changed.loss.ohem is not None
    assert changed.loss.ohem.kept == 7


def test_options_of_the_block_can_be_set() -> None:
    assert override(RECIPE, ["model.block.gate=norm"]).model.block == {"gate": "norm"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optim.lrr=1", "unknown key of optim 'lrr'; did you mean 'lr'?"),
        ("optmi.lr=1", "unknown key of a recipe 'optmi'; did you mean 'optim'?"),
        ("optim.lr=-1", "--set optim.lr=-1: expected more than 0"),
        ("optim.lr=fast", "--set optim.lr=fast: expected a number"),
        ("optim.lr=1e300", "--set optim.lr=1e+300: expected at most 100"),
        ("optim.lr=.inf", "--set optim.lr=.inf: expected a finite number"),
        ("optim.lr=-.inf", "--set optim.lr=-.inf: expected a finite number"),
        ("optim.lr=.nan", "--set optim.lr=.nan: expected a finite number"),
        ("optim.lr=true", "--set optim.lr=true: expected a number"),
        ("optim.lr=null", "--set optim.lr=null: expected a number"),
        ("optim.kind=adam", "--set optim.kind=adam: expected 'sgd' or 'adamw'"),
        ("optim.lr.a=1", "--set optim.lr.a: lr is 0.01, a value that has no parts"),
        ("optim.clip.a=1", "--set optim.clip.a: clip is nothing, a value that has no parts"),
        ("model.block.gate.a=1", "--set model.block.gate.a: gate is 'scalar_pairwise', a value that has no parts"),
        ("paper.scores.val.a=1", "--set paper.scores.val.a: val is 80.5, a value that has no parts"),
        ("data.crop.0=5", "--set data.crop.0: crop is (769, 769), a value that has no parts"),
        ("optim.lr", "expected key=value, for example"),
        ("optim.no_decay=['(']", "is not a regular expression: missing ), unterminated subpattern"),
        ("optim.no_decay=['a{99999999999}']", "is not a regular expression: the repetition number is too large"),
        ("optim.weight_decay=2", "expected at most 1"),
        ("data.crop=[1", "write it as in YAML, or quote it"),
        ("data.crop=" + "[" * 10_000, "write it as in YAML, or quote it"),
        ("data.crop=&a [*a]", "write it as in YAML, or quote it"),
        ("data.crop=!!int ''", "write it as in YAML, or quote it"),
        ("data.crop=2020-13-45", "write it as in YAML, or quote it"),
        ("data.crop=" + "9" * 5000, "write it as in YAML, or quote it"),
        ("data.crop=2020-12-24", "--set data.crop=datetime.date(2020, 12, 24): expected a list"),
        ("data.crop=5", "--set data.crop=5: expected a list"),
        ("data.crop=[5]", "--set data.crop.1: is missing"),
        ("data.crop=[5, 5, 5]", "expected at most 2 values, got 3"),
        ("data.crop=[0, 5]", "--set data.crop.0=0: expected at least 1"),
        ("data.crop=[5, 99999999]", "--set data.crop.1=99999999: expected at most 65536"),
        ("data.scales=[2.0, 0.5]", "--set data.scales=[2.0, 0.5]: expected a range from low to high"),
        ("data.scales=[1.0, .inf]", "--set data.scales.1=.inf: expected a finite number"),
        ("data.scales=[1e-9, 1.0]", "--set data.scales.0=1e-09: expected at least 0.05"),
        ("data.scales=[]", "--set data.scales.0: is missing"),
        ("data.train=''", "expected at least 1 character"),
        ("data=5", "--set data=5: expected a mapping with its settings"),
        ("schedule.iterations=true", "--set schedule.iterations=true: expected a whole number"),
        ("schedule.iterations=2.5", "--set schedule.iterations=2.5: expected a whole number"),
        ("schedule.iterations=1e3", "--set schedule.iterations=1000.0: expected a whole number"),
        ("schedule.iterations=0x" + "f" * 5000, "schedule.iterations=a very large int: expected at most 1e+09"),
        ("schedule.batch=1000000", "--set schedule.batch=1000000: expected at most 65536"),
        ("schedule.accumulate=3", "--set schedule: a batch of 8 cannot be accumulated in 3 equal parts"),
        ("schedule.power=.inf", "--set schedule.power=.inf: expected a finite number"),
        ("schedule.warmup=60001", "a warmup of 60001 iterations is longer than the run, of 60000"),
        ("schedule.milestones=[2, 1]", "milestones must rise, got [2, 1]"),
        ("schedule.then=[{train: a, iterations: 1}]", "--set schedule.then.0.lr: is missing"),
        ("training.keep=0", "expected at least 1"),
        ("training.compile=1", "--set training.compile=1: expected true or false"),
        ("training.frozen=['']", "expected at least 1 character"),
        ("loss.class_weights=[]", "expected at least 1 values, got 0"),
        ("loss.class_weights=[-1.0]", "expected more than 0"),
        ("evaluation.scales=[]", "expected at least 1 values, got 0"),
        ("evaluation.scales=[.inf]", "expected a finite number"),
        ("evaluation.stride=null", "give both window and stride, or none"),
        ("evaluation.stride=[800, 5]", "--set evaluation: a stride of 800 leaves gaps between windows of 769"),
        ("model.variant=dnll", "unknown variant 'dnll'; did you mean 'dnl'"),
        ("model.backbone=resnet51", "unknown backbone 'resnet51'"),
        ("model.preset=papr", "unknown preset 'papr'; did you mean 'paper'?"),
        ("model.network=foo", "'foo'; known: segmentor, tiny, frozen"),
        ("model.output_stride=7", "--set model.output_stride=7: expected 8, 16 or 32"),
        ("model.width=100000", "--set model.width=100000: expected at most 65536"),
        ("model.block.gat=none", "--set model.block: unknown option 'gat'; did you mean 'gate'?"),
        ("model.block.preset=paper", "--set model.block: unknown option 'preset'"),
        ("model.block.temperature=-1", "temperature must be a number within"),
        (
            "model.block={gate: none, gate: scalar}",
            "value is not YAML: the key 'gate' is given again in line 1;",
        ),
        ("model.block=5", "--set model.block=5: expected a mapping"),
        ("name=../../up", "files are named after it"),
    ],
)
def test_a_wrong_setting_gets_one_sentence(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        override(RECIPE, [setting])
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("recipe", "setting", "message"),
    [
        ("scenes-tiny-dnl", "model.block.gat=none", "unknown option 'gat'"),
        ("scenes-tiny-dnl", "optim.momentum=0.8", "momentum=0.8 is a setting of sgd, and adamw has none"),
        ("kinetics-r50-dnl", "optim.kind=adamw", "nesterov=true needs sgd with a momentum; set nesterov to false"),
        ("kinetics-r50-dnl", "optim.momentum=0.0", "nesterov=true needs sgd with a momentum; set nesterov to false"),
        ("scenes-tiny-baseline", "model.block.pool=0", "pool must be a whole number within"),
        ("scenes-tiny-dnl", "model.fused_width=9", "model.fused_width: there is no such setting"),
        ("ade20k-hrnet_w48-dnl", "model.head=text", "fused_width=512 is for a head that joins its input"),
        ("cityscapes-r101-nl", "model.block.values=separate", "nl has one: use shared"),
        ("coco-micro-dnl-c4", "data.long_side=100", "a long_side of 100 is shorter than a short_side of 192"),
        ("coco-r50-dnl-c4", "schedule.iterations=1000", "a milestone at 80630 lies behind the last of 1000"),
        ("ucf6-r50-dnl", "data.short_sides=[140, 112]", "expected a range from low to high"),
        ("ucf6-r50-dnl", "data.crop=113", "a crop of 113 does not fit into short_sides of 112"),
        ("ucf6-r50-dnl", "data.deviation=[0, 1, 1]", "expected at least 0.001"),
        ("ucf6-r50-dnl", "model.placement={layer2: [-1]}", "expected at least 0"),
        ("ucf6-r50-dnl", "evaluation.clips=0", "expected at least 1"),
        (
            "kinetics-r50-dnl",
            "evaluation.clips=65536",
            "65536 x 3 views of 8 frames of 256 x 256 are 103,079,215",
        ),
        ("kinetics-r50-dnl", "data.frames=65536", "128,849,018,880 pixels"),
        ("coco-r50-dnl-c4", "data.long_side=65536", "short_side x long_side is 800 x 65536, more than 33,554,432"),
    ],
)
def test_a_setting_that_contradicts_the_others_gets_one_sentence(recipe: str, setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        override(find_recipe(recipe), [setting])
    assert "\n" not in str(raised.value)


def test_recipes_are_far_below_the_limits() -> None:
    for recipe in RECIPES.values():
        if isinstance(recipe, VideoRecipe):
            assert 10 * recipe.seen_pixels() < MOST_SEEN
        elif isinstance(recipe, DetectionRecipe):
            assert 10 * recipe.data.short_side * recipe.data.long_side < MOST_DETECTED


def test_a_changed_recipe_loses_the_papers_score_and_ours() -> None:
    measured, paper = find_recipe("camvid-mbv2-dnl"), find_recipe("cityscapes-r101-dnl")
    assert measured.measured is not None
    assert paper.paper is not None
    assert override(measured, []).measured == measured.measured
    assert override(measured, ["schedule.iterations=6"]).measured is None
    assert override(paper, ["optim.lr=0.02"]).paper is None


def test_exponents_need_no_decimal_point() -> None:
    assert override(RECIPE, ["optim.lr=1e-4"]).optim.lr == 1e-4


_HEADS = ("auxiliary_dilation", "join_input", "head", "fused_width")
_LEARNT = {  # torchvision's settings
    "box_beta": 1 / 9,
    "border_anchors": True,
    "min_overlap": 0.0,
    "width": 256,
    "box_convolutions": 4,
    "box_width": 1024,
    "mask_convolutions": 4,
    "frozen": False,
}


def test_recipes_stored_by_earlier_versions_are_still_read() -> None:
    """Recipes in model files since the first version, with any training length."""
    for content in json.loads((STORED / "recipes.json").read_text()):
        recipe = parse_recipe(json.dumps(content))
        dumped = json.loads(recipe.model_dump_json())
        for part, newer in (
            (
                "model",
                ("whole", "dilations", "head_dilation", "stages", "reduce", "subpixels", "detail", "pixels", *_HEADS),
            ),
            ("data", ("views", "holdout", "aligned")),
            ("training", ("cache",)),
            ("evaluation", ("long_side", "divisor", "image_corners")),
        ):
            for name in newer:
                dumped.get(part, {}).pop(name, None)
        if recipe.task == "detection":
            assert {name: dumped["model"].pop(name) for name in _LEARNT} == _LEARNT
        if recipe.task == "video":
            assert dumped["model"].pop("network") == "slow_only"
        for phase in dumped["schedule"]["then"]:
            assert phase.pop("unfrozen") == []
        if "views_per_batch" in dumped.get("evaluation", {}):  # renamed since
            dumped["evaluation"]["at_once"] = dumped["evaluation"].pop("views_per_batch")
        assert dumped["optim"].pop("kind") == "sgd"
        assert dumped["optim"].pop("nesterov") is False
        unused = type(recipe.model).unused
        content["model"] = {name: value for name, value in content["model"].items() if name not in unused}
        assert dumped == content
        content["schedule"] |= {"iterations": 5, "warmup": 10}
        assert parse_recipe(json.dumps(content)).schedule.warmup == 10


def test_a_stored_recipe_without_a_block_keeps_its_gate() -> None:
    content = RECIPE.stored()
    content["model"].pop("block")
    assert parse_recipe(json.dumps(content)).model.block == {"gate": "scalar"}


def test_a_model_keeps_the_preset_options_it_was_stored_with() -> None:
    """Version 0.2.0 scaled mu_q.k in authors_detection; it is now unscaled, as in the authors' code."""
    recipe = find_recipe("coco-r50-nl_unary-c4")
    content = recipe.stored()
    assert content["model"]["block"] == {"unary_scaled": False}
    assert parse_recipe(json.dumps(content)).stored() == content
    content["model"]["block"] = {}  # as 0.2.0 stored it
    assert parse_recipe(json.dumps(content)).model.block == {"unary_scaled": True}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("null", "expected a mapping, got nothing"),
        ("[]", "expected a mapping, got []"),
        ('{"a": ' * 100_000, "is nested too deeply"),
        ('{"task": ["segmentation"]}', "task: expected one of segmentation, detection, video, got ['segmentation']"),
        ('{"task": "flight"}', "task: expected one of segmentation, detection, video, got 'flight'"),
        ("{}", "name: is missing (and 4 more)"),
    ],
)
def test_an_invalid_stored_recipe_gets_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        parse_recipe(text)
    assert "\n" not in str(raised.value)


def test_recipes_are_frozen_and_refuse_unknown_fields() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RECIPE.name = "other"
    with pytest.raises(ValidationError, match="Extra inputs"):
        Model(depth=3)


def test_a_recipe_survives_json() -> None:
    assert type(RECIPE).model_validate_json(RECIPE.model_dump_json()) == RECIPE
