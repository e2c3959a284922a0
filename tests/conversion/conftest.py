import pytest

from foreign import use_small_backbones


@pytest.fixture(autouse=True)
def small_backbones(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_backbones(monkeypatch)
