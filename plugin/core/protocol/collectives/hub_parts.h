// What a collective hub consists of: its worlds, each with parts of its own (hub_world.h), and what all of them may
// use: configuration, time, and the list of what is to be done.
//
// Threads: one caller at a time. Ownership: plain values; parts refer to this struct, so it stays where it is.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/collectives/collective_hub.h"
#include "core/protocol/collectives/hub_worlds.h"

namespace collab::protocol {

struct HubParts {
  explicit HubParts(HubConfig c) : config(std::move(c)), worlds(*this) {}

  HubConfig config;
  HubWorlds worlds;

  // The state of the step under way.
  TimePoint now{};
  std::vector<HubAction> out;

  // See CollectiveHub.
  std::uint64_t changes = 0;
  std::uint64_t changes_of_calls = 0;
  std::uint64_t looked_at = 0;

  void send(LinkId link, wire::Message message, Payload payload = {});  // where there is a link
  void note(Note::Level level, const char* event, const std::string& text);
};

}  // namespace collab::protocol
