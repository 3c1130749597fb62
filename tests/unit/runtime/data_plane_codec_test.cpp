// Lossy payloads in a site's data plane: a codec for each way, lengths that are not fixed, and error feedback through
// attempts that are cancelled, committed late or without us. The other site is played by the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/unit/runtime/data_plane_by_hand.h"

namespace collab {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;
using DataPlaneCodec = DataPlaneByHand;

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

TEST_F(DataPlaneCodec, KeptElementsTravelAt16Bits) {
  kept_ = {{8000, 8400}, {10'000, 11'000}};
  for (const Codecs& codecs : {Codecs(CodecId::kInt4), Codecs(CodecId::kTopK64, CodecId::kInt2)}) {
    begin(codecs);
    MixedCodec up(codecs.up, kept_, kElements);
    MixedCodec down(codecs.down, kept_, kElements);
    const auto payload = [&](MixedCodec& codec, ElementRange range) {
      std::vector<std::byte> bytes(codec.encoded_size(range));
      bytes.resize(*codec.encode(range, normal_vector(random_, range.size(), 1e-2), bytes));
      return bytes;
    };
    std::vector<float> delta(kTheirs.size());
    for (std::size_t i = 0; i < delta.size(); ++i) {
      delta[i] = arena_->anchor()[kTheirs.begin + i] - vector_.values[kTheirs.begin + i];
    }
    start(1);
    std::vector<float> got(kTheirs.size());
    ASSERT_TRUE(up.decode(kTheirs, sent(wire::ChunkKind::kContribution), got).ok());
    double kept_error = 0;
    double error = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::uint64_t at = kTheirs.begin + i;
      const bool kept = at < 8400 || (at >= 10'000 && at < 11'000);
      (kept ? kept_error : error) = std::max<double>(kept ? kept_error : error, std::abs(got[i] - delta[i]));
    }
    EXPECT_LT(kept_error, 3e-5);
    EXPECT_GT(error, 1e-3);
    // Of the other site the same is expected, and nothing else.
    const std::vector<std::byte> plain = *payload_of(codec_for(codecs.down), std::vector<float>(kTheirs.size(), 1.0F));
    EXPECT_THAT(arrives(wire::ChunkKind::kContribution, kOurs, codecs.up, payload(up, kOurs)), IsEmpty());
    EXPECT_THAT(failure_of(arrives(wire::ChunkKind::kMean, kTheirs, codecs.down, plain)).reason,
                HasSubstr("expected " + std::to_string(down.encoded_size(kTheirs))));
    start(2);
    arrives(wire::ChunkKind::kContribution, kOurs, codecs.up, payload(up, kOurs));
    const DataPlane::Events done = arrives(wire::ChunkKind::kMean, kTheirs, codecs.down, payload(down, kTheirs));
    ASSERT_EQ(done.size(), 1U);
    EXPECT_TRUE(std::holds_alternative<protocol::ExchangeComplete>(done[0]));
    commit(protocol::Base::kParameters);
    EXPECT_NE(left_out(), std::vector<float>(kElements));
  }
}

// What a round leaves out of a running statistic the next one is shown again: fed back it would add up.
TEST_F(DataPlaneCodec, BuffersHaveNoErrorFeedback) {
  for (const std::uint64_t border : {kOurs.end - 100, kTheirs.begin + 100}) {  // of our slice and of the other's
    outer_elements_ = border;
    kept_ = {{border, kElements}};
    begin({CodecId::kInt4, CodecId::kInt4});
    start(1);
    MixedCodec codec(CodecId::kInt4, kept_, kElements);
    for (const ElementRange range : {kOurs, kTheirs}) {
      const auto kind = range == kOurs ? wire::ChunkKind::kContribution : wire::ChunkKind::kMean;
      std::vector<std::byte> bytes(codec.encoded_size(range));
      bytes.resize(*codec.encode(range, normal_vector(random_, range.size(), 1e-2), bytes));
      arrives(kind, range, CodecId::kInt4, bytes);
    }
    commit(protocol::Base::kParameters);
    const std::vector<float> left = left_out();
    const auto at = left.begin() + static_cast<std::ptrdiff_t>(border);
    EXPECT_TRUE(std::all_of(at, left.end(), [](float each) { return each == 0; }));
    EXPECT_TRUE(std::any_of(at - 100, at, [](float each) { return each != 0; }));
  }
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

TEST_F(DataPlaneCodec, ALateCommitCountsWhatWasContributed) {
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
TEST_F(DataPlaneCodec, NonFiniteTensorsAreNamedInTheVectorsOrder) {
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
TEST_F(DataPlaneCodec, NonFiniteTensorsOfOurOwnSliceAreNamedToo) {
  begin(CodecId::kFp16);
  vector_.values[5000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(start(1), IsEmpty());
  const DataPlane::Events events = arrives(wire::ChunkKind::kContribution, kOurs);
  ASSERT_EQ(events.size(), 1U);
  const auto* unfit = std::get_if<protocol::ContributionUnfit>(&events[0]);
  ASSERT_NE(unfit, nullptr);
  EXPECT_THAT(unfit->reason, HasSubstr("NaN in parameter \"h.0.weight\" (element 904 of"));
}

TEST_F(DataPlaneCodec, APassOverAllElementsReportsItsProgress) {
  tile_elements_ = vector_.tile_elements = 4096;
  begin({CodecId::kInt8, CodecId::kInt8});
  EXPECT_EQ(std::exchange(passed_, 0), 4 + 4) << "the parameters and the digest of the anchor, tile by tile";
  start(1);
  complete();
  EXPECT_EQ(std::exchange(passed_, 0), 0);
  commit(protocol::Base::kParameters);
  EXPECT_EQ(std::exchange(passed_, 0), 2 + 4) << "what was left out of each chunk, the anchor";
  train();
  start(1);
  complete();
  commit(protocol::Base::kUnfit);
  EXPECT_EQ(std::exchange(passed_, 0), 1 + 4 + 4) << "our own chunk, the anchor, the parameters";
  train();
  start(1);
  complete();
  ASSERT_TRUE(plane_->take_snapshot().ok());
  EXPECT_EQ(std::exchange(passed_, 0), 4);
  ASSERT_TRUE(plane_->rebase(protocol::Base::kSnapshot).ok());
  EXPECT_EQ(std::exchange(passed_, 0), 1 + 4 + 4) << "what was left out, the snapshot, the parameters";
  ASSERT_TRUE(plane_->publish_parameters().ok());
  EXPECT_EQ(std::exchange(passed_, 0), 4);
}

TEST_F(DataPlaneCodec, WithoutFeedbackNothingIsKept) {
  begin(CodecId::kInt2, false);
  run_round();
  EXPECT_FALSE(plane_->residual().on());
  EXPECT_TRUE(plane_->residual().values().empty());
}

}  // namespace
}  // namespace collab
