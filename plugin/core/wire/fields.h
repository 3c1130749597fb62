// The body of every message, once for both directions: fields(io, message) names each field in its order on the
// wire with its bound; io is a Writer or a Reader (byte_io.h). The tables of plugin/PROTOCOL.md say the same.
// Threads: pure functions.
#pragma once

#include <concepts>

#include "core/wire/byte_io.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace collab::wire {

// A Join that is read into, or a const Join that is written.
template <typename M, typename T>
concept Of = std::same_as<std::remove_const_t<M>, T>;

// ---- parts ---------------------------------------------------------------------------------------

void fields(auto& io, Of<Digest> auto& m) {
  io.number("lo", m.lo);
  io.number("hi", m.hi);
}

void fields(auto& io, Of<ElementRange> auto& m) {
  io.number("begin", m.begin, kMaxElements);
  io.number("end", m.end, kMaxElements);
}

void fields(auto& io, Of<ModelEntry> auto& m) {
  io.text("name", m.name, kMaxNameBytes);
  io.text("dtype", m.dtype, kMaxNameBytes);
  io.list("shape", m.shape, kMaxDims, sizeof(std::uint64_t), [&](auto& dim) { io.number("", dim, kMaxElements); });
  io.enumeration("kind", m.kind, TensorKind::kLeftOut);
  io.part("digest", m.digest);
}

void fields(auto& io, Of<Setting> auto& m) {
  io.text("key", m.key, kMaxNameBytes);
  io.text("value", m.value, kMaxNameBytes);
}

void fields(auto& io, Of<Branch> auto& m) {
  io.id("run", m.run);
  io.id("trunk", m.trunk);
  io.number("samples", m.samples);
}

void fields(auto& io, Of<Offer> auto& m) {
  io.id("run", m.run);
  io.id("round", m.round);
  io.part("digest", m.digest);
  io.list("branch", m.branch, 1, 24, [&](auto& branch) { fields(io, branch); });
}

void fields(auto& io, Of<Member> auto& m) {
  io.id("site", m.site);
  io.text("name", m.name, kMaxNameBytes);
  io.text("address", m.address, kMaxAddressBytes);
  io.enumeration("state", m.state, MemberState::kSuspect);
}

void fields(auto& io, Of<Participant> auto& m) {
  io.id("site", m.site);
  io.weight("weight", m.weight);
  io.id("since", m.since);
  io.boolean("here", m.here);
}

void fields(auto& io, Of<Slice> auto& m) {
  io.id("owner", m.owner);
  io.part("range", m.range);
}

void fields(auto& io, Of<Voter> auto& m) {
  io.id("site", m.site);
  io.text("name", m.name, kMaxNameBytes);
}

void fields(auto& io, Of<Form> auto& m) {
  io.id("term", m.term);
  io.id("run", m.run);
  io.id("round", m.round);
  io.id("attempt", m.attempt);
  io.list("participants", m.participants, kMaxSites, 17, [&](auto& participant) { fields(io, participant); });
  io.list("slices", m.slices, kMaxSlices, 20, [&](auto& slice) { fields(io, slice); });
  io.list("voters", m.voters, kMaxSites, 6, [&](auto& voter) { fields(io, voter); });
}

void fields(auto& io, Of<Commit> auto& m) {
  io.id("term", m.term);
  io.id("run", m.run);
  io.id("round", m.round);
  io.id("attempt", m.attempt);
  io.list("contributors", m.contributors, kMaxSites, 4, [&](auto& site) { io.id("", site); });
  io.number("intervals", m.intervals, kMaxIntervals);
}

void fields(auto& io, Of<Prepared> auto& m) {
  io.part("form", m.form);
  io.boolean("done", m.done);
  io.list("slices", m.slices, kMaxSlices, 16, [&](auto& digest) { fields(io, digest); });
  io.id("confirmed", m.confirmed);
}

