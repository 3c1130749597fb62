// The body of every message, once for both directions. fields(io, message) lists the fields in wire order with their
// bounds; io is a Writer or a Reader (byte_io.h). The tables of docs/protocol/wire.md say the same.
// Threads: pure functions.
#pragma once

#include <concepts>

#include "core/wire/byte_io.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace collab::wire {

inline constexpr std::size_t kLeastVoterBytes = 4 + 2 + 8 + 1;
inline constexpr std::size_t kLeastProposalBytes = 73;

// Accepts both a T to read into and a const T to write.
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

void fields(auto& io, Of<Offer> auto& m) {
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.part("digest", m.digest);
}

void fields(auto& io, Of<Member> auto& m) {
  io.id("site", m.site);
  io.name("name", m.name, kMaxNameBytes);
  io.name("address", m.address, kMaxAddressBytes);
  io.enumeration("state", m.state, MemberState::kSuspect);
}

void fields(auto& io, Of<Key> auto& m) {
  io.id("site", m.site);
  io.part("key", m.key);
}

void fields(auto& io, Of<Participant> auto& m) {
  io.id("site", m.site);
  io.name("name", m.name, kMaxNameBytes);
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
  io.name("name", m.name, kMaxNameBytes);
  io.id("acceptor", m.acceptor);
  io.boolean("left", m.left);
}

void fields(auto& io, Of<StartAttempt> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.number("generation", m.generation, kMaxGeneration);
  io.part("fingerprint", m.fingerprint);
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.id("attempt", m.attempt);
  io.list("participants", m.participants, kMaxSites, 19, [&](auto& participant) { fields(io, participant); });
  io.list("slices", m.slices, kMaxSlices, 20, [&](auto& slice) { fields(io, slice); });
  io.list("voters", m.voters, kMaxSites, kLeastVoterBytes, [&](auto& voter) { fields(io, voter); });
}

void fields(auto& io, Of<Commit> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.id("attempt", m.attempt);
  io.list("contributors", m.contributors, kMaxSites, 4, [&](auto& site) { io.id("", site); });
  io.number("period", m.period, kMaxPeriod);
}

void fields(auto& io, Of<Proposal> auto& m) {
  io.part("form", m.start);
  io.boolean("accepted", m.accepted);
  io.list("slices", m.slices, kMaxSlices, 16, [&](auto& digest) { fields(io, digest); });
  io.number("settled", m.settled.value, kMaxTerm);
}

void fields(auto& io, Of<Past> auto& m) {
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.id("attempt", m.attempt);
  io.list("contributors", m.contributors, kMaxSites, 2, [&](auto& name) { io.name("", name, kMaxNameBytes); });
  io.part("mean", m.mean);
}

void fields(auto& io, Of<Record> auto& m) {
  io.id("acceptor", m.acceptor);
  io.number("promised", m.promised.value, kMaxTerm);
  io.number("generation", m.generation, kMaxGeneration);
  io.part("fingerprint", m.fingerprint);
  io.part("anchor", m.anchor);
  io.list("voters", m.voters, kMaxSites, kLeastVoterBytes, [&](auto& voter) { fields(io, voter); });
  io.list("proposals", m.proposals, kMaxProposals, kLeastProposalBytes, [&](auto& proposal) { fields(io, proposal); });
  io.list("recent", m.recent, kMaxRecent, 40, [&](auto& past) { fields(io, past); });
}

void fields(auto& io, Of<Report> auto& m) {
  io.part("record", m.record);
  io.boolean("member", m.member);
  io.boolean("training", m.training);
  io.boolean("holds_mean", m.holds_mean);
}

// ---- site -> coordinator -------------------------------------------------------------------------

