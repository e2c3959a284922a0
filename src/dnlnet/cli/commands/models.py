"""`dnlnet models`: the trained models included in the package."""

from typing import Annotated

import typer

from dnlnet.cli.terminal.options import Json
from dnlnet.cli.terminal.outputs import writes


@writes("json")
def models(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Model whose card to print.")] = None,
    json: Json = None,
) -> None:
    """List the bundled models, or print the card of one: origin, licence, scores, use.

    Bundled models need no download. Use their names wherever a command or dnlnet.load takes a model.

    Example: dnlnet models street
    """
    from dnlnet.artifacts.model_file import read_model_file
    from dnlnet.box import BOX
    from dnlnet.cli.terminal.tables import print_table
    from dnlnet.errors import unknown
    from dnlnet.files import write_json

    if name is not None and name not in BOX:
        raise unknown("model", name, BOX)
    found = {key: read_model_file(boxed.file) for key, boxed in BOX.items() if name in (None, key)}
    if name is not None:
        from dnlnet.artifacts.card import card_text

        typer.echo(card_text(found[name], name))
    else:
        print_table(
            "Bundled models",
            [
                {
                    "model": key,
                    "purpose": BOX[key].about,
                    "score": ", ".join(f"{metric} {value:.3f}" for metric, value in (file.scores or {}).items()),
                    "MB": f"{file.path.stat().st_size / 1e6:.1f}",
                    "licence": BOX[key].licence,
                }
                for key, file in found.items()
            ],
            f"Try: dnlnet attend {next(iter(BOX))} photo.jpg --page page.html",
        )
    if json is not None:
        content = {
            key: {
                "about": BOX[key].about,
                "licence": BOX[key].licence,
                "terms": BOX[key].terms,
                "command": BOX[key].command,
                "megabytes": round(file.path.stat().st_size / 1e6, 1),
                "scores": file.scores,
                "by_class": file.by_class,
                "classes": list(file.classes.names),
            }
            for key, file in found.items()
        }
        write_json(json, content)
        typer.echo(f"written: {json}")
