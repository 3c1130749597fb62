"""Sites behind NAT that do not know it, each a world of its own around a coordinator, in `collab lab`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from labs import Lab, killed_after
from ranks import SCRIPTS

pytestmark = [pytest.mark.slow, pytest.mark.wan, pytest.mark.usefixtures("allowed")]

GRACE = 10.0
# hub serves the coordinator, and a helper from each `helper` file until it is gone; the others train. They have eight
# seconds to leave.
COMMAND = """
collab() { exec "$PYTHON" -m torch_collab.cli "$@"; }
case $LAB_SITE in
hub)
    collab coordinator --listen 0.0.0.0:29500 --sites "$TRAINING" & coordinator=$!
    until [ -e "$1/stop" ]; do
        if [ -e "$1/helper" ]; then
            COLLAB_SITE=helper collab helper --coordinator hub:29500 & helper=$!
            while [ -e "$1/helper" ] && [ ! -e "$1/stop" ]; do sleep 0.2; done
            kill -INT $helper; wait $helper
        fi
        sleep 0.2
    done
    for _ in $(seq 40); do
        [ "$(find "$1" -name 'left-*' | wc -l)" -lt "$TRAINING" ] || break
        sleep 0.2
    done
    kill -INT $coordinator; wait $coordinator;;
*)
    sleep 2
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
    export COLLAB_SITE_INDEX=$2
    "$PYTHON" "$3" "$1" "$2"
    status=$?
    touch "$1/left-$LAB_SITE"
    exit $status;;
esac
"""


class Worlds(Lab):
    """Sites `name` or `name,nat` that train, and the hub."""

    def __init__(self, folder: Path, *sites: str, **environment: str) -> None:
        self.names = tuple(site.split(",")[0] for site in sites)
        given = {
            "COLLAB_LINK_GRACE": f"{GRACE:.0f}s", "COLLAB_TRANSPORT": "tcp", "COLLAB_COORDINATOR": "hub:29500",
            "PYTHON": sys.executable, "COLLAB_MIN_SITES": str(len(sites)), "TRAINING": str(len(sites)), **environment,
        }  # fmt: skip
        rated = (f"{site.split(',')[0]}:100{',nat' * ('nat' in site)}" for site in sites)
        command = ["bash", "-c", COMMAND, "site", str(folder), "{index}", str(SCRIPTS / "nat_site.py")]
        super().__init__(folder, ["--sites", *rated, "hub:100", "--rtt", "60"], command, given)

    def told(self, site: str, *words: str, since: float = 0) -> list[dict[str, Any]]:
        """What the site was told under any event, with all of these words in it."""
        kinds = ("address", "no-quorum")
        events = [event for kind in kinds for event in self.events(site, kind) if event["t"] > since]
        return [event for event in events if all(word in str(event) for word in words)]


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[..., Worlds]]:
    yield from killed_after(partial(Worlds, tmp_path))


@pytest.mark.timeout(480)
def test_two_sites_that_cannot_be_dialled_fail_with_the_reason(worlds: Callable[..., Worlds]) -> None:
    """Nobody has said that they are behind NAT. One of them cannot have the other's model."""
    lab = worlds("paris,nat", "rome,nat")
    none = ("none of paris, rome can be dialled", "collab helper")
    lab.wait("both are told", lambda: all(lab.told(site, *none) for site in lab.names), 240)
    since = lab.told("rome", *none)[0]["t"]
    words = "and neither it nor this site can be dialled (no link within"
    lab.wait("one fails", lambda: words in lab.output, since - lab.begun + GRACE + 60)
    print(f"it failed {time.time() - since:.1f} s after it was told (grace {GRACE:.0f} s)")
    assert "run `collab helper` on a machine that both reach" in lab.output.split(words)[1]
    lab.end()


@pytest.mark.timeout(700)
def test_a_leaving_helper_is_reported_and_a_new_one_is_used(worlds: Callable[..., Worlds]) -> None:
    lab = worlds("paris,nat", "rome,nat")
    helper = lab.folder / "helper"
    helper.touch()
    members = ("helper", *lab.names)
    lab.wait("two rounds of all", lambda: len(lab.rounds("rome", members)) >= 2, 240)
    gone = time.time()
    helper.unlink()
    missed = ("helper has gone, and none of paris, rome can be dialled", "collab helper")
    lab.wait("both are told", lambda: all(lab.told(site, *missed) for site in lab.names), gone - lab.begun + 120)
    # A helper that leaves cedes its vote: one of the two may be a majority for a round, which the other then misses.
    for site in lab.names:
        lab.wait(
            f"{site} trains on",
            lambda site=site: (  # type: ignore[misc]
                lab.told(site, "no link within", "collab helper", since=gone)
                or lab.told(site, "which is not a majority", since=gone)
            ),
            gone - lab.begun + 120,
        )
    helper.touch()
    again = time.time() - lab.begun
    lab.wait("two rounds of all again", lambda: len(lab.rounds("rome", members, again)) >= 2, again + 120)
    lab.end()


@pytest.mark.alone
@pytest.mark.timeout(200)
def test_the_first_round_does_not_wait_for_impossible_links(worlds: Callable[..., Worlds]) -> None:
    """The two are found to be behind NAT after it was formed with both of them as owners."""
    lab = worlds("paris", "rome,nat", "tokyo,nat")
    lab.wait("a round of all", lambda: all(lab.rounds(site, lab.names) for site in lab.names), 100)
    first = lab.rounds("paris", lab.names)[0]
    print(f"the exchange took {first['exchange_seconds']:.1f} s, in {first['attempts']} attempts")
    assert first["exchange_seconds"] < 18, "a link that is missing is given up after 20 s"
    assert not lab.told("paris", "no link within")
    lab.end()
