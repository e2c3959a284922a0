"""Requests that the application answers or refuses."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the application needs gradio, which brings starlette")

from dnlnet.lens.show.explorer_app import local_only

HOST = {"Host": "localhost:7860"}
PAGE = HOST | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
Given = list[tuple[str, str]]


def ask(given: Given, method: str = "GET", kind: str = "http") -> tuple[list[str], list[dict[str, Any]]]:
    """Send a request through the middleware. Return the requests that reach the application and the messages sent."""
    reached: list[str] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def receive() -> dict[str, Any]:
        return {"type": f"{kind}.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    guarded: Any = app
    for middleware in reversed(local_only()):
        guarded = middleware.cls(guarded, *middleware.args, **middleware.kwargs)
    headers = [(name.lower().encode(), value.encode()) for name, value in given]
    asyncio.run(guarded({"type": kind, "method": method, "headers": headers}, receive, send))
    return reached, sent


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
def test_the_applications_pages_and_links_to_them_are_answered(given: dict[str, str]) -> None:
    assert ask(list(given.items())) == (["http"], [])


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
def test_other_requests_are_refused(method: str, given: dict[str, str]) -> None:
    reached, sent = ask(list(given.items()), method)
    assert not reached
    assert sent[0]["status"] in (400, 403)


@pytest.mark.parametrize("second", ["evil.example", "localhost:7860"])
def test_two_host_names_at_once_are_refused(second: str) -> None:
    reached, sent = ask([*HOST.items(), ("Host", second)])
    assert not reached
    assert sent[0]["status"] == 403


def test_a_refused_websocket_is_not_accepted() -> None:
    for given in ({"Host": "evil.example"}, HOST | {"Origin": "https://evil.example"}):
        reached, sent = ask(list(given.items()), kind="websocket")
        assert not reached
        assert sent[0]["type"] == "websocket.http.response.start"
        assert sent[0]["status"] in (400, 403)
    assert ask(list(HOST.items()), kind="websocket")[0] == ["websocket"]


def test_messages_without_headers_pass() -> None:
    assert ask([], kind="lifespan") == (["lifespan"], [])
