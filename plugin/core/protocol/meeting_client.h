// A rank's side of a meeting (meeting.h): one link to the hub, one step at a time in each group.
//
//   (not begun) --MeetingBegin--> dialling --> entering --Entered--> in
//                                   ^  ^_________|__lost______________|     lost: closed, or silent for the grace
//                                   |            two dials in a row come to nothing: the next candidate
//                                   +--- nobody answers within the grace (twice, with several candidates): broken
//
// What is under way is said again to the next hub; with several candidates the last completed step is kept for it.
// Pure: no socket, thread, clock or random source. Threads: one caller at a time. Ownership: its own state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/protocol/meeting_actions.h"

namespace collab::protocol {

struct MeetingClientConfig {
  wire::Enter self;               // `candidates` as in `hubs`; `returning` and `gone` are filled in here
  std::vector<std::string> hubs;  // addresses, for messages; DialHub gives an index into it
  Duration heartbeat{1'000'000};
  Duration link_grace{60'000'000};
  Duration join_timeout{300'000'000};
};

class MeetingClient {
 public:
  explicit MeetingClient(MeetingClientConfig config);
  ~MeetingClient();
  MeetingClient(MeetingClient&&) noexcept;
  MeetingClient& operator=(MeetingClient&&) noexcept;

  [[nodiscard]] std::vector<MeetingClientAction> step(TimePoint now, const MeetingClientEvent& event);
  [[nodiscard]] TimePoint next_deadline() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace collab::protocol
