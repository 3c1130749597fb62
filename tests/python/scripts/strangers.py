"""Rounds between two sites whose deltas are one number over and over, so that it can be looked for on the line, and a
third machine that knocks at their ports in every wrong way meanwhile. One process a site of `collab lab`:

    strangers.py FOLDER ROUNDS [KNOCKS]
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STEP = 0.123456789
STORE_PORT = 29400  # torch's own: not ours to defend


def train(folder: Path, rounds: int, knocks: int) -> None:
    import torch
    import torch.distributed as dist
    import torch_collab
    from torch.nn.parallel import DistributedDataParallel

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = torch.nn.Parameter(torch.zeros(100_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.all[:10].sum() * x.sum()

    dist.init_process_group("collab")
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    done = 0
    while done < rounds or (knocks and not (folder / "knocked").exists()):
        model(torch.randn(4, 1)).backward()
        with torch.no_grad():
            model.module.all.add_(STEP if done % 2 == 0 else -STEP)
        optimizer.step()
        torch_collab.synchronize()
        done += 1
        (folder / f"begun-{os.environ['LAB_SITE']}").touch()
        # Both leave after the same round: what the other has seen, it has seen too.
        if knocks and (folder / "knocked").exists():
            break
    dist.destroy_process_group()


def open_ports(host: str) -> list[int]:
    def answers(port: int) -> bool:
        with socket.socket() as probe:
            probe.settimeout(5)
            return probe.connect_ex((host, port)) == 0

    with ThreadPoolExecutor(64) as pool:
        ports = range(1024, 65536)
        return [port for port, open_ in zip(ports, pool.map(answers, ports), strict=True) if open_]


def knock(host: str, port: int, seed: int) -> None:
    """Nothing at all, noise, a good beginning and noise, or a beginning that is cut off; ends or resets."""
    rng = random.Random(seed)
    good = [b"CLT1\x01\x00\x00\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n\r\n"]
    sent = rng.choice(
        [b"", rng.randbytes(rng.randrange(1, 300)), *(each + rng.randbytes(40) for each in good), good[0]]
    )
    try:
        with socket.create_connection((host, port), timeout=10) as line:
            line.sendall(sent)
            if rng.random() < 0.5:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    except OSError:
        pass  # turned away


def attack(folder: Path, knocks: int) -> None:
    sites = [site for site in os.environ["LAB_SITES"].split(",") if site != "mallory"]
    while not all((folder / f"begun-{site}").exists() for site in sites):
        time.sleep(0.1)
    doors = [(site, port) for site in sites for port in open_ports(site) if port != STORE_PORT]
    held = [socket.create_connection(doors[i % len(doors)], timeout=10) for i in range(200)]  # and never say a word
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda i: knock(*doors[i % len(doors)], i), range(knocks)))
    (folder / "doors").write_text("\n".join(f"{site} {port}" for site, port in doors))
    (folder / "knocked").touch()
    for line in held:
        line.close()


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    knocks = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if os.environ["LAB_SITE"] == "mallory":
        attack(folder, knocks)
    else:
        train(folder, rounds, knocks)


if __name__ == "__main__":
    main()
