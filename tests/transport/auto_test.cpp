// The transport that chooses for each link: the suite by ucx, beside peers with tcp alone, and where ucx gets nowhere.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "core/base/address.h"
#include "tests/transport/conformance.h"
#include "tests/transport/tcp_world.h"
#include "transport/auto/auto_transport.h"
#include "transport/auto/link_choice.h"
#ifdef COLLAB_HAS_UCX
#include "transport/ucx/ucx_transport.h"
#endif

namespace collab::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Another transport in the place of ucx. With `elsewhere` it says that it listens there, where nobody answers.
class StandIn final : public Transport {
 public:
  explicit StandIn(std::unique_ptr<Transport> inner, std::string elsewhere = {})
      : inner_(std::move(inner)), elsewhere_(std::move(elsewhere)) {}
  [[nodiscard]] std::string name() const override { return "ucx"; }
  [[nodiscard]] Abilities abilities() const override { return {.between_hosts = true, .sees_peer_death = true}; }
  Status start(TransportHandler* handler) override { return inner_->start(handler); }
  Result<std::string> listen(const std::string& address) override {
    return elsewhere_.empty() ? inner_->listen(address) : elsewhere_;
  }
  LinkId connect(const std::string& address, Duration timeout) override { return inner_->connect(address, timeout); }
  void send(LinkId link, TransportMessage message, std::uint64_t token) override {
    inner_->send(link, std::move(message), token);
  }
  void close(LinkId link) override { inner_->close(link); }

 private:
  std::unique_ptr<Transport> inner_;
  const std::string elsewhere_;
};

// Where the build has none, as under ThreadSanitizer, a second tcp plays its part.
std::unique_ptr<Transport> make_ucx() {
#ifdef COLLAB_HAS_UCX
  return std::move(*make_ucx_transport({}));
#else
  return std::make_unique<StandIn>(make_tcp({}));
#endif
}
std::unique_ptr<Transport> make_auto(const AutoOptions& options = {}) {
  return std::move(*make_auto_transport(make_tcp({}), make_ucx(), options));
}
// What it says of ucx leads to `elsewhere`.
std::unique_ptr<Transport> make_misleading(const std::string& elsewhere) {
  return std::move(*make_auto_transport(make_tcp({}), {std::make_unique<StandIn>(make_ucx(), elsewhere)}));
}

enum class Kind { kAuto, kMixed, kUcxIsDead };

class AutoWorld final : public World {
 public:
  explicit AutoWorld(Kind kind) : kind_(kind) { nobody_ = unused_.bind_free_port(false); }
  std::unique_ptr<Transport> make(const std::string&) override {
    if (kind_ == Kind::kUcxIsDead) return make_misleading(nobody_);
    const bool tcp_alone = kind_ == Kind::kMixed && ++made_ % 2 == 0;
    return tcp_alone ? make_tcp({}) : make_auto();
  }
  [[nodiscard]] std::string any_port(const std::string&) const override { return "127.0.0.1:0"; }
  [[nodiscard]] std::string nobody() const override { return nobody_; }
  std::optional<std::string> silent() override { return silent_.bind_free_port(true); }

 private:
  const Kind kind_;
  std::size_t made_ = 0;
  PlainSocket unused_;  // bound, not listening
  PlainSocket silent_;  // listening, accepting nobody
  std::string nobody_;
};

// This program again, as another process: see main().
pid_t spawn(const std::string& address) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "auto_test", "--role=peer", address.c_str(), nullptr);
    _exit(127);
  }
  return child;
}

Subject subject(const std::string& name, Kind kind) {
  return {name, [kind] { return std::make_unique<AutoWorld>(kind); }, true, 8, &spawn};
}

INSTANTIATE_TEST_SUITE_P(Auto, TransportConformance,
                         ::testing::Values(subject("by_ucx", Kind::kAuto), subject("beside_tcp", Kind::kMixed),
                                           subject("ucx_is_dead", Kind::kUcxIsDead)),
                         subject_name);

