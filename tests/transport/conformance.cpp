#include "tests/transport/conformance.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/base/address.h"

namespace collab::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

std::vector<std::uint64_t> numbers(const std::vector<Recorder::Received>& received, LinkId link, Lane lane) {
  std::vector<std::uint64_t> found;
  for (const auto& entry : received) {
    if (entry.link == link && entry.message.lane == lane) found.push_back(number_of(entry.message));
  }
  return found;
}

std::vector<std::uint64_t> first_numbers(std::uint64_t count) {
  std::vector<std::uint64_t> all(count);
  for (std::uint64_t i = 0; i < count; ++i) all[i] = i;
  return all;
}

TEST_P(TransportConformance, Port0GivesAPortThatCanBeDialled) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  EXPECT_FALSE(a.address.ends_with(":0")) << a.address;
  const Linked ends = link(b, a);
  b.transport->send(ends.from, make_message(*pool_, Lane::kControl, 1, 20, 0), 0);
  a.transport->send(ends.to, make_message(*pool_, Lane::kData, 2, 20, 3000), 0);
  ASSERT_TRUE(until([&] { return a.seen.messages() == 1 && b.seen.messages() == 1; }));
  EXPECT_EQ(number_of(a.seen.received()[0].message), 1U);
  EXPECT_EQ(b.seen.received()[0].message.payload->view().size(), 3000U);
  EXPECT_TRUE(follows_pattern(b.seen.received()[0].message));
}

TEST_P(TransportConformance, PortInUseIsAnErrorThatNamesIt) {
  Peer& a = add_listening("a");
  Peer& b = add("a");
  const auto again = b.transport->listen(a.address);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find(a.address), std::string::npos) << again.status().to_string();
  EXPECT_NE(again.status().message().find("in use"), std::string::npos) << again.status().to_string();
}

TEST_P(TransportConformance, NonsenseIsNoAddress) {
  Peer& a = add("a");
  EXPECT_FALSE(a.transport->listen("nonsense").ok());
  const LinkId link = a.transport->connect("nonsense", seconds(5));
  ASSERT_TRUE(until([&] { return a.seen.closed(link).has_value(); }));
  EXPECT_NE(a.seen.closed(link)->message().find("nonsense"), std::string::npos);
}

TEST_P(TransportConformance, ADialToAnAddressWithoutAListenerFails) {
  Peer& a = add("a");
  const std::string nobody = world_->nobody();
  const LinkId link = a.transport->connect(nobody, seconds(5));
  a.transport->send(link, make_message(*pool_, Lane::kControl, 1, 20, 0), 1);
  ASSERT_TRUE(until([&] { return a.seen.closed(link).has_value(); }, seconds(7)));
  EXPECT_EQ(a.seen.closed(link)->code(), StatusCode::kUnavailable) << a.seen.closed(link)->to_string();
  EXPECT_NE(a.seen.closed(link)->message().find(nobody), std::string::npos) << a.seen.closed(link)->to_string();
  EXPECT_FALSE(a.seen.connected(link));
  EXPECT_EQ(a.seen.sent(), 0U);
}

TEST_P(TransportConformance, ADialThatIsNotAnsweredTimesOut) {
  const auto silent = world_->silent();
  if (!silent) GTEST_SKIP() << "every place answers at once here";
  Peer& a = add("a");
  const LinkId link = a.transport->connect(*silent, milliseconds(300));
  ASSERT_TRUE(until([&] { return a.seen.closed(link).has_value(); }, seconds(10))) << "the kernel tries for minutes";
  EXPECT_EQ(a.seen.closed(link)->code(), StatusCode::kTimeout) << a.seen.closed(link)->to_string();
  EXPECT_NE(a.seen.closed(link)->message().find(*silent), std::string::npos) << a.seen.closed(link)->to_string();
}

TEST_P(TransportConformance, LanesKeepTheirOrder) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  const Linked ends = link(b, a);
  const std::vector<std::size_t> sizes{0, 100, 5 * kKiB, 200 * kKiB, 40 * kKiB, 7, 900 * kKiB};
  constexpr std::uint64_t kCount = 350;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    b.transport->send(ends.from, make_message(*pool_, Lane::kData, i, 40 + i % 30, sizes[i % sizes.size()]), 0);
    b.transport->send(ends.from, make_message(*pool_, Lane::kControl, i, 10 + (i % 90) * 40, 0), 0);
  }
  ASSERT_TRUE(until([&] { return a.seen.messages() == 2 * kCount; }));
  const auto received = a.seen.received();
  EXPECT_EQ(numbers(received, ends.to, Lane::kData), first_numbers(kCount));
  EXPECT_EQ(numbers(received, ends.to, Lane::kControl), first_numbers(kCount));
  for (const auto& entry : received) ASSERT_TRUE(follows_pattern(entry.message));
}

