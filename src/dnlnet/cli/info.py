"""`dnlnet info`: what a model file is."""

from pathlib import Path
from typing import Annotated

import typer


def info(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, a run folder, or a name on the hub.")],
    json: Annotated[Path | None, typer.Option(help="Also write it to this file.")] = None,
) -> None:
    """Print the recipe, classes, size and score of a model.

    Example: dnlnet info runs/camvid
    """
    from math import prod

    import yaml
    from safetensors import safe_open

    from dnlnet.cli.tables import write_json
    from dnlnet.recipes.model_file import find_model, read_model_file

    found = read_model_file(find_model(model))
    with safe_open(found.path, "pt") as file:
        values = sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    content = {
        "file": str(found.path),
        "megabytes": round(found.path.stat().st_size / 1e6, 1),
        "values": values,
        "iteration": found.iteration,
        "scores": found.scores,
        "classes": list(found.classes.names),
        "recipe": found.recipe.model_dump(mode="json"),
    }
    typer.echo(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)
    if json is not None:
        write_json(json, content)
        typer.echo(f"written: {json}")
