// A helper checks what a coordinator tells it.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "collab/session.h"
#include "core/wire/limits.h"
#include "tests/unit/runtime/answering_transport.h"

namespace collab {
namespace {

// Asks twice, and joins nothing.
void expect_wait(const wire::StatusReport& report) {
  const auto heard = std::make_shared<testing::AnsweringTransport::Heard>();
  std::promise<void> asked_again;
  std::atomic<int> questions = 0;
  const auto answer = [&](const wire::Message& message) -> std::vector<wire::Message> {
    if (!std::holds_alternative<wire::StatusQuery>(message)) return {};
    if (++questions == 2) asked_again.set_value();
    return {report};
  };
  const auto make = [&]() -> Result<std::unique_ptr<Transport>> {
    return std::unique_ptr<Transport>(std::make_unique<testing::AnsweringTransport>(heard, answer));
  };
  auto helper = serve_helper({.config = {}, .site = "helper", .coordinators = {"hub:1"}, .make_transport = make});
  ASSERT_TRUE(helper.ok());
  asked_again.get_future().wait();
  (*helper)->leave();
  EXPECT_TRUE((*helper)->wait(Duration{}).ok()) << "it was asked to end, and had no other reason";
  EXPECT_TRUE(heard->all<wire::Join>().empty());
}

// The first joiner of a swarm says how large the model is.
TEST(HelperMemory, AModelThatDoesNotFitIsWaitedOut) { expect_wait({"{}", wire::kMaxElements}); }

TEST(HelperMemory, WaitsForTheTensorsThatRoundsNeed) {
  expect_wait({"{}", 10'000, {{"outer_optimizer", "rda"}}});
  expect_wait({"{}", 10'000, {{"keep_fp16", "small"}}});
}

}  // namespace
}  // namespace collab
