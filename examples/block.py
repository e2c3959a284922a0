"""Use the block on its own: every variant on the same features, a gate, and the attention maps of one pixel."""

import torch

import dnlnet

torch.manual_seed(0)
features = torch.randn(2, 64, 24, 32)  # batch, channels, height, width: the output of any layer of a network

# Each of the paper's variants maps (B, C, H, W) to the same shape.
for name, variant in dnlnet.VARIANTS.items():
    block = dnlnet.NonLocalBlock(64, name)
    parameters = sum(parameter.numel() for parameter in block.parameters())
    print(f"{name:12} {variant.paper:25} {parameters:6,} parameters  output {tuple(block(features).shape)}")

# Sequences and clips work the same way.
print("1d", tuple(dnlnet.NonLocal1d(64)(torch.randn(2, 64, 100)).shape))
print("3d", tuple(dnlnet.NonLocal3d(64)(torch.randn(2, 64, 4, 12, 16)).shape))

# A zero gate makes a new block the identity, which keeps a pretrained network intact. Training opens it.
block = dnlnet.NonLocalBlock(64, "dnl", gate="scalar")
print("with a zero gate the output is the input:", torch.equal(block(features), features))

# The N x N attention map is never materialised. Request maps of single positions: (row, column), counted from 0.
maps = block.attention_maps(features, queries=[(12, 16)])
print(f"pairwise {tuple(maps.pairwise.shape)}: where this pixel attends; it sums to {maps.pairwise[0].sum():.3f}")
print(f"unary    {tuple(maps.unary.shape)}: where all pixels attend; it sums to {maps.unary[0].sum():.3f}")
print(f"combined {tuple(maps.combined.shape)}: what the block applies")
