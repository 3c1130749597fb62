// Decides which ranks are gone from a world: a chain of memberships, each an instance of Paxos. The hub proposes under
// its ballot, and the lowest living rank of each site accepts. More than half of a membership choose the next one. A
// single hub decides alone.
//
//   ballot raised --enough promise--> epoch that an older ballot may have chosen is chosen --> leads: admits members,
//        ^                                                                                     leaves out silent ones
//        +------- a rank has promised a higher ballot, or most are silent ---------------------+
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

  // Raises the ballot if it is lower than the one that this rank has promised. That clears all contributions, so its
  // rate is limited for each site and each world. A rank that is refused finds another hub, or comes again.
  void raise_above(const wire::Enter& message);
  void on_new_link(RankId rank) { votes_[rank.value].asked = false; }
  void on_enter(LinkId link, const wire::Enter& message);
  void on_accepted(RankId rank, const wire::AcceptedEpoch& message);
  // Takes every step that the ranks here allow: leads, completes an epoch that an older ballot may have chosen, leaves
  // out ranks that are gone.
  void advance();
  // If the ranks that are not silent are too few to agree, sends them to another hub, where the others may be.
  void judge_quorum();

 private:
  struct Vote {
    bool asked = false;     // asked on this link to promise the ballot
    bool promised = false;  // has promised the ballot
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
  RateLimit raises_;             // of the ballot, in the whole world
  wire::Epoch chosen_;           // the newest chosen epoch that this hub knows
  wire::Ballot reported_under_;  // the newest ballot under which an acceptor has accepted `reported_`; term 0: none
  wire::Epoch reported_;
  std::optional<wire::Epoch> proposal_;  // under the ballot, after `chosen_`
  std::set<std::uint32_t> accepted_by_;
  bool leads_ = false;  // enough have promised, and the epoch that an older ballot may have chosen is chosen
};

}  // namespace collab::protocol
