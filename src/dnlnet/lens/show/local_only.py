"""Restrict a web application to its own pages in browsers on this machine.

A page of another site can send requests to this machine, and can point its own name to 127.0.0.1 (DNS rebinding). The
headers Origin and Sec-Fetch-Site reveal the first, Host the second; pages cannot change them.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from dnlnet.errors import shown

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


class LocalOnly:
    """ASGI middleware that refuses requests from other sites.

    Args:
        app: handles the other requests.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        reason = refusal_reason(scope["headers"], scope.get("method", "")) if "headers" in scope else None
        if reason is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": reason.encode()})


def refusal_reason(headers: Headers, method: str) -> str | None:
    """Why a request is refused, in one sentence; None if it is accepted.

    Other sites may link here; any other request of theirs is refused.

    >>> refusal_reason([(b"host", b"localhost:7860")], "GET")
    >>> refusal_reason([(b"host", b"evil.example:7860")], "GET")
    "this application is called 127.0.0.1 or localhost, not 'evil.example:7860'; open it under one of these names"
    """
    named: dict[str, list[str]] = {}
    for name, value in headers:
        named.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").lower())
    hosts = named.get("host", [])
    if len(hosts) != 1 or _host_name(hosts[0]) not in LOCAL_NAMES:
        called = shown(", ".join(hosts) or None)
        return f"this application is called 127.0.0.1 or localhost, not {called}; open it under one of these names"
    if any(origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}") for origin in named.get("origin", [])):
        return f"a page of {shown(', '.join(named['origin']))} may not use this application; open its own page"
    site, mode, place = (
        named.get(f"sec-fetch-{name}", [default])[0]
        for name, default in (("site", "none"), ("mode", ""), ("dest", ""))
    )
    followed = (method, mode, place) == ("GET", "navigate", "document")
    if site not in ("none", "same-origin") and not followed:
        return "a page of another site may not use this application; open its own page"
    return None


def _host_name(host: str) -> str | None:
    """A host without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None  # such as an unclosed bracket
