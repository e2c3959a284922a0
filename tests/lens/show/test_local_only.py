"""Who may talk to the application."""

import asyncio
from typing import Any

import pytest

from dnlnet.lens.show.local_only import LocalOnly, refusal_reason

HOST = {"Host": "localhost:7860"}
PAGE = HOST | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def headers(given: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in given.items()]


@pytest.mark.parametrize(
    "given",
    [
        HOST,
        {"Host": "127.0.0.1"},
        {"Host": "[::1]:7860"},
        {"Host": "LOCALHOST:7860"},
        HOST | {"Origin": "http://localhost:7860", "Sec-Fetch-Site": "same-origin"},
        PAGE | {"Sec-Fetch-Site": "none"},
        PAGE | {"Sec-Fetch-Site": "cross-site"},  # a link on another page
    ],
)
def test_its_own_pages_and_links_to_them_are_answered(given: dict[str, str]) -> None:
    assert refusal_reason(headers(given), "GET") is None


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("GET", {}),
        ("GET", {"Host": "evil.example:7860"}),
        ("GET", {"Host": "localhost.evil.example"}),
        ("GET", {"Host": "127.0.0.1@evil.example"}),
        ("GET", {"Host": "[::1"}),
        ("POST", HOST | {"Origin": "https://evil.example"}),
        ("POST", HOST | {"Origin": "http://localhost:8888"}),
        ("POST", HOST | {"Origin": "null"}),
        ("GET", HOST | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}),
        ("GET", HOST | {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}),
        ("POST", PAGE | {"Sec-Fetch-Site": "cross-site"}),
    ],
)
def test_others_are_refused(method: str, given: dict[str, str]) -> None:
    assert refusal_reason(headers(given), method)


def test_two_names_at_once_are_refused() -> None:
    assert refusal_reason(headers(HOST) + headers({"Host": "evil.example"}), "GET")


@pytest.mark.parametrize(("kind", "first"), [("http", "http.response.start"), ("websocket", "websocket.close")])
def test_a_refused_request_does_not_reach_the_application(kind: str, first: str) -> None:
    reached, sent = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def receive() -> dict[str, Any]:
        return {"type": f"{kind}.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    for given in ({"Host": "evil.example"}, HOST):
        scope = {"type": kind, "method": "GET", "headers": headers(given)}
        asyncio.run(LocalOnly(app)(scope, receive, send))
    assert [scope["headers"] for scope in reached] == [headers(HOST)]
    assert sent[0]["type"] == first
    asyncio.run(LocalOnly(app)({"type": "lifespan"}, receive, send))
    assert len(reached) == 2
