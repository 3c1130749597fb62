// Every bound and every rule, from both sides: the largest that passes and the first that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/base/digest.h"
#include "core/wire/encoding.h"
#include "core/wire/limits.h"

namespace collab::wire {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Join sound_join() {
  Join join;
  join.report.record.acceptor = AcceptorId{1};
  return join;
}

void expect_travels(const Message& message) {
  const auto frame = try_encode(message);
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  const auto decoded = decode(*frame);
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(*decoded, message);
}

void expect_not_sent(const Message& message, const std::string& why) {
  const auto frame = try_encode(message);
  ASSERT_FALSE(frame.ok()) << why;
  EXPECT_EQ(frame.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(frame.status().message(), HasSubstr(std::string(name_of(message)) + " cannot be sent: "));
  EXPECT_THAT(frame.status().message(), HasSubstr(why));
}

// A frame as a hostile peer would send it: the body replaced, everything else right.
std::string refusal_of(const Message& like, const Bytes& body) {
  Bytes frame = encode(like);
  frame.resize(kFrameHeaderBytes);
  frame.insert(frame.end(), body.begin(), body.end());
  for (std::size_t i = 0; i < 4; ++i) frame[20 + i] = static_cast<std::byte>(body.size() >> (8 * i));
  const std::uint64_t sum = hash64(std::span(frame).subspan(16));
  for (std::size_t i = 0; i < 8; ++i) frame[8 + i] = static_cast<std::byte>(sum >> (8 * i));
  const auto decoded = decode(frame);
  EXPECT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), StatusCode::kCorrupt);
  return decoded.status().message();
}

