from torch import Tensor, nn

from dnlnet import NonLocalBlock
from dnlnet.lens.measure.complexity import Complexity, count_complexity, measure_latency


class WithAuxiliary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Conv2d(3, 4, kernel_size=3, padding=1, bias=False)
        self.auxiliary = nn.Conv2d(3, 2, kernel_size=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.auxiliary(x)
        return self.main(x)


def test_the_auxiliary_head_is_counted() -> None:
    counted = count_complexity(WithAuxiliary, (5, 6))
    assert counted == Complexity(parameters=3 * 4 * 9 + 3 * 2, macs=5 * 6 * (3 * 4 * 9 + 3 * 2))


def test_attention_is_counted_with_the_papers_formula() -> None:
    C, HW = 3 * 8, 10 * 12
    network = nn.Sequential(nn.Conv2d(3, C, kernel_size=1, bias=False), NonLocalBlock(C, "nl"))
    counted = count_complexity(lambda: network.to("meta"), (10, 12))
    assert counted.macs == 3 * C * HW + 2 * C**2 * HW + 1.5 * C * HW**2


def test_latency_is_measured_without_the_auxiliary_head() -> None:
    calls = []

    class Recorded(WithAuxiliary):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(self.training)
            return super().forward(x)

    assert measure_latency(Recorded, (8, 8), rounds=2) > 0
    assert calls == [False] * 3
