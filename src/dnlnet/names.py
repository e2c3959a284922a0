"""Escaping of names of files and classes, for terminals, HTML, Markdown and Matplotlib."""

import re
from html import escape

_MARKDOWN = re.compile(r"([\\`*_\[\]()!|~$]|^[-+#]|:(?=//))")  # an address becomes a link by itself


def printable(text: object) -> str:
    """Escape control characters and characters that cannot be encoded, so that the text is one harmless line.

    >>> print(printable("a\\nb\\x1b[31m\\udcff é"))
    a\\nb\\x1b[31m\\udcff é
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in str(text)
    )


def in_html(text: object) -> str:
    """Escape a name for HTML.

    >>> in_html("<b>road</b>")
    '&lt;b&gt;road&lt;/b&gt;'
    """
    return escape(printable(text))


def in_markdown(text: object) -> str:
    r"""Escape a name for Markdown outside of code, including HTML elements.

    >>> print(in_markdown("[road](x) | <b>"))
    \[road\]\(x\) \| &lt;b&gt;
    """
    return _MARKDOWN.sub(r"\\\1", in_html(text))


def fenced(code: str, language: str) -> str:
    """Return a code block in Markdown, with a fence longer than any in the code.

    >>> print(fenced("a: 1", "yaml"))
    ```yaml
    a: 1
    ```
    """
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}"


def in_figure(text: object, longest: int = 40) -> str:
    r"""Escape a name for Matplotlib, and shorten it if it is long.

    Matplotlib reads text between dollar signs as a formula, and hides legend entries that begin with an underscore.

    >>> in_figure("5$ and 6$"), in_figure("a street in the rain", longest=9)
    ('5\\$ and 6\\$', 'a street…')
    """
    shown = re.sub("^_", " _", printable(text))
    return (shown if len(shown) <= longest else f"{shown[: longest - 1]}…").replace("$", r"\$")
