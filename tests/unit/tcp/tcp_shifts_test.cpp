// Which data connections of a link work while others rest.
#include <gmock/gmock.h>

#include "transport/tcp/link/rotation.h"

namespace collab::tcp {
namespace {

using ::testing::ElementsAre;

class Nobody final : public ConnectionOwner {
  Result<std::optional<std::span<std::byte>>> on_segment_begin(Connection&, const SegmentHeader&) override {
    return std::optional<std::span<std::byte>>();
  }
  Status on_segment_end(Connection&, const SegmentHeader&, bool) override { return {}; }
  Status on_frame(Connection&, FrameType, std::span<const std::byte>) override { return {}; }
  void on_reading_paused(Connection&) override {}
  bool admit_read(Connection&, std::size_t) override { return true; }
  void on_send_queue_empty(Connection&) override {}
  void on_segment_written(Connection&, Lane, std::uint64_t) override {}
  void failed(const ConnectionPtr&, Fault, const Status&) override {}
};

// A link with a control connection and six for data; nothing is ever sent.
class TcpShifts : public ::testing::Test {
 protected:
  TcpShifts() {
    connections_.grow(7);
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      const auto connection = std::make_shared<Connection>(context_, i + 1);
      connection->attached(now_);
      connection->slot.belong_to(LinkId{1}, static_cast<std::uint16_t>(i));
      connections_.put(i, connection);
      rotation_.attached(*connection, "bbr");
    }
  }
  void pass_a_shift() {
    now_ += std::chrono::seconds(6);
    rotation_.tick(now_, connections_);
  }
  [[nodiscard]] std::vector<std::uint16_t> at_work() const {
    std::vector<std::uint16_t> indices;
    for (const Connection* each : rotation_.at_work(connections_, 64)) indices.push_back(each->slot.index());
    return indices;
  }

  boost::asio::io_context io_;
  Nobody nobody_;
  ConnectionContext context_{io_, nobody_, nullptr, {"bbr", Duration(0)}, {}, {}};
  TimePoint now_{std::chrono::seconds(1)};
  LinkConnections connections_;
  Rotation rotation_;
};

TEST_F(TcpShifts, AThirdOfTheConnectionsWorksAtATimeInTurn) {
  EXPECT_THAT(at_work(), ElementsAre(3, 6));
  pass_a_shift();
  EXPECT_THAT(at_work(), ElementsAre(1, 4));
  pass_a_shift();
  EXPECT_THAT(at_work(), ElementsAre(2, 5));
}

TEST_F(TcpShifts, AShiftLasts) {
  pass_a_shift();
  now_ += std::chrono::seconds(5);
  rotation_.tick(now_, connections_);
  EXPECT_THAT(at_work(), ElementsAre(1, 4));
}

TEST_F(TcpShifts, AllConnectionsWorkIfNoneNeedsARest) {
  for (std::size_t i = 0; i < connections_.size(); ++i) rotation_.attached(*connections_.at(i), "cubic");
  EXPECT_THAT(at_work(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(TcpShifts, AllConnectionsWorkIfNoneOnShiftIsAvailable) {
  connections_.at(3)->slot.hold();
  connections_.take(6);
  EXPECT_THAT(at_work(), ElementsAre(1, 2, 4, 5));
}

}  // namespace
}  // namespace collab::tcp
