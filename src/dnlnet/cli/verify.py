"""`dnlnet verify`: the paper's claims checked by computation."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.numbers import LARGEST_SEED


def verify(
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the random data the claims are checked on.")
    ] = 0,
    json: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
) -> None:
    """Check each claim of the paper that can be computed, and show how far it is from holding.

    Exit code 1 only if an identity that the block relies on fails. Claims of the paper that do not hold are
    reported as they are, with what does hold.

    Example: dnlnet verify --json verify.json
    """
    from dataclasses import asdict

    from dnlnet.cli.tables import print_table
    from dnlnet.files import write_json
    from dnlnet.lens.theory import check_claims

    claims = check_claims(seed)
    print_table(
        "Claims of the paper, checked in float64",
        [
            {
                "paper": claim.where,
                "claim": f"{claim.text}\n→ {claim.remark}" if claim.remark else claim.text,
                "residual": f"{claim.residual:.1e}",
                "verdict": "holds" if claim.holds else "does not hold",
                "relied on": "yes" if claim.relied_on else "",
            }
            for claim in claims
        ],
    )
    broken = [claim for claim in claims if claim.relied_on and not claim.holds]
    refuted = [claim for claim in claims if not claim.relied_on and not claim.holds]
    relied = sum(claim.relied_on for claim in claims)
    typer.echo(f"{relied - len(broken)} of {relied} identities that the block relies on hold.")
    typer.echo(f"{len(refuted)} printed claims do not hold as printed; the block needs none of them.")
    if json is not None:
        write_json(json, [{**asdict(claim), "holds": claim.holds} for claim in claims])
        typer.echo(f"written: {json}")
    if broken:
        raise typer.Exit(1)
