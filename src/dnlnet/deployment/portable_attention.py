"""Attention in standard operators, for exported files.

Other programs lack the operator of the blocks. Exported files use matrix products and softmax instead, in a loop over
blocks of queries that never forms the N x M map, or for all queries at once if the runtime has no loops.

Sharp attention has subnormal weights, which slow CPUs down. The loop sets them to zero, like the operator of the
blocks.
"""

# B batch, N query positions, M key positions, D embedding width, C value width, R rows of a block of queries

import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from dnlnet.attention import NonLocalBlock
from dnlnet.attention.operator import attend_explicit

Attention = Literal["blocked", "plain"]
ROWS = 512  # maximum number of queries per step of the loop
TINY = torch.finfo(torch.float32).tiny


def portable(network: nn.Module, attention: Attention = "blocked", *, traced: bool = False) -> nn.Module:
    """Copy a network, with blocks that compute attention with standard operators.

    Args:
        network: Network to copy.
        attention: `blocked`, a loop over blocks of queries, or `plain`, the definition, which forms the N x M map.
        traced: Use the loop of PyTorch's older, tracing exporter.

    >>> network = nn.Sequential(NonLocalBlock(8))
    >>> x = torch.rand(1, 8, 5, 6)
    >>> bool(torch.allclose(portable(network, "plain")(x), network(x)))
    True
    """
    attend: Callable[[Tensor, Tensor, Tensor], Tensor] = attend_plainly
    if attention == "blocked":
        attend = _compiled_loop() if traced else attend_in_blocks
    network = deepcopy(network).cpu().to(memory_format=torch.contiguous_format)
    for block in network.modules():
        if isinstance(block, NonLocalBlock):
            block.forward = partial(block.forward_with, attend=attend)  # type: ignore[method-assign]
    return network


def attend_plainly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute attention by its definition: y_i = sum_j softmax_j(q_i.k_j) v_j.

    The single query of a unary term uses a weighted sum in another order, because OpenVINO cannot compile the
    definition for one query.
    """
    if isinstance(query.shape[1], int) and query.shape[1] == 1:
        return (value.mT @ (key @ query.mT).softmax(dim=1)).mT
    return attend_explicit(query, key, value)


def attend_in_blocks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute y_i = sum_j softmax_j(q_i.k_j) v_j in a loop over blocks of R queries, which is exported as a loop.

    Sizes may be free. There are always at least two blocks, of nearly equal size; otherwise exporters would fix their
    number at one. For the same reason the code never depends on memory layouts.
    """
    try:
        from torch._higher_order_ops.scan import scan  # late, because it imports half of the compiler
    except ImportError:
        warnings.warn("this version of PyTorch has no scan; the exported attention forms the N x N map", stacklevel=2)
        return attend_plainly(query, key, value)
    batch, count, width = *query.shape[:2], value.shape[2]
    if isinstance(count, int) and count <= ROWS:
        return attend_plainly(query, key, value)
    blocks = count // ROWS + 2
    rows = (count + blocks - 1) // blocks
    columns = key.mT  # transposed once, outside the loop

    def attend_block(nothing: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        weights = (query.index_select(1, chosen) @ columns).softmax(dim=-1)
        attended = torch.hardshrink(weights, TINY) @ value
        return nothing.clone(), attended.transpose(0, 1).clone(memory_format=torch.contiguous_format)

    # The last query is repeated to fill the last block. A scan must carry a tensor.
    chosen = torch.arange(blocks * rows).clamp(max=count - 1).view(blocks, rows)
    attended: Tensor = scan(attend_block, torch.zeros(1), chosen)[1]  # (N/R, R, B, C)
    return attended.view(blocks * rows, batch, width).index_select(0, torch.arange(count)).transpose(0, 1)


def _compiled_loop() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return `attend_in_blocks` compiled for the older exporter, which unrolls other loops."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated
        return partial(torch.jit.script(_attend_in_traced_blocks), most=ROWS, tiny=TINY)


def _attend_in_traced_blocks(query: Tensor, key: Tensor, value: Tensor, most: int, tiny: float) -> Tensor:
    columns = key.transpose(1, 2)
    attended = value[:, :0]
    for start in range(0, query.shape[1], most):
        weights = torch.softmax(query[:, start : start + most] @ columns, dim=-1)
        attended = torch.cat([attended, torch.hardshrink(weights, tiny) @ value], dim=1)
    return attended
