"""Results of tries: one line each in a file shared by forked processes."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Try:
    """Result of one try, including its fault."""

    part: str
    kind: str
    what: str
    fault: str | None = None
    tries: int = 1  # number of kills in a chain that ends in one comparison


class Results:
    """Tries in a JSON Lines file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, tried: Try) -> None:
        """Append a line in one write, and print any failure."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, (json.dumps(asdict(tried)) + "\n").encode())
        os.close(descriptor)
        if tried.fault is not None:
            print(f"failed: {tried.part}, {tried.kind}: {tried.what}: {tried.fault}", flush=True)

    def __iter__(self) -> Iterator[Try]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return (Try(**json.loads(line)) for line in lines)

    def table(self) -> list[dict[str, object]]:
        """Return the number of tries, passed and failed, per part and kind."""
        tries: Counter[tuple[str, str]] = Counter()
        failed: Counter[tuple[str, str]] = Counter()
        for tried in self:
            tries[tried.part, tried.kind] += tried.tries
            failed[tried.part, tried.kind] += tried.tries if tried.fault is not None else 0
        return [
            {
                "part": part,
                "kind": kind,
                "tries": count,
                "passed": count - failed[part, kind],
                "failed": failed[part, kind],
            }
            for (part, kind), count in tries.items()
        ]