// A transport that listens, and what reaches it.
struct Listening : Peer {
  explicit Listening(std::unique_ptr<Transport> made) {
    transport = std::move(made);
    EXPECT_TRUE(transport->start(&seen).ok());
    address = *transport->listen("127.0.0.1:0");
  }
  LinkId dial(const std::string& to, milliseconds limit = seconds(20)) {
    const LinkId link = transport->connect(to, limit);
    const std::size_t before = seen.closed_count();
    EXPECT_TRUE(until([&] { return seen.connected(link) || seen.closed_count() > before; }));
    EXPECT_TRUE(seen.connected(link)) << seen.closed(link)->to_string();
    return link;
  }
  // By which kinds data has come here.
  [[nodiscard]] std::string used() const { return transport->name(); }
};

// Data both ways, so that each side knows by what it came.
void exchange(Listening& from, LinkId link, Listening& to) {
  const auto pool = make_buffer_pool();
  const std::size_t before = to.seen.messages(), answers = from.seen.messages();
  from.transport->send(link, make_message(*pool, Lane::kData, 1, 16, 1 << 20), 0);
  ASSERT_TRUE(until([&] { return to.seen.messages() == before + 1; }));
  to.transport->send(to.seen.received().back().link, make_message(*pool, Lane::kData, 1, 16, 1000), 0);
  ASSERT_TRUE(until([&] { return from.seen.messages() == answers + 1; }));
}

TEST(Auto, TheAddressNamesBothPorts) {
  Listening a(make_auto());
  EXPECT_TRUE(hint_of(a.address).starts_with("ucx")) << a.address;
  const auto plain = parse_host_port(plain_address(a.address));
  ASSERT_TRUE(plain.ok()) << a.address;
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(a.used(), "auto") << "nothing was carried yet";
}

TEST(Auto, ByUcxWhereBothHaveIt) {
  Listening a(make_auto()), b(make_auto());
  exchange(b, b.dial(a.address), a);
  EXPECT_EQ(a.used(), "ucx");
  EXPECT_EQ(b.used(), "ucx");
}

TEST(Auto, ByTcpWhereAPersonWroteTheAddress) {
  Listening a(make_auto()), b(make_auto());
  exchange(b, b.dial(std::string(plain_address(a.address))), a);
  EXPECT_EQ(a.used(), "tcp");
  EXPECT_EQ(b.used(), "tcp");
}

// A coordinator stands at the host of a site that ucx reaches, and has no port for ucx.
TEST(Auto, WhatALinkUsesIsSaidOfThoseThatCarryData) {
  constexpr std::string_view kNoPort = "uses tcp, not encrypted: its address names no port for ucx";
  const auto count = [](const std::string& text, std::string_view what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  const auto pool = make_buffer_pool();
  Listening coordinator(make_tcp({})), there(make_auto()), here(make_auto());
  ::testing::internal::CaptureStderr();
  const LinkId asks = here.dial(coordinator.address);
  here.transport->send(asks, make_message(*pool, Lane::kControl, 1, 16, 0), 0);
  ASSERT_TRUE(until([&] { return coordinator.seen.messages() == 1; }));
  exchange(here, here.dial(there.address), there);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, kNoPort), 0U) << said;
  EXPECT_EQ(count(said, "uses ucx, not encrypted"), 1U) << said;

  ::testing::internal::CaptureStderr();
  exchange(here, asks, coordinator);
  exchange(here, asks, coordinator);
  const std::string then = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(then, kNoPort), 1U) << then;
}

TEST(Auto, EachPeerByWhatItHas) {
  Listening hub(make_auto()), with(make_auto()), without(make_tcp({}));
  exchange(hub, hub.dial(without.address), without);
  EXPECT_EQ(hub.used(), "tcp");
  const LinkId by_ucx = hub.dial(with.address);
  exchange(hub, by_ucx, with);
  EXPECT_EQ(hub.used(), "tcp+ucx");
  exchange(without, without.dial(hub.address), hub);  // the other way, by the same address
  EXPECT_EQ(with.used(), "ucx");
  hub.transport->close(by_ucx);
  EXPECT_TRUE(until([&] { return hub.used() == "tcp"; }));
  EXPECT_TRUE(until([&] { return with.used() == "ucx" && with.seen.closed_count() == 1; })) << "as it was last";
}

