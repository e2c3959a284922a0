"""`dnlnet models`: the included trained models, and those of installed packages."""

from typing import Annotated

import typer

from dnlnet.cli.terminal.options import Json
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.cli.terminal.tables import print_table


@writes("json")
def models(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Model whose card to print.")] = None,
    json: Json = None,
) -> None:
    """List the bundled models, or print one model's card: origin, licence, scores and use.

    Bundled models need no download. Use their names wherever a command or dnlnet.load takes a model.

    Example: dnlnet models pets
    """
    from dnlnet.artifacts.model_file import read_model_file
    from dnlnet.bundled import MODELS, find_bundled
    from dnlnet.errors import unknown

    if name is not None and find_bundled(name) is None:
        raise unknown("model", name, MODELS)
    found = {key: read_model_file(bundled.file) for key, bundled in MODELS.items() if name in (None, key)}
    if name is not None:
        from dnlnet.artifacts.card import card_text

        typer.echo(card_text(found[name], name))
    else:
        print_table(
            "Bundled models",
            [
                {
                    "model": key,
                    "purpose": MODELS[key].about,
                    "score": ", ".join(f"{metric} {value:.3f}" for metric, value in (file.scores or {}).items()),
                    "MB": f"{file.path.stat().st_size / 1e6:.1f}",
                    "licence": MODELS[key].licence,
                }
                for key, file in found.items()
            ],
            f"Try: dnlnet attend {next(iter(MODELS))} photo.jpg --page page.html",
        )
    content = {
        key: {
            "about": MODELS[key].about,
            "licence": MODELS[key].licence,
            "terms": MODELS[key].terms,
            "command": MODELS[key].command,
            "megabytes": round(file.path.stat().st_size / 1e6, 1),
            "scores": file.scores,
            "by_class": file.by_class,
            "classes": list(file.classes.names),
        }
        for key, file in found.items()
    }
    write_result(json, content)
