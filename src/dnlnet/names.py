"""Names of files and classes as text: nothing in them is taken for a command, an element or a formula."""

import re
from html import escape

_MARKDOWN = re.compile(r"([\\`*_\[\]()!|~$]|^[-+#]|:(?=//))")  # an address becomes a link by itself


def printable(text: object) -> str:
    """A name in one line, with what a terminal would obey, and what no file can hold, written out.

    >>> print(printable("a\\nb\\x1b[31m\\udcff é"))
    a\\nb\\x1b[31m\\udcff é
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in str(text)
    )


def in_html(text: object) -> str:
    """A name as it is put into HTML.

    >>> in_html("<b>road</b>")
    '&lt;b&gt;road&lt;/b&gt;'
    """
    return escape(printable(text))


def in_markdown(text: object) -> str:
    r"""A name as it is put into Markdown, outside of code: neither Markdown nor the HTML that Markdown may hold.

    >>> print(in_markdown("[road](x) | <b>"))
    \[road\]\(x\) \| &lt;b&gt;
    """
    return _MARKDOWN.sub(r"\\\1", in_html(text))


def fenced(code: str, language: str) -> str:
    """Lines of code in Markdown, between fences that are longer than any in the code.

    >>> print(fenced("a: 1", "yaml"))
    ```yaml
    a: 1
    ```
    """
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}"


def in_figure(text: object, longest: int = 40) -> str:
    r"""A name as Matplotlib is given it, cut if it is long.

    What stands between two dollars would be a formula, and what begins with an underscore is left out of a legend.

    >>> in_figure("5$ and 6$"), in_figure("a street in the rain", longest=9)
    ('5\\$ and 6\\$', 'a street…')
    """
    shown = re.sub("^_", " _", printable(text))
    return (shown if len(shown) <= longest else f"{shown[: longest - 1]}…").replace("$", r"\$")
