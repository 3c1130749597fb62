// Memory that a burst has left is given back once, when little memory is held.
#include "core/base/trim_debt.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

TEST(TrimDebt, MemoryIsTrimmedOnceWhenLittleIsHeldAfterMuch) {
  TrimDebt debt;
  EXPECT_FALSE(debt.settle(0)) << "nothing was held";
  debt.holds(TrimDebt::kMuch + 1);
  EXPECT_TRUE(debt.owes());
  EXPECT_FALSE(debt.settle(TrimDebt::kLittle));
  EXPECT_TRUE(debt.settle(TrimDebt::kLittle - 1));
  EXPECT_FALSE(debt.settle(0));
}

TEST(TrimDebt, IsMadeByMuchAndByBurstsOfAnotherKind) {
  TrimDebt debt;
  debt.holds(TrimDebt::kMuch);
  EXPECT_FALSE(debt.owes());
  debt.burst();
  debt.holds(0);
  EXPECT_TRUE(debt.settle(0));
}

}  // namespace
}  // namespace collab
