// The bytes of optimizer states: of states that are served, and of states that are fetched.
#include "core/runtime/data/optimizer_transfer.h"

#include <gmock/gmock.h>

#include "core/base/digest.h"
#include "core/wire/encoding.h"
#include "tests/unit/runtime/noting_transport.h"

namespace collab {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::NotingTransport;
using ::testing::SizeIs;

constexpr LinkId kLate{5};

class OptimizerTransferTest : public ::testing::Test {
 protected:
  OptimizerTransferTest() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i);
    transfer_.serve({});
  }
  void ask(std::uint64_t snapshot = 0, ElementRange range = {}) { transfer_.asked({kLate, "late", {snapshot, range}}); }
  void give() { transfer_.given(OptimizerCopy{"{}", bytes_, owner_}); }
  wire::OptimizerState told() { return transport_.take<wire::OptimizerState>(); }
  // The bytes of a range, as a chunk of kind 6.
  protocol::OptimizerPart arrives(ElementRange range, std::uint64_t hash) {
    const BufferPtr payload = make_buffer_pool()->take(range.size());
    std::ranges::copy(std::span(bytes_).subspan(range.begin, range.size()), payload->bytes().begin());
    wire::Chunk chunk;
    chunk.kind = wire::ChunkKind::kOptimizer;
    chunk.round = RoundId(3);
    chunk.range = range;
    chunk.payload_hash = hash == 0 ? hash64(payload->view()) : hash;
    return transfer_.arrived(kLate, chunk, payload);
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(1000);
  std::shared_ptr<int> owner_ = std::make_shared<int>(0);  // of the copy's memory
  ManualClock clock_;
  NotingTransport transport_;
  OptimizerTransfer transfer_{transport_, clock_, seconds(60), "training has not begun"};
};

TEST_F(OptimizerTransferTest, ACopyIsMadeOnRequestAndItsPartsAreSent) {
  EXPECT_FALSE(transfer_.wanted());
  ask();
  EXPECT_TRUE(transfer_.wanted());
  give();
  EXPECT_FALSE(transfer_.wanted());
  const wire::OptimizerState copy = told();
  EXPECT_EQ(copy.bytes, 1000U);
  EXPECT_EQ(copy.digest, hash128(bytes_));
  ask(copy.snapshot, {100, 300});
  const TransportMessage part = transport_.take();
  EXPECT_EQ(part.payload->view().data(), bytes_.data() + 100) << "nothing is copied once more";
  const auto chunk = std::get<wire::Chunk>(*wire::decode(part.head));
  EXPECT_EQ(chunk.range, (ElementRange{100, 300}));
  EXPECT_EQ(chunk.payload_hash, hash64(std::span(bytes_).subspan(100, 200)));
  EXPECT_EQ(transfer_.bytes_sent(), part.head.size() + 200);
}

TEST_F(OptimizerTransferTest, SentPartsMakeRoomForMore) {
  ask();
  give();
  const std::uint64_t snapshot = told().snapshot;
  for (int i = 0; i < 64; ++i) ask(snapshot, {0, 1});
  for (const std::uint64_t token : transport_.tokens()) transfer_.sent(token);
  transfer_.sent(4711);  // the data plane's
  ask(snapshot, {0, 1});
  EXPECT_THAT(transport_.closed, IsEmpty());
  for (int i = 0; i < 64; ++i) ask(snapshot, {0, 1});
  EXPECT_THAT(transport_.closed, ::testing::ElementsAre(kLate)) << "and no more than that is on its way";
}

TEST_F(OptimizerTransferTest, SaysAtOnceWhyThereIsNothingToServe) {
  transfer_.serve("join_optimizer is off");
  ask();
  EXPECT_FALSE(transfer_.wanted());
  EXPECT_EQ(told().reason, "join_optimizer is off");
  transfer_.serve({});
  transfer_.asked({kLate, "late", {}}, "its budget is half spent");
  EXPECT_EQ(told().reason, "its budget is half spent");
}