void fields(auto& io, Of<Budget> auto& m) {
  io.number("intervals", m.intervals, kMaxIntervals);
  io.number("spent", m.spent);
  io.number("total", m.total);
  io.number("rounds_left", m.rounds_left);
}

void fields(auto& io, Of<Report> auto& m) {
  io.id("granted", m.granted);
  io.boolean("training", m.training);
  io.boolean("remembers", m.remembers);
  io.list("voters", m.voters, kMaxSites, 6, [&](auto& voter) { fields(io, voter); });
  io.list("prepared", m.prepared, kMaxPrepared, 53, [&](auto& prepared) { fields(io, prepared); });
  io.list("recent", m.recent, kMaxRecent, 36, [&](auto& commit) { fields(io, commit); });
  io.part("budget", m.budget);
}

// ---- site -> coordinator -------------------------------------------------------------------------

void fields(auto& io, Of<Join> auto& m) {
  io.text("swarm", m.swarm, kMaxNameBytes);
  io.text("site", m.site, kMaxNameBytes);
  io.number("index", m.index);
  io.number("expected_sites", m.expected_sites, kMaxSites);
  io.text("address", m.address, kMaxAddressBytes);
  io.boolean("helper", m.helper);
  io.number("generation", m.generation);
  io.number("elements", m.elements, kMaxElements);
  io.part("offer", m.offer);
  io.part("report", m.report);
  // The least bytes one entry takes bound the count before memory is reserved for it.
  io.list("settings", m.settings, kMaxSettings, 4, [&](auto& setting) { fields(io, setting); });
  io.list("model", m.model, kMaxModelEntries, 25, [&](auto& entry) { fields(io, entry); });
  io.boolean("resumed", m.resumed);
  io.text("init_from", m.init_from, kMaxNameBytes);
}

void fields(auto& io, Of<Adopted> auto& m) {
  io.id("run", m.run);
  io.id("round", m.round);
  io.part("digest", m.digest);
}

void fields(auto& io, Of<Ready> auto& m) {
  io.id("round", m.round);
  io.weight("weight", m.weight);
  io.number("samples", m.samples);
  io.number("steps", m.steps);
  io.part("state", m.state);
  io.id("since", m.since);
  io.list("sketch", m.sketch, kMaxSketch, 4, [&](auto& element) { io.number("", element); });
  io.number("up_kbit", m.up_kbit, kMaxRateKbit);
  io.number("down_kbit", m.down_kbit, kMaxRateKbit);
  io.part("budget", m.budget);
}

void fields(auto& io, Of<Decline> auto& m) {
  io.id("round", m.round);
  io.id("attempt", m.attempt);
  io.sentence("reason", m.reason, kMaxReasonBytes);
}

void fields(auto& io, Of<Unreached> auto& m) {
  io.id("round", m.round);
  io.id("attempt", m.attempt);
  io.id("peer", m.peer);
  io.sentence("reason", m.reason, kMaxReasonBytes);
}

void fields(auto& io, Of<Done> auto& m) {
  io.id("term", m.term);
  io.id("round", m.round);
  io.id("attempt", m.attempt);
  io.list("slices", m.slices, kMaxSlices, 16, [&](auto& digest) { fields(io, digest); });
}

void fields(auto& io, Of<Leave> auto& m) {
  io.sentence("reason", m.reason, kMaxReasonBytes);
  io.number("next_generation", m.next_generation);
}

void fields(auto& io, Of<Grant> auto& m) {
  io.id("term", m.term);
  io.part("offer", m.offer);
  io.part("report", m.report);
}

// ---- coordinator -> site -------------------------------------------------------------------------

void fields(auto& io, Of<Welcome> auto& m) {
  io.id("term", m.term);
  io.id("site", m.site);
  io.number("heartbeat_ms", m.heartbeat_ms, kMaxIntervalMs);
  io.number("grace_ms", m.grace_ms, kMaxIntervalMs);
}

void fields(auto& io, Of<Refuse> auto& m) {
  io.sentence("reason", m.reason, kMaxReasonBytes);
  io.boolean("behind", m.behind);
}