TEST_P(TransportConformance, ManySmallMessagesBothWays) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  const Linked ends = link(b, a);
  constexpr std::uint64_t kCount = 5000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    b.transport->send(ends.from, make_message(*pool_, i % 2 != 0 ? Lane::kData : Lane::kControl, i / 2, 16, 0), 0);
    a.transport->send(ends.to, make_message(*pool_, i % 2 != 0 ? Lane::kData : Lane::kControl, i / 2, 16, 8), 0);
  }
  ASSERT_TRUE(until([&] { return a.seen.messages() == kCount && b.seen.messages() == kCount; }));
  for (const Lane lane : {Lane::kControl, Lane::kData}) {
    EXPECT_EQ(numbers(a.seen.received(), ends.to, lane), first_numbers(kCount / 2));
    EXPECT_EQ(numbers(b.seen.received(), ends.from, lane), first_numbers(kCount / 2));
  }
}

TEST_P(TransportConformance, ControlOvertakesData) {
  Peer& a = add_listening("a", [&](Recorder& seen) {
    if (GetParam().threads) seen.when_message = [&](LinkId, const TransportMessage&) { gate_.wait(); };
  });
  Peer& b = add("b");
  const Linked ends = link(b, a);
  constexpr std::size_t kChunks = 128;
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    b.transport->send(ends.from, make_message(*pool_, Lane::kData, i, 32, 512 * kKiB), 0);
  }
  b.transport->send(ends.from, make_message(*pool_, Lane::kControl, 0, 32, 0), 0);
  // The reader stands still until the control message has got past what waits, however busy the machine is.
  if (GetParam().threads) until([] { return false; }, milliseconds(300));
  gate_.open();
  ASSERT_TRUE(until([&] { return a.seen.messages() == kChunks + 1; }));
  const auto received = a.seen.received();
  const auto control = std::find_if(received.begin(), received.end(),
                                    [](const auto& entry) { return entry.message.lane == Lane::kControl; });
  EXPECT_LT(control - received.begin(), static_cast<std::ptrdiff_t>(kChunks / 2));
  EXPECT_EQ(numbers(received, ends.to, Lane::kData), first_numbers(kChunks));
}

TEST_P(TransportConformance, TheLargestAndTheSmallestMessagesArrive) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  const Linked ends = link(b, a);
  const std::vector<std::pair<std::size_t, std::size_t>> sizes{
      {8, kMaxPayloadBytes}, {kMaxHeadBytes, 0}, {kMaxHeadBytes, 5}, {2000, 100 * kKiB}, {8, 1}, {8, 0}};
  for (const Lane lane : {Lane::kData, Lane::kControl}) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t payload = lane == Lane::kData ? sizes[i].second : std::min(sizes[i].second, kMiB);
      b.transport->send(ends.from, make_message(*pool_, lane, i, sizes[i].first, payload), i + 1);
    }
  }
  TransportMessage empty;
  empty.payload = pool_->take(0);
  b.transport->send(ends.from, std::move(empty), 99);
  ASSERT_TRUE(until([&] { return a.seen.messages() == 2 * sizes.size() + 1; }));
  ASSERT_TRUE(until([&] { return b.seen.sent() == 2 * sizes.size() + 1; }));
  for (const auto& entry : a.seen.received()) {
    if (entry.message.head.empty()) continue;
    const std::size_t i = number_of(entry.message);
    ASSERT_LT(i, sizes.size());
    EXPECT_EQ(entry.message.head.size(), sizes[i].first);
    const std::size_t payload = entry.message.payload != nullptr ? entry.message.payload->view().size() : 0;
    EXPECT_EQ(payload, entry.message.lane == Lane::kData ? sizes[i].second : std::min(sizes[i].second, kMiB));
    EXPECT_TRUE(follows_pattern(entry.message));
  }
}

