// What is remembered of the addresses that were dialled.
#include <gtest/gtest.h>

#include <string>

#include "transport/tcp/link/found_numbers.h"

namespace collab::tcp {
namespace {

TEST(TcpFoundNumbers, ForgetsTheOldestOfTooManyAddresses) {
  FoundNumbers numbers;
  for (std::size_t i = 0; i < FoundNumbers::kMost; ++i) numbers.note("site" + std::to_string(i), 5);
  numbers.note("site0", 7);
  EXPECT_EQ(numbers.of("site0"), 7);
  numbers.note("one more", 9);
  EXPECT_EQ(numbers.of("site0"), std::nullopt);
  EXPECT_EQ(numbers.of("site1"), 5);
  EXPECT_EQ(numbers.of("one more"), 9);
}

}  // namespace
}  // namespace collab::tcp
