"""Build both packages, install them into empty environments for each extra, and run the demo there.

Writes the packages and packages.json into dist. --short: only the wheel of dnlnet, without extras, and no files.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).with_name("uv")
STREET = ("demo", "all")  # extras with dnlnet-street


def main() -> None:
    """Measure each installation, and print a row for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="only the wheel of dnlnet, without extras")
    short = parser.parse_args().short
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    rows = []
    with TemporaryDirectory() as folder:
        work = Path(folder)
        dist = work if short else ROOT / "dist"
        for project in ("", "packages/street"):
            run(
                UV,
                "build",
                "--quiet",
                "--no-build-isolation",
                "--python",
                sys.executable,
                "--out-dir",
                dist,
                ROOT / project,
            )
        locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
        versions = re.findall(r"^[\w.-]+==[^\\\n]+", locked, flags=re.MULTILINE)  # as tested, and in uv's cache
        (work / "versions.txt").write_text("\n".join(versions), encoding="utf-8")
        print(f"{'package':8} {'extra':13} {'MB':>6} {'seconds':>8}")
        for kind in ("wheel",) if short else ("wheel", "sdist"):
            for extra in ("",) if short else ("", *extras, "all"):
                named = ",".join(extras) if extra == "all" else extra
                megabytes, seconds = install(work, dist, kind, named, extra in STREET)
                print(f"{kind:8} {extra or '-':13} {megabytes:6.0f} {seconds:8.1f}", flush=True)
                rows.append(
                    {"package": kind, "extra": extra, "megabytes": round(megabytes), "seconds": round(seconds, 1)}
                )
    if not short:
        (dist / "packages.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(f"written: {dist}")


def install(work: Path, dist: Path, kind: str, extras: str, street: bool) -> tuple[float, float]:
    """Install into an empty environment, run the demo, and return the environment's MB and the seconds to make it."""
    end = "-py3-none-any.whl" if kind == "wheel" else ".tar.gz"
    names = [("dnlnet", f"[{extras}]" if extras else "")] + [("dnlnet_street", "")] * street
    wanted = [f"{name}{extra} @ {next(dist.glob(f'{name}-*{end}')).as_uri()}" for name, extra in names]
    with TemporaryDirectory(dir=work) as folder:
        environment = Path(folder) / "environment"
        start = perf_counter()
        run(UV, "venv", "--quiet", "--python", sys.executable, environment)
        python = environment / "bin" / "python"
        run(UV, "pip", "install", "--quiet", "--python", python, "--constraints", work / "versions.txt", *wanted)
        seconds = perf_counter() - start
        if not extras or street:
            out = Path(folder) / "demo"
            run(environment / "bin" / "dnlnet", "demo", "--steps", "5", "--out", out, cwd=folder)
            photo = "street" if street else "pets"
            missing = [name for name in ("explore.html", f"{photo}.png") if not (out / name).is_file()]
            if missing:
                sys.exit(f"the demo of {kind} {extras} wrote no {', '.join(missing)}")
        files = [path.lstat().st_size for path in environment.rglob("*") if not path.is_dir()]
        return sum(files) / 1e6, seconds


def run(*command: object, cwd: object = None) -> None:
    """Run a command without this repository's packages; on failure, print its output and stop."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
