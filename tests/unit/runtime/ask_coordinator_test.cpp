// One question, one answer.
#include "core/runtime/ask_coordinator.h"

#include <gmock/gmock.h>

#include "collab/session.h"
#include "tests/unit/runtime/answering_transport.h"

namespace collab {
namespace {

using std::chrono::seconds;
using testing::AnsweringTransport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AskCoordinator : public ::testing::Test {
 protected:
  std::unique_ptr<Transport> coordinator(AnsweringTransport::Answer answer) {
    return std::make_unique<AnsweringTransport>(heard_, std::move(answer));
  }
  std::shared_ptr<AnsweringTransport::Heard> heard_ = std::make_shared<AnsweringTransport::Heard>();
};

TEST_F(AskCoordinator, TheStatusIsWhatItAnswers) {
  const auto status = query_status(coordinator([](const wire::Message& asked) -> std::vector<wire::Message> {
                                     EXPECT_TRUE(std::holds_alternative<wire::StatusQuery>(asked));
                                     return {wire::Heartbeat{}, wire::StatusReport{"{\"round\":7}"}};
                                   }),
                                   "head:29400", seconds(60));
  ASSERT_TRUE(status.ok()) << status.status().to_string();
  EXPECT_EQ(*status, "{\"round\":7}") << "what else comes on the link is passed over";
  EXPECT_THAT(heard_->dialled, ElementsAre("head:29400"));
}

TEST_F(AskCoordinator, ReportsAtOnceThatNobodyAnswers) {
  const auto status = query_status(coordinator(nullptr), "head:29400", seconds(60));
  EXPECT_EQ(status.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.status().message(), HasSubstr("no coordinator answers: nobody listens at head:29400"));
}

TEST_F(AskCoordinator, EndsAtTheLimitWithoutAnAnswer) {
  const auto status = query_status(coordinator([](const wire::Message&) { return std::vector<wire::Message>(); }),
                                   "head:1", seconds(0));
  EXPECT_EQ(status.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(status.status().message(), HasSubstr("no coordinator answered at head:1 within 0 s"));
}

TEST_F(AskCoordinator, ReportsTheOutcomeOfForget) {
  const auto forget = [&](std::string event) {
    return tell_forget(coordinator([event](const wire::Message&) -> std::vector<wire::Message> {
                         return {wire::Notice{event, "tokyo is not missed here"}};
                       }),
                       "head:1", {"tokyo"}, seconds(60));
  };
  EXPECT_EQ(*forget("forget"), "tokyo is not missed here");
  EXPECT_EQ(forget("refused").status().code(), StatusCode::kRefused);
  EXPECT_THAT(heard_->all<wire::Forget>().at(0).sites, ElementsAre("tokyo"));
}

}  // namespace
}  // namespace collab
