// What strangers and peers can make a tcp transport hold, do and say: the bounds of docs/protocol/bounds.md that need
// sockets.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <future>

#include "tests/transport/tcp_world.h"
#include "tests/unit/runtime/few_files.h"
#include "transport/tcp/wire/tcp_wire.h"

namespace collab::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename Bytes>
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// In the clear, as a transport greets.
std::string greeting_of(const tcp::Hello& hello) {
  return text_of(tcp::encode_preface()) + text_of(tcp::encode(hello));
}

// A connection that was greeted so; null: it was closed instead of welcomed.
std::unique_ptr<PlainSocket> greeted(const std::string& address, const tcp::Hello& hello) {
  auto made = std::make_unique<PlainSocket>();
  if (!made->connect_to(address)) return nullptr;
  made->write(greeting_of(hello));
  char answer[64];
  return ::recv(made->fd(), answer, sizeof answer, 0) > 0 ? std::move(made) : nullptr;
}

// One that listens, with what it told.
struct Listener : Peer {
  explicit Listener(const TcpOptions& options = {}) {
    TcpPair::begin(*this, options);
    address = *transport->listen("127.0.0.1:0");
  }
};

TEST(TcpBounds, DataConnectionsAreBoundedPerLinkAndToAQuarterOfTheFiles) {
  const FewFiles few(1024);
  const Listener listener;
  const std::string address = listener.address;
  std::vector<std::unique_ptr<PlainSocket>> open;
  std::size_t data = 0;
  for (std::uint8_t link = 1; link <= 5; ++link) {
    open.push_back(greeted(address, {{link}, {9}, 0, true}));
    ASSERT_NE(open.back(), nullptr) << "a link's control connection always finds room";
    for (std::uint16_t index = 1; index <= 64; ++index) {
      auto made = greeted(address, {{link}, {9}, index, false});
      data += made != nullptr ? 1 : 0;
      open.push_back(std::move(made));
    }
    EXPECT_TRUE(link != 1 || data == 64) << data;
    EXPECT_EQ(greeted(address, {{link}, {9}, 65, false}), nullptr) << "one more than a link may have";
  }
  EXPECT_EQ(data, 1024U / 4);
}

