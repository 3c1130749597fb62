// How many of a membership are enough: the one rule that every agreement rests on.
//
//   to accept    more than half of the membership, by name
//   to promise   more than half of the membership by name, with the records of at least half of the membership
//
// Any quorum that accepts and any quorum that promises share a site that still has its record: of n sites, more than n
// / 2 accept, and at least n / 2 promise with their records, which makes more than n. So a candidate that has been
// promised a term hears of whatever was accepted under an older one. A site that has lost its record counts by name
// only: it does not know what its predecessor of that name has promised or accepted. This is Paxos with quorums of two
// sizes (Flexible Paxos), and with recovery by a new identity as in Viewstamped Replication Revisited, section 4.3:
// there, too, a site that has forgotten is no witness of the past.
//
// Threads and ownership: plain values.
#pragma once

#include <cstdint>

#include "core/wire/messages.h"

namespace collab::protocol {

// How a site of a membership is here.
enum class Presence : std::uint8_t {
  kAbsent,
  kByName,      // without its record
  kWithRecord,  // with the acceptor the membership names
};

struct Quorum {
  std::size_t voters = 0;
  std::size_t by_name = 0;
  std::size_t with_record = 0;  // of those

  [[nodiscard]] bool can_accept() const { return 2 * by_name > voters; }
  [[nodiscard]] bool can_promise() const { return can_accept() && 2 * with_record >= voters; }
  // Most are here, and their records are not: waiting for others may help, and may not.
  [[nodiscard]] bool lacks_records() const { return can_accept() && !can_promise(); }
};

// presence(voter): as of now. A voter that left in good order counts by name for good: it accepts whatever the others
// do, and is never asked again what it has promised.
template <typename Membership, typename F>
[[nodiscard]] Quorum quorum_of(const Membership& membership, F presence) {
  Quorum quorum;
  for (const wire::Voter& voter : membership) {
    ++quorum.voters;
    const Presence here = voter.left ? Presence::kByName : presence(voter);
    quorum.by_name += here != Presence::kAbsent ? 1 : 0;
    quorum.with_record += here == Presence::kWithRecord ? 1 : 0;
  }
  return quorum;
}

}  // namespace collab::protocol
