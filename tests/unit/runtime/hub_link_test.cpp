// A rank's way into the hub and out of it. What it does there with others: tests/integration/hub_test.cpp.
#include "core/runtime/hub_link.h"

#include <gmock/gmock.h>

#include "tests/unit/runtime/answering_transport.h"

namespace collab {
namespace {

using testing::AnsweringTransport;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class HubLinkAlone : public ::testing::Test {
 protected:
  HubLinkAlone() {
    options_.world = 7;
    options_.sites = {"paris", "rome"};
    options_.site_of = {0, 1};
    options_.rank = 1;
    options_.hubs = {"first:1"};
  }
  Result<std::unique_ptr<HubLink>> enter(AnsweringTransport::Answer answer) {
    return HubLink::enter(options_, std::make_unique<AnsweringTransport>(heard_, std::move(answer)));
  }
  static std::vector<wire::Message> let_in(const wire::Message& said) {
    if (std::holds_alternative<wire::Enter>(said)) return {wire::Entered{}};
    return {};
  }

  HubLink::Options options_;
  std::shared_ptr<AnsweringTransport::Heard> heard_ = std::make_shared<AnsweringTransport::Heard>();
};

TEST_F(HubLinkAlone, IdentifiesItselfAndIsAdmitted) {
  const auto link = enter(let_in);
  ASSERT_TRUE(link.ok()) << link.status().to_string();
  EXPECT_EQ((*link)->ranks(), 2U);
  const auto said = heard_->all<wire::Enter>();
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].rank, RankId(1));
  EXPECT_EQ(said[0].world, 7U);
  EXPECT_THAT(heard_->dialled, Each("first:1"));
}

TEST_F(HubLinkAlone, ARefusalEndsTheWaitWithTheHubsReason) {
  const auto link = enter([](const wire::Message&) -> std::vector<wire::Message> {
    return {wire::Refuse{"rank 1 is gone from this world"}};
  });
  EXPECT_THAT(link.status().message(), HasSubstr("rank 1 is gone from this world"));
}

TEST_F(HubLinkAlone, NothingIsDialledWithoutAHubOrWithAnInvalidWorld) {
  options_.site_of = {0, 5};
  EXPECT_FALSE(enter(let_in).ok()) << "there is no site 5";
  options_.hubs.clear();
  EXPECT_THAT(enter(let_in).status().message(), HasSubstr("need the address of a coordinator"));
  EXPECT_TRUE(heard_->dialled.empty());
}

TEST_F(HubLinkAlone, ItLeavesInGoodOrderAndOnce) {
  const auto link = enter(let_in);
  ASSERT_TRUE(link.ok());
  (*link)->leave("the end");
  (*link)->leave("again");
  const auto said = heard_->all<wire::Leave>();
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_EQ(said[0].reason, "the end");
  EXPECT_THAT((*link)->exchange({}).status.message(), HasSubstr("left"));
}

}  // namespace
}  // namespace collab
