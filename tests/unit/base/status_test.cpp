#include "collab/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "collab/types.h"

namespace collab {
namespace {

Status fail_if(bool fail) { return fail ? timed_out("waited 5 s for site b") : Status(); }
Status pass_on(bool fail) {
  COLLAB_RETURN_IF_ERROR(fail_if(fail));
  return refused("reached the end");
}

TEST(Status, SaysItsKindAndItsMessage) {
  EXPECT_EQ(Status().to_string(), "ok");
  EXPECT_EQ(corrupt("slice 3").to_string(), "corrupt: slice 3");
}

TEST(Status, ReturnIfErrorLeavesOnlyOnError) {
  EXPECT_EQ(pass_on(true).code(), StatusCode::kTimeout);
  EXPECT_EQ(pass_on(false).code(), StatusCode::kRefused);
}

TEST(Result, HoldsAValueThatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> made(std::make_unique<int>(7));
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made.status().ok());
  const std::unique_ptr<int> taken = *std::move(made);
  EXPECT_EQ(*taken, 7);
}

TEST(ResultDeathTest, ReadingAnErrorAbortsWithItsMessage) {
  const Result<int> failed(unavailable("host paris:29500 does not answer"));
  EXPECT_DEATH(static_cast<void>(failed.value()), "broken invariant at .*paris:29500");
}

TEST(ResultDeathTest, AnOkStatusIsNoResult) { EXPECT_DEATH(static_cast<void>(Result<int>(Status())), "has no value"); }

TEST(Types, DigestsPrintHighWordFirst) {
  EXPECT_EQ(to_hex({0x0123456789abcdef, 0xfedcba9876543210}), "fedcba98765432100123456789abcdef");
}

}  // namespace
}  // namespace collab
