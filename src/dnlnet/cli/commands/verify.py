"""`dnlnet verify`: the paper's claims checked by computation, and the block checked on a device."""

from pathlib import Path
from typing import Annotated

import typer

from dnlnet.cli.terminal.options import Json, Seed
from dnlnet.cli.terminal.outputs import write_result, writes
from dnlnet.cli.terminal.tables import print_table


@writes("json")
def verify(
    device: Annotated[
        str | None,
        typer.Option(metavar="cpu|cuda|mps|xpu", help="Check the block on this device instead (about a minute)."),
    ] = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Check the paper's claims numerically, and show the error of each.

    The exit code is 1 only if an identity that the block relies on fails. Claims of the paper that do not hold are
    reported together with what does hold.

    With --device, compare the block with its equations on that device: all variants in 1d, 2d and 3d, outputs and
    gradients, every precision, autocast and torch.compile; no attention map may be stored. Paste the table into a bug
    report. The exit code is 1 if a check fails.

    Example: dnlnet verify --device cuda
    """
    if device is not None:
        _verify_device(device, json)
        return
    from dataclasses import asdict

    from dnlnet.lens.measure.theory import verify as check_claims

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
    typer.echo(f"{len(refuted)} claims do not hold as printed; the block needs none of them.")
    write_result(json, [{**asdict(claim), "holds": claim.holds} for claim in claims])
    if broken:
        raise typer.Exit(1)


def _verify_device(device: str, json: Path | None) -> None:
    """Run every check on a device, and print a Markdown table."""
    import platform
    from dataclasses import asdict

    from dnlnet import __version__
    from dnlnet.bench.equalities import TITLES, describe_device, verify_device

    described = describe_device(device)
    checks = verify_device(device)
    versions = f"dnlnet {__version__}, Python {platform.python_version()}, {platform.system()}"
    typer.echo(f"{described}; {versions}\n")
    typer.echo("| check | cases | largest error | allowed | verdict |\n|---|---:|---:|---:|---|")
    for check in checks:
        verdict = "holds" if check.holds else check.note or "does not hold"
        error = "-" if check.error is None else f"{check.error:.1e}"
        typer.echo(f"| {TITLES[check.name]} | {check.cases} | {error} | {check.allowed:.0e} | {verdict} |")
    failed = [check for check in checks if not (check.holds or check.skipped)]
    skipped = sum(check.skipped for check in checks)
    left_out = f" ({skipped} skipped)" if skipped else ""
    typer.echo(
        f"\n{len(failed)} of {len(checks)} checks failed{left_out}: do not rely on the block on this device."
        if failed
        else f"\nThe block agrees with its equations on {device}{left_out}."
    )
    rows = [{**asdict(check), "holds": check.holds} for check in checks]
    write_result(json, {"device": described, "versions": versions, "checks": rows})
    if failed:
        raise typer.Exit(1)
