import re

import pytest
from pydantic import ValidationError

from dnlnet.recipes import find_recipe, override
from dnlnet.recipes.schema import Model

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


def test_a_part_that_was_absent_can_be_set() -> None:
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
        ("optim.lr=-1", "--set optim.lr=-1: Input should be greater than 0"),
        ("optim.lr=fast", "--set optim.lr=fast: Input should be a valid number"),
        ("optim.lr.a=1", "lr is one value and has no parts"),
        ("optim.lr", "expected key=value, for example"),
        ("data.crop=[1", "cannot be read; quote it"),
        ("model.variant=dnll", "unknown variant 'dnll'; did you mean 'dnl'"),
        ("model.backbone=resnet51", "unknown backbone 'resnet51'"),
        ("model.preset=papr", "unknown preset 'papr'; did you mean 'paper'?"),
        ("model.network=foo", "Input should be 'segmentor' or 'tiny'"),
        ("data.crop=[0, 5]", "Input should be greater than or equal to 1"),
    ],
)
def test_a_wrong_setting_gets_one_sentence(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        override(RECIPE, [setting])
    assert "\n" not in str(raised.value)


def test_recipes_are_frozen_and_know_no_other_fields() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RECIPE.name = "other"
    with pytest.raises(ValidationError, match="Extra inputs"):
        Model(depth=3)


def test_a_recipe_survives_json() -> None:
    assert type(RECIPE).model_validate_json(RECIPE.model_dump_json()) == RECIPE
