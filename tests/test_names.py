"""Names are escaped wherever they are shown; a library with the rules of Markdown checks them."""

import pytest
from markdown_it import MarkdownIt

from dnlnet.names import fenced, in_figure, in_html, in_markdown, printable

BAD_NAMES = (
    "<img src=x onerror=alert(1)>",
    "![a](https://evil.example/a.png)",
    "[a](javascript:alert(1))",
    "<https://evil.example>",
    "**bold** _slanted_ ~~gone~~ `code`",
    "a | b",
    "# title",
    "- item",
    "&lt;b&gt; &amp;",
    "$x^$ and $\\frac$",
    "back\\slash \\[",
    "_background_",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_markdown_shows_a_name_unchanged(name: str) -> None:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    plain = in_html(name).replace("&#x27;", "'")
    assert markdown.render(in_markdown(name)) == f"<p>{plain}</p>\n"
    table = markdown.render(f"| class |\n|---|\n| {in_markdown(name)} |")
    assert f"<td>{plain}</td>" in table
    assert table.count("<td>") == 1


def test_code_cannot_escape_its_fence() -> None:
    code = "a: |\n```\n<b>\n````"
    (token,) = MarkdownIt("commonmark").parse(fenced(code, "yaml"))
    assert token.content == f"{code}\n"


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "\x1b[2Ja", "a\udcffb", "a\u202eb", "\x00"])
def test_control_characters_are_escaped(name: str) -> None:
    for shown in (printable(name), in_html(name), in_markdown(name), in_figure(name)):
        assert shown.isprintable()
        assert "\\" in shown
        shown.encode()
