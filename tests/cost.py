"""What a computation costs, seen from its operators."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dnlnet.attention import operator


class LargestTensor(TorchDispatchMode):
    """Records the most elements of any tensor made, inside the package's own operators too."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.inside = {
            torch.ops.dnlnet.attend.default: operator._attend,
            torch.ops.dnlnet.attend_backward.default: operator._attend_backward,
        }
        self.operators: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.add(str(func))
        if func in self.inside:
            with self:
                out = self.inside[func](*args, **(kwargs or {}))
        else:
            out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                # A view may be large by expansion; what counts is memory.
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return out
