// One message of every type against its bytes on file: what one release writes, the next one must read.
//
// After a deliberate change of the wire: WRITE_GOLDEN=1 writes the files anew; the change then needs a new protocol
// version or a "Wire" line in CHANGELOG.md, and docs/protocol/wire.md.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/encoding.h"

namespace collab::wire {
namespace {

std::vector<Message> hub_samples() {
  const GroupId group(0xC1C2C3C4C5C6C7C8);
  const Ballot ballot{4, 0xE1E2E3E4E5E6E7E8};
  const Epoch epoch{1, {RankId(1)}};
  Enter enter;
  enter.swarm = "night-run";
  enter.world = 0xB1B2B3B4B5B6B7B8;
  enter.rank = RankId(2);
  enter.sites = {"paris", "oslo"};
  enter.site_of = {0, 0, 1};
  enter.candidates = 2;
  enter.returning = true;
  enter.acceptor = AcceptorId(0xD1D2D3D4D5D6D7D8);
  enter.promised = ballot;
  enter.chosen = epoch;
  enter.accepted_under = {3, 0xA1};
  enter.accepted = {2, {RankId(0), RankId(1)}};
  enter.completed = {{group, 41}};
  enter.held = {{group, 42, ballot}};
  enter.closed = {GroupId(6)};
  return {
      enter,
      Assemble{group, {RankId(2), RankId(0)}, GroupId(3), 7},
      Disband{group},
      Contribute{group,
                 42,
                 43,
                 "all_reduce (sum) of 12 float32",
                 "[3, 4]",
                 Absence::kNeedsRoot,
                 1,
                 true,
                 false,
                 1'800'000,
                 {16, 32}},
      ResultAck{group, 42, ballot},
      ResolveSender{group, 7},
      Entered{1000, 60'000, ballot, epoch},
      Stands{group, 42},
      SenderResolved{group, 7, 1},
      Part{group, 42, 1},
      StepResult{group, 42, ballot, true, {1}, "rank 1 of paris is gone"},
      PrepareWorld{ballot},
      AcceptEpoch{ballot, epoch},
      AcceptedEpoch{ballot, 1},
      ChosenEpoch{epoch},
  };
}

Ready sample_of_ready(const Digest& digest) {
  Ready ready{RoundId(42), 3200, 3200, 100, digest, AttemptId(3), {0x3F800000, 0xBF000000}};
  ready.measured = {20'000, 100'000, 310'000, 2'900'000, 18'000, 610'000, 3'000, 0x40490FDB};
  ready.period = 48;
  return ready;
}

std::vector<Message> samples() {
  const Digest digest{0x1122334455667788, 0x99AABBCCDDEEFF00};
  const RunId run(0xA1A2A3A4A5A6A7A8);
  const ElementRange part{1024, 263'168};
  Join join;
  join.swarm = "night-run";
  join.site = "paris";
  join.index = 1;
  join.expected_sites = 2;
  join.address = "paris.example.org:29500";
  join.generation = 3;
  join.elements = 124'439'808;
  join.fingerprint = {3, 4};
  join.offer = {run, RoundId(41), digest};
  join.settings = {{"codec", "int8"}, {"sync_every", "100"}};
  join.model = {{"wte.weight", "float32", {50257, 768}, TensorKind::kAveraged, {}},
                {"scale", "bfloat16", {}, TensorKind::kFrozen, digest},
                {"mask", "float32", {4, 4}, TensorKind::kLeftOut, digest}};
  join.resumed = true;
  join.init_from = "oslo";
  join.process = 0xB1B2B3B4B5B6B7B8;
  join.world = 0xE1E2E3E4E5E6E7E8;
  const std::vector<Participant> three{{SiteId(0), "paris", 3200, AttemptId(1)},
                                       {SiteId(1), "oslo", 0.1, AttemptId(2)},
                                       {SiteId(2), "rome", 64, AttemptId(1), false}};
  const std::vector<Slice> halves{{SiteId(0), {0, 62'219'264}}, {SiteId(1), {62'219'264, 124'439'808}}};
  const AcceptorId acceptor(0xD1D2D3D4D5D6D7D8);
  const std::vector<Voter> voters{{SiteId(0), "paris", acceptor}, {SiteId(1), "oslo", AcceptorId(9), true}};
  const StartAttempt start{TermId(7), 3, {3, 4}, run, RoundId(42), AttemptId(1), three, halves, voters};
  const Commit commit{TermId(7), run, RoundId(42), AttemptId(1), {SiteId(0), SiteId(1)}, 32};
  const Offer anchor{run, RoundId(41), digest};
  const Proposal settled{start, true, {digest, {1, 2}}, TermId(8)};
  const Past past{run, RoundId(41), AttemptId(3), {"paris", "rome"}, {5, 6}};
  const Record record{acceptor, TermId(7), 3, {3, 4}, anchor, voters, {{start}, settled}, {past}};
  join.report = {record, true, false, true};
  std::vector<Message> all{
      join,
      AnchorInstalled{run, RoundId(0), digest, acceptor},
      sample_of_ready(digest),
      Decline{RoundId(42), AttemptId(1), "the delta of h.3.mlp is not finite"},
      PeerUnreachable{RoundId(42), AttemptId(2), SiteId(1), "no answer from z\xC3\xBCrich in 60 s"},
      Done{TermId(7), RoundId(42), AttemptId(1), {digest, {1, 2}}},
      Leave{"it goes on to generation 4", 4},
      Welcome{TermId(7), SiteId(1), 1000, 60'000, true},
      Refuse{"the swarm trains generation 4 of the model", true},
      Roster{TermId(7),
             {{SiteId(0), "paris", "10.0.0.1:29500", MemberState::kActive},
              {SiteId(1), "oslo", "", MemberState::kSuspect}}},
      Keys{{{SiteId(0), digest}, {SiteId(2), digest}}},
      InstallAnchor{
          TermId(7), run, RoundId(41), {SiteId(0), SiteId(2)}, digest, Counted::kYes, voters, 2, 48, AttemptId(3)},
      start,
      commit,
      LeaveAck{},
      Hello{"night-run", TermId(7), SiteId(1), "oslo", digest},
      FetchAnchor{run, RoundId(41), ChunkKind::kAnchorDigests, {65'536, 4'259'840}},
      AnchorMoved{run, RoundId(42)},
      Chunk{ChunkKind::kMean, run, RoundId(42), AttemptId(1), SiteId(0), part, CodecId::kInt8, 0xFEDCBA9876543210},
      Heartbeat{77, true, 1 << 20, {5 << 20, true, {SiteId{1}, SiteId{4}}}},
      StatusQuery{},
      StatusReport{R"({"term":7,"members":["paris"]})", 124'439'808, {{"codec", "fp16"}}, {{"wte.weight", 38'597'376}}},
      RoundSkipped{TermId(7), RoundId(42), "1 of 3 sites is here, which is no majority"},
      Prepare{TermId(8)},
      Promise{TermId(8), anchor, {record, false, true, false}},
      Accept{TermId(8), {settled}},
      Accepted{TermId(8)},
      MemberLeft{TermId(8), "oslo", AcceptorId(9)},
      Inquire{"night-run"},
      Leads{true, 3, run, RoundId(41), 5},
      Forget{{"oslo", "rome"}},
      Notice{"same-data", "paris and oslo have learned the same"},
      FetchOptimizer{9, {1'048'576, 2'097'152}},
      OptimizerState{9, 497'759'232, digest, R"({"version":1})", "as told"},
      Hold{"oslo is still at generation 3"},
  };
  for (Message& message : hub_samples()) all.push_back(std::move(message));
  return all;
}

std::string path_of(std::string_view name) { return std::string(GOLDEN_DIR) + "/" + std::string(name) + ".hex"; }

// 16 bytes a line; the header is the first two lines.
std::string to_hex_lines(const std::vector<std::byte>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(bytes[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 0xF], i % 16 == 15 || i + 1 == bytes.size() ? '\n' : ' '};
  }
  return text;
}

std::vector<std::byte> from_hex_lines(const std::string& text) {
  std::vector<std::byte> bytes;
  std::istringstream words(text);
  for (std::string word; words >> word;) bytes.push_back(static_cast<std::byte>(std::stoi(word, nullptr, 16)));
  return bytes;
}

TEST(WireGolden, SamplesHaveEveryType) {
  std::set<std::size_t> types;
  for (const Message& message : samples()) types.insert(message.index());
  EXPECT_EQ(types.size(), std::variant_size_v<Message>);
}

TEST(WireGolden, BytesAreThoseOnFile) {
  const bool write = std::getenv("WRITE_GOLDEN") != nullptr;
  for (const Message& message : samples()) {
    const std::string path = path_of(name_of(message));
    const auto frame = encode(message);
    if (write) std::ofstream(path) << to_hex_lines(frame);
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " is missing; WRITE_GOLDEN=1 writes it";
    const std::string golden((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_EQ(to_hex_lines(frame), golden) << name_of(message);
    const auto decoded = decode(from_hex_lines(golden));
    ASSERT_TRUE(decoded.ok()) << name_of(message) << ": " << decoded.status().message();
    EXPECT_EQ(*decoded, message) << name_of(message);
  }
}

}  // namespace
}  // namespace collab::wire
