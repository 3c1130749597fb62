// The gloo transport over a group of threads, held to the suite of all transports. Sessions over torch's own Gloo are
// in tests/python.
#include "transport/gloo/gloo_transport.h"

#include "tests/torch/threads_group.h"
#include "tests/transport/conformance.h"

namespace collab::testing {
namespace {

constexpr int kRanks = 12;
constexpr int kNobody = 1;  // has a transport that does not listen
constexpr int kSilent = 2;  // has none

class GlooWorld final : public World {
 public:
  GlooWorld() : deaf_(transport(kNobody)) { EXPECT_TRUE(deaf_->start(&unheard_).ok()); }

  std::unique_ptr<Transport> make(const std::string&) override { return transport(next_++); }
  [[nodiscard]] std::string any_port(const std::string& host) const override { return host + ":0"; }
  [[nodiscard]] std::string nobody() const override { return "gloo:" + std::to_string(kNobody); }
  [[nodiscard]] std::optional<std::string> silent() override { return "gloo:" + std::to_string(kSilent); }

 private:
  std::unique_ptr<Transport> transport(int rank) {
    GlooOptions options;
    options.backend = c10::make_intrusive<ThreadsGroup>(board_, rank, kRanks);
    auto made = make_gloo_transport(options);
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }

  const std::shared_ptr<Board> board_ = std::make_shared<Board>(kRanks);
  int next_ = 3;
  Recorder unheard_;
  std::unique_ptr<Transport> deaf_;
};

INSTANTIATE_TEST_SUITE_P(Gloo, TransportConformance,
                         ::testing::Values(Subject{.name = "gloo",
                                                   .make_world = [] { return std::make_unique<GlooWorld>(); },
                                                   .many_peers = 6}),
                         subject_name);

TEST(GlooTransport, NeedsAGroup) {
  const auto made = make_gloo_transport({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
}

// Leaders also talk to the coordinator in their own process.
TEST(GlooTransport, LinksAProcessToItself) {
  auto board = std::make_shared<Board>(2);
  Recorder seen;
  auto transport = make_gloo_transport({c10::make_intrusive<ThreadsGroup>(board, 0, 2), nullptr}).value();
  std::mutex mutex;
  std::condition_variable changed;
  bool answered = false;
  LinkId dialled;
  auto pool = make_buffer_pool();
  seen.when_message = [&](LinkId link, const TransportMessage& message) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(follows_pattern(message));
    if (link == dialled) {
      answered = true;
      changed.notify_all();
    } else {
      transport->send(link, make_message(*pool, Lane::kControl, 2, 16, 100), 0);
    }
  };
  ASSERT_TRUE(transport->start(&seen).ok());
  ASSERT_EQ(transport->listen("0.0.0.0:0").value(), "gloo:0");
  {
    const std::lock_guard lock(mutex);
    dialled = transport->connect("gloo:0", std::chrono::seconds(5));
    transport->send(dialled, make_message(*pool, Lane::kData, 1, 16, 100'000), 1);
  }
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return answered; }));
  lock.unlock();
  transport.reset();
}

// A rank whose process has gone takes its links with it, and later dials fail at once.
TEST(GlooTransport, ABrokenConnectionClosesTheLinks) {
  auto board = std::make_shared<Board>(2);
  Recorder here, there;
  auto a = make_gloo_transport({c10::make_intrusive<ThreadsGroup>(board, 0, 2), nullptr}).value();
  auto b = make_gloo_transport({c10::make_intrusive<ThreadsGroup>(board, 1, 2), nullptr}).value();
  std::mutex mutex;
  std::condition_variable changed;
  there.when_accepted = [&](LinkId) { changed.notify_all(); };
  ASSERT_TRUE(a->start(&here).ok());
  ASSERT_TRUE(b->start(&there).ok());
  ASSERT_TRUE(b->listen("gloo:1").ok());
  const LinkId link = a->connect("gloo:1", std::chrono::seconds(5));
  const auto until = [&](const auto& holds) {
    std::unique_lock lock(mutex);
    for (int i = 0; i < 1000 && !holds(); ++i) changed.wait_for(lock, std::chrono::milliseconds(10));
    return holds();
  };
  ASSERT_TRUE(until([&] { return here.connected(link); }));
  board->kill(1);
  ASSERT_TRUE(until([&] { return here.closed(link).has_value(); }));
  EXPECT_NE(here.closed(link)->message().find("rank 1"), std::string::npos);
  const LinkId again = a->connect("gloo:1", std::chrono::seconds(5));
  ASSERT_TRUE(until([&] { return here.closed(again).has_value(); }));
  EXPECT_EQ(here.closed(again)->code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace collab::testing
