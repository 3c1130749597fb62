// Distributes the anchor: which members send it to which, and how far each member is. Only this part changes a member's
// state.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <string>
#include <vector>

#include "core/protocol/coordinator/member.h"

namespace collab::protocol {

struct CoordinatorParts;

// The most sources from which a member fetches the anchor at once.
inline constexpr std::size_t kSources = 8;

class AnchorInstaller {
 public:
  [[nodiscard]] bool holds_anchor(const Member& member) const;
  [[nodiscard]] bool somebody_holds() const;  // an active member counts: it has reported the anchor
  [[nodiscard]] TimePoint next_deadline() const;

  // ---- a member's state
  void welcome(Member& member, const wire::Join& join);             // `join` still has the record, which `member` lacks
  void begin_run(RunId run);                                        // all members belong to this run from now on
  void begin_from(Member& source, const wire::Offer& anchor);       // all wait for the anchor that `source` brought
  void all_wait();                                                  // every member waits for an anchor
  void wait(Member& member, const wire::AnchorInstalled& holding);  // the member is ready to take an anchor
  void left_out(Member& member);                                    // a round was committed without it
  void set_held_anchor(Member& member, const wire::AnchorInstalled& holding) { member.anchor.holds_ = holding; }
  void on_installed(Member& member, const wire::AnchorInstalled& installed);
  void on_progress(Member& member, std::uint64_t progress);
  [[nodiscard]] bool mark_not_used(Member& member);  // false: the member was told already

  // ---- sources
  void offer();  // offers the anchor to members that wait for it
  void install_again(Member& member);
  void digest_changed();  // joiners were offered an anchor that no source has
  void lost(SiteId source);
  void went_without(const Member& gone);  // a joiner left, perhaps because its source's anchor differed from the offer
  void find_reachable_sources();          // sources were picked before an address proved undialable
  void on_tick();

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  bool repeat_commit(Member& member, const wire::Join& join);
  void installed_another(Member& member, const wire::AnchorInstalled& installed);
  void active(Member& member, const wire::AnchorInstalled& installed, bool waited_for);
  void trust_reported_holders();
  [[nodiscard]] std::vector<SiteId> pick_sources(const Member& joiner);
  void install(Member& to, std::vector<SiteId> sources);
  void send_sources(const Member& to);
  void add_source(const Member& holder);  // `holder` has the anchor now, while others fetch it
  [[nodiscard]] bool reaches_any(const Member& member, const std::vector<SiteId>& sources) const;
  [[nodiscard]] bool waits_until_reachable(Member& joiner, const std::vector<SiteId>& sources);
  [[nodiscard]] TimePoint installing_until(const Member& member) const;

  CoordinatorParts* all_ = nullptr;
  TimePoint ask_again_from_{};     // when a source may next be asked again what it holds
  std::uint64_t next_source_ = 0;  // round robin, if there are many sources
};

}  // namespace collab::protocol
