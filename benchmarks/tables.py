"""Write the tables of the pages in benchmarks/ from the results they name.

Each table follows a line such as `<!-- results/train.json -->`.

Example: python benchmarks/tables.py
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PAGES = sorted(FOLDER.glob("*.md"))
_PLACE = re.compile(r"^<!-- (results/\S+\.json) -->\n(?:\|.*\n)*", re.MULTILINE)
Result = Mapping[str, Any]


def main() -> None:
    """Write the tables into the pages and print their number."""
    for page in PAGES:
        text, count = fill(page.read_text())
        page.write_text(text)
        print(f"{page.name}: {count} tables written")


def fill(text: str) -> tuple[str, int]:
    """Return the page with new tables, and the number of tables."""
    return _PLACE.subn(lambda place: f"<!-- {place[1]} -->\n{table(FOLDER / place[1])}", text)


def table(path: Path) -> str:
    """Return the table of one results file, without columns that were never measured."""
    rows = json.loads(path.read_text())["rows"]
    made = [_row(row, rows[0]) for row in rows]
    columns = [name for name in made[0] if any(row[name] for row in made)]
    lines = [columns, [_rule(name) for name in columns], *([row[name] or "-" for name in columns] for row in made)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


_WORDS = ("size", "variant", "pass", "form", "stage", "way")


def _rule(column: str) -> str:
    return "---" if column in _WORDS else "---:"


def _row(row: Result, first: Result) -> dict[str, str]:
    if "variant" in row:
        return _block_row(row)
    if "way" in row:
        return _way_row(row)
    if "stage" in row:
        return _stage_row(row)
    if "images_per_second" in row:
        return _train_row(row)
    return _form_row(row, first)


def _block_row(row: Result) -> dict[str, str]:
    return {
        "size": row["size"] if row["batch"] == 1 else f"{row['batch']} x {row['size']}",
        "variant": f"`{row['variant']}`",
        "pass": "fwd + bwd" if row["training"] else "fwd",
        **{f"{form} ms": _milliseconds(row[f"{form}_seconds"]) for form in ("fused", "explicit", "sdpa", "flex")},
        "ratio": _ratio(row["time_ratio"]),
        "of float32": _ratio(row.get("float32_ratio")),
        "control": _ratio(row.get("control_ratio")),
        "of limit": _ratio(row["share_of_limit"]),
        "of single": _ratio(row["share_of_single_limit"]),
        "fused MB": _megabytes(row["fused_bytes"]),
        "explicit MB": _megabytes(row["explicit_bytes"]),
        "of explicit MB": _maybe("{:.3f}".format, row["memory_ratio"]),
        "float32 MB": _megabytes(row.get("float32_bytes")),
    }


def _way_row(row: Result) -> dict[str, str]:
    errors = {case: f"{output:.4f}, {gradient:.4f}" for case, (output, gradient) in row["errors"].items()}
    return {"way": row["way"], "time": _ratio(row["time"]), **errors}


def _train_row(row: Result) -> dict[str, str]:
    parts = row["parts"] or {}
    names = ("reading", "forward", "backward", "update")
    return {
        "form": row["form"],
        "images/s": f"{row['images_per_second']:.1f}",
        "time": _ratio(row.get("ratio")),
        **{f"{name} ms": _maybe(lambda seconds: f"{1e3 * seconds:.1f}", parts.get(name)) for name in names},
    }


def _stage_row(row: Result) -> dict[str, str]:
    return {
        "stage": f"`{row['stage']}`",
        "s": f"{row['seconds']:.2f}",
        "of torch": _ratio(row["ratio"]),
        "CPU s": f"{row['cpu_seconds']:.2f}",
        "of torch's CPU": _ratio(row["cpu_ratio"]),
        "cold s": _maybe("{:.2f}".format, row["cold_seconds"]),
        "cold, of torch": _ratio(row["cold_ratio"]),
    }


def _form_row(row: Result, first: Result) -> dict[str, str]:
    return {
        "form": row["form"],
        "ms": _milliseconds(row["seconds"]),
        f"of {first['form']}": _ratio(row.get("ratio", row["seconds"] / first["seconds"])),
        "largest difference of a logit": f"{row['difference']:.1e}",
    }


def _maybe(write: Callable[[float], str], value: float | None) -> str:
    return "" if value is None else write(value)


def _ratio(value: float | None) -> str:
    return _maybe("{:.2f}".format, value)


def _megabytes(count: float | None) -> str:
    return _maybe(lambda count: f"{1e-6 * count:,.0f}", count)


def _milliseconds(seconds: float | None) -> str:
    def write(seconds: float) -> str:
        decimals = 0 if seconds >= 0.1 else 1 if seconds >= 0.01 else 2
        return f"{1e3 * seconds:,.{decimals}f}"

    return _maybe(write, seconds)


if __name__ == "__main__":
    main()
