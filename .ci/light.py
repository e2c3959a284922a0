"""Use the block and the lens with torch and numpy alone, as after `pip install --no-deps dnlnet`.

Run with the interpreter of the environment. All packages that torch and numpy do not need are hidden from imports.
"""

import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

KEPT = ("torch", "numpy")


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_requirements(names: tuple[str, ...]) -> set[str]:
    """Return the distributions with these names and all their requirements."""
    found: set[str] = set()
    waiting = [normalised(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:  # required on another platform
            continue
        waiting += [normalised(re.split(r"[^\w.-]", line)[0]) for line in needed if "extra ==" not in line]
    return found


class VisiblePackages:
    """The interpreter's package finder, restricted to these distributions."""

    def __init__(self, kept: set[str]) -> None:
        owners = packages_distributions()
        self.hidden = {top for top, names in owners.items() if not kept & set(map(normalised, names))} - {"dnlnet"}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        hidden = name.partition(".")[0] in self.hidden
        return None if hidden else PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]


finder = VisiblePackages(with_requirements(KEPT))
assert {"matplotlib", "PIL", "pydantic", "timm", "torchvision", "typer", "rich"} <= finder.hidden, finder.hidden
sys.meta_path[sys.meta_path.index(PathFinder)] = finder  # type: ignore[call-overload]

import torch  # noqa: E402
from torch import nn  # noqa: E402

import dnlnet  # noqa: E402

torch.manual_seed(0)
image = torch.rand(1, 3, 24, 24)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
block = dnlnet.insert(net, {"1": "dnl"})["1"]
net(image).sum().backward()
maps = block.attention_maps(torch.rand(1, 8, 24, 24), [(3, 4)])
with torch.no_grad(), dnlnet.capture(net) as attention:
    before = net(image)
assert len(attention.profile().heads) == 1
with torch.no_grad(), dnlnet.ablate(net, "both"):
    assert not torch.equal(net(image), before)


class Transformer(nn.Module):
    """Attention over patches, like a user's own network."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, stride=4)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x).flatten(2).mT
        return self.attention(tokens, tokens, tokens)[0]


transformer = Transformer().eval()
with torch.no_grad(), dnlnet.capture(transformer) as attention:
    transformer(image)
assert len(attention.profile().heads) == 2


def message(use: Callable[[], object]) -> str:
    try:
        use()
    except ModuleNotFoundError as error:
        return str(error)
    return "no error"


for use in (maps.plot, lambda: dnlnet.train, lambda: dnlnet.attend):
    found = message(use)
    assert re.fullmatch(r"\w+ is not installed; install it with: pip install dnlnet", found), found
print("the block, insert, capture, profile and ablate work with torch and numpy alone")
