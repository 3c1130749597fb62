// What a hub's ranks make their links hold once the hub is done with it.
#include "core/runtime/hub_outgoing.h"

#include <gmock/gmock.h>

#include <vector>

namespace collab {
namespace {

using ::testing::Optional;

constexpr std::size_t kPart = std::size_t{16} << 20;
constexpr auto kNoneLeft = [](LinkId) { return false; };

class HubOutgoingTest : public ::testing::Test {
 protected:
  BufferPtr bring(std::size_t bytes = kPart) { return HubOutgoing::held(pool_->take(bytes)); }
  std::uint64_t send(LinkId link, const BufferPtr& part, std::size_t bytes = kPart) {
    protocol::Payload payload{part, 0, bytes};
    return out_.sends(link, 40, payload);
  }
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  HubOutgoing out_;
};

TEST_F(HubOutgoingTest, MessagesTheHubHoldsAreNotCountedTwice) {
  std::vector<BufferPtr> held;
  for (int i = 0; i < 64; ++i) {
    held.push_back(bring());
    send(LinkId{1}, held.back());
  }
  EXPECT_EQ(out_.too_much(kNoneLeft), std::nullopt) << "1 GiB on its way to the root of four gathers";
  held.resize(8);
  send(LinkId{1}, held.back());
  EXPECT_THAT(out_.too_much(kNoneLeft), Optional(LinkId{1}));
}

TEST_F(HubOutgoingTest, SendsTheReceivedBufferItself) {
  const BufferPtr arrived = pool_->take(100);
  protocol::Payload payload{HubOutgoing::held(arrived), 0, 100};
  static_cast<void>(out_.sends(LinkId{1}, 40, payload));
  EXPECT_EQ(payload.buffer, arrived);
}

TEST_F(HubOutgoingTest, TakenMessagesAndThoseOfClosedLinksDoNotCount) {
  for (int i = 0; i < 64; ++i) out_.taken(LinkId{1}, send(LinkId{1}, bring()));
  EXPECT_EQ(out_.too_much(kNoneLeft), std::nullopt);
  for (int i = 0; i < 9; ++i) send(LinkId{1}, bring());
  out_.closed(LinkId{1});
  send(LinkId{2}, bring());
  EXPECT_EQ(out_.too_much(kNoneLeft), std::nullopt);
}

TEST_F(HubOutgoingTest, AMegabyteInSlicesOfAllIsOneMegabyte) {
  const std::size_t slice = std::size_t{128} << 10;
  for (std::uint64_t step = 0; step < 8; ++step) {
    const BufferPtr part = bring();
    for (std::uint64_t link = 1; link <= 128; ++link) send(LinkId{link}, part, slice);
  }
  EXPECT_EQ(out_.too_much(kNoneLeft), std::nullopt) << "128 MiB, though each of 128 links keeps all of them";
}

// Answers to a rank that asks for what is over.
TEST_F(HubOutgoingTest, AnswersToALinkThatDoesNotReadCount) {
  protocol::Payload none;
  for (int i = 0; i < 60'000; ++i) static_cast<void>(out_.sends(LinkId{1}, 1500, none));
  EXPECT_EQ(out_.too_much(kNoneLeft), std::nullopt);
  for (int i = 0; i < 60'000; ++i) static_cast<void>(out_.sends(LinkId{1}, 1500, none));
  EXPECT_THAT(out_.too_much(kNoneLeft), Optional(LinkId{1}));
}

// One byte of a part keeps all of it.
TEST_F(HubOutgoingTest, ClosesTheLinkWithTheMostUnreadWhenThereIsTooMuch) {
  for (std::uint64_t link = 1; link <= 30; ++link) send(LinkId{link}, bring(), 1);
  send(LinkId{32}, bring());
  EXPECT_EQ(out_.too_much(kNoneLeft), std::nullopt);
  for (int i = 0; i < 2; ++i) send(LinkId{7}, bring(), kPart / 2);
  EXPECT_THAT(out_.too_much(kNoneLeft), Optional(LinkId{7}));
  const auto seven = [](LinkId link) { return link == LinkId{7}; };
  EXPECT_EQ(out_.too_much(seven), std::nullopt) << "it goes already, and no other has more than its share";
}

}  // namespace
}  // namespace collab