void fields(auto& io, Of<Join> auto& m) {
  io.name("swarm", m.swarm, kMaxNameBytes);
  io.name("site", m.site, kMaxNameBytes);
  io.number("index", m.index);
  io.number("expected_sites", m.expected_sites, kMaxSites);
  io.name("address", m.address, kMaxAddressBytes);
  io.boolean("helper", m.helper);
  io.number("generation", m.generation, kMaxGeneration);
  io.number("elements", m.elements, kMaxElements);
  io.part("fingerprint", m.fingerprint);
  io.part("offer", m.offer);
  io.part("report", m.report);
  // The smallest size of an entry bounds the count before memory is reserved.
  io.list("settings", m.settings, kMaxSettings, 4, [&](auto& setting) { fields(io, setting); });
  io.list("model", m.model, kMaxModelEntries, 25, [&](auto& entry) { fields(io, entry); });
  io.boolean("resumed", m.resumed);
  io.name("init_from", m.init_from, kMaxNameBytes);
  io.number("process", m.process);
  io.number("world", m.world);
}

void fields(auto& io, Of<AnchorInstalled> auto& m) {
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.part("digest", m.digest);
  io.id("acceptor", m.acceptor);
}

void fields(auto& io, Of<Measured> auto& m) {
  io.number("up_kbit", m.up_kbit, kMaxRateKbit);
  io.number("down_kbit", m.down_kbit, kMaxRateKbit);
  io.number("step_us", m.step_us, kMaxMeasuredUs);
  io.number("round_us", m.round_us, kMaxMeasuredUs);
  io.number("waited_ppm", m.waited_ppm, kMillion);
  io.number("overlapped_ppm", m.overlapped_ppm, kMillion);
  io.number("merged_ppm", m.merged_ppm, kMillion);
  io.number("loss", m.loss);
}

void fields(auto& io, Of<Ready> auto& m) {
  io.number("round", m.round.value, kMaxRound);
  io.weight("weight", m.weight);
  io.number("samples", m.samples);
  io.number("steps", m.steps);
  io.part("state", m.state);
  io.id("since", m.since);
  io.list("sampled_delta", m.sampled_delta, kMaxSampledDelta, 4, [&](auto& element) { io.number("", element); });
  io.part("measured", m.measured);
  io.number("period", m.period, kMaxPeriod);
}

void fields(auto& io, Of<Decline> auto& m) {
  io.number("round", m.round.value, kMaxRound);
  io.id("attempt", m.attempt);
  io.sentence("reason", m.reason, kMaxReasonBytes);
}

void fields(auto& io, Of<PeerUnreachable> auto& m) {
  io.number("round", m.round.value, kMaxRound);
  io.id("attempt", m.attempt);
  io.id("peer", m.peer);
  io.sentence("reason", m.reason, kMaxReasonBytes);
}

void fields(auto& io, Of<Done> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.number("round", m.round.value, kMaxRound);
  io.id("attempt", m.attempt);
  io.list("slices", m.slices, kMaxSlices, 16, [&](auto& digest) { fields(io, digest); });
}

void fields(auto& io, Of<Leave> auto& m) {
  io.sentence("reason", m.reason, kMaxReasonBytes);
  io.number("next_generation", m.next_generation, kMaxGeneration);
}

void fields(auto& io, Of<Promise> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.part("offer", m.offer);
  io.part("report", m.report);
}

void fields(auto& io, Of<Accepted> auto& m) { io.number("term", m.term.value, kMaxTerm); }

// ---- coordinator -> site -------------------------------------------------------------------------

void fields(auto& io, Of<Welcome> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.id("site", m.site);
  io.number("heartbeat_ms", m.heartbeat_ms, kMaxIntervalMs);
  io.number("grace_ms", m.grace_ms, kMaxIntervalMs);
  io.boolean("anew", m.anew);
}

void fields(auto& io, Of<Refuse> auto& m) {
  io.sentence("reason", m.reason, kMaxReasonBytes);
  io.boolean("behind", m.behind);
}

void fields(auto& io, Of<Hold> auto& m) { io.sentence("reason", m.reason, kMaxReasonBytes); }

void fields(auto& io, Of<Roster> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.list("members", m.members, kMaxSites, 9, [&](auto& member) { fields(io, member); });
}

void fields(auto& io, Of<Keys> auto& m) {
  io.list("keys", m.keys, kMaxSites, 20, [&](auto& key) { fields(io, key); });
}

