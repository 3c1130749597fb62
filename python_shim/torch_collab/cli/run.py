"""`collab run`: torchrun with collab's rendezvous, and with what collab.toml says for this machine.

What the file and the environment say is checked before. That needs torch, which costs a second; so torchrun goes on in
this process, which has it loaded.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote

from torch_collab import environment, log, native
from torch_collab.cli import forms, keys, knobs, page, swarm_file
from torch_collab.cli.swarm_file import Entry, SwarmFile
from torch_collab.escape import escaped
from torch_collab.network import addresses

_DEFAULTS = {"nnodes": "2", "max_restarts": "3"}
_GPUS = ("/dev/nvidia[0-9]*", "/dev/kfd")
_HERE = "this command"
_PLAIN = "/:[]@+ "  # stays unquoted in a word of --rdzv-conf, which a comma would end
_STANDALONE = "--standalone"
_CONF = re.compile("--rdzv[-_]conf(=|$)")
# With the file's settings; replaces environment.LATE_WORLD.
_LATE_WORLD = f"collab run --torchrun={_STANDALONE}, with the same --site and --token-file, and no --join"
_OF_TORCHRUN = ("nnodes", "nproc_per_node", "max_restarts")
_TOKENS = ("COLLAB_TOKEN", "COLLAB_TOKEN_FILE")


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "run",
        "start a script on this machine: torchrun with the settings of collab.toml",
        "Prints the torchrun command that it runs, with its environment, and runs it. Options win over the "
        "environment, which wins over collab.toml.",
        [
            "collab run train.py --epochs 3",
            "collab run --site tokyo --join paris.example.org:29400 --token-file swarm.key train.py --epochs 3",
        ],
        {
            0: "the script succeeded",
            1: "the script failed or was interrupted, or the swarm's file, a knob or the token is refused",
            130: "ended by Ctrl-C before the script's workers were started",
        },
        usage="collab run [OPTION ...] SCRIPT [ARGUMENT ...]",
    )
    sub.add_argument("--site", metavar="NAME", help="this machine's name in the swarm (COLLAB_SITE)")
    sub.add_argument("--join", metavar="HOST[:PORT]", help="the first machine (default: the file's endpoint)")
    sub.add_argument("--run", metavar="NAME", dest="name", help="the training's name (COLLAB_RUN, --rdzv-id)")
    sub.add_argument("--token-file", metavar="FILE", help="the file of the swarm's token (COLLAB_TOKEN_FILE)")
    sub.add_argument("--nnodes", metavar="N[:MAX]", help="machines that training begins with (default: 2)")
    sub.add_argument(
        "--nproc-per-node",
        metavar="N",
        help="processes on this machine (default: gpu if there is one and torch has CUDA, else 1)",
    )
    sub.add_argument("--max-restarts", metavar="N", help="how often to restart after a process fails (default: 3)")
    sub.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module")
    sub.add_argument(
        "--torchrun",
        metavar="OPTION",
        action="append",
        default=[],
        help="another option of torchrun: --torchrun=--log-dir=x",
    )
    page.add_options(sub)
    swarm_file.add_option(sub)
    sub.add_argument("--dry-run", action="store_true", help="print the command, but run nothing")
    sub.add_argument("script", metavar="SCRIPT", help="the script that every process on this machine runs")
    # argparse would list it among missing arguments.
    rest = sub.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="an argument of the script")
    rest.required = False


def run(arguments: argparse.Namespace) -> int:
    # --token-file replaces the environment's token or certificates.
    others = set(swarm_file.KEY_VARIABLES) if arguments.token_file else set()
    given = {name: text for name, text in environment.collab_variables().items() if name not in others}
    for word in _OF_TORCHRUN:
        if (text := getattr(arguments, word)) is not None:
            with forms.usage(f"--{word.replace('_', '-')}"):
                swarm_file.check_torchrun(word, text)
    file = swarm_file.find(arguments.config)
    added = _options(arguments)
    site = arguments.site or given.get("COLLAB_SITE", "")
    entries = file.entries(site) if file else {}
    if file:
        added = file.variables(entries, given | {name: entry.text for name, entry in added.items()}) | added
    name = next((text for text in (_text(added, "COLLAB_RUN"), given.get("COLLAB_RUN")) if text), "")
    command = ["torchrun", *_torchrun(arguments, entries, name, bool(site))]
    _check(given, added)
    if not arguments.dry_run:
        _check_script(arguments)
    _tell(file, site, command, added, given, sys.stdout if arguments.dry_run else sys.stderr)
    if arguments.dry_run:
        return 0
    for name in others:
        os.environ.pop(name, None)
    os.environ.update({name: entry.text for name, entry in added.items()})
    return _become(command)


def _become(command: list[str]) -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    sys.argv = command
    try:
        main(command[1:])
    except ChildFailedError as error:  # its text is torchrun's table of failures
        print(f"collab: the script has failed:{error}", file=sys.stderr)
        return 1
    except SignalException as error:
        print(f"collab: ended by {signal.Signals(error.sigval).name}", file=sys.stderr)
        return 1
    except Exception as error:
        if not str(error).startswith("collab:"):
            traceback.print_exc()
            return 1
        print(escaped(str(error).replace(environment.LATE_WORLD, _LATE_WORLD)), file=sys.stderr)
        return 1
    return 0


def _check_script(arguments: argparse.Namespace) -> None:
    named = arguments.module or {"-m", "--module", "--no-python", "--no_python"} & set(arguments.torchrun)
    if not named and not os.path.exists(arguments.script):
        raise ValueError(f"there is no script {arguments.script} in {os.getcwd()} [cli.run-no-script]")


def _options(arguments: argparse.Namespace) -> dict[str, Entry]:
    """This command's options, as variables."""
    token_file = arguments.token_file and os.path.abspath(os.path.expanduser(arguments.token_file))
    told = {"COLLAB_SITE": arguments.site, "COLLAB_RUN": arguments.name, "COLLAB_TOKEN_FILE": token_file}
    return {name: Entry(text, _HERE) for name, text in told.items() if text}


