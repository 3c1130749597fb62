// Whatever happens, a round of a run has one value. Once the faults are over, the sites agree again.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/unit/protocol/agreement_world.h"

namespace collab::protocol {
namespace {

// COLLAB_AGREEMENT_SEED=n runs that history alone, COLLAB_AGREEMENT_HISTORIES=n so many of each size.
std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Agreement : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sites, Agreement, testing::Values(2U, 3U, 4U, 5U));

TEST_P(Agreement, EachRoundHasOneValueDespiteFaults) {
  const std::uint64_t first = number_from("COLLAB_AGREEMENT_SEED", 0);
  const std::uint64_t count = first != 0 ? 1 : number_from("COLLAB_AGREEMENT_HISTORIES", 60);
  std::size_t commits = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    AgreementWorld world(seed, GetParam(), 2);
    for (int i = 0; i < 3000 * static_cast<int>(GetParam()) && world.invariants().broken().empty(); ++i) world.step();
    ASSERT_THAT(world.invariants().broken(), testing::IsEmpty()) << "seed " << seed << "\n" << world.story();
    commits += world.commits();
  }
  if (count > 20) {
    EXPECT_GT(commits, 2 * count) << "histories in which nothing is agreed on show nothing";
  }
}

TEST_P(Agreement, SitesAgreeAgainOnceFaultsEnd) {
  const std::uint64_t first = number_from("COLLAB_AGREEMENT_SEED", 0);
  const std::uint64_t count = first != 0 ? 1 : number_from("COLLAB_AGREEMENT_HISTORIES", 60) / 10;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    AgreementWorld world(seed, GetParam(), 2);
    for (int i = 0; i < 1000; ++i) world.step();
    world.heal(seconds(600));
    const auto before = world.commits();
    world.heal(seconds(60));
    ASSERT_TRUE(world.anchor()) << "seed " << seed << "\n" << world.story();
    EXPECT_GT(world.commits(), before) << "seed " << seed << "\n" << world.story();
    ASSERT_THAT(world.invariants().broken(), testing::IsEmpty()) << "seed " << seed << "\n" << world.story();
  }
}

}  // namespace
}  // namespace collab::protocol
