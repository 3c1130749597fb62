// Lossy payloads in a site's data plane: a codec for each way, lengths that are not fixed, and error feedback through
// attempts that are cancelled, committed late or without us. The other site is played by the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "core/base/digest.h"
#include "core/runtime/data_plane.h"
#include "core/wire/encoding.h"
#include "tests/unit/codec/samples.h"

namespace collab {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kElements = 4 * 4096;
constexpr ElementRange kOurs{0, 8192};
constexpr ElementRange kTheirs{8192, kElements};
constexpr SiteId kSelf{0};
constexpr SiteId kPeer{1};
constexpr LinkId kLink{5};

class Vector final : public ParameterVector {
 public:
  [[nodiscard]] std::uint64_t size() const override { return values.size(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override {
    return std::span(values).subspan(offset, count);
  }
  Status read(std::uint64_t offset, std::span<float> out) override {
    std::ranges::copy(std::span(values).subspan(offset, out.size()), out.begin());
    return {};
  }
  Status write(std::uint64_t offset, std::span<const float> in) override {
    std::ranges::copy(in, values.begin() + static_cast<std::ptrdiff_t>(offset));
    return {};
  }
  std::vector<float> values;
};

struct Sent {
  wire::Chunk chunk;
  std::vector<std::byte> payload;
};

// Takes what is sent down.
class Recorder final : public Transport {
 public:
  [[nodiscard]] std::string name() const override { return "recorder"; }
  [[nodiscard]] Abilities abilities() const override { return {}; }
  Status start(TransportHandler* /*handler*/) override { return {}; }
  Result<std::string> listen(const std::string& address) override { return address; }
  LinkId connect(const std::string& /*address*/, Duration /*timeout*/) override { return kLink; }
  void send(LinkId /*link*/, TransportMessage message, std::uint64_t /*token*/) override {
    const Result<wire::Message> decoded = wire::decode(message.head);
    ASSERT_TRUE(decoded.ok());
    const auto bytes = message.payload->view();
    sent.push_back({std::get<wire::Chunk>(*decoded), {bytes.begin(), bytes.end()}});
  }
  void close(LinkId /*link*/) override {}
  std::vector<Sent> sent;
};

class DataPlaneCodec : public ::testing::Test {
 protected:
  void begin(const Codecs& codecs, bool feedback = true) {
    codecs_ = codecs;
    Result<std::unique_ptr<ArenaWriter>> arena = create_arena({.key = {"run", "self", {}},
                                                               .elements = kElements,
                                                               .outer_state = false,
                                                               .ranks = 1,
                                                               .shared = false,
                                                               .job = {},
                                                               .places = {}});
    ASSERT_TRUE(arena.ok()) << arena.status().to_string();
    arena_ = std::move(*arena);
    vector_.values = normal_vector(random_, kElements, 1.0);
    plane_ = std::make_unique<DataPlane>(
        DataPlane::Settings{.codec = codecs,
                            .error_feedback = feedback,
                            .outer = {.id = OuterId::kAverage, .lr = 1.0F, .momentum = 0.0F},
                            .chunk_elements = 8192},
        DataPlane::Parts{&transport_, &clock_, arena_.get(), &vector_, nullptr, model_});
    ASSERT_TRUE(plane_->keep_anchor(RunId(3), RoundId(0), {}).ok());
    train();
  }
  void train() {
    const std::vector<float> delta = normal_vector(random_, kElements, 1e-2);
    for (std::size_t i = 0; i < kElements; ++i) vector_.values[i] -= delta[i];
  }
  // One attempt of the round after the anchor's; we send our contribution.
  DataPlane::Events start(std::uint32_t attempt, double weight = 1) {
    attempt_ = AttemptId(attempt);
    transport_.sent.clear();
    wire::Form form{TermId(1),
                    RunId(3),
                    round(),
                    attempt_,
                    {{kSelf, weight, attempt_}, {kPeer, 1, attempt_}},
                    {{kSelf, kOurs}, {kPeer, kTheirs}},
                    {}};
    return plane_->start({form, kSelf, {LinkId(0), kLink}});
  }
  [[nodiscard]] RoundId round() const { return RoundId(arena_->sealed()->round.value + 1); }
  DataPlane::Events arrives(wire::ChunkKind kind, ElementRange range, CodecId codec, std::vector<std::byte> bytes) {
    BufferPtr payload = pool_->take(bytes.size());
    std::ranges::copy(bytes, payload->bytes().begin());
    const wire::Chunk chunk{kind, round(), attempt_, kPeer, range, codec, hash64(bytes)};
    return plane_->on_chunk(kLink, kPeer, chunk, std::move(payload));
  }
  DataPlane::Events arrives(wire::ChunkKind kind, ElementRange range) {
    const CodecId codec = kind == wire::ChunkKind::kContribution ? codecs_.up : codecs_.down;
    return arrives(kind, range, codec, *payload_of(codec_for(codec), normal_vector(random_, range.size(), 1e-2)));
  }
  // The peer's part, until we are done.
  void complete() {
    EXPECT_THAT(arrives(wire::ChunkKind::kContribution, kOurs), IsEmpty());
    const DataPlane::Events events = arrives(wire::ChunkKind::kMean, kTheirs);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_TRUE(std::holds_alternative<protocol::ExchangeComplete>(events[0]));
  }
  void commit(protocol::Base base) {
    const auto applied = plane_->apply({{TermId(1), RunId(3), round(), attempt_, {kSelf, kPeer}}, base});
    ASSERT_TRUE(applied.ok()) << applied.status().to_string();
  }
  void run_round() {
    start(1);
    complete();
    commit(protocol::Base::kParameters);
    train();
  }
  [[nodiscard]] std::vector<std::byte> sent(wire::ChunkKind kind) const {
    for (const Sent& each : transport_.sent) {
      if (each.chunk.kind == kind) return each.payload;
    }
    return {};
  }
  [[nodiscard]] std::vector<float> left_out() const {
    return {plane_->residual().values().begin(), plane_->residual().values().end()};
  }
  static protocol::ExchangeFailed failure_of(const DataPlane::Events& events) {
    EXPECT_EQ(events.size(), 1U);
    const auto* failed = events.empty() ? nullptr : std::get_if<protocol::ExchangeFailed>(&events[0]);
    EXPECT_NE(failed, nullptr);
    return failed == nullptr ? protocol::ExchangeFailed{} : *failed;
  }

  Prng random_{51};
  SteadyClock clock_;
  Recorder transport_;
  Vector vector_;
  const std::vector<TensorInfo> model_{{"wte.weight", "float32", {4096}, TensorKind::kAveraged, {}},
                                       {"attn.mask", "float32", {64, 64}, TensorKind::kLeftOut, {1, 1}},
                                       {"h.0.weight", "float32", {3, 4096}, TensorKind::kAveraged, {}}};
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::unique_ptr<ArenaWriter> arena_;
  std::unique_ptr<DataPlane> plane_;
  Codecs codecs_;
  AttemptId attempt_;
};

TEST_F(DataPlaneCodec, EachWayHasItsOwn) {
  begin({CodecId::kTopK64, CodecId::kInt8});
  start(1);
  complete();
  ASSERT_EQ(transport_.sent.size(), 2U);
  EXPECT_EQ(transport_.sent[0].chunk.codec, CodecId::kTopK64);
  EXPECT_LE(transport_.sent[0].payload.size(), codec_for(CodecId::kTopK64).encoded_size(kTheirs.size()));
  EXPECT_EQ(transport_.sent[0].chunk.payload_hash, hash64(transport_.sent[0].payload));
  EXPECT_EQ(transport_.sent[1].chunk.codec, CodecId::kInt8);
  EXPECT_EQ(transport_.sent[1].payload.size(), codec_for(CodecId::kInt8).encoded_size(kOurs.size()));
}

TEST_F(DataPlaneCodec, OtherCodecsAndLengthsAreRefusedByName) {
  begin({CodecId::kTopK64, CodecId::kInt4});
  const std::vector<float> values = normal_vector(random_, kOurs.size(), 1e-2);
  const std::vector<std::byte> sparse = *payload_of(codec_for(CodecId::kTopK64), values);
  const std::vector<std::byte> packed = *payload_of(codec_for(CodecId::kInt4), values);
  const std::size_t bound = codec_for(CodecId::kTopK64).encoded_size(kOurs.size());
  const auto refused = [&](wire::ChunkKind kind, ElementRange range, CodecId codec, std::vector<std::byte> bytes) {
    start(attempt_.value + 1);
    const protocol::ExchangeFailed failed = failure_of(arrives(kind, range, codec, std::move(bytes)));
    EXPECT_EQ(failed.peer, kPeer);
    return failed.reason;
  };
  using enum wire::ChunkKind;
  EXPECT_THAT(refused(kContribution, kOurs, CodecId::kInt4, packed),
              HasSubstr("contribution [0, 8192): expected at most " + std::to_string(bound) + " bytes of topk64, got " +
                        std::to_string(packed.size()) + " of codec 4"));
  EXPECT_THAT(refused(kMean, kTheirs, CodecId::kTopK64, sparse), HasSubstr("of int4, got"));
  EXPECT_THAT(refused(kContribution, kOurs, CodecId::kTopK64, std::vector<std::byte>(bound + 1)),
              HasSubstr("expected at most"));
  EXPECT_THAT(refused(kContribution, kOurs, CodecId::kTopK64, {}), HasSubstr("got 0"));
  std::vector<std::byte> shorter = packed;
  shorter.pop_back();
  EXPECT_THAT(refused(kMean, kTheirs, CodecId::kInt4, shorter), HasSubstr("expected " + std::to_string(packed.size())));
  // Right by length, but no encoder writes this: it is the sender who is named.
  EXPECT_THAT(refused(kContribution, kOurs, CodecId::kTopK64, std::vector<std::byte>(bound, std::byte{255})),
              HasSubstr("elements 0 to 4095"));
  EXPECT_THAT(refused(kMean, kTheirs, CodecId::kInt4, std::vector<std::byte>(packed.size(), std::byte{255})),
              HasSubstr("the mean of [8192, 16384) cannot be decoded"));
  start(attempt_.value + 1);
  EXPECT_THAT(arrives(kContribution, kOurs, CodecId::kTopK64, sparse), IsEmpty());
}

TEST_F(DataPlaneCodec, ACancelledAttemptSendsTheSameBytesAgain) {
  for (const Codecs& codecs : {Codecs(CodecId::kInt4), Codecs(CodecId::kTopK128, CodecId::kInt8)}) {
    begin(codecs);
    run_round();
    const std::vector<float> before = left_out();
    EXPECT_NE(before, std::vector<float>(kElements));
    start(1);
    const std::vector<std::byte> first = sent(wire::ChunkKind::kContribution);
    arrives(wire::ChunkKind::kContribution, kOurs);
    plane_->cancel();
    start(2);
    EXPECT_EQ(sent(wire::ChunkKind::kContribution), first);
    EXPECT_EQ(left_out(), before);
    complete();
    EXPECT_EQ(left_out(), before) << "complete is not committed";
    commit(protocol::Base::kParameters);
    EXPECT_NE(left_out(), before);
  }
}

TEST_F(DataPlaneCodec, ACommitThatIsHeardOfLateCountsWhatWasContributed) {
  begin(CodecId::kInt4);
  run_round();
  const std::vector<float> before = left_out();
  std::vector<float> sum(kTheirs.size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::size_t at = kTheirs.begin + i;
    sum[i] = arena_->anchor()[at] - vector_.values[at];
    sum[i] += before[at];
  }
  start(1);
  complete();
  std::vector<float> back(sum.size());
  ASSERT_TRUE(codec_for(CodecId::kInt4).decode(sent(wire::ChunkKind::kContribution), back).ok());
  ASSERT_TRUE(plane_->take_snapshot().ok());
  train();
  commit(protocol::Base::kSnapshot);
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(left_out()[kTheirs.begin + i], sum[i] - back[i]) << i;
}

// The line went before the commit was heard of; the anchor is fetched, and the contribution counts as part of it.
class DataPlaneReturns : public DataPlaneCodec, public ::testing::WithParamInterface<protocol::Base> {};

TEST_P(DataPlaneReturns, AContributionThatCountsAsCommittedIsNotBroughtTwice) {
  begin({CodecId::kTopK64, CodecId::kInt8});
  run_round();
  const std::vector<float> before = left_out();
  const std::vector<float> anchor(arena_->anchor().begin(), arena_->anchor().end());
  const std::vector<float> parameters = vector_.values;
  start(1);
  std::vector<float> back(kTheirs.size());
  ASSERT_TRUE(codec_for(CodecId::kTopK64).decode(sent(wire::ChunkKind::kContribution), back).ok());
  const bool trained_on = GetParam() == protocol::Base::kSnapshot;  // else it is back before it may train on
  if (trained_on) {
    ASSERT_TRUE(plane_->take_snapshot().ok());
  }
  plane_->cancel();
  if (trained_on) train();
  // As a transfer would: another anchor, the one before in the other slot.
  std::ranges::fill(arena_->scratch(), 0.5F);
  arena_->seal({RunId(3), round(), {}});
  ASSERT_TRUE(plane_->rebase(GetParam()).ok());
  const std::vector<float> after = left_out();
  for (std::size_t i = 0; i < back.size(); ++i) {
    const std::size_t at = kTheirs.begin + i;
    const volatile float delta = anchor[at] - parameters[at];  // volatile: rounded on its own
    ASSERT_EQ(after[at], delta + before[at] - back[i]) << at;
  }
  EXPECT_TRUE(std::equal(after.begin(), after.begin() + kOurs.end, before.begin())) << "what our means left out stays";
  EXPECT_EQ(plane_->residual().units().of_mean, std::vector{kOurs});
}
INSTANTIATE_TEST_SUITE_P(Bases, DataPlaneReturns,
                         ::testing::Values(protocol::Base::kSnapshot, protocol::Base::kParameters),
                         [](const auto& made) {
                           return made.param == protocol::Base::kSnapshot ? "TrainedOn" : "BackInTime";
                         });

TEST_F(DataPlaneCodec, UnfitParametersAndAbandonedAttempts) {
  begin(CodecId::kInt4);
  run_round();
  const std::vector<float> before = left_out();
  start(1);
  plane_->cancel();
  train();
  ASSERT_TRUE(plane_->rebase(protocol::Base::kOldAnchor).ok());
  EXPECT_EQ(left_out(), before) << "another anchor keeps it";
  vector_.values[9000] = std::numeric_limits<float>::infinity();
  const DataPlane::Events events = start(2);
  ASSERT_EQ(events.size(), 1U);
  const auto* unfit = std::get_if<protocol::ContributionUnfit>(&events[0]);
  ASSERT_NE(unfit, nullptr);
  EXPECT_THAT(unfit->reason, HasSubstr("infinity in parameter \"h.0.weight\" (element 4904 of float32 [3, 4096])"));
  EXPECT_EQ(left_out(), before);
  start(3, 0);
  complete();
  commit(protocol::Base::kUnfit);
  const std::vector<float> after = left_out();
  EXPECT_TRUE(std::all_of(after.begin() + kTheirs.begin, after.end(), [](float left) { return left == 0; }));
  EXPECT_TRUE(std::any_of(after.begin(), after.begin() + kOurs.end, [](float left) { return left != 0; }));
}

// The contribution to another's slice is looked at first; the tensor that is named comes before it in the vector.
TEST_F(DataPlaneCodec, WhatIsNotFiniteIsNamedInTheVectorsOrder) {
  begin(CodecId::kFp16);
  vector_.values[9000] = std::numeric_limits<float>::quiet_NaN();
  vector_.values[7] = -std::numeric_limits<float>::infinity();
  const DataPlane::Events events = start(1);
  ASSERT_EQ(events.size(), 1U);
  const auto* unfit = std::get_if<protocol::ContributionUnfit>(&events[0]);
  ASSERT_NE(unfit, nullptr);
  EXPECT_THAT(unfit->reason, HasSubstr("-infinity in parameter \"wte.weight\" (element 7 of float32 [4096])"));
}

// It goes wrong in our own slice only, when we reduce it.
TEST_F(DataPlaneCodec, WhatIsNotFiniteInOurOwnSliceIsNamedToo) {
  begin(CodecId::kFp16);
  vector_.values[5000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(start(1), IsEmpty());
  const DataPlane::Events events = arrives(wire::ChunkKind::kContribution, kOurs);
  ASSERT_EQ(events.size(), 1U);
  const auto* unfit = std::get_if<protocol::ContributionUnfit>(&events[0]);
  ASSERT_NE(unfit, nullptr);
  EXPECT_THAT(unfit->reason, HasSubstr("NaN in parameter \"h.0.weight\" (element 904 of"));
}

TEST_F(DataPlaneCodec, WithoutFeedbackNothingIsKept) {
  begin(CodecId::kInt2, false);
  run_round();
  EXPECT_FALSE(plane_->residual().on());
  EXPECT_TRUE(plane_->residual().values().empty());
}

}  // namespace
}  // namespace collab
