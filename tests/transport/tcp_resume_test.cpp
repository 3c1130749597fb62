// The tcp transport behind a network that cuts, swallows and listens in; and in front of strangers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/transport/tcp_proxy.h"
#include "tests/transport/tcp_world.h"
#include "transport/tcp/tls/tcp_tls.h"
#include "transport/tcp/wire/tcp_wire.h"

namespace collab::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uint64_t kSegmentsOfChunk = 17;  // of 1 MiB with its head

TcpOptions lively(TcpOptions options = {}) {
  options.heartbeat = milliseconds(20);
  options.link_grace = seconds(30);
  return options;
}

std::vector<std::uint64_t> numbers(const Recorder& seen, Lane lane) {
  std::vector<std::uint64_t> found;
  for (const auto& entry : seen.received()) {
    if (entry.message.lane == lane) found.push_back(number_of(entry.message));
  }
  return found;
}
std::vector<std::uint64_t> first_numbers(std::uint64_t count) {
  std::vector<std::uint64_t> all(count);
  for (std::uint64_t i = 0; i < count; ++i) all[i] = i;
  return all;
}

struct Behind {
  TcpPair pair;
  std::unique_ptr<TcpProxy> proxy;
  explicit Behind(const TcpOptions& options) : pair(options) {
    proxy = std::make_unique<TcpProxy>(pair.a.address);
    pair.link(proxy->address());
  }
  void expect_all(std::uint64_t count) {
    ASSERT_TRUE(until([&] { return pair.a.seen.messages() == 2 * count; }, seconds(60))) << pair.a.seen.messages();
    EXPECT_EQ(numbers(pair.a.seen, Lane::kData), first_numbers(count));
    EXPECT_EQ(numbers(pair.a.seen, Lane::kControl), first_numbers(count));
    for (const auto& entry : pair.a.seen.received()) ASSERT_TRUE(follows_pattern(entry.message));
    EXPECT_TRUE(until([&] { return pair.b.seen.sent() == count; }));
    EXPECT_EQ(pair.a.seen.closed_count() + pair.b.seen.closed_count(), 0U);
  }
};

class TcpResume : public ::testing::TestWithParam<bool> {
 protected:
  static TcpOptions options() { return lively(GetParam() ? by_token() : TcpOptions()); }
};

TEST_P(TcpResume, ALinkSurvivesACutOfAllItsConnections) {
  TcpOptions choice = options();
  choice.connections = 3;
  Behind behind(choice);
  constexpr std::uint64_t kCount = 40;
  constexpr std::uint64_t kCuts = 5;
  behind.proxy->cut_every(6 * kMiB, kCuts);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    behind.pair.send(Lane::kData, i, kMiB, i + 1);
    behind.pair.send(Lane::kControl, i, 100);
  }
  behind.expect_all(kCount);
  EXPECT_EQ(behind.proxy->planned_cuts(), 0U);
  const TcpCounters b = tcp_counters(*behind.pair.b.transport);
  const TcpCounters a = tcp_counters(*behind.pair.a.transport);
  EXPECT_GE(b.links_resumed + a.links_resumed, 1U);
  EXPECT_GE(b.segments_sent_again, 1U);
  EXPECT_LE(b.segments_sent_again, kCuts * 3 * 2 * kSegmentsOfChunk) << "less than two chunks a stream and cut";
  EXPECT_LE(a.segments_came_twice, b.segments_sent_again / 2) << "most of what was sent again had not arrived";
}

// A name with two addresses; at the first nobody listens, as where a host has IPv6 and the listener has not.
TEST_P(TcpResume, AtTheAddressThatAnswers) {
  TcpOptions choice = options();
  choice.connections = 1;
  choice.look_up = [](const std::string&) { return std::vector<std::string>{"127.0.0.2", "127.0.0.1"}; };
  TcpPair pair(choice);
  TcpProxy proxy(pair.a.address);
  pair.link("two.example" + proxy.address().substr(proxy.address().rfind(':')));
  const std::size_t before = proxy.admitted();
  proxy.swallow(true);
  ASSERT_TRUE(until([&] { return proxy.admitted() >= before + 3; })) << "both redialled in vain, and the next redial";
  proxy.swallow(false);
  pair.check_it_works();
  EXPECT_EQ(pair.b.seen.closed_count(), 0U);
}

