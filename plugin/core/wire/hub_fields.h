// The bodies of the collective hub's messages, in the way of fields.h.
// Threads: pure functions.
#pragma once

#include <concepts>

#include "core/wire/byte_io.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace collab::wire {

template <typename M, typename T>
concept OfHub = std::same_as<std::remove_const_t<M>, T>;

void fields(auto& io, OfHub<Ballot> auto& m) {
  io.number("term", m.term);
  io.number("hub", m.hub);
}

void fields(auto& io, OfHub<Epoch> auto& m) {
  io.number("number", m.number);
  io.list("gone", m.gone, kMaxRanks, 4, [&](auto& rank) { io.id("", rank); });
}

void fields(auto& io, OfHub<Completed> auto& m) {
  io.id("group", m.group);
  io.number("steps", m.steps);
}

void fields(auto& io, OfHub<Held> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
  io.part("ballot", m.ballot);
}

void fields(auto& io, OfHub<Enter> auto& m) {
  io.name("swarm", m.swarm, kMaxNameBytes);
  io.number("world", m.world);
  io.id("rank", m.rank);
  io.list("sites", m.sites, kMaxSites, 2, [&](auto& name) { io.name("", name, kMaxNameBytes); });
  io.list("site_of", m.site_of, kMaxRanks, 4, [&](auto& index) { io.number("", index, kMaxSites - 1); });
  io.number("candidates", m.candidates, kMaxSites);
  io.boolean("returning", m.returning);
  io.id("acceptor", m.acceptor);
  io.part("promised", m.promised);
  io.part("chosen", m.chosen);
  io.part("accepted_under", m.accepted_under);
  io.part("accepted", m.accepted);
  io.list("completed", m.completed, kMaxGroups, 16, [&](auto& each) { fields(io, each); });
  io.list("held", m.held, kMaxGroups, 32, [&](auto& each) { fields(io, each); });
  io.list("closed", m.closed, kMaxGroups, 8, [&](auto& group) { io.id("", group); });
}

void fields(auto& io, OfHub<Assemble> auto& m) {
  io.id("group", m.group);
  io.list("members", m.members, kMaxRanks, 4, [&](auto& rank) { io.id("", rank); });
  io.id("parent", m.parent);
  io.number("tag", m.tag);
}

void fields(auto& io, OfHub<Disband> auto& m) { io.id("group", m.group); }

void fields(auto& io, OfHub<Contribute> auto& m) {
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

void fields(auto& io, OfHub<ResultAck> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
  io.part("ballot", m.ballot);
}

void fields(auto& io, OfHub<ResolveSender> auto& m) {
  io.id("group", m.group);
  io.number("tag", m.tag);
}

void fields(auto& io, OfHub<Entered> auto& m) {
  io.number("heartbeat_ms", m.heartbeat_ms, kMaxIntervalMs);
  io.number("grace_ms", m.grace_ms, kMaxIntervalMs);
  io.part("ballot", m.ballot);
  io.part("chosen", m.chosen);
}

void fields(auto& io, OfHub<PrepareWorld> auto& m) { io.part("ballot", m.ballot); }

void fields(auto& io, OfHub<AcceptEpoch> auto& m) {
  io.part("ballot", m.ballot);
  io.part("epoch", m.epoch);
}

void fields(auto& io, OfHub<AcceptedEpoch> auto& m) {
  io.part("ballot", m.ballot);
  io.number("number", m.number);
}

void fields(auto& io, OfHub<ChosenEpoch> auto& m) { io.part("epoch", m.epoch); }

void fields(auto& io, OfHub<Stands> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
}

void fields(auto& io, OfHub<SenderResolved> auto& m) {
  io.id("group", m.group);
  io.number("tag", m.tag);
  io.number("from", m.from, kMaxRanks - 1);
}

void fields(auto& io, OfHub<Part> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
  io.number("from", m.from, kMaxRanks - 1);
}

void fields(auto& io, OfHub<StepResult> auto& m) {
  io.id("group", m.group);
  io.number("step", m.step);
  io.part("ballot", m.ballot);
  io.boolean("stands", m.stands);
  io.list("absent", m.absent, kMaxRanks, 4, [&](auto& index) { io.number("", index, kMaxRanks - 1); });
  io.sentence("error", m.error, kMaxReasonBytes);
}

}  // namespace collab::wire
