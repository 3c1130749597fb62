#include "tools/lab/options.h"

namespace collab::lab {

std::string_view help_text() {
  return R"(usage: collab lab --sites SITE... [options] -- COMMAND [ARGUMENT...]

Runs COMMAND in several sites on this machine, joined by an emulated wide-area network. Each site has a network, a
hostname, processes and a /dev/shm of its own; files are shared. Sites reach each other by name and nothing else.

  collab lab --sites paris:100/20,nat tokyo:100 --rtt 180 --loss 0.5 -- python train.py --site {site}

SITE is NAME[:DOWN/UP][,nat][,queue=MS]; at most 64 of them
  DOWN/UP      line rates in Mbit/s of IP packets (1 Mbit/s = 1,000,000 bit/s); one number for both; none: unlimited
  nat          nobody can open a connection to it, and it gets only answers; its address is not rewritten
  queue=MS     what the queue before each of its two lines holds, as time at the line's rate

Paths between sites; both directions of every pair, and each packet on its own:
  --rtt MS         round-trip time without queueing; half of it each way        --delay MS   one way
  --jitter MS      up to this much more one way, wandering slowly, without overtaking
  --loss %         lost                      --duplicate %   delivered twice
  --reorder %      held back 5 ms, so that those behind overtake
  --queue MS       queue of sites that name none (default 100)
  --link "A B KEY=VALUE..."    another path between two of them; keys: rtt delay jitter loss reorder duplicate

Changes while it runs: --script FILE, lines of SECONDS and a change, # for comments; seconds count from the start:
  12.5 cut paris                        nothing gets to or from it; its own programs notice nothing else
  20   heal paris                       undoes `cut paris`
  22   cut paris tokyo                  between these two only; `heal paris tokyo` undoes it; `heal` undoes every cut
  30   rate tokyo 5/5                   DOWN/UP
  40   link paris tokyo rtt=300 loss=2  both directions, other keys stay
  50   path paris tokyo delay=90        from paris to tokyo only

The command, for each site:
  {site} {index} {count} {address} {address:NAME} are replaced in its arguments and in --env; other braces stay,
  but a NAME that is no site is refused.
  LAB_SITE, LAB_INDEX, LAB_COUNT, LAB_ADDRESS, LAB_SITES ("NAME=ADDRESS ...") and COLLAB_SITE are in its environment.
  --env NAME=VALUE     one more variable; may be given often
  Its lines come out with the site's name in front. A site ends with its command, and all processes in it. One that
  fails is named on stderr, also with --quiet: lab: tokyo ended with status 3

Others:
  --report FILE    traffic of every pair as JSON        --pcap FILE       what was delivered, for tcpdump -r
  --seed N         of all chance (default 1)            --mtu BYTES       default 1500
  --network A.B.C.0    addresses (default 10.99.0.0; site 0 has .1)       --quiet    only the sites' output
  --check          say whether the lab may run here, and exit             -h, --help

Exit status: that of the first command that failed, else 0; 2 wrong usage; 1 the lab itself cannot run; 128+N ended by signal
N. Ctrl-C and SIGTERM are passed on to the commands, which have 30 seconds to end; asked twice, the lab kills them at once.
However it ends, nothing stays behind.

It needs TUN devices (/dev/net/tun), and root or the right to make user namespaces.
)";
}

}  // namespace collab::lab