// Answers each who dials with the same bytes, and ends.
class Impostor {
 public:
  explicit Impostor(std::string answer) : answer_(std::move(answer)) {
    address = listener_.bind_free_port(true);
    thread_ = std::thread([this] {
      for (int made = 0; (made = ::accept(listener_.fd(), nullptr, nullptr)) >= 0; ::close(made)) {
        (void)!::send(made, answer_.data(), answer_.size(), MSG_NOSIGNAL);
        ++answered;
      }
    });
  }
  ~Impostor() {
    ::shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
  }
  std::string address;
  std::atomic<int> answered{0};

 private:
  PlainSocket listener_;
  std::string answer_;
  std::thread thread_;
};

std::string as_text(const tcp::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// An address may lead elsewhere for a moment (a captive portal, a router that forgot): who cannot prove to be the peer
// does not end a link.
TEST(TcpImpostor, DoesNotEndALinkInThePeersName) {
  const std::string alert("\x15\x03\x03\x00\x02\x02\x28", 7);
  const std::string refusal =
      as_text(tcp::encode_preface()) + as_text(tcp::encode(tcp::Refuse{tcp::Refusal::kUnknownLink, "not known"}));
  for (const std::string& answer : {std::string("HTTP/1.1 302 Found\r\n\r\n"), alert, refusal}) {
    TcpOptions options = lively(by_token());
    options.death_wait = seconds(10);
    Behind behind(options);
    Impostor impostor(answer);
    behind.proxy->lead_to(impostor.address);
    behind.proxy->cut();
    ASSERT_TRUE(until([&] { return impostor.answered >= 3 || behind.pair.b.seen.closed_count() > 0; }));
    EXPECT_EQ(behind.pair.b.seen.closed_count(), 0U) << behind.pair.b.seen.closed(behind.pair.from)->to_string();
    behind.proxy->lead_to(behind.pair.a.address);
    behind.pair.check_it_works();
  }
}

TEST_P(TcpResume, ALinkSurvivesTheLossOfOneConnectionOfSeveral) {
  TcpOptions choice = options();
  choice.connections = 3;
  choice.max_mbit_up = 400;
  Behind behind(choice);
  ASSERT_TRUE(until([&] { return behind.proxy->connections() == 4; }));
  constexpr std::uint64_t kCount = 30;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    behind.pair.send(Lane::kData, i, kMiB, i + 1);
    behind.pair.send(Lane::kControl, i, 100);
  }
  for (std::uint64_t cut = 1; cut <= 4; ++cut) {
    const auto due = [&] {
      return behind.pair.a.seen.messages() >= kCount + cut * 5 && behind.proxy->connections() == 4;
    };
    ASSERT_TRUE(until(due, seconds(30)));
    behind.proxy->cut_newest();
  }
  behind.expect_all(kCount);
  EXPECT_EQ(tcp_counters(*behind.pair.b.transport).links_resumed, 0U) << "it never was without a connection";
}

TEST_P(TcpResume, ALinkSurvivesABlackHole) {
  Behind behind(options());
  constexpr std::uint64_t kCount = 20;
  behind.proxy->swallow(true);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    behind.pair.send(Lane::kData, i, kMiB, i + 1);
    behind.pair.send(Lane::kControl, i, 100);
  }
  const std::size_t before = behind.proxy->admitted();
  ASSERT_TRUE(until([&] { return behind.proxy->admitted() > before + 1; })) << "the black hole is noticed";
  EXPECT_EQ(behind.pair.b.seen.closed_count(), 0U);
  behind.proxy->swallow(false);
  behind.expect_all(kCount);
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpResume, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "token" : "clear"; });

