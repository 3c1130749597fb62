// `rda` in a site's data plane: each tensor's step has the length that the sites' deltas have on average. The other
// site is played by the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reduce/reduce.h"
#include "tests/unit/runtime/data_plane_by_hand.h"

namespace collab {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// An embedding, a tensor that both owners have a part of, and two in one chunk each.
const std::vector<ElementRange> kTensors{{4096, 6000}, {6000, 12'000}, {12'000, kElements}};

class RadialStepOfASite : public DataPlaneByHand {
 protected:
  void begin_rda(const Codecs& codecs) {
    outer_.id = OuterId::kRda;
    radial_ = kTensors;
    begin(codecs);
    peer_ = normal_vector(random_, kElements, 2e-2);
  }
  [[nodiscard]] std::vector<float> anchor() const { return {arena_->anchor().begin(), arena_->anchor().end()}; }
  [[nodiscard]] static std::vector<float> part(const std::vector<float>& of, ElementRange range) {
    return {of.begin() + static_cast<std::ptrdiff_t>(range.begin), of.begin() + static_cast<std::ptrdiff_t>(range.end)};
  }
  [[nodiscard]] static std::vector<float> decoded(CodecId codec, std::span<const std::byte> bytes, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(codec_for(codec).decode(bytes, values).ok());
    return values;
  }
  DataPlane::Events peer_contributes() {
    const std::vector<std::byte> bytes = *payload_of(codec_for(codecs_.up), part(peer_, kOurs));
    from_peer_ = decoded(codecs_.up, bytes, kOurs.size());
    return arrives(wire::ChunkKind::kContribution, kOurs, codecs_.up, bytes);
  }
  // Of its slice, from what we have sent it and its own delta, as it is; and what follows.
  [[nodiscard]] std::vector<std::byte> mean_of_peer(double weight) {
    const std::vector<float> shares = mean_scales(std::vector<double>{weight, 1});
    sent_ = decoded(codecs_.up, sent(wire::ChunkKind::kContribution), kTheirs.size());
    const std::vector<float> own = part(peer_, kTheirs);
    mean_.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) mean_[i] = shares[0] * sent_[i] + shares[1] * own[i];
    const RadialNorms norms(radial_, {0, kElements}, shares);
    std::vector<double> squares;
    norms.measure(kTheirs, sent_, squares);
    norms.measure(kTheirs, own, squares);
    std::vector<std::byte> bytes = *payload_of(codec_for(codecs_.down), mean_);
    const std::size_t encoded = bytes.size();
    bytes.resize(encoded + norms.size(kTheirs));
    norms.write(kTheirs, squares, mean_, std::span(bytes).subspan(encoded));
    return bytes;
  }
  std::vector<Digest> exchange(double weight = 1) {
    start(attempt_.value + 1, weight);
    EXPECT_THAT(peer_contributes(), IsEmpty());
    const DataPlane::Events events = arrives(wire::ChunkKind::kMean, kTheirs, codecs_.down, mean_of_peer(weight));
    EXPECT_EQ(events.size(), 1U);
    return std::get<protocol::ExchangeComplete>(events.at(0)).slices;
  }
  // In binary64: what is measured is what is averaged, an owner's own delta exactly.
  [[nodiscard]] double factor_of(ElementRange tensor, const std::vector<float>& own, double weight) const {
    const double share = weight / (weight + 1);
    double ours = 0, theirs = 0, both = 0;
    for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
      const double a = i < kOurs.end ? own[i] : sent_[i - kTheirs.begin];
      const double b = i < kOurs.end ? from_peer_[i] : peer_[i];
      const double mean = share * a + (1 - share) * b;
      ours += a * a;
      theirs += b * b;
      both += mean * mean;
    }
    const double norms = share * std::sqrt(ours) + (1 - share) * std::sqrt(theirs);
    return std::clamp(norms / std::sqrt(both), 1.0, std::sqrt(2.0));
  }
  // As it was sent to the peer, or by it.
  [[nodiscard]] std::vector<float> mean_applied() const {
    const std::vector<std::byte> ours = sent(wire::ChunkKind::kMean);
    const RadialNorms norms(radial_, {0, kElements}, {0.5F, 0.5F});
    std::vector<float> mean =
        decoded(codecs_.down, std::span(ours).first(ours.size() - norms.size(kOurs)), kOurs.size());
    const std::vector<float> theirs =
        decoded(codecs_.down, *payload_of(codec_for(codecs_.down), mean_), kTheirs.size());
    mean.insert(mean.end(), theirs.begin(), theirs.end());
    return mean;
  }

  std::vector<float> peer_;       // its delta
  std::vector<float> from_peer_;  // of our slice, as it is decoded here
  std::vector<float> sent_;       // of its slice, as ours is decoded there
  std::vector<float> mean_;       // of its slice
};

