// The parts of a collective hub: its worlds, each with parts of its own (hub_world.h), and the state that they share:
// configuration, time, and the list of actions.
//
// Threads: one caller at a time. Ownership: plain values; parts refer to this struct, so it stays where it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/collectives/hub_worlds.h"

namespace collab::protocol {

// Counts changes, and the cost of events: see CollectiveHub.
class HubCounters {
 public:
  void presence_changed() { ++changes_; }
  void calls_changed() { ++changes_of_calls_; }
  void looked_at(std::size_t ones) { looked_at_ += ones; }
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::uint64_t changes_of_calls() const { return changes_ + changes_of_calls_; }
  [[nodiscard]] std::uint64_t all_looked_at() const { return looked_at_; }

 private:
  std::uint64_t changes_ = 0, changes_of_calls_ = 0, looked_at_ = 0;
};

struct HubParts {
  explicit HubParts(HubConfig c) : config(std::move(c)), worlds(*this) {}

  HubConfig config;
  HubWorlds worlds;

  // The state of the current call of step().
  TimePoint now{};
  std::vector<HubAction> out;

  HubCounters counters;

  void send(LinkId link, wire::Message message, Payload payload = {});  // only if there is a link
  void note(Note::Level level, const char* event, const std::string& text);
};

}  // namespace collab::protocol