void fields(auto& io, Of<InstallAnchor> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.list("sources", m.sources, kMaxSources, 4, [&](auto& site) { io.id("", site); });
  io.part("digest", m.digest);
  io.enumeration("counted", m.counted, Counted::kUnknown);
  io.list("voters", m.voters, kMaxSites, kLeastVoterBytes, [&](auto& voter) { fields(io, voter); });
  io.number("generation", m.generation, kMaxGeneration);
  io.number("period", m.period, kMaxPeriod);
  io.id("attempt", m.attempt);
}

void fields(auto& io, Of<RoundSkipped> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.number("round", m.round.value, kMaxRound);
  io.sentence("reason", m.reason, kMaxReasonBytes);
}

void fields(auto& io, Of<Prepare> auto& m) { io.number("term", m.term.value, kMaxTerm); }

void fields(auto& io, Of<Accept> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.list("proposals", m.proposals, 1, kLeastProposalBytes, [&](auto& proposal) { fields(io, proposal); });
}

void fields(auto& io, Of<MemberLeft> auto& m) {
  io.number("term", m.term.value, kMaxTerm);
  io.name("site", m.site, kMaxNameBytes);
  io.id("acceptor", m.acceptor);
}

void fields(auto& io, Of<Notice> auto& m) {
  io.text("event", m.event, kMaxNameBytes);
  io.sentence("text", m.text, kMaxReasonBytes);
}

void fields(auto&, Of<LeaveAck> auto&) {}

// ---- site <-> site -------------------------------------------------------------------------------

void fields(auto& io, Of<Hello> auto& m) {
  io.name("swarm", m.swarm, kMaxNameBytes);
  io.number("term", m.term.value, kMaxTerm);
  io.id("site", m.site);
  io.name("name", m.name, kMaxNameBytes);
  io.part("key", m.key);
}

void fields(auto& io, Of<FetchAnchor> auto& m) {
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.enumeration("kind", m.kind, ChunkKind::kOuterDigests);
  io.part("range", m.range);
}

void fields(auto& io, Of<AnchorMoved> auto& m) {
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
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
  io.id("run", m.run);
  io.id("round", m.round);
  io.id("attempt", m.attempt);
  io.id("from", m.from);
  io.part("range", m.range);
  io.enumeration("codec", m.codec, kLastCodec);
  io.number("payload_hash", m.payload_hash);
}

// ---- any direction -------------------------------------------------------------------------------

void fields(auto& io, Of<Heartbeat> auto& m) {
  io.number("sequence", m.sequence);
  io.boolean("reply", m.reply);
  io.number("progress", m.progress);
  io.number("moved", m.exchanged.moved);
  io.boolean("means", m.exchanged.means);
  io.list("lacks", m.exchanged.lacks, kMaxLacked, 4, [&](auto& site) { io.id("", site); });
}

void fields(auto&, Of<StatusQuery> auto&) {}

void fields(auto& io, Of<Inquire> auto& m) { io.name("swarm", m.swarm, kMaxNameBytes); }

void fields(auto& io, Of<Leads> auto& m) {
  io.boolean("leads", m.leads);
  io.number("generation", m.generation, kMaxGeneration);
  io.id("run", m.run);
  io.number("round", m.round.value, kMaxRound);
  io.number("members", m.members);
}

void fields(auto& io, Of<Forget> auto& m) {
  io.list("sites", m.sites, kMaxSites, 2, [&](auto& name) { io.name("", name, kMaxNameBytes); });
}

void fields(auto& io, Of<StatusReport> auto& m) {
  io.text("json", m.json, kMaxJsonBytes);
  io.number("elements", m.elements, kMaxElements);
  io.list("settings", m.settings, kMaxSettings, 4, [&](auto& setting) { fields(io, setting); });
  io.list("tensors", m.tensors, kMaxModelEntries, 10, [&](auto& tensor) {
    io.text("name", tensor.name, kMaxNameBytes);
    io.number("elements", tensor.elements, kMaxElements);
  });
}

}  // namespace collab::wire
