// How many voters of a membership are enough. Every agreement rests on this one rule.
//
//   to accept    more than half of the membership, by name
//   to promise   more than half of the membership by name, with the records of at least half of the membership
//
// Any quorum that accepts and any quorum that promises share a site that still has its record. Of n sites, more than
// n / 2 accept, and at least n / 2 promise with their records: together more than n. So a candidate that was promised a
// term hears of every attempt accepted under an older term. A site that has lost its record counts by name only: it
// does not know what its predecessor of that name promised or accepted. This is Paxos with quorums of two sizes
// (Flexible Paxos). Recovery by a new identity is as in Viewstamped Replication Revisited, section 4.3: there, too, a
// site that has forgotten the past does not testify to it.
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
  kWithRecord,  // with the acceptor that the membership names
};

struct Quorum {
  std::size_t voters = 0;
  std::size_t by_name = 0;
  std::size_t with_record = 0;  // part of by_name

  [[nodiscard]] bool can_accept() const { return 2 * by_name > voters; }
  [[nodiscard]] bool can_promise() const { return can_accept() && 2 * with_record >= voters; }
  // A majority is here, but too few have their records. Waiting for other voters may help.
  [[nodiscard]] bool lacks_records() const { return can_accept() && !can_promise(); }
};

// presence(voter): its presence now. A voter that left in good order always counts by name: it accepts whatever the
// others accept, and nobody asks again what it has promised.
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
