"""Restrict a web application to browsers that opened it on this machine.

A page of another site can send requests to this machine, and can point its own name at 127.0.0.1 (DNS rebinding).
Starlette, which comes with the extra `demo`, checks the name; the headers Origin and Sec-Fetch-Site, which pages
cannot change, reveal the sender.
"""

from typing import TYPE_CHECKING

from dnlnet.errors import shown

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Receive, Scope, Send


def local_only() -> list["Middleware"]:
    """Return the middleware of an application that only its own pages on this machine may use."""
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    names = ["127.0.0.1", "localhost", "[::1]"]
    return [Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False), Middleware(OwnPagesOnly)]


class OwnPagesOnly:
    """ASGI middleware that refuses requests sent by pages of other sites."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request."""
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        if scope["type"] in ("http", "websocket"):
            reason = refusal_reason(Headers(scope=scope), scope.get("method", ""))
            if reason is not None:
                await PlainTextResponse(reason, 403, {"connection": "close"})(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refusal_reason(headers: "Headers", method: str) -> str | None:
    """Return why a request is refused, or None if it is accepted. Other sites may only link here."""
    hosts = headers.getlist("host")
    if len(hosts) != 1:
        return f"expected one Host header, got {len(hosts)}"
    origins = [origin.lower() for origin in headers.getlist("origin")]
    if any(origin not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}") for origin in origins):
        return f"a page of {shown(', '.join(origins))} may not use this application; open its own page"
    is_link = (method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == (
        "GET",
        "navigate",
        "document",
    )
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
        return "a page of another site may not use this application; open its own page"
    return None
