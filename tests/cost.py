"""Cost of a computation, measured on its operators."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dnlnet.attention import blocked

MULTIPLIES = (torch.ops.aten.bmm, torch.ops.aten.baddbmm, torch.ops.aten.mm, torch.ops.aten.addmm)


class InsideOperators(TorchDispatchMode):
    """Dispatch mode that also records operators inside the package's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = {
            torch.ops.dnlnet.attend.default: blocked.attend,
            torch.ops.dnlnet.attend_backward.default: blocked.attend_backward,
        }

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in self.inside:
            with self:
                return self.inside[func](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class LargestTensor(InsideOperators):
    """Record the number of elements of the largest tensor created."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.operators: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators.add(str(func))
        out = super().__torch_dispatch__(func, types, args, kwargs)
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                # An expanded view may be large without using memory.
                self.elements = max(self.elements, leaf.untyped_storage().nbytes() // leaf.element_size())
        return out


class Multiplied(InsideOperators):
    """Count the subnormal numbers in inputs of matrix multiplications."""

    def __init__(self) -> None:
        super().__init__()
        self.subnormal = self.multiplies = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in MULTIPLIES:
            operands = [x for x in args if isinstance(x, Tensor)][-2:]
            self.multiplies += 1
            self.subnormal += sum(int(((x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)).sum()) for x in operands)
        return super().__torch_dispatch__(func, types, args, kwargs)