TEST_F(RadialStepOfASite, ATensorsStepIsAsLongAsTheDeltasAreOnAverage) {
  for (const Codecs& codecs : {Codecs(CodecId::kFp32), Codecs(CodecId::kInt8), Codecs(CodecId::kTopK64, CodecId::kFp16),
                               Codecs(CodecId::kFp16, CodecId::kTopK64)}) {
    begin_rda(codecs);
    const double weight = 3;
    const std::vector<float> before = anchor();
    std::vector<float> own;
    for (std::size_t i = 0; i < kElements; ++i) own.push_back(before[i] - vector_.values[i]);
    exchange(weight);
    const std::vector<float> mean = mean_applied();
    const DataPlane::Applied applied = commit(protocol::Base::kParameters);
    EXPECT_EQ(applied.outer_lr, 1);
    EXPECT_EQ(applied.state, digest_of_state(digest_of_vector(arena_->anchor()), {}));
    EXPECT_EQ(vector_.values, anchor());
    std::vector<double> factors(kElements, 1.0);
    for (const ElementRange& tensor : kTensors) {
      const double factor = factor_of(tensor, own, weight);
      EXPECT_GT(factor, 1.1) << "of deltas that have little in common";
      std::fill(factors.begin() + static_cast<std::ptrdiff_t>(tensor.begin),
                factors.begin() + static_cast<std::ptrdiff_t>(tensor.end), factor);
    }
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(anchor()[i], double{before[i]} - factors[i] * double{mean[i]}, 1e-6) << name_of(codecs) << " " << i;
    }
  }
}

TEST_F(RadialStepOfASite, OtherNormsChangeTheDigestOfTheMean) {
  std::vector<std::vector<Digest>> said;
  for (const bool lies : {false, true}) {
    random_ = Prng(51);
    begin_rda(CodecId::kFp32);
    start(1);
    peer_contributes();
    std::vector<std::byte> bytes = mean_of_peer(1);
    if (lies) bytes.back() ^= std::byte{1};  // a number, and another one
    said.push_back(std::get<protocol::ExchangeComplete>(
                       arrives(wire::ChunkKind::kMean, kTheirs, CodecId::kFp32, std::move(bytes)).at(0))
                       .slices);
  }
  EXPECT_EQ(said[0][0], said[1][0]);
  EXPECT_NE(said[0][1], said[1][1]);
}

TEST_F(RadialStepOfASite, AnInvalidNormIsChargedToTheOwner) {
  for (const bool is_short : {false, true}) {
    begin_rda(CodecId::kFp32);
    start(1);
    peer_contributes();
    std::vector<std::byte> bytes = mean_of_peer(1);
    if (is_short) {
      bytes.resize(kTheirs.size() * sizeof(float));
    } else {
      std::fill(bytes.end() - 8, bytes.end(), std::byte{0xFF});
    }
    const protocol::ExchangeFailed failed =
        failure_of(arrives(wire::ChunkKind::kMean, kTheirs, CodecId::kFp32, std::move(bytes)));
    EXPECT_EQ(failed.peer, kPeer);
    EXPECT_THAT(failed.reason, HasSubstr(is_short ? "expected 32808 bytes of fp32, got 32768" : "not negative, got"));
    attempt_ = AttemptId(0);
  }
}

TEST_F(RadialStepOfASite, WithOneContributorEqualsTheAverageBitForBit) {
  std::vector<std::vector<float>> anchors;
  for (const OuterId id : {OuterId::kAverage, OuterId::kRda}) {
    random_ = Prng(51);
    radial_ = kTensors;
    outer_.id = id;
    begin(CodecId::kInt8);
    start(1, 0);  // we have nothing
    complete();   // no norms follow
    commit(protocol::Base::kParameters);
    anchors.push_back(anchor());
    train();
    const std::vector<float> trained = vector_.values;
    attempt_ = AttemptId(1);
    const wire::StartAttempt alone{.term = TermId(1),
                                   .run = RunId(3),
                                   .round = round(),
                                   .attempt = attempt_,
                                   .participants = {{kSelf, "self", 1, attempt_}},
                                   .slices = {{kSelf, {0, kElements}}}};
    EXPECT_EQ(plane_->start({alone, kSelf, {LinkId(0)}}).size(), 1U);
    ASSERT_TRUE(plane_->apply({{TermId(1), RunId(3), round(), attempt_, {kSelf}}, protocol::Base::kParameters}).ok());
    EXPECT_EQ(anchor(), trained) << "a lone model stays itself";
  }
  EXPECT_EQ(anchors[0], anchors[1]);
}

TEST_F(RadialStepOfASite, ARepeatedAttemptAndALateCommitGiveTheSameBits) {
  std::vector<std::vector<float>> anchors;
  for (const int way : {0, 1, 2}) {
    random_ = Prng(51);
    begin_rda(CodecId::kInt8);
    attempt_ = AttemptId(0);
    if (way == 1) {
      start(1);
      peer_contributes();
      plane_->cancel();
    }
    exchange();
    if (way == 2) {
      ASSERT_TRUE(plane_->take_snapshot().ok());
      train();
    }
    commit(way == 2 ? protocol::Base::kSnapshot : protocol::Base::kParameters);
    anchors.push_back(anchor());
  }
  EXPECT_EQ(anchors[1], anchors[0]);
  EXPECT_EQ(anchors[2], anchors[0]);
}

TEST_F(RadialStepOfASite, TheClipIsOfTheStepAsItIsTaken) {
  outer_.clip = 0.25F;
  outer_elements_ = 12'000;
  begin_rda(CodecId::kFp32);
  radial_.pop_back();
  begin(CodecId::kFp32);
  const std::vector<float> before = anchor();
  exchange();
  EXPECT_GT(commit(protocol::Base::kParameters).clipped_norm, 0.5);
  std::vector<float> moved;
  for (std::size_t i = 0; i < kElements; ++i) moved.push_back(before[i] - anchor()[i]);
  EXPECT_NEAR(norm_of(std::span(moved).first(outer_elements_)), 0.25, 1e-4);
  EXPECT_GT(norm_of(std::span(moved).subspan(outer_elements_)), 0.4) << "buffers are as they are";
}

}  // namespace
}  // namespace collab