TEST(Auto, WhatUcxDoesNotReachTcpDoes) {
  PlainSocket unused;
  Listening a(make_misleading(unused.bind_free_port(false))), b(make_auto());
  const LinkId link = b.transport->connect(a.address, seconds(20));
  const auto pool = make_buffer_pool();
  for (std::uint64_t i = 0; i < 20; ++i) {
    b.transport->send(link, make_message(*pool, Lane::kData, i, 16, 10'000), i + 1);
  }
  b.transport->close(link);
  ASSERT_TRUE(until([&] { return b.seen.closed(link).has_value(); }));
  EXPECT_TRUE(b.seen.closed(link)->ok()) << b.seen.closed(link)->to_string();
  ASSERT_EQ(a.seen.messages(), 20U) << "what was queued before it was clear how";
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(number_of(a.seen.received()[i].message), i);
  EXPECT_EQ(b.seen.sent(), 20U);
}

// A firewall that swallows what goes to ucx's port costs one wait for its host, not one for each link.
TEST(Auto, ASilentUcxIsAskedOnce) {
  PlainSocket silent;
  Listening a(make_misleading(silent.bind_free_port(true)));
  Listening b(make_auto({.ucx_patience = milliseconds(400)}));
  const auto timed = [&] {
    const auto begun = std::chrono::steady_clock::now();
    exchange(b, b.dial(a.address), a);
    return std::chrono::steady_clock::now() - begun;
  };
  EXPECT_GE(timed(), milliseconds(400));
  EXPECT_LT(timed(), milliseconds(350));
  EXPECT_EQ(b.used(), "tcp");
}

TEST(Auto, NobodyIsThereByEither) {
  Listening b(make_auto());
  PlainSocket unused;
  const std::string nobody = unused.bind_free_port(false);
  const LinkId link = b.transport->connect(nobody + "+ucx" + nobody.substr(nobody.rfind(':') + 1), seconds(5));
  ASSERT_TRUE(until([&] { return b.seen.closed(link).has_value(); }));
  EXPECT_EQ(b.seen.closed(link)->code(), StatusCode::kUnavailable);
  EXPECT_NE(b.seen.closed(link)->message().find(nobody), std::string::npos) << b.seen.closed(link)->to_string();
  EXPECT_EQ(b.seen.closed_count(), 1U);
}

TEST(Auto, HintsThatMakeNoSenseAreNone) {
  Listening a(make_auto()), b(make_auto());
  const std::string plain(plain_address(a.address));
  for (const char* hint : {"+", "+ucx", "+ucx0", "+ucx99999", "+ucxten", "+pigeon7"}) b.dial(plain + hint);
  EXPECT_EQ(a.seen.accepted().size(), 6U);
}

// The two kinds have threads of their own; the recorder fails the test when calls from both overlap.
TEST(Auto, HandlersAreCalledOneAtATime) {
  Listening hub(make_auto()), with(make_auto()), without(make_tcp({}));
  const auto pool = make_buffer_pool();
  constexpr std::uint64_t kCount = 2000;
  const LinkId fast = with.dial(hub.address), plain = without.dial(hub.address);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    with.transport->send(fast, make_message(*pool, Lane::kData, i, 16, 100), 0);
    without.transport->send(plain, make_message(*pool, Lane::kData, i, 16, 100), 0);
  }
  EXPECT_TRUE(until([&] { return hub.seen.messages() == 2 * kCount; }));
  EXPECT_EQ(hub.used(), "tcp+ucx");
}

TEST(Auto, AForkedChildLeavesTheParentsLinksAlone) {
  auto a = std::make_unique<Listening>(make_auto());
  auto b = std::make_unique<Listening>(make_auto());
  const LinkId link = b->dial(a->address);
  exchange(*b, link, *a);
  const pid_t child = fork();
  if (child == 0) {
    b->transport->send(link, {}, 0);
    b->transport->close(link);
    const bool refused = !b->transport->listen("127.0.0.1:0").ok();
    b->transport.reset();
    a->transport.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  exchange(*b, link, *a);
  EXPECT_EQ(b->seen.closed_count(), 0U);
}

TEST(Auto, WithAKeyOrWithoutUcxItIsTcpAlone) {
  EXPECT_EQ(make_auto_transport(make_tcp(by_token()), make_ucx()).status().code(), StatusCode::kInvalidArgument);
  const auto without = make_auto_transport(make_tcp({}), unavailable("no libucp.so"));
  ASSERT_TRUE(without.ok());
  EXPECT_EQ((*without)->name(), "tcp");
  EXPECT_TRUE((*without)->abilities().resumes);
  const Abilities both = make_auto()->abilities();
  EXPECT_TRUE(!both.resumes && both.crosses_nat && !both.encrypts && both.between_hosts && both.sees_peer_death);
}

// ---- what is chosen from what is given -----------------------------------------------------------

LinkChoice chosen(Config config, Status ucx = {}) {
  const auto choice = choose_links(config, [&] { return ucx; });
  EXPECT_TRUE(choice.ok()) << choice.status().to_string();
  return choice.ok() ? *choice : LinkChoice();
}

TEST(LinkChoice, AutoIsTcpWithAKeyAndBothWithout) {
  Config config;
  EXPECT_EQ(chosen(config).kind, "auto");
  EXPECT_NE(to_string(chosen(config)).find("not encrypted, for no key is given"), std::string::npos);
  const LinkChoice alone = chosen(config, unavailable("no libucp.so"));
  EXPECT_EQ(alone.kind, "tcp");
  EXPECT_NE(alone.reason.find("no libucp.so"), std::string::npos) << alone.reason;
  config.token = "secret";
  EXPECT_EQ(to_string(chosen(config)),
            "links between sites use tcp: COLLAB_TOKEN is given, and of the transports only tcp encrypts");
}

TEST(LinkChoice, AKeyIsNotDroppedSilently) {
  Config config;
  config.transport = "ucx";
  EXPECT_EQ(chosen(config).reason, "COLLAB_TRANSPORT=ucx, not encrypted");
  config.tls_cert = "/cert.pem";
  const auto refused = choose_links(config, [] { return Status(); });
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("COLLAB_TLS_CERT is given"), std::string::npos);
  config.insecure = true;
  EXPECT_TRUE(chosen(config).key_unused);
}

TEST(LinkChoice, APartOfACertificateIsNoReasonToSpeakInTheClear) {
  for (std::string Config::*part : {&Config::tls_cert, &Config::tls_key, &Config::tls_ca}) {
    Config config;
    config.*part = "/a.pem";
    EXPECT_EQ(chosen(config).kind, "tcp") << "which says what is missing";
    config.transport = "ucx";
    EXPECT_FALSE(choose_links(config, [] { return Status(); }).ok());
  }
}

// A peer that sends without end until it is killed.
int run_peer(const std::string& address) {
  auto made = make_auto();
  Recorder seen;
  const auto payload = make_message(*make_buffer_pool(), Lane::kData, 0, 0, 1 << 20).payload;
  const auto send_one = [&](LinkId link) { made->send(link, {Lane::kData, std::vector<std::byte>(16), payload}, 1); };
  seen.when_connected = [&](LinkId link) {
    for (int i = 0; i < 8; ++i) send_one(link);
  };
  seen.when_sent = [&](LinkId link, std::uint64_t) { send_one(link); };
  if (!made->start(&seen).ok()) return 2;
  made->connect(address, seconds(10));
  alarm(60);
  pause();
  return 3;
}

}  // namespace
}  // namespace collab::testing

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--role=peer") return collab::testing::run_peer(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
