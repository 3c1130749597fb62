"""What the lab's own tests run in each site: small senders and receivers that measure the line and print JSON.

    lab_probe.py rate SECONDS MBIT0 MBIT1   site I sends datagrams at MBIT<I>; both print what arrived, in Mbit/s of IP
    lab_probe.py stream SECONDS             site 1 sends one TCP stream; site 0 prints its Mbit/s of IP
    lab_probe.py ping COUNT                 site 1 prints the round-trip times in ms
    lab_probe.py count COUNT                site 1 sends COUNT datagrams; site 0 prints how many came
    lab_probe.py steady SECONDS             site 1 sends a datagram each 5 ms; site 0 prints when they came
    lab_probe.py reach                      each site tries to reach the other with TCP and an unasked datagram

Needs the standard library only, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable

INDEX = int(os.environ["LAB_INDEX"])
NAMES = [entry.partition("=")[0] for entry in os.environ["LAB_SITES"].split()]
PEER = NAMES[1 - INDEX]  # by name: that the hosts file has it is part of the test
PORT = 7000
IP_SIZE = 1500
BODY = bytes(IP_SIZE - 28)


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


def datagrams(port: int = PORT) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # The forced form where allowed: what the kernel drops for lack of room would count as lost on the line.
    for option in (socket.SO_RCVBUF, 33):  # 33: SO_RCVBUFFORCE
        try:
            made.setsockopt(socket.SOL_SOCKET, option, 32 << 20)
        except PermissionError:
            continue
    made.bind(("", port))
    made.connect((PEER, port))
    return made


def meet(link: socket.socket) -> None:
    """Returns in both sites at about the same time, once they hear each other."""
    deadline = time.monotonic() + 20
    link.settimeout(0.05)
    while time.monotonic() < deadline:
        try:
            if INDEX == 1:
                link.send(b"hello")
            if link.recv(2000) == (b"hello" if INDEX == 0 else b"welcome"):
                if INDEX == 0:
                    link.send(b"welcome")
                return
        except (TimeoutError, ConnectionRefusedError):
            continue
    sys.exit(f"{PEER} does not answer")


def arrivals(link: socket.socket, quiet: float) -> list[float]:
    """When datagrams of full size came, until none does for `quiet` seconds after the first."""
    found: list[float] = []
    link.settimeout(10)
    while True:
        try:
            got = link.recv(2000)
        except TimeoutError:
            return found
        if got == b"hello":
            link.send(b"welcome")  # the first welcome was lost
        elif got != b"welcome":
            if not found:
                link.settimeout(quiet)
            found.append(time.monotonic())


def paced(seconds: float, per_second: float, send: Callable[[], object]) -> None:
    begin = time.monotonic()
    sent = 0
    while (now := time.monotonic() - begin) < seconds:
        while sent < now * per_second:
            send()
            sent += 1
        time.sleep(0.001)


def rate(seconds: str, mbit0: str, mbit1: str) -> None:
    link = datagrams()
    meet(link)
    sender = os.fork()
    if sender == 0:
        paced(float(seconds), float((mbit0, mbit1)[INDEX]) * 1e6 / 8 / IP_SIZE, lambda: link.send(BODY))
        os._exit(0)
    came = arrivals(link, 1.0)
    os.waitpid(sender, 0)
    bins = [0] * (int((came[-1] - came[0]) / 0.1) + 1)
    for moment in came:
        bins[int((moment - came[0]) / 0.1)] += 1
    say(mbit=(len(came) - 1) * IP_SIZE * 8e-6 / (came[-1] - came[0]), bins=[n * IP_SIZE * 8e-5 for n in bins])


def stream(seconds: str) -> None:
    link = datagrams()
    if INDEX == 0:
        server = socket.create_server(("", PORT))
        meet(link)
        connection, _ = server.accept()
        begin = time.monotonic()
        marks = []
        buffer = bytearray(1 << 20)
        while got := connection.recv_into(buffer):
            marks.append((time.monotonic(), got))
        steady = [mark for mark in marks if mark[0] > begin + float(seconds) / 3]
        payload = sum(got for _, got in steady[1:]) / (steady[-1][0] - steady[0][0])
        say(mbit=payload * 8e-6 * IP_SIZE / (IP_SIZE - 52))  # 52: IP and TCP with time stamps
        return
    meet(link)
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    connection.connect((PEER, PORT))
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        connection.sendall(bytes(1 << 18))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)


def ping(count: str) -> None:
    link = datagrams()
    meet(link)
    link.settimeout(5)
    if INDEX == 0:
        while (got := link.recv(2000)) != b"end":
            link.send(b"welcome" if got == b"hello" else got)
        return
    times = []
    for number in range(int(count)):
        begin = time.monotonic()
        link.send(b"%d" % number)
        while link.recv(2000) != b"%d" % number:
            pass
        times.append((time.monotonic() - begin) * 1e3)
    link.send(b"end")
    say(ms=times)


def count(number: str) -> None:
    link = datagrams()
    meet(link)
    if INDEX == 0:
        say(came=len(arrivals(link, 1.0)))
        return
    left = int(number)
    while left:
        for _ in range(min(left, 50)):
            link.send(b"data")
        left -= min(left, 50)
        time.sleep(0.002)


def steady(seconds: str) -> None:
    link = datagrams()
    meet(link)
    if INDEX == 0:
        say(came=arrivals(link, 2.0))
    else:
        paced(float(seconds), 200, lambda: link.send(b"data"))


def reach() -> None:
    """Site 0 is meant to be behind NAT: what each site could open, and what reached it."""
    server = socket.create_server(("", PORT))
    link = datagrams()
    unasked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    unasked.bind(("", PORT + 1))
    meet_from_inside(link)  # an answer gets through
    found: dict[str, object] = {}
    try:
        socket.create_connection((PEER, PORT), timeout=1.5).close()
        found["tcp"] = True
    except TimeoutError:
        found["tcp"] = False
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"unasked", (PEER, PORT + 1))
    unasked.settimeout(2)
    try:
        found["datagram_came"] = unasked.recv(100) == b"unasked"
    except TimeoutError:
        found["datagram_came"] = False
    server.settimeout(2)
    try:
        server.accept()
        found["was_reached"] = True
    except TimeoutError:
        found["was_reached"] = False
    say(**found)


def meet_from_inside(link: socket.socket) -> None:
    """As meet(), but site 0 speaks first."""
    global INDEX
    INDEX = 1 - INDEX
    meet(link)
    INDEX = 1 - INDEX


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