void fields(auto& io, Of<Hold> auto& m) { io.sentence("reason", m.reason, kMaxReasonBytes); }

void fields(auto& io, Of<Roster> auto& m) {
  io.id("term", m.term);
  io.list("members", m.members, kMaxSites, 9, [&](auto& member) { fields(io, member); });
  io.number("intervals", m.intervals, kMaxIntervals);
}

void fields(auto& io, Of<Adopt> auto& m) {
  io.id("term", m.term);
  io.id("run", m.run);
  io.id("round", m.round);
  io.list("sources", m.sources, kMaxSources, 4, [&](auto& site) { io.id("", site); });
  io.part("digest", m.digest);
  io.enumeration("counted", m.counted, Counted::kUnknown);
  io.list("voters", m.voters, kMaxSites, 6, [&](auto& voter) { fields(io, voter); });
  io.boolean("remembers", m.remembers);
  io.list("branch", m.branch, 1, 24, [&](auto& branch) { fields(io, branch); });
  io.number("intervals", m.intervals, kMaxIntervals);
}

void fields(auto& io, Of<Recess> auto& m) {
  io.id("term", m.term);
  io.id("round", m.round);
  io.sentence("reason", m.reason, kMaxReasonBytes);
}

void fields(auto& io, Of<Propose> auto& m) {
  io.id("term", m.term);
  io.list("confirms", m.confirms, 1, 53, [&](auto& prepared) { fields(io, prepared); });
}

void fields(auto& io, Of<Parted> auto& m) {
  io.id("term", m.term);
  io.text("site", m.site, kMaxNameBytes);
}

void fields(auto& io, Of<Notice> auto& m) {
  io.text("event", m.event, kMaxNameBytes);
  io.sentence("text", m.text, kMaxReasonBytes);
}

void fields(auto&, Of<Farewell> auto&) {}

// ---- site <-> site -------------------------------------------------------------------------------

void fields(auto& io, Of<Hello> auto& m) {
  io.text("swarm", m.swarm, kMaxNameBytes);
  io.id("term", m.term);
  io.id("site", m.site);
  io.text("name", m.name, kMaxNameBytes);
}

void fields(auto& io, Of<FetchAnchor> auto& m) {
  io.id("run", m.run);
  io.id("round", m.round);
  io.enumeration("kind", m.kind, ChunkKind::kOuterDigests);
  io.part("range", m.range);
}

void fields(auto& io, Of<AnchorMoved> auto& m) {
  io.id("run", m.run);
  io.id("round", m.round);
}

void fields(auto& io, Of<FetchOptimizer> auto& m) {
  io.number("snapshot", m.snapshot);
  io.part("range", m.range);
}

void fields(auto& io, Of<OptimizerState> auto& m) {
  io.number("snapshot", m.snapshot);
  io.number("bytes", m.bytes, kMaxElements);
  io.part("digest", m.digest);
  io.text("description", m.description, kMaxJsonBytes);
  io.sentence("reason", m.reason, kMaxReasonBytes);
}

void fields(auto& io, Of<Chunk> auto& m) {
  io.enumeration("kind", m.kind, ChunkKind::kOptimizer);
  io.id("round", m.round);
  io.id("attempt", m.attempt);
  io.id("from", m.from);
  io.part("range", m.range);
  io.enumeration("codec", m.codec, CodecId::kTopK128);
  io.number("payload_hash", m.payload_hash);
}

// ---- any direction -------------------------------------------------------------------------------

void fields(auto& io, Of<Heartbeat> auto& m) {
  io.number("sequence", m.sequence);
  io.boolean("reply", m.reply);
}

void fields(auto&, Of<StatusQuery> auto&) {}

void fields(auto& io, Of<StatusReport> auto& m) {
  io.text("json", m.json, kMaxJsonBytes);
  io.number("elements", m.elements, kMaxElements);
  io.list("settings", m.settings, kMaxSettings, 4, [&](auto& setting) { fields(io, setting); });
}

}  // namespace collab::wire