TEST_P(TransportConformance, ManyPeersAreAnswered) {
  Transport* server = nullptr;
  Peer& hub = add_listening("hub", [&](Recorder& seen) {
    seen.when_message = [&](LinkId link, const TransportMessage& message) { server->send(link, message, 0); };
  });
  server = hub.transport.get();
  const std::size_t peers = GetParam().many_peers;
  std::vector<std::pair<Peer*, LinkId>> others;
  for (std::size_t i = 0; i < peers; ++i) {
    Peer& peer = add("p" + std::to_string(i));
    others.emplace_back(&peer, peer.transport->connect(hub.address, seconds(10)));
    for (std::uint64_t m = 0; m < 20; ++m) {
      peer.transport->send(others.back().second, make_message(*pool_, Lane::kData, m, 16, (m + i) * 3 * kKiB), 0);
    }
  }
  ASSERT_TRUE(until([&] {
    return std::all_of(others.begin(), others.end(), [](const auto& o) { return o.first->seen.messages() == 20; });
  }));
  EXPECT_EQ(hub.seen.accepted().size(), peers);
  for (const auto& [peer, link] : others) {
    EXPECT_EQ(numbers(peer->seen.received(), link, Lane::kData), first_numbers(20));
    for (const auto& entry : peer->seen.received()) ASSERT_TRUE(follows_pattern(entry.message));
  }
}

// A reader that stands still is not flooded: the sender keeps what the reader has no room for.
TEST_P(TransportConformance, SlowReaderHoldsTheSenderBack) {
  if (!GetParam().threads) GTEST_SKIP() << "a handler cannot be held up where one thread drives all";
  Peer& a = add_listening("a", [&](Recorder& seen) {
    seen.keep_messages = false;
    seen.when_message = [&](LinkId, const TransportMessage&) { gate_.wait(); };
  });
  Peer& b = add("b");
  const Linked ends = link(b, a);
  constexpr std::size_t kChunks = 300;
  const BufferPtr payload = make_message(*pool_, Lane::kData, 0, 0, kMiB).payload;
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    TransportMessage message{Lane::kData, std::vector<std::byte>(16), payload};
    b.transport->send(ends.from, std::move(message), i + 1);
  }
  std::size_t sent = 0;  // until it stands still
  for (auto quiet_since = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - quiet_since < milliseconds(300);
       std::this_thread::sleep_for(milliseconds(10))) {
    if (b.seen.sent() == sent) continue;
    sent = b.seen.sent();
    quiet_since = std::chrono::steady_clock::now();
  }
  EXPECT_LE(sent, 80U) << "MiB were taken in behind a reader that stands still";
  gate_.open();
  ASSERT_TRUE(until([&] { return a.seen.messages() == kChunks && b.seen.sent() == kChunks; }));
  std::vector<std::uint64_t> expected = first_numbers(kChunks + 1);
  expected.erase(expected.begin());
  auto tokens = b.seen.tokens();
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(tokens, expected) << "each token once";
}

TEST_P(TransportConformance, ABufferIsOursAgainOnceSent) {
  Peer& a = add_listening("a");
  std::map<std::uint64_t, BufferPtr> buffers;
  std::mutex mutex;
  Peer& b = add("b", [&](Recorder& seen) {
    seen.when_sent = [&](LinkId, std::uint64_t token) {
      const std::lock_guard lock(mutex);
      auto bytes = buffers.at(token)->bytes();
      std::memset(bytes.data(), 0xEE, bytes.size());
    };
  });
  const Linked ends = link(b, a);
  constexpr std::uint64_t kCount = 60;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    TransportMessage message =
        make_message(*pool_, i % 2 != 0 ? Lane::kData : Lane::kControl, i, 16, 1 + i * 20 * kKiB);
    {
      const std::lock_guard lock(mutex);
      buffers[i + 1] = message.payload;
    }
    b.transport->send(ends.from, std::move(message), i + 1);
  }
  ASSERT_TRUE(until([&] { return a.seen.messages() == kCount && b.seen.sent() == kCount; }));
  for (const auto& entry : a.seen.received()) ASSERT_TRUE(follows_pattern(entry.message));
}

TEST_P(TransportConformance, OnePayloadCanBeSentToSeveralPeers) {
  Peer& b = add("b");
  std::vector<Peer*> readers;
  for (const auto* host : {"r0", "r1", "r2"}) readers.push_back(&add_listening(host));
  const TransportMessage message = make_message(*pool_, Lane::kData, 5, 16, 2 * kMiB);
  for (Peer* reader : readers) b.transport->send(link(b, *reader).from, message, 7);
  ASSERT_TRUE(until([&] {
    return b.seen.sent() == 3 &&
           std::all_of(readers.begin(), readers.end(), [](const Peer* reader) { return reader->seen.messages() == 1; });
  }));
  for (const Peer* reader : readers) EXPECT_TRUE(follows_pattern(reader->seen.received()[0].message));
}

