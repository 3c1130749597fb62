// The ranks of a world: which link each uses, when it was heard, and whether it is silent, has left or is gone.
//
// A rank is silent if nothing was heard from it for the link grace, or if it did not come in time. Ranks that fall
// silent at about the same time are judged together. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "core/base/rate_limit.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct HubWorld;

struct HubRank {
  AcceptorId acceptor{};  // the process; 0: it has never come
  LinkId link{};          // 0: none now
  TimePoint heard{};
  bool entered = false;  // has entered since this hub began to wait for the world's ranks
  bool in = false;       // got Entered under the ballot, on this link: its messages about groups count
  bool left = false;
  std::string gone;  // why it is gone; empty: it is not
  [[nodiscard]] bool linked() const { return link.value != 0; }
  [[nodiscard]] bool away() const { return left || !gone.empty(); }
};

class HubRanks {
 public:
  HubRanks(HubWorld& world, const wire::Enter& first);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] bool has(RankId rank) const { return rank.value < ranks_.size(); }
  [[nodiscard]] const HubRank& operator[](RankId rank) const { return ranks_[rank.value]; }
  [[nodiscard]] std::uint32_t site_index(RankId rank) const { return site_of_[rank.value]; }
  [[nodiscard]] const std::string& site(RankId rank) const { return sites_[site_of_[rank.value]]; }
  [[nodiscard]] std::string text(RankId rank) const;  // "rank 2 of paris"
  [[nodiscard]] std::string texts(const std::vector<RankId>& ranks) const;
  [[nodiscard]] std::string why_refused(const wire::Enter& message) const;
  [[nodiscard]] bool any_linked() const { return linked_ > 0; }
  [[nodiscard]] bool is_suspect(RankId rank) const { return suspects_.contains(rank.value); }
  [[nodiscard]] bool is_silent(RankId rank) const;  // now; a suspect may have been heard since
  // Whether all ranks that have entered have left. A gone rank has not left: it may yet come, and be told that it is
  // gone.
  [[nodiscard]] bool all_left() const;
  // When to forget the world if no rank is linked. Until then a late rank can learn that the others have gone on, and
  // find them at another hub.
  [[nodiscard]] TimePoint abandoned_at() const;
  // When a rank was heard last, if no rank is linked and none was heard for a grace: they may all have died.
  [[nodiscard]] std::optional<TimePoint> silent_since() const;
  // Neither a rank nor the world needs attention before this time. Hearing a rank does not move it at once.
  [[nodiscard]] TimePoint next_deadline() const { return next_; }

  // No rank is here: the ranks may take as long to come as the first time.
  void await_ranks(bool returning);
  void expect_soon();  // the ranks come from another hub, and know that it is lost
  // Whether a rank may enter again over the link that it has; limited, because each time all its groups are checked.
  [[nodiscard]] bool may_enter(LinkId link, RankId rank);
  // Returns whether the rank comes over another link than before.
  bool enter(LinkId link, const wire::Enter& message);
  void on_leave(RankId rank, const wire::Leave& message);
  void on_tick();
  void heard(RankId rank);
  void lose_link(RankId rank);
  void admit(RankId rank) { ranks_[rank.value].in = true; }
  void readmit_all();  // no rank is `in` until it is admitted again
  void disconnect_all(const std::string& why);
  void mark_gone(const std::vector<RankId>& ranks, const std::string& why);

 private:
  [[nodiscard]] std::string left_out_text(RankId rank) const;
  [[nodiscard]] TimePoint silent_at(RankId rank) const;
  [[nodiscard]] TimePoint next_look() const;
  void link(HubRank& rank, LinkId link);
  void judge_silence();

  HubWorld& world_;
  std::vector<std::string> sites_;
  std::vector<std::uint32_t> site_of_;
  std::vector<HubRank> ranks_;
  std::vector<RateLimit> again_;  // by rank: how often it may enter again over its link
  std::size_t linked_ = 0;
  TimePoint heard_{};                 // when any rank was heard last
  std::set<std::uint32_t> suspects_;  // silent, and judged together
  TimePoint hold_ = kNever;           // no rank is judged before: others may have fallen silent, too
  TimePoint expected_by_ = kNever;    // ranks that have not come by then are silent
  TimePoint next_ = kNever;           // no later than next_look()
};

}  // namespace collab::protocol
