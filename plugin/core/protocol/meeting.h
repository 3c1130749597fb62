// The meeting's hub: collectives and sends between ranks of a world that stand at several sites, each of which needs
// only to dial out.
//
// One primitive: a numbered step within a group. Every living member brings its part; the hub compares what they say
// they are doing and gives each the parts it wants.
//
//            Bring of some                Bring of all living, alike
//   (none) ---------------> collecting ------------------------------> complete --Taken by all living--> (forgotten)
//                               |  ^                                      ^
//          a member is a step   |  | nobody alive holds it                | recalled: the same outcome again
//          further (successor)  v  |                                      |
//                            recalling ------------------------------------
//   A difference, a time-out or a member that is needed and gone completes a step with an error, the same for all.
//
// A rank is gone when nothing has been heard from it for the link grace; for good, in this world. Steps that are never
// completed differently: a member that completed one keeps it until the next, and a successor asks for it.
// Pure: no socket, thread, clock or random source. Threads: one caller at a time. Ownership: its own state; payloads
// are shared until every living member has taken the step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/protocol/meeting_actions.h"

namespace collab::protocol {

struct MeetingConfig {
  std::string swarm = "default";
  Duration heartbeat{1'000'000};
  Duration link_grace{60'000'000};
  Duration join_timeout{300'000'000};  // ranks that have never come are waited for as long
};

class Meeting {
 public:
  explicit Meeting(MeetingConfig config);
  ~Meeting();
  Meeting(Meeting&&) noexcept;
  Meeting& operator=(Meeting&&) noexcept;

  [[nodiscard]] std::vector<MeetingAction> step(TimePoint now, const MeetingEvent& event);
  // Deliver a Tick at or after this time; kNever when nothing is awaited.
  [[nodiscard]] TimePoint next_deadline() const;
  // Whether what comes on this link is for the meeting: a rank has entered by it.
  [[nodiscard]] bool knows(LinkId link) const;
  // Ranks that have entered and neither left nor gone: "rank 2 of paris".
  [[nodiscard]] std::vector<std::string> present() const;
  // Sites whose ranks have brought their part of a step to which others are still to come.
  [[nodiscard]] CallsUnderWay calls_under_way() const;
  // Bytes of parts that are held, for tests of the bound.
  [[nodiscard]] std::size_t bytes_held() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace collab::protocol
