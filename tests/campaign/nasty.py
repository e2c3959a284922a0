"""Values that programs often mishandle, and ways to damage valid files."""

import json
import random
from typing import Any

DEEP = "[" * 5000 + "]" * 5000

SETTINGS = (
    ".inf",
    "-.inf",
    ".nan",
    "1.0e300",
    "1.0e-300",
    "-1",
    "0",
    "true",
    "null",
    "''",
    "word",
    "[]",
    "[2.0, 0.5]",
    "[.inf, .inf]",
    "{}",
    "{a: {b: 1}}",
    "99999999999999999999",
    "2147483648",
    "[[1, 2], [3]]",
    "'('",
    DEEP,
)

NUMBERS = ("nan", "inf", "-inf", "1e400", "-1", "0", "1", "abc", "", "99999999999999999999", "1x1", "0x0", "1e9x1")

_NODES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1e300,
    float("nan"),
    float("inf"),
    2**31,
    2**63,
    10**40,
    "",
    "word",
    "../../etc/passwd",
    "²³",
    "\x00",
    "a" * 5000,
    [],
    [[]],
    {},
    {"a": 1},
    [1e300, -1e300, 1e300, 5, 5, 5],
    {"counts": [2**40, 1], "size": [40, 60]},
    {"counts": "PPPPPPP", "size": [40, 60]},
    {"counts": [10], "size": [2**31, 2**31]},
)


def mutated_json(content: Any, rng: random.Random) -> str:
    """Return JSON with one node replaced, removed or duplicated; sometimes only deeply nested lists."""
    if rng.random() < 0.03:
        return DEEP
    content = json.loads(json.dumps(content))
    node, path = content, []
    while isinstance(node, dict | list) and node and (not path or rng.random() < 0.85):
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        path.append((node, key))
        node = node[key]
    if not path:
        return json.dumps(rng.choice(_NODES))
    parent, key = path[-1]
    kind = rng.random()
    if kind < 0.1:
        del parent[key]
    elif kind < 0.2 and isinstance(parent, list):
        parent.append(parent[key])
    else:
        parent[key] = rng.choice(_NODES)
    return json.dumps(content)


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """Truncate bytes, flip bits, write zeros or noise, or duplicate a part."""
    data = bytearray(content)
    at = rng.randrange(max(1, len(data)))
    length = rng.randrange(1, 64)
    match rng.randrange(5):
        case 0:
            del data[at:]
        case 1:
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            data[at : at + length] = bytes(length)
        case 3:
            data[at : at + length] = rng.randbytes(length)
        case _:
            data[at:at] = data[at : at + length]
    return bytes(data)
