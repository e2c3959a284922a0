from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator

from dnlnet.data.parsing import expecting, require_list, shortened, validated


class Shape(BaseModel):
    corner: Annotated[tuple[int, int], BeforeValidator(require_list), expecting("[x, y]")]
    name: str = ""
    sizes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({}, "corner: is missing"),
        ({"corner": [1]}, "corner=[1]: expected [x, y]"),
        ({"corner": {1, 2}}, "corner={1, 2}: expected [x, y]"),
        ({"corner": [1, 2], "name": None}, "name=null: expected text"),
        ({"corner": [1, 2], "name": 7, "sizes": 8}, "name=7: expected text (and 1 more)"),
        ({"corner": "\x1b[31m"}, "corner=\\x1b[31m: expected [x, y]"),
        ({"corner": " "}, "corner=' ': expected [x, y]"),
        ({"corner": "x" * 100}, f"corner={'x' * 57}...: expected [x, y]"),
        ({"corner": float("nan")}, "corner=.nan: expected [x, y]"),
        ([], "expected a mapping with its settings, got []"),
        (None, "expected a mapping with its settings, got nothing"),
    ],
)
def test_errors_give_one_sentence(content: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^a\.yaml: ") as caught:
        validated(Shape, content, "a.yaml: ")
    assert str(caught.value) == f"a.yaml: {sentence}"


def test_a_quoted_text_contains_no_control_characters() -> None:
    assert shortened("a\x1b[31m\tb\n") == "a\\x1b[31m b"