TEST_F(OptimizerTransferTest, AWaitingSiteIsToldWhyThereIsNoState) {
  ask();
  transfer_.given(OptimizerCopy{"{}", {}, nullptr});
  EXPECT_EQ(told().reason, "its optimizer keeps no state");
  ask();
  transfer_.serve("training is over");
  EXPECT_EQ(told().reason, "training is over");
  EXPECT_FALSE(transfer_.wanted());
}

TEST_F(OptimizerTransferTest, ACopyThatNobodyTakesIsDropped) {
  ask();
  give();
  const std::uint64_t snapshot = told().snapshot;
  transfer_.link_closed(kLate);
  ask(snapshot, {0, 10});
  EXPECT_THAT(told().reason, HasSubstr("no longer held"));
  EXPECT_EQ(transfer_.next_deadline(), kNever);
}

// The transport holds on to it until it is acknowledged, and it to all of the copy.
TEST_F(OptimizerTransferTest, NoOtherCopyIsWantedWhileAPartOfTheLastIsInFlight) {
  ask();
  give();
  const std::uint64_t snapshot = told().snapshot;
  ask(snapshot, {0, 1});
  const std::uint64_t token = transport_.tokens().back();
  std::optional<TransportMessage> part = transport_.take();
  ask(snapshot);  // given back
  EXPECT_EQ(owner_.use_count(), 2) << "the part holds it";
  clock_.advance(seconds(10));
  ask();
  transfer_.tick();
  EXPECT_FALSE(transfer_.wanted());
  part.reset();
  transfer_.sent(token);
  EXPECT_EQ(owner_.use_count(), 1);
  EXPECT_TRUE(transfer_.wanted());
}

TEST_F(OptimizerTransferTest, PartsInFlightEndWithTheirLink) {
  ask();
  give();
  ask(told().snapshot, {0, 1});
  const std::uint64_t token = transport_.tokens().back();
  transport_.sent.clear();
  transfer_.link_closed(kLate);
  clock_.advance(seconds(10));
  ask();
  EXPECT_TRUE(transfer_.wanted());
  give();
  const std::uint64_t snapshot = told().snapshot;
  for (int i = 0; i < 64; ++i) ask(snapshot, {0, 1});
  transfer_.sent(token);
  ask(snapshot, {0, 1});
  EXPECT_THAT(transport_.closed, ::testing::ElementsAre(kLate)) << "the old token makes no room";
}

TEST_F(OptimizerTransferTest, PartsAddUpToTheWholeAndTheTimeIsReported) {
  transfer_.begin_search();
  transfer_.offered({"paris", {3, 1000, hash128(bytes_), "{}", {}}});
  transfer_.begin_taking();
  for (const ElementRange range : {ElementRange{600, 1000}, ElementRange{0, 600}}) {
    EXPECT_FALSE(arrives(range, 0).damaged);
    transfer_.take_part({range});
  }
  const Result<BufferPtr> whole = transfer_.complete();
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_TRUE(std::ranges::equal((*whole)->view(), bytes_));
  clock_.advance(std::chrono::milliseconds(1500));
  EXPECT_THAT(transfer_.ended({}).text, HasSubstr("fetched from paris: 1.0 kB in 1.5 s"));
}

TEST_F(OptimizerTransferTest, DamagedBytesAreSeenInThePartAndInTheWhole) {
  EXPECT_TRUE(arrives({0, 600}, 4711).damaged);
  transfer_.offered({"paris", {3, 1000, Digest{1, 2}, "{}", {}}});
  transfer_.begin_taking();
  static_cast<void>(arrives({0, 1000}, 0));
  transfer_.take_part({{0, 1000}});
  EXPECT_EQ(transfer_.complete().status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(transfer_.ended("paris sent other bytes").text, HasSubstr("starts cold: paris sent other bytes"));
}

}  // namespace
}  // namespace collab
