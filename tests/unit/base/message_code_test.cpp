#include "core/base/message_code.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

TEST(MessageCode, IsTheLastOneInBrackets) {
  EXPECT_EQ(message_code("set it to the same value at all sites [join.setting-mismatch]"), "join.setting-mismatch");
  EXPECT_EQ(message_code("rome was refused: it is full [join.full]; another is asked"), "join.full");
  EXPECT_EQ(message_code("it stalls [round.stalls], 3 times [round.stalls-again]"), "round.stalls-again");
}

TEST(MessageCode, OtherBracketsAreNone) {
  for (const char* text : {"", "no code", "shape [3, 4]", "[a]", "[a.]", "[.b]", "[1.5]", "[::1]:29400", "voters[0]",
                           "at [fe80.1]", "]", "[", "a]b", "[Join.full]", "[join.a.b]"}) {
    EXPECT_EQ(message_code(text), "") << text;
  }
  EXPECT_EQ(message_code("it is full [join.full] at [::1]:29400, voters[0]"), "join.full");
}

}  // namespace
}  // namespace collab
