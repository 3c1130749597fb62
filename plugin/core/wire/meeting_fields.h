// The bodies of the meeting's messages, as fields.h has the others.
// Threads: pure functions.
#pragma once

#include <concepts>

#include "core/wire/byte_io.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace collab::wire {

template <typename M, typename T>
concept OfMeeting = std::same_as<std::remove_const_t<M>, T>;

void fields(auto& io, OfMeeting<Enter> auto& m) {
  io.name("swarm", m.swarm, kMaxNameBytes);
  io.number("world", m.world);
  io.id("rank", m.rank);
  io.list("sites", m.sites, kMaxSites, 2, [&](auto& name) { io.name("", name, kMaxNameBytes); });
  io.list("site_of", m.site_of, kMaxRanks, 4, [&](auto& index) { io.number("", index, kMaxSites - 1); });
  io.number("candidates", m.candidates, kMaxSites);
  io.boolean("returning", m.returning);
  io.list("gone", m.gone, kMaxRanks, 4, [&](auto& rank) { io.id("", rank); });
}

void fields(auto& io, OfMeeting<Assemble> auto& m) {
  io.id("group", m.group);
  io.list("members", m.members, kMaxRanks, 4, [&](auto& rank) { io.id("", rank); });
  io.number("completed", m.completed);
  io.id("parent", m.parent);
  io.number("tag", m.tag);
}

void fields(auto& io, OfMeeting<Disband> auto& m) { io.id("group", m.group); }

void fields(auto& io, OfMeeting<Bring> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
  io.number("call", m.call);
  io.text("operation", m.operation, kMaxNameBytes);
  io.text("shape", m.shape, kMaxNameBytes);
  io.enumeration("absence", m.absence, Absence::kNeedsRoot);
  io.number("root", m.root, kMaxRanks - 1);
  io.boolean("wants", m.wants);
  io.boolean("absent", m.absent);
  io.number("timeout_ms", m.timeout_ms, kMaxIntervalMs);
  io.list("splits", m.splits, kMaxRanks, 8, [&](auto& bytes) { io.number("", bytes, kMaxPayloadBytes); });
}

void fields(auto& io, OfMeeting<Taken> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
}

void fields(auto& io, OfMeeting<Seek> auto& m) {
  io.id("group", m.group);
  io.number("tag", m.tag);
}

void fields(auto& io, OfMeeting<Entered> auto& m) {
  io.number("heartbeat_ms", m.heartbeat_ms, kMaxIntervalMs);
  io.number("grace_ms", m.grace_ms, kMaxIntervalMs);
}

void fields(auto& io, OfMeeting<Recall> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
}

void fields(auto& io, OfMeeting<Found> auto& m) {
  io.id("group", m.group);
  io.number("tag", m.tag);
  io.number("from", m.from, kMaxRanks - 1);
}

void fields(auto& io, OfMeeting<Piece> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
  io.number("from", m.from, kMaxRanks - 1);
}

void fields(auto& io, OfMeeting<Outcome> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
  io.list("absent", m.absent, kMaxRanks, 4, [&](auto& index) { io.number("", index, kMaxRanks - 1); });
  io.list("gone", m.gone, kMaxRanks, 4, [&](auto& rank) { io.id("", rank); });
  io.sentence("error", m.error, kMaxReasonBytes);
}

}  // namespace collab::wire
