// Queries about an attempt and about a site's knowledge. The leader, the sites and the election use them.
//
// Threads and ownership: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/wire/messages.h"

namespace collab::protocol {

inline constexpr std::size_t kMaxNamesBytes = std::size_t{512} << 10;  // names in one list of a record
inline constexpr std::size_t kMaxRecentBytes = std::size_t{1} << 20;   // names in all commits of a record

// The site is a participant, and is here.
[[nodiscard]] bool takes_part(const wire::StartAttempt& start, SiteId site);
[[nodiscard]] bool takes_part(const wire::StartAttempt& start, AcceptorId acceptor);
[[nodiscard]] bool has_accepted(const wire::Record& record, const wire::Proposal& proposal);
// The participants with a weight: their deltas are in the mean.
[[nodiscard]] std::vector<SiteId> contributors_of(const wire::StartAttempt& start);
// The attempt as a record keeps it after its commit. `slices`: the digests of its mean.
[[nodiscard]] wire::Past past_of(const wire::StartAttempt& start, const std::vector<Digest>& slices);
[[nodiscard]] Digest digest_of_mean(const std::vector<Digest>& slices);  // zero if there are none
// Adds to `known` what was stored beside an anchor found here: `with` has the anchor's membership, and a term. A site
// that knows the membership counts as having promised that term; otherwise it could elect a leader of an older term.
// Only the site's record tells what else it has promised.
void take_membership(wire::Record& known, const wire::Record& with, const wire::Offer& anchor);
// Whether these are short enough for a record, which must fit in one message.
[[nodiscard]] bool is_short(const std::vector<wire::Voter>& list);
[[nodiscard]] bool is_short(const wire::StartAttempt& start);
// The reporting site's newest accepted attempt is this one, and the site still holds its mean.
[[nodiscard]] bool holds_mean(const wire::Report& report, const wire::StartAttempt& start);

}  // namespace collab::protocol