def _torchrun(arguments: argparse.Namespace, entries: Mapping[str, Entry], name: str, named: bool) -> list[str]:
    """`named`: the command line or the environment names the site, not only the file."""

    def chosen(word: str, default: str) -> str:
        return getattr(arguments, word, None) or _text(entries, word) or default

    alone = _STANDALONE in arguments.torchrun  # one world of its own, which finds the swarm by COLLAB_COORDINATOR
    if alone and (arguments.join or page.options_of(arguments)):
        raise ValueError(
            f"--torchrun={_STANDALONE} starts a world without the rendezvous, but --join and the page's options belong "
            "to the rendezvous: leave one of them out; COLLAB_COORDINATOR names the swarm's coordinator "
            "[cli.run-standalone]"
        )
    options = [
        f"--nnodes={(arguments.nnodes or '1') if alone else chosen('nnodes', _DEFAULTS['nnodes'])}",
        f"--nproc-per-node={chosen('nproc_per_node', _processes())}",
        f"--max-restarts={chosen('max_restarts', _DEFAULTS['max_restarts'])}",
        *([] if alone else _rendezvous(arguments, entries, name, named)),
        *(option for option in arguments.torchrun if alone or not _CONF.match(option)),
        *(["--module"] if arguments.module else []),
    ]
    return [*options, arguments.script, *arguments.arguments]