TEST_P(TransportConformance, CloseSendsWhatWasQueued) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  const Linked ends = link(b, a);
  constexpr std::uint64_t kCount = 100;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    b.transport->send(ends.from, make_message(*pool_, Lane::kData, i, 16, 256 * kKiB), i + 1);
    b.transport->send(ends.from, make_message(*pool_, Lane::kControl, i, 16, 0), 0);
  }
  b.transport->close(ends.from);
  b.transport->send(ends.from, make_message(*pool_, Lane::kControl, kCount, 16, 0), 500);  // too late
  ASSERT_TRUE(until([&] { return a.seen.closed(ends.to) && b.seen.closed(ends.from); }));
  EXPECT_TRUE(a.seen.closed(ends.to)->ok()) << a.seen.closed(ends.to)->to_string();
  EXPECT_TRUE(b.seen.closed(ends.from)->ok()) << b.seen.closed(ends.from)->to_string();
  EXPECT_EQ(numbers(a.seen.received(), ends.to, Lane::kData), first_numbers(kCount));
  EXPECT_EQ(numbers(a.seen.received(), ends.to, Lane::kControl), first_numbers(kCount));
  EXPECT_EQ(b.seen.sent(), kCount);
}

TEST_P(TransportConformance, CloseRightAfterConnectStillSends) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  const Linked ends = link(b, a);
  a.transport->send(ends.to, make_message(*pool_, Lane::kControl, 3, 16, 0), 0);
  a.transport->close(ends.to);  // by the side that was dialled
  ASSERT_TRUE(until([&] { return a.seen.closed(ends.to) && b.seen.closed(ends.from); }));
  EXPECT_EQ(b.seen.messages(), 1U);
  EXPECT_TRUE(b.seen.closed(ends.from)->ok()) << b.seen.closed(ends.from)->to_string();
}

TEST_P(TransportConformance, BothMayCloseAtOnce) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  for (int i = 0; i < 10; ++i) {
    const Linked ends = link(b, a);
    a.transport->close(ends.to);
    b.transport->close(ends.from);
    b.transport->close(ends.from);
    ASSERT_TRUE(until([&] { return a.seen.closed(ends.to) && b.seen.closed(ends.from); }));
    EXPECT_TRUE(a.seen.closed(ends.to)->ok()) << a.seen.closed(ends.to)->to_string();
    EXPECT_TRUE(b.seen.closed(ends.from)->ok()) << b.seen.closed(ends.from)->to_string();
  }
}

