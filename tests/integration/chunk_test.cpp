// How much of the vector travels at once.
#include <algorithm>
#include <mutex>

#include "tests/integration/by_hand.h"
#include "tests/integration/meddling.h"

namespace collab::testing {
namespace {

TEST_F(ByHand, ChunksAreAsLargeAsTheKnobSays) {
  std::mutex mutex;
  std::uint64_t largest = 0;  // elements
  swarm_.adjust = [&](SessionOptions& options, std::size_t /*site*/) {
    options.make_transport = [&]() -> Result<std::unique_ptr<Transport>> {
      auto watch = [&](Meddling&, LinkId, TransportMessage& message, std::uint64_t) {
        const auto chunk = chunk_of(message);
        if (!chunk || chunk->kind != wire::ChunkKind::kContribution) return true;
        const std::lock_guard lock(mutex);
        largest = std::max(largest, chunk->range.size());
        return true;
      };
      return std::unique_ptr<Transport>(std::make_unique<Meddling>(swarm_.transport(), watch));
    };
  };
  start(2, [](Config& config) { config.chunk_kib = 8; });
  together(2, [this](std::size_t site) { EXPECT_TRUE(interval(site)); });
  EXPECT_EQ(largest, 2048U) << "8 KiB of float32, of a slice of 5000";
  finish_all();
}

}  // namespace
}  // namespace collab::testing
