"""Two hosts, simulated by network namespaces joined by a virtual cable, with one torchrun agent each."""

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from dnlnet.cli.main import app
from dnlnet.engine.log import read_log
from warm import begin, torchrun

SMALL = [
    *("--set", "optim.kind=sgd", "--set", "optim.lr=0.05", "--set", "training.frozen_statistics=true"),
    *("--set", "data.crop=[32, 32]", "--set", "schedule.batch=4", "--set", "schedule.iterations=12"),
    *("--set", "training.evaluate_every=6", "--set", "training.save_every=4"),
]
# The second host's process cuts the cable for three seconds. Later, and again after the run has resumed, it kills
# itself and its agent, simulating a power failure.
TROUBLED = """
import os, subprocess
from pathlib import Path
from dnlnet.engine import run
update, folder = run.Run.update, Path(os.environ["MARKERS"])
def once(name):
    first = not (folder / name).exists()
    (folder / name).touch()
    return first
def update_in_trouble(self, lr):
    if os.environ["HOST"] == "1":
        return update(self, lr)
    if self.iteration == 5 and once("cut"):
        subprocess.run(["ip", "link", "set", "cable", "down"], check=True)
        subprocess.Popen(["sh", "-c", f"sleep 3; ip link set cable up && touch {folder}/back"])
    if self.iteration == 9 and once("crashed") or self.iteration == 10 and once("again"):
        assert (folder / "back").exists(), "trained without the other host"
        os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)
    return update(self, lr)
run.Run.update = update_in_trouble
from dnlnet.cli.main import main
main()
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Return the names of two network namespaces with the addresses 10.231.7.1 and 10.231.7.2."""
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
            left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in left:  # processes of a failed test
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@dataclass
class Hosts:
    """Two hosts and the output of their agents."""

    names: tuple[str, str]
    folder: Path
    agents: list[ForkServerProcess] = field(default_factory=list)

    def start(self, number: int, restarts: int) -> ForkServerProcess:
        """Start a torchrun agent on one of the hosts."""
        # The first host is the rendezvous host; real hosts detect this from names and addresses. The other settings
        # detect a lost host within seconds.
        settings = f"is_host={int(number == 1)},keep_alive_interval=1,last_call_timeout=1"
        options = [
            *("--nnodes=2", "--nproc-per-node=1", f"--max-restarts={restarts}", f"--local-addr=10.231.7.{number}"),
            *("--rdzv-backend=c10d", "--rdzv-id=hosts", "--rdzv-endpoint=10.231.7.1:29400"),
            f"--rdzv-conf={settings}",
        ]
        environment = {
            "GLOO_SOCKET_IFNAME": "cable",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # otherwise an agent cannot rejoin the others
            "HOST": str(number),
            "MARKERS": str(self.folder),
        }
        enter = f"setns(os.open('/run/netns/{self.names[number - 1]}', os.O_RDONLY), 0)"
        before = f"import ctypes, os\nassert ctypes.CDLL(None).{enter} == 0"
        arguments = training(self.folder / "hosts")
        self.agents.append(begin(torchrun, options, TROUBLED, arguments, self.folder / "log", environment, before))
        return self.agents[-1]

    def said(self) -> str:
        """Return the output since the last call."""
        said = (self.folder / "log").read_text()
        (self.folder / "log").unlink()
        return said

    def stop(self) -> None:
        """Kill the remaining processes."""
        for each in self.agents:
            each.kill()
            each.join()


def wait(*agents: ForkServerProcess) -> list[int | None]:
    """Wait until the agents have ended, and return their exit codes."""
    for each in agents:
        each.join(timeout=300)
    return [each.exitcode for each in agents]


def training(out: Path) -> list[str]:
    return ["train", "scenes-tiny-dnl", "--out", str(out), "--workers", "0", *SMALL]


def test_a_run_on_two_hosts_survives_a_cut_cable_and_the_loss_of_one(hosts: tuple[str, str], tmp_path: Path) -> None:
    both = Hosts(hosts, tmp_path)
    try:
        # A short cut of the cable only pauses the run. When the second host loses power, the first one ends.
        first, second = both.start(1, restarts=0), both.start(2, restarts=0)
        codes = wait(first, second)
        said = both.said()
        assert codes == [1, -9], said
        assert "lost the connection to another process" in said
        assert said.count("resuming") == 0
        # The same command on both hosts, as after a requeue by a cluster, resumes the run. With restarts left, the
        # first host waits for the second one, where a new agent joins it.
        first, second = both.start(1, restarts=1), both.start(2, restarts=1)
        assert wait(second) == [-9], both.said()
        second = both.start(2, restarts=1)
        codes = wait(first, second)
        said = both.said()
        assert codes == [0, 0], said
        assert said.count("resuming from iteration 8 of 12") == 2
    finally:
        both.stop()
    CliRunner().invoke(app, training(tmp_path / "alone"), catch_exceptions=False)
    ours, theirs = (
        [line for line in read_log(tmp_path / run) if line["event"] == "train"] for run in ("hosts", "alone")
    )
    assert len(ours) == len(theirs) == 12
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["main"] == pytest.approx(other["main"], rel=1e-4)
    weights = load_file(tmp_path / "alone" / "last.safetensors")
    for name, value in load_file(tmp_path / "hosts" / "last.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-4)
