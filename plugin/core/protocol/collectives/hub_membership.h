// Which ranks are gone from a world: a chain of memberships, each an instance of Paxos. The hub proposes under its
// ballot, and the lowest living rank of each site accepts. More than half of a membership choose the next one. A single
// hub decides alone.
//
//   ballot raised --enough promise--> what an older ballot may have chosen is chosen --> leads: members are admitted,
//        ^                                                                               the silent are left out
//        +------- a rank has promised a higher one, or most are silent ------------------+
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/rate_limit.h"
#include "core/protocol/agreement/quorum.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct HubWorld;

class HubMembership {
 public:
  HubMembership(HubWorld& world, const wire::Ballot& ballot);

  [[nodiscard]] const wire::Ballot& ballot() const { return ballot_; }
  [[nodiscard]] std::string why_refused(const wire::Enter& message) const;

  // Raises the ballot if it is lower than the one that this rank has promised. That clears all contributions, so no
  // site and no world can make it happen often. A rank that is refused finds another hub, or comes again.
  void raise_above(const wire::Enter& message);
  void on_new_link(RankId rank) { votes_[rank.value].asked = false; }
  void on_enter(LinkId link, const wire::Enter& message);
  void on_accepted(RankId rank, const wire::AcceptedEpoch& message);
  // Does what the ranks here allow: leads, completes what an older ballot may have chosen, leaves out ranks that are
  // gone.
  void advance();
  // If the ranks that are not silent cannot agree on anything, they try another hub, where the others may be.
  void judge_quorum();

 private:
  struct Vote {
    bool asked = false;     // on this link, for the ballot
    bool promised = false;  // the ballot
  };
  [[nodiscard]] bool may_raise(RankId rank);
  [[nodiscard]] std::string why_impossible(const wire::Enter& message) const;
  [[nodiscard]] bool is_gone(RankId rank) const;
  [[nodiscard]] std::vector<wire::Voter> voters() const;
  [[nodiscard]] std::vector<wire::Voter> missing() const;
  template <typename F>
  [[nodiscard]] Quorum count(F counts) const;
  [[nodiscard]] bool is_lone() const;
  [[nodiscard]] bool is_promised() const;
  [[nodiscard]] bool is_accepted() const;
  [[nodiscard]] bool may_accept(RankId rank) const;
  [[nodiscard]] wire::Epoch next_epoch() const;
  void learn(const wire::Enter& message);
  void admit();
  void propose(const wire::Epoch& epoch);
  void choose(const wire::Epoch& epoch);

  HubWorld& world_;
  wire::Ballot ballot_;
  std::vector<Vote> votes_;  // by rank
  std::map<std::uint32_t, RateLimit> raises_of_site_;
  RateLimit raises_;             // of the ballot, for what ranks have promised
  wire::Epoch chosen_;           // the newest that is known
  wire::Ballot reported_under_;  // the newest ballot under which an acceptor has accepted `reported_`; no term: none
  wire::Epoch reported_;
  std::optional<wire::Epoch> proposal_;  // under the ballot, after `chosen_`
  std::set<std::uint32_t> accepted_by_;
  bool leads_ = false;  // enough have promised the ballot, and what older ones may have chosen is chosen
};

}  // namespace collab::protocol