struct Body {
  Bytes bytes;
  Body& u8(std::uint64_t v) { return put(v, 1); }
  Body& u16(std::uint64_t v) { return put(v, 2); }
  Body& u32(std::uint64_t v) { return put(v, 4); }
  Body& u64(std::uint64_t v) { return put(v, 8); }
  Body& raw(std::string_view text) {
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Body& put(std::uint64_t v, int size) {
    for (int i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(v >> (8 * i)));
    return *this;
  }
};

StartAttempt two_sites() {
  return {TermId(1),
          1,
          {},
          RunId(2),
          RoundId(3),
          AttemptId(1),
          {{SiteId(0), "paris", 1.0}, {SiteId(5), "oslo", 2.0}},
          {{SiteId(5), {0, 1024}}, {SiteId(0), {1024, 2000}}}};
}
StartAttempt changed(const std::function<void(StartAttempt&)>& change) {
  StartAttempt start = two_sites();
  change(start);
  return start;
}

// ---- texts -------------------------------------------------------------------------------------------

// A terminal would obey these, whatever prints them.
TEST(Texts, NamesArePrintable) {
  constexpr const char* kWhy =
      "expected a name that can be printed, without control characters or marks of direction, got ";
  for (const std::string name : {"\x1b[2Jparis", "a\rb", "a\nb", "\xE2\x80\xAEsirap", "\xC2\x9B", "\x7f"}) {
    expect_not_sent(Hello{"run", TermId(1), SiteId(1), name}, std::string("name: ") + kWhy);
    const auto length = name.size();
    EXPECT_THAT(refusal_of(Hello{}, Body().u16(length).raw(name).u64(1).u32(1).u16(1).raw("b").bytes),
                HasSubstr(std::string("Hello.swarm: ") + kWhy));
    EXPECT_THAT(refusal_of(Forget{}, Body().u32(1).u16(length).raw(name).bytes),
                HasSubstr(std::string("Forget.sites[0]: ") + kWhy));
    expect_not_sent(Enter{"night-run", 1, RankId(0), {name}, {0}, 1, false, AcceptorId(1)},
                    std::string("sites[0]: ") + kWhy);
    for (std::string Join::*field : {&Join::swarm, &Join::site, &Join::address, &Join::init_from}) {
      Join join = sound_join();
      join.*field = name;
      expect_not_sent(join, kWhy);
    }
  }
  EXPECT_THAT(refusal_of(Forget{}, Body()
                                       .u32(1)
                                       .u16(3)
                                       .raw("a\x1b"
                                            "b")
                                       .bytes),
              HasSubstr("got \"a\\x1bb\""));
  expect_travels(Hello{"Z\xC3\xBCrich", TermId(1), SiteId(1), "\xE6\x9D\xB1\xE4\xBA\xAC 2"});
}

TEST(Texts, NamesHaveAMaximum) {
  expect_travels(Hello{std::string(256, 'a'), TermId(1), SiteId(1), "b"});
  expect_not_sent(Hello{std::string(257, 'a'), TermId(1), SiteId(1), "b"},
                  "swarm: expected UTF-8 text of at most 256 bytes without NUL, got 257 bytes");
  EXPECT_THAT(refusal_of(Hello{}, Body().u16(257).raw(std::string(300, 'a')).bytes),
              HasSubstr("Hello.swarm: expected UTF-8"));
  Join join = sound_join();
  join.init_from = std::string(256, 'a');
  expect_travels(join);
  join.init_from += 'a';
  expect_not_sent(join, "init_from: expected UTF-8 text of at most 256 bytes without NUL, got 257 bytes");
}

TEST(Texts, AreUtf8WithoutNul) {
  expect_travels(Hello{"Z\xC3\xBCrich", TermId(1), SiteId(1), ""});
  expect_not_sent(Hello{"Z\xFCrich", TermId(1), SiteId(1), ""}, "swarm: expected UTF-8");
  expect_not_sent(Hello{std::string("a\0b", 3), TermId(1), SiteId(1), ""}, "a NUL byte");
  EXPECT_THAT(refusal_of(Leave{}, Body().u16(2).raw("\xC3(").bytes), HasSubstr("Leave.reason: expected UTF-8 text"));
  EXPECT_THAT(refusal_of(Leave{}, Body().u16(1).u8(0).bytes), HasSubstr("got a NUL byte"));
}

TEST(Texts, ReasonsAreCutNotRefused) {
  const auto reason_after = [](const std::string& reason) {
    return std::get<Leave>(*decode(encode(Leave{reason}))).reason;
  };
  EXPECT_EQ(reason_after(std::string(5000, 'x')), std::string(4096, 'x'));
  const std::string code = " [join.full]";
  EXPECT_EQ(reason_after(std::string(5000, 'x') + code), std::string(4096 - code.size(), 'x') + code);
  // The cut does not leave half a character.
  EXPECT_EQ(reason_after("x" + std::string(1, ' ') +
                         [] {
                           std::string euros;
                           for (int i = 0; i < 2000; ++i) euros += "\xE2\x82\xAC";
                           return euros;
                         }())
                .size(),
            2U + 4094U / 3 * 3);
  EXPECT_EQ(reason_after(std::string("bad \xFF byte and \0", 16)), "bad ? byte and ?");
  EXPECT_THAT(refusal_of(Leave{}, Body().u16(4097).raw(std::string(4097, 'x')).bytes), HasSubstr("got 4097 bytes"));
}

TEST(Texts, StatusMayBeAMegabyte) {
  expect_travels(StatusReport{std::string(kMaxJsonBytes, '1')});
  expect_not_sent(StatusReport{std::string(kMaxJsonBytes + 1, '1')}, "json: expected");
  EXPECT_THAT(refusal_of(StatusReport{}, Body().u32(0xFFFF'FFFF).bytes), HasSubstr("got 4294967295 bytes"));
  StatusReport named{std::string(kMaxJsonBytes, '1'), 1};
  named.settings.assign(kMaxSettings, {std::string(kMaxNameBytes, 'k'), std::string(kMaxNameBytes, 'v')});
  named.tensors.assign(kMaxTensorsBytes / (kMaxNameBytes + 16), {std::string(kMaxNameBytes, 'w'), kMaxElements});
  expect_travels(named);
  EXPECT_GT(kMaxTensorsBytes, std::size_t{6} << 20) << "of 8 MiB";
  named.tensors = {{"w", kMaxElements + 1}};
  expect_not_sent(named, "tensors[0].elements: expected");
}

// ---- numbers -----------------------------------------------------------------------------------------

TEST(Numbers, WeightsAreBoundedAndNotNegative) {
  for (const double weight : {0.0, 5e-324, kMaxWeight}) expect_travels(Ready{RoundId(1), weight, 1, 1, {}});
  const double too_much = std::nextafter(kMaxWeight, 1e308);
  for (const double weight : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), too_much, 1.7e308}) {
    expect_not_sent(Ready{RoundId(1), weight, 1, 1, {}}, "weight: expected a number from 0 to 2^53");
    const auto bits = std::bit_cast<std::uint64_t>(weight);
    EXPECT_THAT(refusal_of(Ready{}, Body().u64(1).u64(bits).u64(0).u64(0).u64(0).u64(0).bytes),
                HasSubstr("Ready.weight: expected a number from 0 to 2^53"));
  }
}

TEST(Numbers, MeasurementsOfSitesAreBounded) {
  const Measured most{kMaxRateKbit, kMaxRateKbit, kMaxMeasuredUs, kMaxMeasuredUs, kMillion, kMillion, kMillion, 0};
  Ready ready{RoundId(1), 1, 1, 1, {}, {}, {}, most, kMaxPeriod};
  expect_travels(ready);
  const auto too_much = [&](auto Measured::*field) {
    Ready more = ready;
    ++(more.measured.*field);
    return more;
  };
  expect_not_sent(too_much(&Measured::up_kbit), "up_kbit: expected");
  expect_not_sent(too_much(&Measured::down_kbit), "down_kbit: expected");
  expect_not_sent(too_much(&Measured::step_us), "step_us: expected");
  expect_not_sent(too_much(&Measured::round_us), "round_us: expected");
  expect_not_sent(too_much(&Measured::waited_ppm), "waited_ppm: expected");
  expect_not_sent(too_much(&Measured::overlapped_ppm), "overlapped_ppm: expected");
  expect_not_sent(too_much(&Measured::merged_ppm), "merged_ppm: expected");
  ++ready.period;
  expect_not_sent(ready, "period: expected");
  // As it comes from a peer: the number at this place is too large.
  const auto refused = [](std::size_t which) {
    constexpr std::array<std::uint64_t, 9> kMost{kMaxRateKbit, kMaxRateKbit, kMaxMeasuredUs, kMaxMeasuredUs, kMillion,
                                                 kMillion,     kMillion,     UINT32_MAX,     kMaxPeriod};
    Body body;
    body.u64(1).u64(0).u64(0).u64(0).u64(0).u64(0).u32(0).u32(0);
    for (std::size_t at = 0; at < kMost.size(); ++at) {
      const std::uint64_t number = kMost[at] + (at == which ? 1 : 0);
      if (at == 2 || at == 3) {
        body.u64(number);
      } else {
        body.u32(static_cast<std::uint32_t>(number));
      }
    }
    return refusal_of(Ready{}, body.bytes);
  };
  EXPECT_THAT(refused(0), HasSubstr("up_kbit"));
  EXPECT_THAT(refused(1), HasSubstr("down_kbit"));
  EXPECT_THAT(refused(2), HasSubstr("step_us"));
  EXPECT_THAT(refused(3), HasSubstr("round_us"));
  EXPECT_THAT(refused(4), HasSubstr("waited_ppm"));
  EXPECT_THAT(refused(5), HasSubstr("overlapped_ppm"));
  EXPECT_THAT(refused(6), HasSubstr("merged_ppm"));
  EXPECT_THAT(refused(8), HasSubstr("period"));
}

TEST(Numbers, ThePeriodOfAnAnchorIsBounded) {
  InstallAnchor install{TermId(1), RunId(1), RoundId(1), {SiteId(0)}, {}, Counted::kNo, {}, 1, kMaxPeriod};
  expect_travels(install);
  ++install.period;
  expect_not_sent(install, "period: expected");
  --install.period;
  install.attempt = AttemptId(1);
  expect_not_sent(install, "attempt: expected one above 0 where the contribution counted and 0 elsewhere, got 1");
}

TEST(Numbers, EnumsAreBounded) {
  const auto chunk = [](std::uint64_t kind, std::uint64_t codec) {
    return Body().u8(kind).u64(1).u64(1).u32(1).u32(0).u64(0).u64(10).u8(codec).u64(0).bytes;
  };
  const Chunk like{ChunkKind::kMean, RunId(1), RoundId(1), AttemptId(1), SiteId(0), {0, 10}, CodecId::kFp32, 0};
  EXPECT_THAT(refusal_of(like, chunk(7, 0)), HasSubstr("Chunk.kind: expected at most 6, got 7"));
  EXPECT_THAT(refusal_of(like, chunk(0, 9)), HasSubstr("Chunk.codec: expected at most 8, got 9"));
  EXPECT_THAT(refusal_of(Roster{}, Body().u64(1).u32(1).u32(1).u16(0).u16(0).u8(3).bytes),
              HasSubstr("Roster.members[0].state: expected at most 2, got 3"));
  EXPECT_THAT(refusal_of(Heartbeat{}, Body().u64(1).u8(2).bytes), HasSubstr("Heartbeat.reply: expected 0 or 1, got 2"));
}

TEST(Numbers, VectorsAndIntervalsAreBounded) {
  Join join = sound_join();
  join.elements = kMaxElements;
  join.expected_sites = kMaxSites;
  expect_travels(join);
  ++join.elements;
  expect_not_sent(join, "elements: expected at most 1099511627776");
  join.elements = 1;
  join.expected_sites = kMaxSites + 1;
  expect_not_sent(join, "expected_sites: expected at most 4096, got 4097");
  expect_travels(Welcome{TermId(1), SiteId(0), kMaxIntervalMs, kMaxIntervalMs});
  expect_not_sent(Welcome{TermId(1), SiteId(0), kMaxIntervalMs + 1, 0}, "heartbeat_ms");
  expect_not_sent(Welcome{TermId(1), SiteId(0), 0, kMaxIntervalMs + 1}, "grace_ms");
  expect_travels(Prepare{TermId(kMaxTerm)});
  expect_not_sent(Prepare{TermId(kMaxTerm + 1)}, "term: expected at most 281474976710656, got 281474976710657");
  join = sound_join();
  join.report.record.promised = TermId(UINT64_MAX - 1);
  expect_not_sent(join, "promised: expected at most");
}

TEST(Numbers, RoundsAndGenerationsAreBounded) {
  expect_travels(AnchorInstalled{RunId(1), RoundId(kMaxRound), {}, {}});
  expect_not_sent(AnchorInstalled{RunId(1), RoundId(kMaxRound + 1), {}, {}}, "round: expected at most 281474976710656");
  EXPECT_THAT(refusal_of(AnchorInstalled{}, Body().u64(1).u64(UINT64_MAX).u64(0).u64(0).u64(0).bytes),
              HasSubstr("AnchorInstalled.round: expected at most 281474976710656"));
  Join join = sound_join();
  join.offer.round = RoundId(UINT64_MAX);
  expect_not_sent(join, "offer.round: expected at most");
  join = sound_join();
  join.report.record.anchor.round = RoundId(kMaxRound + 1);
  expect_not_sent(join, "report.record.anchor.round: expected at most");
  join = sound_join();
  join.generation = join.report.record.generation = kMaxGeneration;
  expect_travels(join);
  ++join.generation;
  expect_not_sent(join, "generation: expected at most 16777216");
  expect_travels(Leave{"on", kMaxGeneration});
  expect_not_sent(Leave{"on", UINT32_MAX}, "next_generation: expected at most 16777216");
}

// ---- counts ------------------------------------------------------------------------------------------

TEST(Counts, LargestPassAndOneMoreDoesNot) {
  Join join = sound_join();
  join.settings.assign(kMaxSettings, {"k", "v"});
  join.model.assign(kMaxModelEntries, ModelEntry{"weight", "float32", {768, 768}, TensorKind::kAveraged, {}});
  expect_travels(join);
  join.settings.push_back({"k", "v"});
  expect_not_sent(join, "settings: expected at most 256 entries, got 257");
  join.settings.clear();
  join.model.push_back({});
  expect_not_sent(join, "model: expected at most 65536 entries, got 65537");
  join.model.assign(1, ModelEntry{"w", "float32", std::vector<std::uint64_t>(kMaxDims, 1), TensorKind::kAveraged, {}});
  expect_travels(join);
  join.model[0].shape.push_back(1);
  expect_not_sent(join, "model[0].shape: expected at most 16 entries, got 17");
  join.model[0].shape = {1, kMaxElements + 1};
  expect_not_sent(join, "model[0].shape[1]: expected at most 1099511627776");

  Roster roster;
  for (std::uint32_t i = 0; i < kMaxSites; ++i) roster.members.push_back({SiteId(i), "", "", MemberState::kActive});
  expect_travels(roster);
  roster.members.push_back({SiteId(kMaxSites), "", "", MemberState::kActive});
  expect_not_sent(roster, "members: expected at most 4096 entries, got 4097");

  Done done{TermId(1), RoundId(1), AttemptId(1), std::vector<Digest>(kMaxSlices)};
  expect_travels(done);
  done.slices.emplace_back();
  expect_not_sent(done, "slices: expected at most 4096 entries, got 4097");

  Commit commit{TermId(1), RunId(1), RoundId(1), AttemptId(1), {}};
  for (std::uint32_t i = 0; i < kMaxSites; ++i) commit.contributors.push_back(SiteId(i));
  expect_travels(commit);
  commit.contributors.push_back(SiteId(kMaxSites));
  expect_not_sent(commit, "contributors: expected at most 4096 entries, got 4097");
}

TEST(Counts, ListsOfAnAttemptAreBounded) {
  StartAttempt start = two_sites();
  start.slices.clear();
  for (std::uint64_t i = 0; i < kMaxSlices; ++i) start.slices.push_back({SiteId(5), {i, i + 1}});
  expect_travels(start);
  start.slices.push_back({SiteId(5), {kMaxSlices, kMaxSlices + 1}});
  expect_not_sent(start, "slices: expected at most 4096 entries, got 4097");
  start = two_sites();
  for (std::uint32_t i = 6; start.participants.size() < kMaxSites; ++i)
    start.participants.push_back({SiteId(i), "", 0});
  expect_travels(start);
  start.participants.push_back({SiteId(1'000'000), "", 0});
  expect_not_sent(start, "participants: expected at most 4096 entries, got 4097");
}

// The count alone must not make the decoder allocate: few bytes that claim many entries.
TEST(Counts, AClaimWithoutItsBytesIsRefusedAtOnce) {
  EXPECT_THAT(refusal_of(Done{TermId(1), RoundId(1), AttemptId(1), {{}}}, Body().u64(1).u64(1).u32(1).u32(4096).bytes),
              HasSubstr("Done.slices: expected 4096 entries of at least 16 bytes, got 0 bytes"));
  const Commit one{TermId(1), RunId(1), RoundId(1), AttemptId(1), {}};
  EXPECT_THAT(refusal_of(one, Body().u64(1).u64(1).u64(1).u32(1).u32(0xFFFF'FFFF).bytes),
              HasSubstr("Commit.contributors: expected at most 4096 entries, got 4294967295"));
}

TEST(Counts, ForgottenSitesAreNoMoreThanASwarm) {
  Forget forget{std::vector<std::string>(kMaxSites, "paris")};
  expect_travels(forget);
  forget.sites.emplace_back("oslo");
  expect_not_sent(forget, "sites: expected at most 4096 entries, got 4097");
  expect_not_sent(Forget{{std::string(257, 'a')}}, "sites[0]: expected UTF-8 text of at most 256 bytes");
  EXPECT_THAT(refusal_of(Forget{}, Body().u32(4096).bytes),
              HasSubstr("Forget.sites: expected 4096 entries of at least 2 bytes, got 0 bytes"));
}

TEST(Counts, AMessageFitsAFrame) {
  Join join = sound_join();
  join.model.assign(kMaxModelEntries, ModelEntry{std::string(200, 'n'), "float32", {1}, TensorKind::kAveraged, {}});
  expect_not_sent(join, "expected at most 8388608 bytes");
}

// ---- rules between fields ----------------------------------------------------------------------------

TEST(Rules, RosterAndCommitAscend) {
  expect_not_sent(Roster{TermId(1), {{SiteId(2), "", "", {}}, {SiteId(1), "", "", {}}}},
                  "members[1]: expected a site above site 2 (ascending, each once), got site 1");
  expect_not_sent(Commit{TermId(1), RunId(1), RoundId(1), AttemptId(1), {SiteId(1), SiteId(1)}}, "contributors[1]");
  const Commit one{TermId(1), RunId(1), RoundId(1), AttemptId(1), {}};
  EXPECT_THAT(refusal_of(one, Body().u64(1).u64(1).u64(1).u32(1).u32(2).u32(7).u32(3).u32(1).bytes),
              HasSubstr("Commit.contributors[1]: expected a site above site 7"));
}

TEST(Rules, ACommitNamesAnAttemptAndMayCountNoContributor) {
  expect_travels(Commit{TermId(1), RunId(1), RoundId(1), AttemptId(1), {}});
  expect_not_sent(Commit{TermId(1), RunId(1), RoundId(1), AttemptId(0), {}}, "attempt: expected one above 0");
  expect_not_sent(Commit{TermId(1), RunId(1), RoundId(1), AttemptId(1), {}, kMaxPeriod + 1}, "period: expected");
}

TEST(Rules, AnAttemptHasParticipantsAndVotersInOrder) {
  expect_travels(two_sites());
  expect_travels(changed([](StartAttempt& f) { f.participants[0].weight = 0; }));
  expect_not_sent(changed([](StartAttempt& f) { f.voters = {{SiteId(2), "a"}, {SiteId(1), "b"}}; }), "voters[1]");
  expect_not_sent(changed([](StartAttempt& f) { std::swap(f.participants[0], f.participants[1]); }), "participants[1]");
  expect_not_sent(changed([](StartAttempt& f) { f.participants.clear(); }), "participants: expected at least one");
  expect_not_sent(changed([](StartAttempt& f) { f.participants[0].here = f.participants[1].here = false; }),
                  "participants: expected at least one that is here");
  expect_not_sent(changed([](StartAttempt& f) { f.participants[0].here = false; }),
                  "owner: expected a participant that is here");
}

TEST(Rules, NothingIsExchangedIfNoSiteHasAWeight) {
  const auto idle = [](StartAttempt& f) { f.participants[0].weight = f.participants[1].weight = 0; };
  expect_not_sent(changed(idle), "slices: expected none where no participant has a weight, got 2");
  expect_travels(changed([&](StartAttempt& f) {
    idle(f);
    f.slices.clear();
  }));
}

TEST(Rules, AJoiningSiteHasDrawnAnAcceptor) {
  expect_not_sent(Join{}, "report.record.acceptor: expected the number its site has drawn, got 0");
}

TEST(Rules, ARecordIsAsSoundAsItsParts) {
  Join join = sound_join();
  Record& record = join.report.record;
  record.voters = {{SiteId(1), "a"}, {SiteId(1), "b"}};
  expect_not_sent(join, "voters[1]");
  record.voters.clear();
  record.proposals = {{two_sites(), true, {{}}}};
  expect_not_sent(join, "proposal.slices: expected 2 digests, got 1");
  record.proposals[0].slices.resize(2);
  expect_travels(join);
  record.proposals[0].accepted = false;
  expect_not_sent(join, "proposal.slices: expected 0 digests, got 2");
  record.proposals = {{two_sites()}, {two_sites(), true, {{}, {}}, TermId(3)}};
  expect_travels(join);
  record.proposals[1].start.participants.clear();
  expect_not_sent(join, "participants: expected at least one");
  record.proposals = {{two_sites()}, {two_sites()}, {two_sites()}};
  expect_not_sent(join, "proposals: expected at most 2 entries, got 3");
  record.proposals.clear();
  record.recent.assign(kMaxRecent, Past{RunId(1), RoundId(1), AttemptId(1), {"a"}, {}});
  expect_travels(join);
  record.recent[0].attempt = AttemptId(0);
  expect_not_sent(join, "recent.attempt: expected one above 0, got 0");
  record.recent.assign(kMaxRecent + 1, Past{RunId(1), RoundId(1), AttemptId(1), {}, {}});
  expect_not_sent(join, "recent: expected at most 8 entries, got 9");
}

TEST(Rules, APromisesRecordIsNoLessSound) {
  Promise promise{TermId(3), {}, {}};
  expect_travels(promise);
  promise.report.record.voters = {{SiteId(2), "a"}, {SiteId(1), "b"}};
  expect_not_sent(promise, "voters[1]");
}

TEST(Rules, AnAcceptIsOfItsOwnTerm) {
  Accept accept{TermId(3), {{two_sites(), true, {{}, {}}, TermId(3)}}};
  expect_travels(accept);
  expect_travels(Accept{TermId(3)});
  accept.term = TermId(4);
  expect_not_sent(accept, "proposals: expected one that is accepted and settled under term 4, got term 3");
  accept = {TermId(3), {{two_sites(), false, {}, TermId(3)}}};
  expect_not_sent(accept, "proposals: expected one that is accepted and settled under term 3");
  accept = {TermId(3), {{two_sites(), true, {{}}, TermId(3)}}};
  expect_not_sent(accept, "proposal.slices: expected 2 digests, got 1");
  accept.proposals.assign(2, {two_sites(), true, {{}, {}}, TermId(3)});
  expect_not_sent(accept, "proposals: expected at most 1 entries, got 2");
}

TEST(Rules, SlicesFollowEachOtherWithoutGaps) {
  expect_not_sent(changed([](StartAttempt& f) { f.slices.clear(); }), "slices: expected at least one");
  expect_travels(changed([](StartAttempt& f) { f.slices[0].range.begin = 1; }));  // of a fragment that is not the first
  expect_not_sent(changed([](StartAttempt& f) { f.slices[1].range.begin = 1025; }),
                  "slices[1].range: expected one that begins at 1024");
  expect_not_sent(changed([](StartAttempt& f) { f.slices[1].range.begin = 1023; }), "slices[1].range");
  expect_not_sent(changed([](StartAttempt& f) { f.slices[1].range.end = 1024; }), "is not empty, got [1024, 1024)");
  expect_not_sent(changed([](StartAttempt& f) { f.slices[1].range.end = 3; }), "slices[1].range");
  expect_not_sent(changed([](StartAttempt& f) { f.slices[0].owner = SiteId(4); }),
                  "slices[0].owner: expected a participant that is here, got site 4");
}

TEST(Rules, ChunksHoldSomethingAndNotTooMuch) {
  const auto chunk = [](std::uint64_t begin, std::uint64_t end) {
    return Chunk{ChunkKind::kMean, RunId(1), RoundId(1), AttemptId(1), SiteId(0), {begin, end}, CodecId::kFp32, 0};
  };
  expect_travels(chunk(5, 5 + kMaxChunkElements));
  expect_not_sent(chunk(5, 6 + kMaxChunkElements), "range: expected 1 to 67108864 elements, got [5, 67108870)");
  expect_not_sent(chunk(5, 5), "range");
  expect_not_sent(chunk(6, 5), "range");
}

TEST(Rules, AnAnchorHasSourcesInOrder) {
  const auto install = [](std::vector<SiteId> sources) {
    return InstallAnchor{TermId(1), RunId(1), RoundId(1), std::move(sources), {}, Counted::kNo, {}};
  };
  expect_travels(install({SiteId(3), SiteId(7)}));
  expect_not_sent(install({}), "sources: expected at least one, got none");
  expect_not_sent(install({SiteId(7), SiteId(3)}), "sources[1]: expected a site above site 7");
  std::vector<SiteId> many;
  for (std::uint32_t i = 0; i < kMaxSources; ++i) many.push_back(SiteId(i));
  expect_travels(install(many));
  many.push_back(SiteId(kMaxSources));
  expect_not_sent(install(many), "sources: expected at most 64 entries, got 65");
}

TEST(Rules, AFetchIsAPartOfAnAnchorThatFitsAPayload) {
  const auto fetch = [](ChunkKind kind, std::uint64_t begin, std::uint64_t end) {
    return FetchAnchor{RunId(1), RoundId(1), kind, {begin, end}};
  };
  for (const auto kind : {ChunkKind::kAnchor, ChunkKind::kOuter, ChunkKind::kAnchorDigests, ChunkKind::kOuterDigests}) {
    expect_travels(fetch(kind, 5, 5 + kMaxFetchElements));
  }
  expect_not_sent(fetch(ChunkKind::kMean, 0, 1), "kind: expected a part of an anchor (2 to 5), got 1");
  expect_not_sent(fetch(ChunkKind::kOuter, 5, 6 + kMaxFetchElements),
                  "range: expected 1 to 16777216 elements, got [5, 16777222)");
  expect_not_sent(fetch(ChunkKind::kAnchor, 5, 5), "range");
  EXPECT_THAT(refusal_of(fetch(ChunkKind::kAnchor, 0, 1), Body().u64(1).u64(1).u8(6).u64(0).u64(1).bytes),
              HasSubstr("FetchAnchor.kind: expected at most 5, got 6"));
}

TEST(Rules, AnOptimizerFetchIsItsDescriptionOrAPart) {
  expect_travels(FetchOptimizer{});
  expect_travels(FetchOptimizer{3, {}});
  expect_travels(FetchOptimizer{3, {5, 5 + kMaxPayloadBytes}});
  expect_not_sent(FetchOptimizer{3, {5, 6 + kMaxPayloadBytes}},
                  "range: expected none or 1 to 67108864 bytes, got [5, 67108870)");
  expect_not_sent(FetchOptimizer{3, {5, 5}}, "range");
  expect_not_sent(FetchOptimizer{3, {6, 5}}, "range");
  expect_not_sent(FetchOptimizer{0, {0, 1}}, "range: expected none, got [0, 1)");
}

TEST(Rules, ACopyOfAnOptimizersStateHoldsSomething) {
  expect_travels(OptimizerState{1, kMaxElements, {}, std::string(kMaxJsonBytes, 'x'), ""});
  expect_travels(OptimizerState{0, 0, {}, "", "it has not made a step yet"});
  expect_not_sent(OptimizerState{1, 0, {}, "", ""}, "bytes: expected some of snapshot 1, got 0");
  expect_not_sent(OptimizerState{0, 1, {}, "", ""}, "bytes: expected 0 of snapshot 0, got 1");
  expect_not_sent(OptimizerState{1, 1, {}, std::string(kMaxJsonBytes + 1, 'x'), ""},
                  "description: expected UTF-8 text of at most 1048576 bytes");
  EXPECT_THAT(refusal_of(OptimizerState{1, 1, {}, "", ""}, Body().u64(1).u64(kMaxElements + 1).bytes),
              HasSubstr("OptimizerState.bytes: expected at most"));
}

TEST(EncodeDeathTest, AMessageThatBreaksItsRulesIsABug) {
  EXPECT_DEATH(static_cast<void>(encode(Commit{})), "Commit cannot be sent");
}

// ---- the collective hub -------------------------------------------------------------------------------------

TEST(CollectiveHub, PlacesAreThoseOfTheWorld) {
  const Enter good{"night-run", 1, RankId(1), {"paris", "oslo"}, {0, 1}, 1, false, AcceptorId(1), {}, {1, {RankId(0)}}};
  expect_travels(good);
  Enter bad = good;
  bad.rank = RankId(2);
  expect_not_sent(bad, "rank: expected one below 2, got 2");
  bad = good;
  bad.site_of = {0, 2};
  expect_not_sent(bad, "site_of: expected an index below 2, got 2");
  bad = good;
  bad.chosen.gone = {RankId(1), RankId(0)};
  expect_not_sent(bad, "gone: expected ascending");
  bad = good;
  bad.accepted.gone = {RankId(1), RankId(1)};
  expect_not_sent(bad, "gone: expected ascending");
  bad = good;
  bad.acceptor = {};
  expect_not_sent(bad, "acceptor: expected one above 0");
  bad = good;
  bad.candidates = 0;
  expect_not_sent(bad, "candidates: expected at least 1");
}

TEST(CollectiveHub, MembersAreDistinctAndPairsAreTwo) {
  expect_travels(Assemble{GroupId(1), {RankId(3), RankId(1)}, GroupId(2), 0});
  expect_not_sent(Assemble{GroupId(1), {}, {}, 0}, "members: expected at least one");
  expect_not_sent(Assemble{GroupId(1), {RankId(3), RankId(1), RankId(3)}, {}, 0}, "got rank 3 twice");
  expect_not_sent(Assemble{GroupId(1), {RankId(3)}, GroupId(2), 0}, "members: expected 2 of a pair, got 1");
  EXPECT_THAT(refusal_of(Assemble{GroupId(1), {RankId(0)}, {}, 0}, Body().u64(1).u32(65537).bytes),
              HasSubstr("members: expected at most 65536 entries"));
}

TEST(CollectiveHub, PartsAreBounded) {
  Contribute bring{GroupId(1), 1, 0, "barrier", "", Absence::kProceeds, 0, true, false, 0, {kMaxPayloadBytes}};
  expect_travels(bring);
  bring.splits.push_back(1);
  expect_not_sent(bring, "splits: expected at most 67108864 bytes in all, got 67108865");
  bring.splits = {};
  bring.step = 0;
  expect_not_sent(bring, "step: expected one above 0");
  bring.step = 1;
  bring.operation.assign(257, 'x');
  expect_not_sent(bring, "operation: expected UTF-8 text of at most 256 bytes");
  expect_not_sent(StepResult{GroupId(1), 1, {}, false, {2, 1}, ""}, "absent: expected ascending");
}

TEST(CollectiveHub, MembershipsAreAscendingAndBounded) {
  const Epoch good{1, {RankId(0), RankId(3)}};
  const Epoch bad{1, {RankId(3), RankId(0)}};
  expect_travels(AcceptEpoch{{1, 2}, good});
  expect_not_sent(AcceptEpoch{{1, 2}, bad}, "gone: expected ascending");
  expect_not_sent(ChosenEpoch{bad}, "gone: expected ascending");
  expect_not_sent(Entered{1000, 60'000, {1, 2}, bad}, "gone: expected ascending");
  EXPECT_THAT(refusal_of(ChosenEpoch{good}, Body().u64(1).u32(65537).bytes),
              HasSubstr("epoch.gone: expected at most 65536 entries"));
}

}  // namespace
}  // namespace collab::wire
