// A copy of this site's optimizer state, served to sites that join: when one is needed, which sites fetch it, when to
// drop it.
//
// Pure. Threads: one caller at a time. Ownership: its own state; never a byte of the copy.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct LeaseAsked {
  LinkId from;
  wire::FetchOptimizer asked;
};
struct LeaseMade {  // the copy that was wanted; 0 bytes: there is none, because of `reason`
  std::uint64_t bytes = 0;
  Digest digest;
  std::string description;
  std::string reason;
};
struct LeaseOver {  // the link is gone, and what was on its way over it
  LinkId link;
};
struct LeasePartSent {  // the part has left; its place is free
  LinkId link;
};
struct LeaseTick {};
using LeaseEvent = std::variant<LeaseAsked, LeaseMade, LeaseOver, LeasePartSent, LeaseTick>;

struct MakeCopy {};  // between two steps; answered by LeaseMade
struct DropCopy {};  // or stop making it
struct SendOptimizerState {
  LinkId to;
  wire::OptimizerState message;
};
struct SendPart {
  LinkId to;
  wire::FetchOptimizer part;
};
struct RefuseFetcher {  // it breaks the rules: close its link
  LinkId link;
  std::string why;
};
using LeaseAction = std::variant<MakeCopy, DropCopy, SendOptimizerState, SendPart, RefuseFetcher>;

class OptimizerLease {
 public:
  // `limit`: how long to wait for a copy, and how long to keep one for a silent fetcher.
  explicit OptimizerLease(Duration limit) : limit_(limit) {}

  [[nodiscard]] std::vector<LeaseAction> step(TimePoint now, const LeaseEvent& event);
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool holds_copy() const { return held_.snapshot != 0; }

 private:
  struct Fetcher {
    TimePoint heard{};
    std::uint32_t told = 0;  // how often it was told of the copy
  };

  void on(const LeaseAsked& event);
  void on(const LeaseMade& event);
  void on(const LeaseOver& event);
  void on(const LeasePartSent& event);
  void on(const LeaseTick&);
  void ask_for_copy(LinkId from);
  // Asks for a copy. Waits first if the last one is recent, or if parts on their way keep it in memory.
  void make_copy();
  void retry_copy();
  void close_unresponsive_fetchers();
  [[nodiscard]] bool waits_for_copy() const { return !fetchers_.empty() && !holds_copy() && !wanted_; }
  void give_back(LinkId link);
  void send_refusal(LinkId to, std::string reason);

  Duration limit_;
  std::map<LinkId, Fetcher> fetchers_;  // sites that wait for the copy, or take it
  // Parts on their way, by link; also to sites that have given the copy back since.
  std::map<LinkId, std::uint32_t> in_flight_;
  bool wanted_ = false;
  TimePoint next_copy_{};            // none is made before
  TimePoint parts_end_by_ = kNever;  // limit for parts of a dropped copy
  wire::OptimizerState held_;        // snapshot 0: no copy is held
  std::uint64_t snapshots_ = 0;
  // The state of the step under way.
  TimePoint now_{};
  std::vector<LeaseAction> out_;
};

}  // namespace collab::protocol
