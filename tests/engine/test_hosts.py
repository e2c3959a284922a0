"""Two hosts, as network namespaces joined by a cable of their own: one agent of torchrun on each."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dnlnet.engine.log import read_log

SMALL = [
    *("--set", "optim.kind=sgd", "--set", "optim.lr=0.05", "--set", "training.frozen_statistics=true"),
    *("--set", "data.crop=[32, 32]", "--set", "schedule.batch=4", "--set", "schedule.iterations=12"),
    *("--set", "training.evaluate_every=6", "--set", "training.save_every=4"),
]
# The second host's first process ends itself and the agent that started it, as if the host had lost its power.
LOSES_POWER = """
import os, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from dnlnet.engine import run
update = run.Run.update
def update_or_die(self, lr):
    marker = Path(os.environ["MARKER"])
    if os.environ["HOST"] == "2" and self.iteration == 9 and not marker.exists():
        marker.write_text("")
        os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)
    update(self, lr)
run.Run.update = update_or_die
from dnlnet.cli.main import main
main()
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two network namespaces with the addresses 10.231.7.1 and 10.231.7.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("two hosts need network namespaces: the command ip, and the right to make them")
    made = uuid.uuid4().hex[:6]
    names = (f"dnl-{made}-1", f"dnl-{made}-2")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for number, name in enumerate(names, start=1):
            ip("-n", name, "address", "add", f"10.231.7.{number}/24", "dev", "cable")
            for device in ("cable", "lo"):
                ip("-n", name, "link", "set", device, "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"two hosts need network namespaces, which cannot be made here: {error.stderr.strip()}")
    else:
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def agent(host: str, number: int, script: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    """torchrun on one of the hosts."""
    launch = [
        *("ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes=2", "--nproc-per-node=1", "--max-restarts=0", f"--local-addr=10.231.7.{number}"),
        *("--rdzv-backend=c10d", "--rdzv-id=hosts", "--rdzv-endpoint=10.231.7.1:29400"),
        f"--rdzv-conf=is_host={int(number == 1)}",  # which names and addresses say on hosts of one's own
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "cable",
        "HOST": str(number),
        "MARKER": str(out.parent / "crashed"),
    }
    arguments = ["train", "scenes-tiny-dnl", "--out", str(out), "--workers", "0", *SMALL]
    with log.open("w") as output:
        return subprocess.Popen([*launch, str(script), *arguments], env=environment, stdout=output, stderr=output)


def test_a_run_on_two_hosts_survives_the_loss_of_one(hosts: tuple[str, str], tmp_path: Path) -> None:
    """The other ends too; the same command on both, as a cluster requeues it, resumes the run."""
    script, out = tmp_path / "train.py", tmp_path / "hosts"
    script.write_text(LOSES_POWER)
    said = []
    for attempt in ("lost", "resumed"):
        logs = [tmp_path / f"{attempt}-{host}.log" for host in hosts]
        agents = [
            agent(host, number, script, out, log)
            for number, (host, log) in enumerate(zip(hosts, logs, strict=True), 1)
        ]
        try:
            codes = [each.wait(timeout=300) for each in agents]
        finally:
            for each in agents:
                each.kill()
                each.wait()
        said.append("".join(log.read_text() for log in logs))
        if attempt == "lost":
            assert codes == [1, -9], said[0]
    assert "lost the connection to another process" in said[0]
    assert codes == [0, 0], said[1]
    assert "resuming from iteration 8 of 12" in said[1]
    alone = tmp_path / "alone"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "dnlnet", "train", "scenes-tiny-dnl", "--out", str(alone), "--workers", "0"]
    subprocess.run([*command, *SMALL], env=environment, check=True, capture_output=True)
    ours, theirs = ([line for line in read_log(run) if line["event"] == "train"] for run in (out, alone))
    assert len(ours) == len(theirs) == 12
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["main"] == pytest.approx(other["main"], rel=1e-4)
    weights = load_file(alone / "last.safetensors")
    for name, value in load_file(out / "last.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-4)