TEST(TcpLink, ACutLongerThanTheGraceEndsItWithAReason) {
  TcpOptions options = lively();
  options.link_grace = milliseconds(700);
  Behind behind(options);
  behind.proxy->swallow(true);
  ASSERT_TRUE(until([&] { return behind.pair.a.seen.closed(behind.pair.to).has_value(); }));
  ASSERT_TRUE(until([&] { return behind.pair.b.seen.closed(behind.pair.from).has_value(); }));
  for (const Status& why : {*behind.pair.a.seen.closed(behind.pair.to), *behind.pair.b.seen.closed(behind.pair.from)}) {
    EXPECT_EQ(why.code(), StatusCode::kTimeout) << why.to_string();
    EXPECT_NE(why.message().find("COLLAB_LINK_GRACE"), std::string::npos) << why.message();
    EXPECT_NE(why.message().find("127.0.0.1"), std::string::npos) << why.message();
  }
}

TEST(TcpLink, ARefusedRedialIsADeath) {
  Behind behind(lively());
  // Only who knows that the other side knows of its connections can take their end for its death.
  behind.pair.a.transport->send(behind.pair.to, make_message(*behind.pair.pool, Lane::kControl, 1, 16, 0), 0);
  ASSERT_TRUE(until([&] { return behind.pair.b.seen.messages() == 1; }));
  behind.pair.send(Lane::kControl, 1, 0);
  ASSERT_TRUE(until([&] { return behind.pair.a.seen.messages() == 1; }));
  const auto begun = std::chrono::steady_clock::now();
  behind.proxy.reset();  // as a process that ends: connections closed, port closed
  ASSERT_TRUE(until([&] { return behind.pair.b.seen.closed(behind.pair.from).has_value(); }));
  ASSERT_TRUE(until([&] { return behind.pair.a.seen.closed(behind.pair.to).has_value(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(15)) << "half the grace";
  EXPECT_NE(behind.pair.b.seen.closed(behind.pair.from)->message().find("no process listens"), std::string::npos);
  EXPECT_NE(behind.pair.a.seen.closed(behind.pair.to)->message().find("its process ended"), std::string::npos);
}

TEST(TcpLink, AnotherProcessAtTheSameAddressIsNotTakenForTheOld) {
  Behind behind(lively(by_token()));
  Peer restarted;
  TcpPair::begin(restarted, by_token());
  behind.proxy->lead_to(*restarted.transport->listen("127.0.0.1:0"));
  behind.proxy->cut();
  ASSERT_TRUE(until([&] { return behind.pair.b.seen.closed(behind.pair.from).has_value(); }));
  EXPECT_NE(behind.pair.b.seen.closed(behind.pair.from)->message().find("restarted"), std::string::npos)
      << behind.pair.b.seen.closed(behind.pair.from)->message();
  EXPECT_TRUE(restarted.seen.accepted().empty());
}

// A cut between one goodbye and the other: both sides still end well.
TEST(TcpLink, AClosingLinkSurvivesACut) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    TcpOptions options = lively();
    options.max_mbit_up = 200;
    Behind behind(options);
    for (std::uint64_t chunk = 0; chunk < 2; ++chunk) behind.pair.send(Lane::kData, chunk, kMiB);
    behind.pair.b.transport->close(behind.pair.from);
    const std::uint64_t passed = behind.proxy->bytes();  // cut a little later each time
    until([&] { return behind.proxy->bytes() >= passed + 250'000U * i || behind.pair.a.seen.closed_count() > 0; });
    behind.proxy->cut();
    ASSERT_TRUE(until([&] { return behind.pair.b.seen.closed(behind.pair.from).has_value(); }));
    EXPECT_TRUE(behind.pair.b.seen.closed(behind.pair.from)->ok())
        << behind.pair.b.seen.closed(behind.pair.from)->to_string();
    EXPECT_EQ(numbers(behind.pair.a.seen, Lane::kData), first_numbers(2));
  }
}

TEST(TcpLink, ControlOvertakesAFullLine) {
  TcpOptions options;
  options.max_mbit_up = 16;
  TcpPair pair(options);
  pair.link();
  for (std::uint64_t i = 0; i < 8; ++i) pair.send(Lane::kData, i, kMiB);  // four seconds of it
  ASSERT_TRUE(until([&] { return pair.a.seen.messages() >= 1; }));
  pair.send(Lane::kControl, 1, 100);
  ASSERT_TRUE(until([&] { return pair.a.seen.messages() == 9; }));
  const auto came = pair.a.seen.received();
  const auto control = std::ranges::find(came, Lane::kControl, [](const auto& entry) { return entry.message.lane; });
  EXPECT_LT(control - came.begin(), 6) << "at once it is the second or third";
}

// ---- who listens in, who knocks ------------------------------------------------------------------

TEST(TcpWire, NothingIsReadable) {
  const std::string marker = "the parameters of the model, which nobody else may read";
  for (const TcpOptions& options : {TcpOptions(), by_token(), by_certificates()}) {
    TcpPair pair(options);
    TcpProxy proxy(pair.a.address);
    proxy.keep_copy();
    pair.link(proxy.address());
    TransportMessage message = make_message(*pair.pool, Lane::kData, 0, 16, 300'000);
    for (std::size_t at = 0; at + marker.size() < 300'000; at += 5000) {
      std::memcpy(message.payload->bytes().data() + at, marker.data(), marker.size());
    }
    message.head.resize(2000);
    std::memcpy(message.head.data() + 1000, marker.data(), marker.size());
    pair.b.transport->send(pair.from, message, 1);
    pair.a.transport->send(pair.to, message, 1);
    ASSERT_TRUE(until([&] { return pair.b.seen.sent() == 1 && pair.a.seen.sent() == 1; }));
    const bool in_clear = options.token.empty() && options.tls_cert.empty();
    EXPECT_GT(proxy.copy().size(), 600'000U);
    EXPECT_EQ(proxy.copy().find(marker) != std::string::npos, in_clear) << "in the clear it must be found";
    EXPECT_EQ(proxy.copy().find("CLT1") != std::string::npos, in_clear);
    EXPECT_EQ(proxy.copy().find(kToken), std::string::npos);
  }
}

class TcpPendingConnections : public ::testing::TestWithParam<bool> {
 protected:
  static TcpOptions options() { return GetParam() ? by_token() : TcpOptions(); }
};

TEST_P(TcpPendingConnections, MalformedOpeningsNeitherCrashNorStall) {
  const char* const fetching = std::getenv("COLLAB_TEST_OPENINGS");
  const int openings = fetching != nullptr ? std::atoi(fetching) : 2000;
  TcpPair pair(options());
  pair.link();
  const std::vector<std::string> seeds{
      std::string("CLT1\1\0\0\0", 8) + std::string("\1\0\0\0\x28\0\0\0", 8) + std::string(40, '\3'),
      std::string("\x16\3\1\2\0\1\0\1\xfc\3\3", 11) + std::string(500, 'x'),
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("CLT1\1\0\0\0", 8) + std::string("\4\1\0\0\x30\0\0\0", 8) + std::string(100, '\xff'),
      "SSH-2.0-scanner\r\n",
      ""};
  std::uint64_t state = 4711;
  const auto draw = [&] { return (state = state * 6364136223846793005 + 1442695040888963407) >> 33; };
  for (int i = 0; i < openings; ++i) {
    PlainSocket stranger;
    ASSERT_TRUE(stranger.connect_to(pair.a.address)) << "opening " << i;
    std::string bytes = seeds[draw() % seeds.size()];
    for (std::uint64_t flips = draw() % 4; flips > 0 && !bytes.empty(); --flips) {
      bytes[draw() % bytes.size()] = static_cast<char>(draw());
    }
    if (!bytes.empty() && draw() % 3 == 0) bytes.resize(draw() % bytes.size());
    stranger.write(bytes);
    if (i % 500 == 250) {
      pair.check_it_works();
    }
  }
  pair.check_it_works();
  EXPECT_EQ(pair.a.seen.accepted().size(), 1U + (GetParam() ? 0 : pair.a.seen.closed_count()));
  Peer late;
  TcpPair::begin(late, options());
  const LinkId link = late.transport->connect(pair.a.address, seconds(10));
  EXPECT_TRUE(until([&] { return late.seen.connected(link); }));
}

TEST_P(TcpPendingConnections, SilentOpeningsAreBounded) {
  TcpPair pair(options());
  std::vector<std::unique_ptr<PlainSocket>> silent;
  for (int i = 0; i < 400; ++i) {
    silent.push_back(std::make_unique<PlainSocket>());
    ASSERT_TRUE(silent.back()->connect_to(pair.a.address));
  }
  EXPECT_TRUE(until([&] { return tcp_counters(*pair.a.transport).connections_refused >= 100; }));
  pair.link();
  pair.check_it_works();
}

// The process may be busy elsewhere: links come faster than it hears of them.
TEST_P(TcpPendingConnections, LinksOfWhichNothingWasHandledAreBounded) {
  TcpPair pair(options());
  pair.link();
  pair.check_it_works();
  Peer many;
  TcpPair::begin(many, options());
  constexpr std::size_t kLinks = 400;
  for (std::size_t i = 0; i < kLinks; ++i) {
    const LinkId link = many.transport->connect(pair.a.address, seconds(10));
    ASSERT_TRUE(until([&] { return many.seen.connected(link); })) << "link " << i;
  }
  EXPECT_TRUE(until([&] { return pair.a.seen.closed_count() >= kLinks - 256; }));
  pair.check_it_works();
}

// One that is far away, and has begun a handshake with the token, is not pushed out by those who cannot.
TEST(Tcp, ConnectionsWithoutAHelloMakeRoom) {
  TcpPair pair(by_token());
  const auto context =
      tcp::TlsContext::make({.token = kToken, .certificate_file = {}, .key_file = {}, .authority_file = {}});
  ASSERT_TRUE(context.ok()) << context.status().to_string();
  tcp::TlsStream handshake(*context, true);
  ASSERT_TRUE(handshake.handshake().ok());
  PlainSocket slow;
  ASSERT_TRUE(slow.connect_to(pair.a.address));
  const auto hello = handshake.outgoing();
  slow.write(std::string_view(reinterpret_cast<const char*>(hello.data()), hello.size()));
  char answer[4096];
  ASSERT_GT(::recv(slow.fd(), answer, sizeof answer, 0), 0);
  std::vector<std::unique_ptr<PlainSocket>> others;
  for (int i = 0; i < 600; ++i) {
    others.push_back(std::make_unique<PlainSocket>());
    ASSERT_TRUE(others.back()->connect_to(pair.a.address));
    if (i % 2 == 0) others.back()->write(std::string_view("\x16\x03\x01", 3));  // a ClientHello that never ends
  }
  EXPECT_TRUE(until([&] { return tcp_counters(*pair.a.transport).connections_refused >= 400; }));
  char byte = 0;
  EXPECT_EQ(::recv(slow.fd(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN) << "it is still there";
}

// Though it has more connections that say nothing than any of them.
TEST(Tcp, AHostThatHadALinkKeepsItsPlaceAmongNewOnes) {
  TcpPair pair(by_token());
  pair.link();  // from 127.0.0.1
  std::vector<std::unique_ptr<PlainSocket>> known, others;
  for (int i = 0; i < 60; ++i) {
    known.push_back(std::make_unique<PlainSocket>());
    ASSERT_TRUE(known.back()->connect_to(pair.a.address));
  }
  for (std::uint32_t i = 0; i < 300; ++i) {
    others.push_back(std::make_unique<PlainSocket>());
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl((127U << 24U) + ((1 + i / 3) << 16U) + 1);
    ASSERT_EQ(::bind(others.back()->fd(), reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    ASSERT_TRUE(others.back()->connect_to(pair.a.address));
  }
  EXPECT_TRUE(until([&] { return tcp_counters(*pair.a.transport).connections_refused >= 300 + 60 - 128; }));
  for (const auto& each : known) {
    char byte = 0;
    ASSERT_EQ(::recv(each->fd(), &byte, 1, MSG_DONTWAIT), -1);
    ASSERT_EQ(errno, EAGAIN) << "it is still there";
  }
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpPendingConnections, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "token" : "clear"; });

}  // namespace
}  // namespace collab::testing
