"""The rendezvous handler of `torchrun --rdzv-backend=collab`: what one agent does at its start, restarts and end.

    first start ──► the endpoint's list is open: this node is of the first members, one world of several sites
               └──► it is closed: late ──────────┐
    restart (workers crashed here) ──────────────┴──► a world of its own, which joins the swarm

Events elsewhere never restart workers: `num_nodes_waiting()` is always 0, and after the first start an agent
needs no other agent (but the nodes of one site need each other).
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from torch_collab import environment, log, torch_compat
from torch_collab.escape import first_line
from torch_collab.formatting import counted, plural
from torch_collab.network.addresses import NOT_DIALABLE, is_loopback, join_host_port, split_host_port
from torch_collab.network.signed_store import SignatureError, SignedStore
from torch_collab.rendezvous import candidate, first_members, late
from torch_collab.rendezvous.agent_store import AgentStore
from torch_collab.rendezvous.dial import dial_store
from torch_collab.rendezvous.endpoint import SAY_EVERY, Endpoint, open_endpoint, serve_store
from torch_collab.rendezvous.gathering import Gathering, GatheringError, Terms
from torch_collab.rendezvous.heartbeat import Heartbeat, Known, LivenessView
from torch_collab.rendezvous.notices import Notices
from torch_collab.rendezvous.renewal import Renewal
from torch_collab.rendezvous.settings import BACKEND, RendezvousSettings, own_address, read_settings

_TELL_SECONDS = 60.0  # how long the sites' first agents have to serve their candidates


def create_handler(parameters: Any) -> CollabRendezvous:
    for name in environment.FROM_AGENT:
        os.environ.pop(name, None)  # set by a torchrun around this one
    torch_compat.check(torch_compat.EXPECTED_OF_AGENT)
    return CollabRendezvous(read_settings(parameters))


class CollabRendezvous(RendezvousHandler):  # type: ignore[misc]  # torch is not typed here
    """Threads: the agent's thread; the heartbeat and the coordinator have their own."""

    def __init__(self, settings: RendezvousSettings) -> None:
        self._settings = settings
        self._id = uuid.uuid4().hex
        self._address = own_address(settings)
        self._candidate = candidate.Candidate(settings)
        self._endpoint: Endpoint | None = None
        self._heartbeat: Heartbeat | None = None  # at agents that do not serve the endpoint
        self._renewal: Renewal | None = None  # at the agent that serves the endpoint
        self._agent_store: AgentStore | None = None
        # The swarm's values, once known; the agent needs no others to bring its workers back.
        self._site = settings.site or settings.hostname
        self._site_nodes = settings.site_nodes or 1
        self._others = False  # whether the closed world has other sites
        self._coordinators = list(settings.config.coordinator)
        # The store of this site's world, and the one that this agent serves; they may be the same.
        self._site_store: SignedStore | None = None
        self._served: Any = None
        self._world_known = False
        self._closed = False

    # ---- what torchrun asks ------------------------------------------------------------------------

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_run_id(self) -> str:
        return self._settings.run_id

    def num_nodes_waiting(self) -> int:
        return 0  # no newcomer is a reason to restart workers that train

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def next_rendezvous(self) -> RendezvousInfo:
        try:
            if self._world_known:
                return self._come_back()
            self._endpoint = open_endpoint(self._settings)
            gathering = Gathering(self._endpoint.part(first_members.PART))
            self._served = serve_store()
            gathered = gathering.read() if gathering.closed() else self._gather(gathering, self._endpoint)
            drawn = first_members.draw(gathered)
            self._world_known = True
            if gathered.includes(self._id):
                self._compare_nnodes(len(drawn.nodes))
                return self._enter_first_members(drawn, self._endpoint)
            return self._come_late(drawn, self._endpoint)
        except SignatureError as error:
            self._let_others_know(str(error))
            raise RendezvousConnectionError(str(error)) from None
        except _Refused as error:
            self._let_others_know()
            raise RendezvousConnectionError(f"collab: {self._where()}: {error} [rendezvous.node-refused]") from None
        except GatheringError as error:
            raise RendezvousTimeoutError(f"collab: {self._where()}: {error}") from None
        except RendezvousError:
            raise
        except RuntimeError as error:
            if str(error).startswith("collab:"):
                raise
            raise RendezvousConnectionError(
                f"collab: {self._where()} was lost: {first_line(error)} [rendezvous.broken]"
            ) from None

    def shutdown(self) -> bool:
        """The workers here have ended for good. A coordinator that is served here outlives them."""
        if self._agent_store is not None:
            self._agent_store.arrive()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        endpoint = self._endpoint
        if endpoint is not None and endpoint.serving:
            agents = LivenessView(endpoint.part("agents"), max(5.0, self._settings.config.link_grace))
            self._candidate.linger(agents.living)
        else:
            self._candidate.linger(list)
        if self._renewal is not None:
            self._renewal.stop()
        return True

    # ---- the first members -----------------------------------------------------------------------

    def _gather(self, gathering: Gathering, endpoint: Endpoint) -> Any:
        settings = self._settings
        mine = self._node()
        terms = Terms(settings.min_nodes, settings.max_nodes, settings.last_call, settings.join_timeout)
        count = settings.nnodes.replace(":", " to ")
        log.info(f"waiting at {settings.endpoint} for {count} {plural('node', settings.max_nodes)}")
        most = 0 if endpoint.serving else settings.max_nodes
        waiting = _Waiting(self._where(), endpoint.notices, settings.min_nodes, most)
        return gathering.come(mine.tell(), endpoint.serving, terms, waiting.say)

    def _compare_nnodes(self, count: int) -> None:
        settings = self._settings
        if not settings.min_nodes <= count <= settings.max_nodes:
            log.warning(
                f"training begins with {counted(count, 'node')}, as the machine at {settings.endpoint} was told; but "
                f"--nnodes here says {settings.nnodes}. Give all machines the same [rendezvous.nnodes-differ]"
            )

    def _let_others_know(self, problem: str = "") -> None:
        """If the others' store ends with this agent, the agent ends after them."""
        endpoint = self._endpoint
        if endpoint is None:
            return
        if problem:
            endpoint.notices.leave(problem)
        if endpoint.serving:
            arrivals = endpoint.part(first_members.PART)
            endpoint.notices.wait_until_heard(lambda: arrivals.add("arrivals", 0) - 1)
        else:
            endpoint.notices.hear()

    def _where(self) -> str:
        endpoint = self._endpoint
        here = ""
        if endpoint is not None and endpoint.serving:
            here = ", served here"
            if is_loopback(self._settings.host):
                here += f" ({self._settings.host} is this machine's loopback address: only this machine can reach it)"
        return f"the rendezvous at {self._settings.endpoint}{here}"

    def _enter_first_members(self, drawn: first_members.FirstMembers, endpoint: Endpoint) -> RendezvousInfo:
        index = drawn.site_index_of(self._id)
        site = drawn.sites[index]
        self._site = site.name
        log.set_source(self._site, None)  # by now two machines with one name are told apart
        self._site_nodes = len(site.nodes)
        self._tell_of_hosts(site)
        part = endpoint.part(first_members.PART)
        if site.first.id == self._id:
            self._site_store = self._signed(self._served, self._id)
            self._serve_candidate(part, index)
        else:
            host, port = split_host_port(site.first.store)
            store = dial_store(host, port)
            if store is None:
                raise GatheringError(
                    f"the first node of site {site.name}, {site.first.hostname}, does not answer at {site.first.store} "
                    "[rendezvous.first-node-silent]"
                )
            self._site_store = self._signed(store, site.first.id)
        self._learn(drawn, endpoint)
        self._candidate.tell_of_no_page()
        host, port = (
            ("127.0.0.1", self._served.port) if site.first.id == self._id else split_host_port(site.first.store)
        )
        self._tell_workers(environment.FIRST_MEMBERS, join_host_port(host, port), drawn.gathered.id)
        names = ", ".join(site.name for site in drawn.sites)
        sites = counted(len(drawn.sites), "site")
        log.info(f"{_are(len(drawn.nodes), 'node')} here, {sites}: {names}; {self._coordinated()}")
        self._agent_store = AgentStore(endpoint.part("ranks"), self._site_store.part("agents"), self._site_nodes)
        return RendezvousInfo(
            self._agent_store,
            drawn.rank_of(self._id),
            len(drawn.nodes),
            RendezvousStoreInfo(endpoint.host, endpoint.port),
        )

    def _tell_of_hosts(self, site: first_members.FirstSite) -> None:
        """Warns about a site of several machines, unless site_nodes says that they are close together."""
        hosts = site.hosts
        if len(hosts) > max(1, self._settings.site_nodes or 1):
            log.warning(
                f"site {site.name} is {len(hosts)} machines, each started under that name: {', '.join(hosts)}. So they "
                "average gradients at every step, as one site does. If they stand together, that is right (and "
                f"--rdzv-conf=site_nodes={len(hosts)} confirms it). If the line between them is slow, stop them all, "
                "and give each a name of its own (--site of `collab run`, COLLAB_SITE) [rendezvous.site-of-several]"
            )

    def _serve_candidate(self, part: Any, index: int) -> None:
        standby = candidate.STANDBY if self._settings.standby is None else self._settings.standby
        standby = standby and self._settings.config.advertise != NOT_DIALABLE  # others dial the endpoint's machine
        address = error = ""
        if not self._settings.config.coordinator and (index == 0 or standby):
            try:
                address = self._candidate.serve(self._address, self._settings.coordinator_port)
            except (OSError, RuntimeError, ValueError) as problem:
                error = str(problem)
        first_members.tell_coordinator(part, index, address, error)

    def _learn(self, drawn: first_members.FirstMembers, endpoint: Endpoint) -> None:
        """Finds out the coordinators; from here on this agent can do without the endpoint."""
        self._others = any(site.name != self._site for site in drawn.sites)
        part = endpoint.part(first_members.PART)
        told = first_members.coordinators_of(part, drawn, _TELL_SECONDS)
        if not self._coordinators:
            self._coordinators = [address for address in told if address]
        if not self._coordinators:
            raise GatheringError(
                "no site there serves a coordinator, and this node was given none. Give all nodes the same "
                "COLLAB_COORDINATOR, or none [rendezvous.no-coordinator]"
            )
        known = Known(drawn.gathered.text)
        for index in range(len(drawn.sites)):
            known.sites[f"site/{index}"] = part.get(f"site/{index}").decode()
        if endpoint.serving:
            self._renewal = Renewal(endpoint, known)
            self._renewal.start()
            return
        name = f"{self._site} ({self._settings.hostname})"
        self._heartbeat = Heartbeat(
            endpoint.host, endpoint.port, self._settings.run_id, self._settings.key, name, known
        )
        self._heartbeat.start()

    # ---- late, and back ----------------------------------------------------------------------------

    def _come_late(self, drawn: first_members.FirstMembers, endpoint: Endpoint) -> RendezvousInfo:
        if self._settings.site_nodes is None:
            self._site_nodes = drawn.nodes_of_site(self._site) or 1
        self._learn(drawn, endpoint)
        self._serve_again()
        self._candidate.tell_of_no_page()
        if self._site_nodes > 1:
            first = next((site.first for site in drawn.sites if site.name == self._site), None)
            store = None if first is None else dial_store(*split_host_port(first.store))
            self._site_store = None if first is None or store is None else self._signed(store, first.id)
        log.info(f"the world at {self._settings.endpoint} is closed: site {self._site} joins its swarm as a world of "
                 f"its own; {self._coordinated()}")  # fmt: skip
        if self._site_nodes == 1 or self._others:
            self._begin_with_others()
        return self._own_world()

    def _begin_with_others(self) -> None:
        """Makes a site that is alone wait for another one. Another site trains, or nobody had closed the list. If this
        site has lost its disk and serves its candidate again, it would found a swarm with fresh weights, and train them
        until it hears of the other site."""
        if self._settings.config.given("min_sites"):
            return
        os.environ["COLLAB_MIN_SITES"] = "2"
        if self._candidate.serving:
            log.info(f"site {self._site} does not begin a model alone: if it has none of the swarm's state here, it "
                     f"waits for another site, at most {self._settings.config.join_timeout:.0f} s "
                     "(COLLAB_JOIN_TIMEOUT). If no other will come, start this one again with "
                     "COLLAB_MIN_SITES=1")  # fmt: skip

    def _come_back(self) -> RendezvousInfo:
        self._served = serve_store()
        log.info(
            f"the workers of this machine have ended and are started again: site {self._site} comes back as a world of "
            f"its own; {self._coordinated()}"
        )
        if self._others:  # its workers may have failed before there was anything to return to
            self._begin_with_others()
        return self._own_world()

    def _coordinated(self) -> str:
        return f"the coordinator of run {self._settings.config.run} is at {', '.join(self._coordinators)}"

    def _serve_again(self) -> None:
        """The machine of a lost candidate serves it again at its old address, where the others look for it."""
        if self._settings.config.coordinator:
            return
        for address in self._coordinators:
            host, port = split_host_port(address)
            if host != self._address or self._candidate.serving:
                continue
            try:
                self._candidate.serve(host, port)
            except (OSError, RuntimeError, ValueError):
                continue  # it is still served, and this torchrun is another one on that machine
            log.info(f"the coordinator at {address} is served again, here")

    def _own_world(self) -> RendezvousInfo:
        world = late.alone(self._served, self._id) if self._site_nodes == 1 else self._meet_own_site()
        self._site_store = self._signed(world.store, world.owner)
        self._tell_workers(environment.LONE, "", world.owner)
        self._agent_store = AgentStore(self._site_store.part("ranks"), self._site_store.part("agents"), world.nodes)
        return RendezvousInfo(self._agent_store, world.rank, world.nodes, RendezvousStoreInfo(world.host, world.port))

    def _signed(self, store: Any, owner: str) -> SignedStore:
        """A store of this site, served by the node `owner`."""
        where = f"the store of site {self._site}"
        return SignedStore(store, self._settings.key, (self._settings.run_id, owner), where)

    def _meet_own_site(self) -> late.LoneWorld:
        settings = self._settings
        mine = self._node()
        nodes = self._site_nodes
        terms = Terms(nodes, nodes, 0.0, settings.join_timeout, content_with_fewer=True)
        waiting = _Waiting(f"site {self._site}, {nodes} nodes")
        stores = (self._site_store, None if self._endpoint is None else self._endpoint.store)
        places = [store for store in stores if store is not None]
        reason = "its store is gone, and the endpoint's too"
        for store in places:
            try:
                return late.meet(store, self._site, mine, self._served, terms, waiting.say)
            except (GatheringError, SignatureError):
                raise
            except RuntimeError as error:
                reason = first_line(error)
        raise GatheringError(
            f"the {nodes} nodes of site {self._site} cannot find each other: {reason} [rendezvous.no-place]"
        )

    # ---- workers -----------------------------------------------------------------------------------

    def _node(self) -> first_members.Node:
        store = join_host_port(self._address, self._served.port)
        return first_members.Node(self._id, self._settings.site, self._settings.hostname, store)

    def _tell_workers(self, start: str, site_store: str, world: str) -> None:
        """Workers inherit the agent's environment."""
        os.environ[environment.START] = start
        os.environ[environment.SITE_STORE] = site_store
        os.environ[environment.WORLD] = world
        os.environ[environment.ENDPOINT] = self._settings.endpoint
        os.environ[environment.RENDEZVOUS_RUN] = self._settings.own_run
        os.environ["COLLAB_SITE"] = self._site
        os.environ["COLLAB_COORDINATOR"] = ",".join(self._coordinators)
        if self._settings.local_addr:
            os.environ.setdefault("COLLAB_ADVERTISE", self._settings.local_addr)


def _are(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


class _Refused(RuntimeError):
    """A node was refused at the endpoint, or refused it, and there are too few nodes without it."""


class _Waiting:
    """Reports now and then which nodes are missing, and at once which node was refused."""

    def __init__(self, where: str, notices: Notices | None = None, least: int = 0, most: int = 0) -> None:
        """`most`: if another node closes the list, the number of nodes that this one was told."""
        self._where = where
        self._notices = notices
        self._least, self._most = least, most
        self._said = time.monotonic()

    def say(self, there: int) -> None:
        """Raises _Refused."""
        refused = None if self._notices is None else self._notices.look()
        if refused is not None and there < self._least:
            raise _Refused(refused)
        if refused is not None:
            log.warning(
                f"{self._where}: {refused}; {_are(there, 'node')} here, which is enough to go on without it "
                "[rendezvous.node-refused]"
            )
            self._notices = None
        now = time.monotonic()
        if now - self._said >= SAY_EVERY:
            self._said = now
            all_here = "; as many as --nnodes says here, but the machine at the endpoint waits for more"
            log.info(f"{self._where}: {counted(there, 'node')} so far{all_here if 0 < self._most <= there else ''}")