TEST_P(TransportConformance, UnknownLinksAreIgnored) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  const Linked ends = link(b, a);
  b.transport->send(LinkId(4711), make_message(*pool_, Lane::kData, 1, 16, 10), 1);
  b.transport->close(LinkId(4711));
  b.transport->send(ends.from, make_message(*pool_, Lane::kData, 2, 16, 10), 2);
  ASSERT_TRUE(until([&] { return a.seen.messages() == 1 && b.seen.sent() == 1; }));
  EXPECT_EQ(b.seen.tokens(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(b.seen.closed_count(), 0U);
}

TEST_P(TransportConformance, APeerThatEndsIsSeen) {
  Peer& a = add_listening("a");
  Peer& b = add("b");
  Peer& c = add("c");
  const Linked ends = link(b, a);
  const Linked others = link(c, a);
  b.transport.reset();
  ASSERT_TRUE(until([&] { return a.seen.closed(ends.to).has_value(); }, seconds(5)));
  EXPECT_FALSE(a.seen.closed(ends.to)->ok());
  c.transport->send(others.from, make_message(*pool_, Lane::kData, 2, 16, 10), 2);
  ASSERT_TRUE(until([&] { return a.seen.messages() == 1; })) << "the other link lives on";
  a.transport.reset();
  ASSERT_TRUE(until([&] { return c.seen.closed(others.from).has_value(); }, seconds(5)));
  EXPECT_FALSE(c.seen.closed(others.from)->ok());
}

// Killed in the middle of sending, again and again: each time it is noticed, and other links are none the worse.
TEST_P(TransportConformance, AKilledPeerIsSeen) {
  if (!GetParam().spawn_peer) GTEST_SKIP() << "its peers are no processes of their own";
  Peer& a = add_listening("a", [](Recorder& seen) { seen.keep_messages = false; });
  Peer& b = add("b");
  const Linked ends = link(b, a);
  EXPECT_TRUE(a.transport->abilities().sees_peer_death);
  for (std::size_t round = 1; round <= 4; ++round) {
    const std::size_t before = a.seen.messages();
    const pid_t child = GetParam().spawn_peer(a.address);
    ASSERT_GT(child, 0);
    EXPECT_TRUE(until([&] { return a.seen.messages() >= before + 20 * round; }));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto killed = std::chrono::steady_clock::now();
    ASSERT_TRUE(until([&] { return a.seen.closed_count() == round; }, seconds(10)));
    const auto took = std::chrono::steady_clock::now() - killed;
    RecordProperty("noticed_us_" + std::to_string(round),
                   static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
    EXPECT_LT(took, seconds(4)) << "silence is noticed after five";
    EXPECT_FALSE(a.seen.closed(a.seen.accepted().back())->ok());
    const std::size_t answered = b.seen.messages();
    a.transport->send(ends.to, make_message(*pool_, Lane::kData, round, 16, kMiB), 0);
    ASSERT_TRUE(until([&] { return b.seen.messages() == answered + 1; }));
  }
}

TEST_P(TransportConformance, ATransportMayEndWithTrafficUnderWay) {
  for (const bool sender_ends : {true, false}) {
    Peer& a = add_listening("a");
    Peer& b = add("b");
    const Linked ends = link(b, a);
    const BufferPtr payload = make_message(*pool_, Lane::kData, 0, 0, kMiB).payload;
    for (std::uint64_t i = 0; i < 200; ++i) {
      b.transport->send(ends.from, {Lane::kData, std::vector<std::byte>(16), payload}, i + 1);
      a.transport->send(ends.to, {Lane::kData, std::vector<std::byte>(16), payload}, i + 1);
    }
    ASSERT_TRUE(until([&] { return a.seen.messages() >= 3; }));
    Peer& ending = sender_ends ? b : a;
    Peer& staying = sender_ends ? a : b;
    const LinkId left = sender_ends ? ends.to : ends.from;
    ending.transport.reset();
    ASSERT_TRUE(until([&] { return staying.seen.closed(left).has_value(); }));
    EXPECT_FALSE(staying.seen.closed(left)->ok());
    staying.transport.reset();
    EXPECT_EQ(payload.use_count(), 1) << "the transport still holds a buffer";
  }
}

TEST_P(TransportConformance, EverythingMayBeCalledFromAHandler) {
  Peer& a = add_listening("a");
  Peer* b = nullptr;
  std::atomic<std::uint64_t> second{0};
  std::atomic<bool> listened{false};
  Peer& made = add("b", [&](Recorder& seen) {
    seen.when_connected = [&](LinkId link) {
      b->transport->send(link, make_message(*pool_, Lane::kControl, 1, 16, 0), 1);
    };
    seen.when_sent = [&](LinkId link, std::uint64_t token) {
      if (token != 1 || second != 0) return;
      listened = b->transport->listen(world_->any_port("b")).ok();
      second = b->transport->connect(a.address, seconds(5)).value;
      b->transport->close(link);
    };
  });
  b = &made;
  const LinkId first = b->transport->connect(a.address, seconds(5));
  ASSERT_TRUE(until([&] {
    return b->seen.closed(first) && b->seen.connected(LinkId(second)) && a.seen.messages() == 2 && b->seen.sent() == 2;
  }));
  EXPECT_TRUE(listened);
  EXPECT_TRUE(b->seen.closed(first)->ok());
}

TEST_P(TransportConformance, SeveralThreadsMaySend) {
  if (!GetParam().threads) GTEST_SKIP() << "one thread drives all";
  Peer& a = add_listening("a");
  Peer& b = add("b");
  const Linked ends = link(b, a);
  constexpr std::uint64_t kThreads = 4, kEach = 200;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        b.transport->send(ends.from, make_message(*pool_, Lane::kData, t * kEach + i, 16, 1000 * (i % 50)), 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(until([&] { return a.seen.messages() == kThreads * kEach; }));
  std::array<std::uint64_t, kThreads> next{};
  for (const std::uint64_t number : numbers(a.seen.received(), ends.to, Lane::kData)) {
    EXPECT_EQ(number % kEach, next[number / kEach]++) << "each thread's messages keep their order";
  }
}

}  // namespace
}  // namespace collab::testing
