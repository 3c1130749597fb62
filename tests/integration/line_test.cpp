// The line between two doctors, over sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "collab/session.h"
#include "core/runtime/line_probe.h"
#include "transport/tcp/tcp_transport.h"

namespace collab {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<Transport> tcp() {
  Result<std::unique_ptr<Transport>> made = make_tcp_transport({.connections = 2, .advertise_host = "127.0.0.1"});
  COLLAB_CHECK(made.ok(), made.status().to_string());
  return std::move(*made);
}

std::unique_ptr<LineAnswerer> answerer() {
  Result<std::unique_ptr<LineAnswerer>> made = answer_line(tcp(), "127.0.0.1:0");
  COLLAB_CHECK(made.ok(), made.status().to_string());
  return std::move(*made);
}

TEST(Line, IsMeasuredBothWaysAndTheOtherDialsBack) {
  const auto there = answerer();
  for (int times = 0; times < 2; ++times) {
    const auto figures = measure_line(tcp(), there->address(), milliseconds(400), "127.0.0.1:0");
    ASSERT_TRUE(figures.ok()) << figures.status().to_string();
    EXPECT_GT(figures->round_trip_ms, 0);
    EXPECT_GT(figures->mbit_up, 1);
    EXPECT_GT(figures->mbit_down, 1);
    EXPECT_THAT(figures->own_address, StartsWith("127.0.0.1:"));
    EXPECT_EQ(figures->not_dialled, "");
  }
}

TEST(Line, APeerThatDoesNotListenIsNotDialled) {
  const auto there = answerer();
  const auto figures = measure_line(tcp(), there->address(), milliseconds(100), "");
  ASSERT_TRUE(figures.ok()) << figures.status().to_string();
  EXPECT_EQ(figures->own_address, "");
}

TEST(Line, APortThatAnotherProcessHoldsIsDialledBackToo) {
  const auto there = answerer();
  const auto other = answerer();
  const auto figures = measure_line(tcp(), there->address(), milliseconds(100), other->address());
  ASSERT_TRUE(figures.ok()) << figures.status().to_string();
  EXPECT_EQ(figures->own_address, other->address());
  EXPECT_EQ(figures->not_dialled, "");
}

TEST(Line, AnotherProgramAtTheAddressIsReported) {
  Result<std::unique_ptr<CoordinatorServer>> there = serve_coordinator({}, tcp(), "127.0.0.1:0");
  ASSERT_TRUE(there.ok()) << there.status().to_string();
  const auto figures = measure_line(tcp(), (*there)->address(), milliseconds(100), "");
  EXPECT_THAT(figures.status().message(), HasSubstr("[cli.line-"));
}

// Dials, and is answered once.
class Asker final : public TransportHandler {
 public:
  explicit Asker(const std::string& address) {
    COLLAB_CHECK(transport_->start(this).ok(), "it starts");
    (void)transport_->connect(address, std::chrono::seconds(10));
    answered_.get_future().wait();
  }
  ~Asker() override { transport_.reset(); }
  void on_accepted(LinkId, const std::string&) override {}
  void on_connected(LinkId link) override {
    transport_->send(link, {.lane = Lane::kControl, .head = encode_line({}), .payload = nullptr}, 0);
  }
  void on_message(LinkId, TransportMessage) override { answered_.set_value(); }
  void on_sent(LinkId, std::uint64_t) override {}
  void on_closed(LinkId, Status) override {}

 private:
  std::promise<void> answered_;
  std::unique_ptr<Transport> transport_ = tcp();
};

TEST(Line, AnswersOneMachineAtATime) {
  const auto there = answerer();
  const Asker first(there->address());
  const auto figures = measure_line(tcp(), there->address(), milliseconds(100), "");
  EXPECT_THAT(figures.status().message(), HasSubstr("it is measuring for another machine"));
}

}  // namespace
}  // namespace collab
