import re

import pytest
import torch

from dnlnet import PRESETS, VARIANTS, NonLocal1d, NonLocal2d, NonLocal3d, NonLocalBlock, Variant
from dnlnet.attention.spec import resolve_settings


def test_defaults_follow_the_paper() -> None:
    block = NonLocalBlock(512)
    assert block.variant is VARIANTS["dnl"]
    assert block.query.weight.shape == (256, 512)
    assert block.value.weight.shape == (512, 512)
    assert block.scale == 1
    assert block.projection is block.norm is block.gamma is block.value.bias is None


@pytest.mark.parametrize(
    ("preset", "variant", "scale"),
    [
        ("authors", "dnl", 1),
        ("authors", "nl", 1 / 16),
        ("authors_temperature", "dnl", 1 / (16 * 0.05)),
        ("mmseg", "dnl", 1 / (16 * 0.05)),
        ("slowfast", "nl", 1 / 16),
    ],
)
def test_presets_scale_the_logits_as_the_code_they_name(preset: str, variant: str, scale: float) -> None:
    assert NonLocalBlock(512, variant, preset=preset).scale == pytest.approx(scale)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_preset_trains_with_every_variant(preset: str, variant: str) -> None:
    block = NonLocalBlock(8, variant, preset=preset)
    x = torch.randn(2, 8, 6, 6, requires_grad=True)
    block(x).sum().backward()
    assert x.grad.isfinite().all()


def test_weights_start_small_and_gates_at_zero() -> None:
    torch.manual_seed(0)
    block = NonLocalBlock(256, preset="authors", gate="norm")
    assert block.query.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert not block.query.bias.any()
    assert not block.norm.weight.any()
    assert not NonLocalBlock(8, gate="scalar").gamma.any()


def test_thin_names_fix_the_dimension() -> None:
    for dims, name in enumerate((NonLocal1d, NonLocal2d, NonLocal3d), start=1):
        assert name(8, "gc", pool=2).dims == dims
        assert isinstance(name(8), NonLocalBlock)


def test_repr_contains_variant_and_settings() -> None:
    text = repr(NonLocalBlock(512, "dnl_star", dims=3, gate="scalar", temperature=0.05))
    for part in ("512, 'dnl_star', dims=3", "gate='scalar'", "temperature=0.05", "centring='channel'", "pool=1"):
        assert part in text


def all_of(facts: str) -> str:
    """Return a pattern for messages that contain each of these words."""
    return "".join(f"(?=.*{re.escape(fact)})" for fact in facts.split())


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"variant": "dnll"}, "variant 'dnll' 'dnl'"),
        ({"preset": "mmsegg"}, "preset 'mmsegg' 'mmseg'"),
        ({"gait": "none"}, "option 'gait' 'gate'"),
        ({"gate": "scaler"}, "gate 'scaler' 'scalar'"),
        ({"variant": "dnl_dagger", "centring": "none"}, "centring='none' dnl_dagger unary"),
        ({"centring": "channels"}, "centring 'channels' 'channel'"),
        ({"temperature": 0.0}, "temperature 1e-06..1e+06 0.0"),
        ({"temperature": float("nan")}, "temperature 1e-06..1e+06 nan"),
        ({"temperature": "hot"}, "temperature 1e-06..1e+06 'hot'"),
        ({"temperature": [1.0]}, "temperature 1e-06..1e+06 [1.0]"),
        ({"pool": 0}, "pool 1..65536 0"),
        ({"pool": 1.5}, "pool 1..65536 1.5"),
        ({"pool": True}, "pool 1..65536 True"),
        ({"scaled": "yes"}, "scaled true false 'yes'"),
        ({"unary_scaled": "no"}, "unary_scaled true false 'no'"),
        ({"pool_projected": "no"}, "pool_projected true false 'no'"),
        ({"values": "own"}, "values 'own' shared separate"),
        ({"variant": "nl", "values": "separate"}, "values='separate' dnl_dagger dnl nl"),
        ({"variant": "gc", "values": "separate"}, "values='separate' dnl_dagger dnl gc"),
        ({"value_reduction": 2}, "value_reduction=2 projection=True"),
        ({"projection_bias": True}, "projection_bias=True projection=True"),
        ({"embed_reduction": 32}, "channels=16 embed_reduction=32"),
        ({"dims": 4}, "dims 1, 2 3 4"),
    ],
)
def test_impossible_settings_fail_on_creation(arguments: dict, facts: str) -> None:
    with pytest.raises(ValueError, match=all_of(facts)):
        NonLocalBlock(16, **arguments)


@pytest.mark.parametrize(
    ("dims", "x", "facts"),
    [
        (2, torch.randn(16, 5, 5), "2d (B, 16, H, W) 3-d (16, 5, 5) x[None]"),
        (2, torch.randn(1, 16, 2, 5, 5), "2d (B, 16, H, W) 5-d"),
        (3, torch.randn(1, 8, 2, 5, 5), "(B, 16, T, H, W) 8 channels"),
        (2, torch.randn(1, 16, 0, 5), "(0, 5) empty"),
        (1, torch.randn(1, 16, 0), "(0,) empty"),
        (2, torch.zeros(1, 16, 5, 5, dtype=torch.int64), "torch.int64 x.float()"),
    ],
)
def test_wrong_input_gets_one_clear_error(dims: int, x: torch.Tensor, facts: str) -> None:
    block = NonLocalBlock(16, dims=dims)
    with pytest.raises(ValueError, match=all_of(facts)):
        block(x)
    with pytest.raises(ValueError, match=all_of(facts)):
        block.attention_maps(x, [(0,) * dims])


def test_a_map_smaller_than_the_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(1, 5\).*\(2, 2\)"):
        NonLocalBlock(16, pool=2)(torch.randn(1, 16, 1, 5))


def test_a_variant_needs_a_term() -> None:
    with pytest.raises(ValueError, match=r"pairwise.*unary"):
        Variant("none", False, None, False, "")
    with pytest.raises(ValueError, match="both terms"):
        Variant("odd", True, None, True, "")


def test_options_override_a_preset() -> None:
    assert resolve_settings(VARIANTS["nl"], "authors", scaled=False).scaled is False


def test_the_detection_code_has_a_quarter_of_the_width_and_a_temperature() -> None:
    block = NonLocalBlock(1024, "dnl", preset="authors_detection")
    assert block.query.out_features == 256
    assert block.scale == pytest.approx(1.25)
    assert block.settings.centring == "channel"
    assert block.settings.gate == "scalar_pairwise"
