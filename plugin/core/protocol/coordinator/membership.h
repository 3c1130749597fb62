// Which sites are members: links, heartbeats, suspicion, removal, and the roster that tells members about each other.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/actions.h"
#include "core/protocol/coordinator/member.h"

namespace collab::protocol {

struct CoordinatorParts;

// Missed heartbeats after which a member is suspected, and after which its name may be taken over.
inline constexpr int kSuspectAfter = 5;
inline constexpr int kReplaceAfter = 3;
// Up to this size, all members hear of each change at once. Larger swarms gather changes, because rosters for all grow
// with the square of the size.
inline constexpr std::size_t kSmallSwarm = 32;
// The most rosters between two heartbeats, so that a member whose state keeps changing does not fill the others' lines.
inline constexpr std::size_t kMostRosters = 64;

class Membership {
 public:
  // Other parts change only their own fields of a member (member.h).
  [[nodiscard]] Members& members() { return members_; }
  [[nodiscard]] const Members& members() const { return members_; }
  [[nodiscard]] Member* find_by_link(LinkId link);  // or null
  [[nodiscard]] bool has(LinkId link) const { return links_.count(link) != 0; }
  [[nodiscard]] const Member* find_by_name(const std::string& name) const;
  [[nodiscard]] std::string name_of(SiteId id) const;
  [[nodiscard]] std::vector<std::string> names() const;  // ascending SiteId
  [[nodiscard]] std::set<SiteId> ids() const;
  [[nodiscard]] std::size_t sites_here() const;  // members that train

  // ---- whether the sites here are enough (quorum.h)
  [[nodiscard]] Quorum quorum_among(const std::set<SiteId>& present) const;
  [[nodiscard]] Quorum quorum_here() const;
  [[nodiscard]] Quorum quorum_at_the_next_term() const;  // then all voters here count by name
  [[nodiscard]] std::string quorum_text(const std::set<SiteId>& present) const;
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] TimePoint next_heartbeat() const { return next_heartbeat_; }

  Member& add(LinkId link, SiteId id, const wire::Join& join);
  void remove(SiteId id, const std::string& reason);
  void close_link(SiteId id, const std::string& reason);  // and removes the member, which may come again
  void expel(SiteId id, const std::string& reason);       // likewise, and refuses it for good
  void close_all_links(const std::string& reason);        // no member is left
  void on_leave(Member& member, const wire::Leave& leave);
  void on_undialable(const Undialable& event);

  void send_roster();   // at once in a small swarm, else with the next heartbeat or attempt
  void flush_roster();  // sends the roster if it is due
  void broadcast(wire::Message message);
  void heard(Member& member);
  void begin_heartbeats();
  void on_tick();
  void forget();

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  void send_keys(const Member& joiner);
  [[nodiscard]] wire::Roster roster() const;
  void judge_silence();
  void warn_undialable(const std::string& because);  // once, while no site here can be dialled

  CoordinatorParts* all_ = nullptr;
  Members members_;
  std::map<LinkId, SiteId> links_;
  std::uint64_t tickets_ = 0;  // members admitted
  std::uint64_t changes_ = 0;  // of the set of members
  bool roster_due_ = false;
  std::size_t rosters_ = 0;         // sent since the last heartbeat
  bool undialable_warned_ = false;  // that no site here can be dialled
  TimePoint next_heartbeat_ = kNever;
  std::uint64_t heartbeat_sequence_ = 0;
};

}  // namespace collab::protocol
