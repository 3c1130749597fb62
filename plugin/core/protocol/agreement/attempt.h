// Questions about one attempt at a round and about what a site knows, asked by the leader, the sites and the election
// alike.
//
// Threads and ownership: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/wire/messages.h"

namespace collab::protocol {

inline constexpr std::size_t kMaxNamesBytes = std::size_t{512} << 10;  // in one list of sites that is remembered
inline constexpr std::size_t kMaxRecentBytes = std::size_t{1} << 20;   // of names, in all that is remembered of commits

// Takes part, and is here.
[[nodiscard]] bool takes_part(const wire::StartAttempt& start, SiteId site);
[[nodiscard]] bool takes_part(const wire::StartAttempt& start, AcceptorId acceptor);
[[nodiscard]] bool has_accepted(const wire::Record& record, const wire::Proposal& proposal);
// Those with a weight: whose deltas are in the mean.
[[nodiscard]] std::vector<SiteId> contributors_of(const wire::StartAttempt& start);
// As it is remembered once it is committed. `slices`: the digests of its mean.
[[nodiscard]] wire::Past past_of(const wire::StartAttempt& start, const std::vector<Digest>& slices);
[[nodiscard]] Digest digest_of_mean(const std::vector<Digest>& slices);  // zero of none
// What a site knows once it has found this anchor here. `with` is what was kept beside the anchor: its membership, and
// a term. A site that knows the membership counts as having promised that term; otherwise it could elect a leader of an
// older term. What else the site has promised, only its record tells.
void take_membership(wire::Record& known, const wire::Record& with, const wire::Offer& anchor);
// Whether a site may have to remember these: its record goes into one message.
[[nodiscard]] bool is_short(const std::vector<wire::Voter>& list);
[[nodiscard]] bool is_short(const wire::StartAttempt& start);
// The newest attempt that was accepted there is this one, and its mean is kept.
[[nodiscard]] bool holds_mean(const wire::Report& report, const wire::StartAttempt& start);

}  // namespace collab::protocol
