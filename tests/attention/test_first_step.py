"""Parameters of a new block that learn in the first step, by preset and gate.

Derived by hand. A gate that starts at zero blocks the gradients of its input: with `scalar` only gamma learns, with
`norm` only the norm. The authors' gamma multiplies only the pairwise output, so a separate unary term (saliency or
mu_q.k, and its values) learns at once. A bias that adds the same value to the logits of all keys never learns: the
key and saliency biases, and the query bias if each channel is centred (Eq. 6).
"""

from typing import get_args

import pytest
import torch

from dnlnet import PRESETS, VARIANTS, NonLocalBlock
from dnlnet.attention.spec import Gate

QUERY_MEAN = "query.weight query.bias key.weight value.weight"
UNGATED = {
    "nl": QUERY_MEAN,
    "nl_pairwise": "query.weight key.weight value.weight",
    "nl_unary": QUERY_MEAN,
    "dnl_star": "query.weight key.weight saliency.weight value.weight",
    "dnl_dagger": QUERY_MEAN,
    "dnl": "query.weight key.weight saliency.weight value.weight",
    "gc": "saliency.weight value.weight",
}
UNARY_UNGATED = {
    "nl": "gamma",
    "nl_pairwise": "gamma",
    "nl_unary": QUERY_MEAN,
    "dnl_star": "gamma",
    "dnl_dagger": f"gamma {QUERY_MEAN}",
    "dnl": "gamma saliency.weight value.weight",
    "gc": "saliency.weight value.weight",
}
LEARN = {
    "none": UNGATED,
    "scalar": dict.fromkeys(VARIANTS, "gamma"),
    "scalar_pairwise": UNARY_UNGATED,
    "norm": dict.fromkeys(VARIANTS, "norm.weight norm.bias"),
    # The norm's input is zero, so its weight cannot learn yet; a unary term's input is not zero.
    "scalar_pairwise_norm": {
        variant: names + (" norm.bias" if names == "gamma" else " norm.weight norm.bias")
        for variant, names in UNARY_UNGATED.items()
    },
}
GATES = {
    "paper": "none",
    "authors": "scalar_pairwise",
    "authors_temperature": "scalar_pairwise",
    "authors_detection": "scalar_pairwise",
    "mmseg": "norm",
    "slowfast": "norm",
}


def learning(block: NonLocalBlock) -> set[str]:
    torch.manual_seed(0)
    x = torch.randn(3, 8, 6, 4, dtype=torch.float64)
    y = block.double()(x)
    (y * torch.randn_like(y)).sum().backward()
    sizes = {name: p.grad.abs().max().item() for name, p in block.named_parameters() if p.grad is not None}
    return {name for name, size in sizes.items() if size > 1e-12 * max(sizes.values())}


def test_every_preset_and_gate_is_listed() -> None:
    assert set(GATES) == set(PRESETS)
    assert set(LEARN) == set(get_args(Gate))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_parameters_that_learn_first_with_a_preset(preset: str, variant: str) -> None:
    expected = LEARN[GATES[preset]][variant]
    assert learning(NonLocalBlock(8, variant, preset=preset)) == set(expected.split())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("gate", get_args(Gate))
def test_parameters_that_learn_first_behind_a_gate(gate: str, variant: str) -> None:
    block = NonLocalBlock(8, variant, gate=gate)
    assert learning(block) == set(LEARN[gate][variant].split())
    silent = [name for name, p in block.named_parameters() if name not in LEARN[gate][variant].split()]
    if gate in ("scalar", "norm"):
        assert silent
        assert not any(block.get_parameter(name).grad.any() for name in silent)  # exactly zero


def test_separate_values_of_a_gated_pairwise_term_wait_for_gamma() -> None:
    block = NonLocalBlock(8, "dnl", preset="authors", values="separate")
    assert learning(block) == {"gamma", "saliency.weight", "unary_value.weight"}
