"""Sharp attention: tiny weights cost no extra time, and flushing them does not change the result."""

import pytest
import torch

from cost import Multiplied
from dnlnet.attention import blocked
from dnlnet.attention.operator import attend
from equations import sharp_operands

FORMS = {
    "the whole batch at once": {},
    "softmax kept": {"FORWARD_ROWS": 7, "BACKWARD_ROWS": 5, "MIN_LOGITS": 1},
    "softmax computed again": {"MAX_LOGITS": 100, "MIN_LOGITS": 1},
}
each_form = pytest.mark.parametrize("form", FORMS)


@each_form
def test_no_subnormal_number_is_multiplied(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in FORMS[form].items():
        monkeypatch.setattr(blocked, name, number)
    query, key, value = sharp_operands()
    weights = torch.softmax(query @ key.mT, dim=-1)
    assert ((weights > 0) & (weights < torch.finfo(torch.float32).tiny)).any()  # some weights would be flushed
    with Multiplied() as seen:
        attend(query, key, value).backward(torch.full((2, 23, 5), 1e-6))
    assert seen.multiplies >= 6  # two forward, four backward
    assert seen.subnormal == 0


@each_form
def test_sharp_attention_follows_the_definition(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in FORMS[form].items():
        monkeypatch.setattr(blocked, name, number)
    operands = sharp_operands()
    wide = [operand.detach().double().requires_grad_() for operand in operands]
    upstream = torch.randn(2, 23, 5, generator=torch.Generator().manual_seed(1))
    out = attend(*operands)
    # Eq. 2 in float64: y_i = sum_j exp(q_i.k_j) v_j / sum_j exp(q_i.k_j)
    logits = torch.einsum("bnd,bmd->bnm", wide[0], wide[1])
    weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()
    expected = torch.einsum("bnm,bmc->bnc", weights / weights.sum(dim=-1, keepdim=True), wide[2])
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
    out.backward(upstream)
    expected.backward(upstream.double())
    for ours, theirs in zip(operands, wide, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-3, atol=1e-4)


def test_moderate_logits_need_no_flushing() -> None:
    query, key, _ = sharp_operands()
    assert blocked.bound_logits(query, key)[2]
    assert not blocked.bound_logits(query / 64, key)[2]
    assert blocked.bound_logits(torch.full_like(query, torch.inf), key)[2]
    assert not blocked.bound_logits(query[:, :0], key)[2]
