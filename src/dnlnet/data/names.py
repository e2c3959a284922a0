"""Names of files and classes as text: nothing in them is taken for a command, an element or a formula."""

import re
from html import escape

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~$:])")  # a colon, too: plain addresses become links


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


def in_figure(text: object) -> str:
    r"""A name as Matplotlib is given it, which takes what stands between two dollars for a formula.

    >>> in_figure("5$ and 6$")
    '5\\$ and 6\\$'
    """
    return printable(text).replace("$", r"\$")
