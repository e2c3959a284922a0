import pytest
import torch

import equations
from dnlnet import NonLocalBlock
from dnlnet.lens.measure.theory import Claim, objective, verify

REFUTED = {
    "q.k = p + mu_q.k + q.mu_k + mu_q.mu_k, as printed",
    "coupled: dL/dP = dL/dA U and dL/dU = dL/dA P, as printed",
    "DNL costs 0.15 % more time than NL",
    "the Hessian there is not positive anywhere (largest eigenvalue)",
    "no point has a larger objective (gain found by gradient ascent)",
}


@pytest.mark.parametrize("seed", range(4))
def test_the_same_claims_hold_and_fail_for_any_data(seed: int) -> None:
    claims = verify(seed)
    assert {claim.text for claim in claims if not claim.holds} == REFUTED
    assert len(claims) > 25


def test_every_identity_the_block_relies_on_holds() -> None:
    relied = [claim for claim in verify() if claim.relied_on]
    assert len(relied) == 11
    assert all(claim.holds for claim in relied)


def test_a_nan_residual_fails() -> None:
    assert not Claim("", "", float("nan"), 1.0).holds


def test_a_wrong_block_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without centring, the pairwise variants no longer equal their equations."""
    monkeypatch.setattr("dnlnet.attention.terms.query_mean", lambda query, centring: 0 * query[:, :1])
    broken = {claim.text for claim in verify() if claim.relied_on and not claim.holds}
    assert broken == {
        f"block {name} equals its equation" for name in ("nl_pairwise", "nl_unary", "dnl_star", "dnl_dagger", "dnl")
    }


def test_the_mean_is_a_saddle_of_proposition_1() -> None:
    """Moving alpha along the leading direction of A raises the first ratio; moving along the last one lowers it."""
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 40, 6, generator=generator, dtype=torch.float64)
    key = key * torch.linspace(0.2, 2, 6, dtype=torch.float64)
    spread = key - key.mean(0)
    directions = torch.linalg.eigh(spread.mT @ spread).eigenvectors
    at_mean = objective(query, key, query.mean(0), key.mean(0))
    assert objective(query, key, query.mean(0) + 0.5 * directions[:, -1], key.mean(0)) > at_mean
    assert objective(query, key, query.mean(0) + 0.5 * directions[:, 0], key.mean(0)) < at_mean


def test_gradients_reach_a_decoupled_term_and_vanish_in_a_coupled_one() -> None:
    """Test the vanishing-gradient statement after Eq. 9 on real blocks whose saliency excludes half of the keys.

    The pairwise gradient of those keys vanishes in DNL* (coupled) and not in DNL (decoupled).
    """
    x = torch.randn(1, 6, 1, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 5] = (torch.arange(20) % 2).double()
    grads = {}
    for variant in ("dnl_star", "dnl"):
        block = equations.randomise(NonLocalBlock(6, variant))
        with torch.no_grad():
            block.saliency.weight.zero_()[0, 5] = -40.0  # m_j = -40 at odd positions, 0 at even ones
            block.key.weight[:, 5] = 0
        keys = []
        hook = block.key.register_forward_hook(lambda _, __, out, keys=keys: (out.retain_grad(), keys.append(out))[1])
        block(x).square().sum().backward()
        hook.remove()
        grads[variant] = keys[0].grad[0]
    odd = torch.arange(20) % 2 == 1
    assert grads["dnl_star"][odd].norm() < 1e-12 * grads["dnl_star"][~odd].norm()
    assert grads["dnl"][odd].norm() > 1e-2 * grads["dnl"][~odd].norm()