TEST(TcpBounds, AConnectionWithoutAHelloIsClosedAfterTenSeconds) {
  std::deque<Peer> listeners(2);
  std::deque<PlainSocket> silent(2);
  std::deque<PlainSocket> slow(2);
  const auto began = std::chrono::steady_clock::now();
  for (const std::size_t with_token : {0U, 1U}) {
    TcpPair::begin(listeners[with_token], with_token != 0 ? by_token() : TcpOptions());
    const std::string address = *listeners[with_token].transport->listen("127.0.0.1:0");
    ASSERT_TRUE(silent[with_token].connect_to(address) && slow[with_token].connect_to(address));
    slow[with_token].write(with_token != 0 ? std::string_view("\x16\x03\x01", 3) : "CLT1");  // and no more
  }
  for (const std::size_t with_token : {0U, 1U}) {
    static_cast<void>(silent[with_token].read_all(20'000));
    static_cast<void>(slow[with_token].read_all(20'000));
  }
  const auto waited = std::chrono::steady_clock::now() - began;
  EXPECT_GE(waited, seconds(9));
  EXPECT_LT(waited, seconds(19)) << "the reads would have given up later";
}

// One that does not go: it sends on, and takes nothing. What it sends is not handed on, and does not keep the link.
TEST(Tcp, DataOnAClosedLinkIsDroppedAndKeepsItNoLonger) {
  const Listener listener;
  PlainSocket stays;
  ASSERT_TRUE(stays.connect_to(listener.address));
  stays.write(greeting_of({{1}, {2}, 0, true}));
  std::uint64_t number = 0;
  const std::string message(100, 'x');
  const auto say = [&] {
    stays.write(text_of(tcp::encode(tcp::SegmentHeader{Lane::kControl, number, number, 100, 0, 0, 100})) + message);
    ++number;
  };
  ASSERT_TRUE(until([&] { return !listener.seen.accepted().empty(); }));
  const LinkId link = listener.seen.accepted().front();
  say();
  ASSERT_TRUE(until([&] { return listener.seen.messages() == 1; }));
  listener.transport->send(link, {Lane::kControl, std::vector<std::byte>(8), nullptr}, 0);
  listener.transport->close(link);
  for (int i = 0; i < 90 && !listener.seen.closed(link); ++i) {
    say();
    static_cast<void>(until([&] { return listener.seen.closed(link).has_value(); }, milliseconds(100)));
  }
  EXPECT_TRUE(listener.seen.closed(link).has_value());
  EXPECT_LE(listener.seen.messages(), 2U) << "the one before, and one that may have crossed the close";
}

TEST(TcpBounds, LinksThatAreBeingClosedAreBounded) {
  const FewFiles few(512);  // of which an eighth is for these
  constexpr std::size_t kLinks = 120;
  const Listener listener;
  const std::string message(100, 'x');
  const std::string segment = text_of(tcp::encode(tcp::SegmentHeader{Lane::kControl, 0, 0, 100, 0, 0, 100})) + message;
  std::vector<std::unique_ptr<PlainSocket>> held;
  for (std::size_t i = 0; i < kLinks; ++i) {
    held.push_back(greeted(listener.address, {{static_cast<std::uint8_t>(i)}, {9}, 0, true}));
    ASSERT_NE(held.back(), nullptr);
    held.back()->write(segment);  // it is handled, and the answer is never acknowledged
    ASSERT_TRUE(until([&] { return listener.seen.messages() == i + 1; }));
    const LinkId link = listener.seen.accepted().back();
    listener.transport->send(link, {Lane::kControl, std::vector<std::byte>(8), nullptr}, 0);
    listener.transport->close(link);
  }
  EXPECT_TRUE(until([&] { return listener.seen.closed_count() >= kLinks - 64; }, seconds(2))) << "not after five";
}

// Each peer says how many it wants, and the dialler would open as many for each.
TEST(TcpBounds, DialledDataConnectionsTakeAtMostAQuarterOfTheFilesPlusOneALink) {
  const FewFiles few(1024);
  constexpr std::uint64_t kLinks = 6;
  TcpOptions options;
  options.connections = 64;
  Peer dialler;
  TcpPair::begin(dialler, options);
  std::deque<Listener> listeners(kLinks);
  for (const Listener& each : listeners) {
    const LinkId link = dialler.transport->connect(each.address, seconds(10));
    ASSERT_TRUE(until([&] { return dialler.seen.connected(link); }));
  }
  const auto opened = [&] { return tcp_counters(*dialler.transport).connections_opened; };
  EXPECT_TRUE(until([&] { return opened() >= 1024 / 4 + kLinks; })) << opened();
  EXPECT_FALSE(until([&] { return opened() > 1024 / 4 + 2 * kLinks; }, milliseconds(500))) << opened();
  for (const Listener& each : listeners) EXPECT_GT(tcp_counters(*each.transport).connections_opened, 1U) << "one each";
}

TEST(TcpBounds, TheLastOfPingsInARowIsAnswered) {
  constexpr std::uint64_t kPings = 20'000;
  const Listener listener;
  const auto link = greeted(listener.address, {{1}, {9}, 0, true});
  ASSERT_NE(link, nullptr);
  std::string pings;
  for (std::uint64_t stamp = 1; stamp <= kPings; ++stamp) pings += text_of(tcp::encode_ping(stamp));
  link->write(pings);
  std::string came = link->read_all(300);
  std::uint64_t pongs = 0, last = 0;
  auto rest = std::as_bytes(std::span(came));
  while (rest.size() >= tcp::kPrefixBytes) {
    const auto prefix = tcp::decode_prefix(rest.first<tcp::kPrefixBytes>());
    if (!prefix.ok()) break;  // the end of the greeting
    if (prefix->type == tcp::FrameType::kPong) {
      ++pongs;
      last = tcp::decode_pong(rest.subspan(tcp::kPrefixBytes, prefix->body_bytes))->stamp;
    }
    rest = rest.subspan(tcp::kPrefixBytes + prefix->body_bytes);
  }
  EXPECT_EQ(last, kPings);
  EXPECT_GE(pongs, 1U);
  EXPECT_LT(pongs, kPings / 20) << "one each reading";
}

// A peer that cuts its own link and dials again makes no line each time.
TEST(TcpBounds, ReturnsOfALinkAreLoggedAFewTimes) {
  constexpr std::uint64_t kReturns = 100;
  const Listener listener;
  ::testing::internal::CaptureStderr();
  auto link = greeted(listener.address, {{1}, {9}, 0, true});
  const auto returns = [&] { return tcp_counters(*listener.transport).links_resumed; };
  for (int i = 0; i < 5000 && returns() < kReturns && link != nullptr; ++i) {
    link.reset();
    link = greeted(listener.address, {{1}, {9}, 0, false});
  }
  EXPECT_NE(link, nullptr);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_GE(returns(), kReturns);
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = said.find("has a connection again", at)) != std::string::npos; ++at) ++lines;
  EXPECT_GE(lines, 1U);
  EXPECT_LE(lines, 20U);
}

TEST(TcpBounds, InASmallContainerLessWaitsInAll) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  TcpOptions options;
  options.memory = 1024 * kMiB;  // an eighth: 128 MiB
  TcpPair pair(options);
  pair.b.seen.handles = false;  // then it is not read
  std::vector<LinkId> links;
  for (std::size_t i = 0; i < 4; ++i) {
    pair.link();
    links.push_back(pair.to);
  }
  const auto ended = [&] { return pair.a.seen.closed_count(); };
  for (std::uint64_t i = 0; i < 4 * 60; ++i) {
    pair.a.transport->send(links[i % 4], make_message(*pair.pool, Lane::kControl, i, kMiB, 0), 0);
  }
  EXPECT_TRUE(until([&] { return ended() > 0; }, seconds(5))) << "240 MiB fit where there is memory";
}

// They lie on the heap among what others hold, and free() alone keeps them.
TEST(TcpBounds, MemoryOfManyUnreadSmallMessagesIsGivenBack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has a heap of its own";
#endif
  constexpr std::size_t kMany = 800'000;
  const auto resident = [] {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm").ignore(64, ' ') >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) >> 20;
  };
  TcpOptions options;
  options.link_grace = seconds(1);
  const Listener listener(options);
  std::optional<PlainSocket> reads_nothing(std::in_place);
  ASSERT_TRUE(reads_nothing->connect_to(listener.address));
  reads_nothing->write(greeting_of({{1}, {2}, 0, true}));
  ASSERT_TRUE(until([&] { return !listener.seen.accepted().empty(); }));
  const LinkId link = listener.seen.accepted().front();
  const std::size_t before = resident();
  std::vector<std::unique_ptr<std::byte[]>> others;
  for (std::size_t i = 0; i < kMany; ++i) {
    listener.transport->send(link, {Lane::kData, std::vector<std::byte>(64), nullptr}, 0);
    if (i % 100 == 0) others.push_back(std::make_unique<std::byte[]>(100));
  }
  ASSERT_TRUE(until([&] { return resident() > before + 128; })) << "what is sent is not kept";
  reads_nothing.reset();
  ASSERT_TRUE(until([&] { return listener.seen.closed(link).has_value(); }));
  EXPECT_TRUE(until([&] { return resident() < before + 64; }, seconds(30))) << resident() - before << " MiB more";
}

// Each takes a thread, and name servers that do not answer keep it for long.
TEST(TcpBounds, ABoundedNumberOfNamesIsLookedUpAtOnce) {
  constexpr std::size_t kNames = 140;
  struct Server {
    std::atomic<std::size_t> asked{0};
    std::promise<void> answers;
    std::shared_future<void> answered = answers.get_future().share();
  };
  const auto server = std::make_shared<Server>();
  TcpOptions options;
  options.look_up = [server](const std::string& host) {
    if (host == "known.example") return std::vector<std::string>{"127.0.0.1"};
    ++server->asked;
    server->answered.wait();
    return std::vector<std::string>();
  };
  Peer dialler;
  TcpPair::begin(dialler, options);
  const auto dial_known = [&dialler] { static_cast<void>(dialler.transport->connect("known.example:1", seconds(60))); };
  dial_known();
  EXPECT_TRUE(until([&] { return dialler.seen.closed_count() == 1; })) << "nobody listens there";
  for (std::size_t i = 0; i < kNames; ++i) {
    static_cast<void>(dialler.transport->connect("n" + std::to_string(i) + ".example:1", seconds(60)));
  }
  EXPECT_TRUE(until([&] { return server->asked == 96U; })) << server->asked;
  EXPECT_FALSE(until([&] { return server->asked > 96U; }, milliseconds(300))) << server->asked;
  dial_known();
  EXPECT_TRUE(until([&] { return dialler.seen.closed_count() == 2; })) << "it waits for none of them";
  server->answers.set_value();
  EXPECT_TRUE(until([&] { return dialler.seen.closed_count() == kNames + 2; })) << dialler.seen.closed_count();
}

}  // namespace
}  // namespace collab::testing
