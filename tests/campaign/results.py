"""What came of the tries: one line each in a file, so that forked processes can write side by side."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Try:
    """One try: of which part of the campaign and which kind, what was tried, and what fell short, if anything did."""

    part: str
    kind: str
    what: str
    fault: str | None = None
    tries: int = 1  # a chain of kills that ends in one comparison counts its kills


class Results:
    """Tries in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, tried: Try) -> None:
        """Append a line, in one write, and show what fell short."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, (json.dumps(asdict(tried)) + "\n").encode())
        os.close(descriptor)
        if tried.fault is not None:
            print(f"fell short: {tried.part}, {tried.kind}: {tried.what}: {tried.fault}", flush=True)

    def __iter__(self) -> Iterator[Try]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return (Try(**json.loads(line)) for line in lines)

    def table(self) -> list[dict[str, object]]:
        """Tries, held and fell short, for each kind of each part."""
        tries: Counter[tuple[str, str]] = Counter()
        short: Counter[tuple[str, str]] = Counter()
        for tried in self:
            tries[tried.part, tried.kind] += tried.tries
            short[tried.part, tried.kind] += tried.tries if tried.fault is not None else 0
        return [
            {
                "part": part,
                "kind": kind,
                "tries": count,
                "held": count - short[part, kind],
                "short": short[part, kind],
            }
            for (part, kind), count in tries.items()
        ]
