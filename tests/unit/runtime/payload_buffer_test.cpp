// What a transport gets of a hub's messages.
#include "core/runtime/data/payload_buffer.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

TEST(PayloadBuffer, APartSharesTheBufferAndKeepsIt) {
  BufferPtr all = make_buffer_pool()->take(100);
  all->bytes()[40] = std::byte{7};
  const BufferPtr part = as_buffer({all, 40, 10});
  EXPECT_EQ(part->bytes().data(), all->bytes().data() + 40) << "nothing is copied";
  EXPECT_EQ(part->view().size(), 10U);
  all.reset();
  EXPECT_EQ(part->view()[0], std::byte{7});
}

TEST(PayloadBuffer, TheWholeIsTheBufferItselfAndNothingIsNone) {
  const BufferPtr all = make_buffer_pool()->take(100);
  EXPECT_EQ(as_buffer({all, 0, 100}), all);
  EXPECT_EQ(as_buffer({all, 50, 0}), nullptr);
  EXPECT_EQ(as_buffer({}), nullptr);
}

TEST(PayloadBuffer, HeartbeatsOvertakeWhatIsContributed) {
  EXPECT_EQ(message_of({LinkId{1}, wire::Heartbeat{}, {}}).lane, Lane::kControl);
  EXPECT_EQ(message_of({LinkId{1}, wire::Stands{GroupId(2), 1}, {}}).lane, Lane::kData);
}

}  // namespace
}  // namespace collab
