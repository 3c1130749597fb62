#include "core/runtime/data/early_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace collab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kVector = std::size_t{8} << 20;  // encoded
constexpr std::size_t kPart = std::size_t{1} << 20;
constexpr LinkId kA{5};
constexpr LinkId kB{6};

// Contributions of one site each, to an owner of everything that stands at round 4.
class EarlyChunksTest : public ::testing::Test {
 protected:
  std::weak_ptr<Buffer> comes(LinkId link, std::uint64_t round = 5, std::size_t bytes = kPart, RunId run = RunId(3)) {
    BufferPtr payload = bytes == 0 ? nullptr : pool_->take(bytes);
    std::weak_ptr<Buffer> seen = payload;
    const SiteId from(static_cast<std::uint32_t>(link.value));
    const wire::Chunk chunk{wire::ChunkKind::kContribution, run, RoundId(round), AttemptId(1), from, {}, {}, number_++};
    early_.keep(RunId(3), RoundId(4), {link, from, chunk, std::move(payload)});
    EXPECT_LE(early_.bytes(), early_.bound());
    return seen;
  }
  std::vector<std::uint64_t> taken() {
    std::vector<std::uint64_t> numbers;
    for (const IncomingChunk& each : early_.take()) numbers.push_back(each.chunk.payload_hash);
    return numbers;
  }

  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  EarlyChunks early_{kVector};
  std::uint64_t number_ = 0;
};

TEST_F(EarlyChunksTest, AreGivenInTheOrderInWhichTheyCame) {
  comes(kA);
  comes(kB);
  comes(kA);
  EXPECT_THAT(taken(), ElementsAre(0, 1, 2));
  EXPECT_EQ(early_.bytes(), 0U);
  EXPECT_THAT(early_.lossy(), IsEmpty());
}

TEST_F(EarlyChunksTest, TakeAtMostTwiceTheEncodedVector) {
  EXPECT_EQ(early_.bound(), 2 * kVector);
  for (int i = 0; i < 8; ++i) comes(kA);
  const std::weak_ptr<Buffer> first = comes(kB);
  for (int i = 0; i < 100; ++i) comes(kB);
  EXPECT_TRUE(first.expired()) << "what came over a link of which something is dropped is of no use";
  ASSERT_EQ(early_.lossy().size(), 1U);
  EXPECT_EQ(early_.lossy().begin()->first, kB);
  EXPECT_THAT(early_.lossy().at(kB).why, HasSubstr("more than 16777216 bytes"));
  EXPECT_THAT(taken(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  comes(kB);
  EXPECT_THAT(taken(), IsEmpty()) << "it stays lossy until it is closed";
  early_.link_closed(kB);
  comes(kB);
  EXPECT_EQ(taken().size(), 1U);
}

// However many send at once, whole contributions stay: each attempt gets further.
TEST_F(EarlyChunksTest, ManyAtOnceLeaveSomeWhole) {
  for (std::size_t part = 0; part < kVector / kPart - 1; ++part) {
    for (std::uint64_t link = 1; link <= 7; ++link) comes(LinkId(link));
  }
  EXPECT_EQ(early_.lossy().size(), 5U);
  EXPECT_EQ(taken().size(), 2 * (kVector / kPart - 1));
}

TEST_F(EarlyChunksTest, ChunksWithoutAPayloadAreBoundedToo) {
  for (std::size_t i = 0; i < early_.bound() / sizeof(IncomingChunk) + 1; ++i) comes(kA, 5, 0);
  EXPECT_EQ(early_.lossy().count(kA), 1U);
}

TEST_F(EarlyChunksTest, KeepsMoreChunksOfSmallModels) { EXPECT_EQ(EarlyChunks(100).bound(), EarlyChunks::kLeastBound); }

TEST_F(EarlyChunksTest, AreOfThisRoundOrTheNext) {
  comes(kA, 3);
  comes(kA, 4);
  EXPECT_EQ(early_.bytes(), 0U);
  EXPECT_THAT(early_.lossy(), IsEmpty()) << "what is past is nobody's loss";
  comes(kA, 5);
  comes(kA, 6);
  comes(kB, 7);
  EXPECT_THAT(early_.lossy().at(kB).why, HasSubstr("round 7 arrived at a site that is at round 4"));
  EXPECT_THAT(taken(), ElementsAre(2, 3));
}

TEST_F(EarlyChunksTest, GoWithTheirRound) {
  const std::weak_ptr<Buffer> of_five = comes(kA, 5);
  const std::weak_ptr<Buffer> of_six = comes(kA, 6);
  early_.round_is_past(RunId(3), RoundId(5));
  EXPECT_TRUE(of_five.expired());
  EXPECT_FALSE(of_six.expired());
  early_.round_is_past(RunId(3), RoundId(6));
  EXPECT_TRUE(of_six.expired());
  EXPECT_EQ(early_.bytes(), 0U);
}

// Nobody counts on them: who leaves a run takes part in none of its attempts any more.
TEST_F(EarlyChunksTest, ChunksOfAnotherRunAreDroppedAndNotCountedAsLost) {
  comes(kA, 5, kPart, RunId(2));
  EXPECT_EQ(early_.bytes(), 0U);
  comes(kA, 5);
  early_.round_is_past(RunId(4), RoundId(4));  // another run's anchor is in place
  EXPECT_EQ(early_.bytes(), 0U);
  EXPECT_THAT(early_.lossy(), IsEmpty());
}

}  // namespace
}  // namespace collab