def _rendezvous(arguments: argparse.Namespace, entries: Mapping[str, Entry], name: str, named: bool) -> list[str]:
    if arguments.join and _text(entries, "first") == "1" and not named:
        raise ValueError(
            f"--join says that another machine is the first, but [site] in {swarm_file.NAME} says that this one is: "
            "give this machine a name of its own, --site NAME [cli.run-no-site]"
        )
    first = "0" if arguments.join else _text(entries, "first")
    conf = {"is_host": first} if first else {}
    endpoint = _endpoint(arguments.join, entries)
    if port := _text(entries, "coordinator_port"):
        # Of several sites on one machine only the first can have the port.
        shared = first == "0" and addresses.is_this_machine(addresses.split_host_port(endpoint)[0])
        conf["coordinator_port"] = "0" if shared else port
    of_page = page.options_of(arguments)
    page.check_reach(of_page)
    conf |= {word: quote(text, safe=_PLAIN) for word, text in of_page.items()}
    # torchrun uses only the last --rdzv-conf, so ours includes the user's.
    asked = [option for option in arguments.torchrun if _CONF.match(option)]
    if any("=" not in option for option in asked):
        raise ValueError(
            "--torchrun=--rdzv-conf needs its value in the same word: --torchrun=--rdzv-conf=KEY=VALUE [cli.run-conf]"
        )
    others = [word for option in asked for word in option.partition("=")[2].split(",") if word]
    keys = {word.partition("=")[0] for word in others}
    words = [f"{key}={value}" for key, value in conf.items() if key not in keys] + others
    return [
        "--rdzv-backend=collab",
        f"--rdzv-endpoint={endpoint}",
        *([f"--rdzv-id={name}"] if name else []),
        *(["--rdzv-conf=" + ",".join(words)] if words else []),
    ]


def _endpoint(join: str | None, entries: Mapping[str, Entry]) -> str:
    endpoint = _text(entries, "endpoint")
    if not join and not endpoint:
        raise ValueError(
            f"which swarm? give --join HOST:PORT, change to the folder of its {swarm_file.NAME}, or begin one with "
            "`collab init` [cli.run-which-swarm]"
        )
    port = addresses.host_and_port(endpoint)[1] if endpoint else addresses.RENDEZVOUS_PORT
    with forms.usage("--join"):
        return addresses.join_host_port(*addresses.host_and_port(join or endpoint, port))


def _processes() -> str:
    """torchrun refuses `gpu` if torch has no CUDA."""
    try:
        for_cpus = version("torch").endswith("+cpu")
    except PackageNotFoundError:  # built from source, or not installed; torchrun reports that
        for_cpus = False
    return "gpu" if not for_cpus and any(glob.glob(pattern) for pattern in _GPUS) else "1"


def _text(entries: Mapping[str, Entry], name: str) -> str:
    return entries[name].text if name in entries else ""


def _check(given: Mapping[str, str], added: Mapping[str, Entry]) -> None:
    """Checks the token and the knobs, which every process of the swarm would refuse."""
    key = added.get("COLLAB_TOKEN_FILE")
    if key is not None and (wrong := keys.unreadable(key.text)):
        raise ValueError(
            f"the swarm's token {key.text} ({key.where}) {wrong}: copy it here from the first machine [cli.run-key]"
        )
    rest = {name: text for name, text in given.items() if name not in added}
    config = knobs.merged(rest, added)
    log.set_level(config.log_level, config.given("log_level"))
    for warning in native.environment_warnings(rest):
        log.warn_once(warning)
    if config.transport in ("auto", "tcp") and any(name in rest or name in added for name in _TOKENS):
        with knobs.placed(added):
            native.has_made_token(config.raw)
    log.flush()


def _tell(
    file: SwarmFile | None,
    site: str,
    command: Sequence[str],
    added: Mapping[str, Entry],
    given: Mapping[str, str],
    to: Any,
) -> None:
    lines = []
    if file and site and file.site_name() not in ("", site):
        lines.append(f"collab: this is {site}: [site] of {file.path} is for {file.site_name()}, and is ignored here")
    for variable in sorted({*added, *given}):
        entry = added.get(variable) or Entry(given[variable], "the environment")
        text = "(not shown)" if variable == "COLLAB_TOKEN" else shlex.quote(entry.text)
        lines.append(f"collab: {variable}={text}   # {entry.where}")
    lines.append(f"collab: {shlex.join(command)}")
    print("\n".join(lines), file=to, flush=True)
