"""The knobs as Python names them.

Made by `ci/tidy.py --write-knobs` from the table in plugin/core/base/knobs.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

# Fields of Options that have been renamed: old name, what it is today.
OLD_NAMES = {
    "site_count": ("num_shards", "min_sites"),
    "congestion": ("tcp_congestion",),
    "egress_gb": ("egress_budget_gb",),
    "outer": ("outer_optimizer",),
    "events": ("events_file",),
    "log": ("log_level",),
}


@dataclass(kw_only=True)
class OptionFields:
    """None: not given."""

    preset: str | None = None
    """Sets several knobs under one name; knobs that you set yourself win over it. Default: none.
    (lan|wan|slow|pretrain)"""
    run: str | None = None
    """The swarm's name; sites with another name are refused. In a torchrun world without a coordinator the
    default is --rdzv-id, if given. (1..64 characters; default default)"""
    site: str | None = None
    """This site's name; machines with the same name form one site. Default: made from the torchrun node or the
    host. (1..64 characters)"""
    site_index: int | None = None
    """This site's number in the swarm. Default: the coordinator gives one. (0..4095)"""
    num_shards: int | None = None
    """The number of sites, each a world of its own, that divide the data; site_index says which part is this
    site's. (1..4096; default 1)"""
    min_sites: int | None = None
    """How many sites round 0 waits for; a single world counts its own sites. (1..4096; default 1)"""
    init_from: str | None = None
    """The site whose parameters the swarm begins with: the first agreement waits for it. Default: a site that
    holds an anchor, else one that has loaded a checkpoint, else the lowest site. (1..64 characters)"""
    coordinator: str | None = None
    """Where the coordinator listens; several are tried in order. Default: the world's first site serves it.
    (HOST:PORT[,HOST:PORT...])"""
    listen: str | None = None
    """Where other sites reach this one. (HOST:PORT; default 0.0.0.0:0)"""
    advertise: str | None = None
    """The host that others dial to reach this site; none: this site cannot be dialled, and dials the others.
    Default: detected. (HOST)"""
    transport: str | None = None
    """What carries messages between sites. auto is tcp, which encrypts with a token or certificates. ucx and gloo
    never encrypt: use them only in trusted networks, and at all sites and the coordinator alike.
    (auto|tcp|ucx|gloo; default auto)"""
    connections: int | str | None = None
    """Connections of each link; more help on long, lossy lines. auto: tcp finds the number by measuring, ucx has
    2. (1..64 or auto; default auto)"""
    token: str | None = field(default=None, repr=False)
    """The swarm's token, made once by `collab token`: tcp links are encrypted, and sites without it are refused.
    (32..4096 characters)"""
    token_file: str | None = None
    """A file that holds the swarm's token, instead of token; a second line may hold the previous one. (a path)"""
    tls_cert: str | None = None
    """This site's certificate (PEM), instead of a token; with tls_key and tls_ca. (a path)"""
    tls_key: str | None = None
    """The private key of tls_cert (PEM). (a path)"""
    tls_ca: str | None = None
    """The authority that signs the certificates of all sites (PEM). (a path)"""
    insecure: bool | None = None
    """Whether unencrypted links (tcp without token and certificates, and ucx) may go to and come from addresses
    that are not private. (0|1; default 0)"""
    tcp_congestion: str | None = None
    """The congestion control that tcp links ask the system for; if it is not allowed, they use the system's own.
    (1..15 letters, digits, '_' and '-'; default bbr)"""
    max_mbit_up: float | None = None
    """The most that tcp links may send together for a site's rounds, to leave room for others; 0: no cap.
    (0..100000; default 0)"""
    max_mbit_down: float | None = None
    """The most that tcp links may receive together for a site's rounds; its peers send more slowly to keep to it.
    0: no cap. (0..100000; default 0)"""
    egress_budget_gb: float | None = None
    """How much this site may send for rounds, models and optimizer state, in 10^9 bytes of payload (with
    state_dir, across restarts too). When the next round does not fit, this site leaves and trains on alone. 0: no
    budget. (0..100000; default 0)"""
    sync_every: int | str | timedelta | None = None
    """How often sites agree: after this many inner steps, or after this much time. auto: the shortest period that
    target_overhead allows. The swarm's leader chooses it from what the sites measure, at most 10000 steps; until
    then it is the preset's, 10, or the number given (auto:32). samples:4096: the number of steps in which all
    sites together train on that many samples. (1..1000000000 steps, 10ms..24h, auto, auto:1..10000 or
    samples:1..1000000000000; default 100)"""
    target_overhead: float | None = None
    """With sync_every=auto, how much rounds may hold up the training. Does not apply with overlap, where a round
    only has to end before the next one is due. (0.001..0.5; default 0.02)"""
    sync_warmup: int | None = None
    """The number of rounds at the start that come early: one after each step, then the period doubles up to
    sync_every. Does not apply if sync_every is a time. (0..100000; default 0)"""
    sync_anneal: str | None = None
    """How many steps each site makes in all. Over the last tenth of them, or the given part (20000:0.2), the
    period shrinks evenly to an eighth; 0: it does not. Needs sync_every in steps. (0, or 1..100000000 steps, with
    :0.01..1; default 0)"""
    fragments: int | None = None
    """The number of parts of the model that rounds average in turn. Each round moves one part, and there are that
    many rounds in a period of sync_every. With auto the period is the time from round to round. A model with
    fewer than 1024 elements a part is averaged whole. (1..64; default 1)"""
    overlap: bool | None = None
    """Whether rounds run behind the training. The training goes on meanwhile and merges the result once it has
    arrived; this takes memory for one more copy of the parameters in float32. (0|1; default 0)"""
    merge: str | None = None
    """With overlap, how a round's result is combined with what was trained meanwhile. rebase:K moves the
    parameters by what the round changed, and by K times the site's difference from the mean. mix:A keeps A of the
    parameters and takes the rest from the anchor, which drops a part of what was trained. (rebase:0..1 or
    mix:0..1; default rebase:0.5)"""
    codec: str | None = None
    """How deltas travel: exact, rounded to so many bits, or only the 64 or 128 largest of each 4096. UP/DOWN
    (int4/int8): deltas use the first, their mean the second.
    (fp32|bf16|fp16|int8|int4|int4-e3m0|int2|topk64|topk128, or UP/DOWN; default fp16)"""
    error_feedback: bool | None = None
    """Whether what a codec of 8 bits or fewer leaves out is added to the next round; takes memory for one more
    copy of the parameters in float32. (0|1; default 1)"""
    feedback_decay: float | str | None = None
    """The factor by which error feedback multiplies what earlier rounds left out, before it goes into the next
    round: below 1, older remainders count less. auto: 0.95 with top-k, else 1. (0..1 or auto; default auto)"""
    keep_fp16: str | None = None
    """Which tensors travel as fp16 when the codec has fewer bits: small means those of fewer than 65536 elements,
    any other word those whose names contain it (small,embedding,norm). Float buffers always do. (none, or small
    and parts of tensors' names with commas between them; default none)"""
    outer_optimizer: str | None = None
    """How the mean delta is applied. average: as it is. nesterov: with DiLoCo's momentum. rda: with each tensor
    scaled to the average length of the sites' deltas. (average|nesterov|rda; default average)"""
    outer_lr: float | str | None = None
    """The outer optimizer's learning rate. auto: 1 with average and rda; with nesterov 0.4, 0.6, 0.6, 0.8 if 1,
    2, 4, 8 sites contribute, plus 0.05 for each doubling of sync_every above 30 steps, at most 1. (0.0001..10 or
    auto; default auto)"""
    outer_momentum: float | None = None
    """The outer optimizer's momentum; nesterov only. (0..0.9999; default 0.9)"""
    outer_clip: float | None = None
    """The largest norm of the mean delta that is applied: a longer one is shrunk to it. 0: no limit. (0..100000;
    default 0)"""
    weight: str | None = None
    """What gives a site's delta its weight in the mean. (samples|steps|equal; default samples)"""
    buffers: bool | None = None
    """Whether the model's float buffers are averaged with its parameters; only those that are persistent and
    finite when training begins. (0|1; default 1)"""
    on_nonfinite: str | None = None
    """What a site does when its delta was left out three times in a row because of NaN or infinity: end with an
    error that names the tensor, or train on with the anchor. (error|continue; default error)"""
    shares: str | None = None
    """How much of the vector each site reduces. auto: by the speed of its line. equal: the same for all. Set it
    where the coordinator runs. (auto|equal; default auto)"""
    chunk_kib: int | None = None
    """How much of a slice travels at once; smaller ones overlap better, larger ones cost less per byte.
    (4..65536, a multiple of 4; default 256)"""
    join_optimizer: bool | None = None
    """Whether a site whose optimizer is fresh when it joins takes a member's optimizer state; with 0 it does not
    give its own to other sites either. (0|1; default 1)"""
    reseed: bool | None = None
    """Whether sites that are worlds of their own add their number to a default DistributedSampler's seed. (0|1;
    default 1)"""
    join_timeout: float | str | timedelta | None = None
    """How long a site tries to reach and join the swarm; at the coordinator, how long it waits for min_sites
    sites. (100ms..24h; default 300s)"""
    round_timeout: float | str | timedelta | None = None
    """How long a round waits for sites, and how long its exchange may take, before it goes on without the sites
    that hold it up; if all lines are slow, three times as long. (100ms..24h; default 1800s)"""
    straggler_grace: float | str | timedelta | None = None
    """How long a ready majority of sites waits for the others; a later site joins the next round. Set it where
    the coordinator runs. (0s..24h; default 60s)"""
    forget_after: float | str | timedelta | None = None
    """How long sites that are not a majority wait for the others before they go on without them, as another run;
    0s: until an operator runs collab forget. Set it where the coordinator runs. (0s..24h; default 0s)"""
    link_grace: float | str | timedelta | None = None
    """How long the others wait for a silent site; at least twice heartbeat. (20ms..24h; default 60s)"""
    heartbeat: float | str | timedelta | None = None
    """How often sites and the coordinator send a heartbeat. (10ms..60s; default 1s)"""
    linger: float | str | timedelta | None = None
    """How long the coordinator's host waits, when it ends, for sites that still train. (0s..24h; default 600s)"""
    state_dir: str | None = None
    """Where the leader keeps the anchor, the outer state and the site's record. Default: only the record is kept,
    in $XDG_STATE_HOME/torch-collab. (a path)"""
    save_every: int | None = None
    """The number of rounds between two writes to state_dir. (1..1000000; default 1)"""
    events_file: str | None = None
    """The file to which events are appended, one JSON object a line. Default: none. (a path)"""
    log_level: str | None = None
    """The lowest level of messages that are printed. (debug|info|warning|error|off; default info)"""


@dataclass(frozen=True, kw_only=True)
class KnobValues:
    """The values in force; times are seconds."""

    preset: str
    run: str
    site: str
    site_index: int | None
    num_shards: int
    min_sites: int
    init_from: str
    coordinator: tuple[str, ...]
    listen: str
    advertise: str
    transport: str
    connections: int
    token: str
    token_file: str
    tls_cert: str
    tls_key: str
    tls_ca: str
    insecure: bool
    tcp_congestion: str
    max_mbit_up: float
    max_mbit_down: float
    egress_budget_gb: float
    sync_every: int | float | str
    target_overhead: float
    sync_warmup: int
    sync_anneal: str
    fragments: int
    overlap: bool
    merge: str
    codec: str
    error_feedback: bool
    feedback_decay: float
    keep_fp16: str
    outer_optimizer: str
    outer_lr: float
    outer_momentum: float
    outer_clip: float
    weight: str
    buffers: bool
    on_nonfinite: str
    shares: str
    chunk_kib: int
    join_optimizer: bool
    reseed: bool
    join_timeout: float
    round_timeout: float
    straggler_grace: float
    forget_after: float
    link_grace: float
    heartbeat: float
    linger: float
    state_dir: str
    save_every: int
    events_file: str
    log_level: str
