"""Options of the coordinator's page for a browser, for the commands that can serve one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from torch_collab.cli import forms
from torch_collab.network.addresses import is_loopback, split_host_port
from torch_collab.network.page import OPTIONS

_FILES = ("http_cert", "http_key", "leaderboard")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve a read-only page for a browser there, e.g. 127.0.0.1:8080; port 0 takes a free one",
    )
    parser.add_argument(
        "--http-cert",
        metavar="FILE",
        default="",
        help="serve the page over HTTPS with this certificate (PEM, its chain after it)",
    )
    parser.add_argument("--http-key", metavar="FILE", default="", help="the private key of --http-cert (PEM)")
    parser.add_argument(
        "--http-insecure", action="store_true", help="let other machines reach the page without encryption"
    )
    parser.add_argument(
        "--objective", metavar="TEXT", default="", help="for the page: the purpose of the run, in your own words"
    )
    parser.add_argument(
        "--leaderboard",
        metavar="FILE",
        default="",
        help="for the page: a file that keeps, across restarts, how much each site has contributed",
    )


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The given options, for `network.page.serve`; empty: no page was requested. Raises ValueError."""
    given = {word: "1" if said is True else said for word in OPTIONS if (said := getattr(arguments, word))}
    given |= {word: os.path.abspath(os.path.expanduser(given[word])) for word in _FILES if word in given}
    if given and "http" not in given:
        word = next(iter(given)).replace("_", "-")
        raise ValueError(f"--{word} is for the page, which --http HOST:PORT serves [page.no-http]")
    return given


def check_reach(given: Mapping[str, str]) -> None:
    """Checks as the coordinator would, but that checks only once training has begun."""
    if "http" not in given:
        return
    with forms.usage("--http"):
        host, _ = split_host_port(given["http"])
    if not ({"http_cert", "http_insecure"} & set(given) or is_loopback(host)):
        raise ValueError(
            f"--http {given['http']}: other machines could reach the page there, in the clear: give it a certificate "
            "(--http-cert, --http-key), listen at 127.0.0.1, or give --http-insecure [cli.page-in-the-clear]"
        )
