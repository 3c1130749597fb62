// A token takes the place of another while links stand: who has the new one loses nothing, who has only the old one is
// out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/transport/tcp_world.h"

namespace collab::testing {
namespace {

using std::chrono::seconds;

// As a careful administrator writes it: there is no moment in which it is half there.
class TokenFile {
 public:
  explicit TokenFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("collab-" + name + "-" + std::to_string(getpid()))) {}
  ~TokenFile() { std::filesystem::remove(path_); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  void hold(const std::vector<std::string>& tokens) const {
    const std::filesystem::path fresh = path_.string() + ".copy";
    std::ofstream out(fresh);
    for (const std::string& token : tokens) out << token << "\n";
    out.close();
    std::filesystem::permissions(fresh, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::rename(fresh, path_);
  }
  void hang() const {
    const std::string pipe = path_.string() + ".pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::filesystem::rename(pipe, path_);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] TcpOptions options() const {
    TcpOptions options;
    options.token_file = path_.string();
    return options;
  }

 private:
  const std::filesystem::path path_;
};

std::size_t count_of(const std::string& words, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) ++count;
  return count;
}

TEST(TcpKeys, ATokenIsReplacedWithoutAStop) {
  const TokenFile file("rotated");
  file.hold({kToken});
  Peer a, b, c;
  TcpPair::begin(a, file.options());
  const std::string address = *a.transport->listen("127.0.0.1:0");
  TcpPair::begin(b, by_token(kToken));
  TcpPair::begin(c, by_token(kOtherToken));
  const auto dials = [&](Peer& peer) {
    const LinkId link = peer.transport->connect(address, seconds(5));
    EXPECT_TRUE(until([&] { return peer.seen.connected(link) || peer.seen.closed(link).has_value(); }));
    const bool connected = peer.seen.connected(link);
    peer.transport->close(link);  // of links that say nothing only so many are kept
    return connected;
  };
  EXPECT_TRUE(dials(b));
  EXPECT_FALSE(dials(c));
  file.hold({kOtherToken, kToken});
  EXPECT_TRUE(until([&] { return dials(c); })) << "the file is looked at again";
  EXPECT_TRUE(dials(b)) << "and the older one is accepted";
  file.hold({kOtherToken});
  EXPECT_TRUE(until([&] { return !dials(b); }));
  EXPECT_TRUE(dials(c));
}

// A pipe in the file's place: opening it waits until somebody writes into it, as for a network's file system.
TEST(TcpKeys, AFileThatDoesNotAnswerHoldsUpNoLink) {
  const TokenFile file("hung");
  file.hold({kToken});
  TcpOptions options = file.options();
  options.link_grace = seconds(2);
  TcpPair pair(options);
  pair.link();
  file.hang();
  int gate = -1;
  ASSERT_TRUE(until([&] {
    if (gate < 0) gate = ::open(file.path().c_str(), O_WRONLY | O_NONBLOCK);
    return gate >= 0;  // it is read
  }));
  const auto ends = std::chrono::steady_clock::now() + seconds(2);
  for (std::size_t sent = 1; std::chrono::steady_clock::now() < ends; ++sent) {
    pair.send(Lane::kData, sent, 1000);
    ASSERT_TRUE(until([&] { return pair.a.seen.messages() == sent; }));
    ASSERT_FALSE(pair.b.seen.closed(pair.from).has_value());
  }
  Peer newcomer;
  options = by_token(kToken);
  options.link_grace = seconds(2);
  TcpPair::begin(newcomer, options);
  const LinkId link = newcomer.transport->connect(pair.a.address, seconds(5));
  EXPECT_TRUE(until([&] { return newcomer.seen.connected(link); })) << "what it held before goes on";
  file.hold({kOtherToken});
  ::close(gate);
  EXPECT_TRUE(until([&] { return newcomer.seen.closed(link).has_value(); })) << "and it is looked at again";
}

// A link to somebody who has the old token only, dialled by either side, beside one to a member that has moved over.
class OldToken : public ::testing::TestWithParam<bool> {
 protected:
  OldToken() {
    file_.hold({kToken});
    TcpOptions options = file_.options();
    options.link_grace = seconds(2);
    TcpPair::begin(keeper_, options);
    options = by_token(kToken);
    options.link_grace = seconds(2);
    TcpPair::begin(thief_, options);
    options = by_token(kOtherToken);
    options.connections = 1;
    TcpPair::begin(member_, options);
    keeper_.address = *keeper_.transport->listen("127.0.0.1:0");
  }
  // The thief's end and the keeper's.
  std::pair<LinkId, LinkId> link_with_thief() {
    Peer& dials = GetParam() ? keeper_ : thief_;
    Peer& listens = GetParam() ? thief_ : keeper_;
    if (GetParam()) thief_.address = *thief_.transport->listen("127.0.0.1:0");
    const LinkId from = dials.transport->connect(listens.address, seconds(10));
    EXPECT_TRUE(until([&] { return dials.seen.connected(from) && listens.seen.accepted().size() == 1; }));
    const LinkId to = listens.seen.accepted().at(0);
    return GetParam() ? std::pair(to, from) : std::pair(from, to);
  }
  bool arrives(Peer& from, LinkId link) {
    const std::size_t before = keeper_.seen.messages();
    from.transport->send(link, make_message(*pool_, Lane::kData, 1, 16, 1000), 0);
    return until([&] { return keeper_.seen.messages() == before + 1; });
  }

  const TokenFile file_{"dropped"};
  const std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  Peer keeper_, thief_, member_;
};
INSTANTIATE_TEST_SUITE_P(Tcp, OldToken, ::testing::Bool(),
                         [](const auto& each) { return std::string(each.param ? "OfTheListener" : "OfTheDialler"); });

TEST_P(OldToken, IsOutOnceTheFileNoLongerHoldsIt) {
  ::testing::internal::CaptureStderr();
  const auto [theirs, ours] = link_with_thief();
  file_.hold({kOtherToken, kToken});
  Peer newcomer;  // once it is let in, the file was read
  TcpPair::begin(newcomer, by_token(kOtherToken));
  EXPECT_TRUE(until([&] {
    const LinkId link = newcomer.transport->connect(keeper_.address, seconds(5));
    EXPECT_TRUE(until([&] { return newcomer.seen.connected(link) || newcomer.seen.closed(link).has_value(); }));
    return newcomer.seen.connected(link);
  }));
  const LinkId moved = member_.transport->connect(keeper_.address, seconds(5));
  const auto opened = [&] { return tcp_counters(*member_.transport).connections_opened; };
  EXPECT_TRUE(until([&] { return opened() == 2; })) << "one for the control lane, one for data";
  EXPECT_TRUE(arrives(member_, moved));
  EXPECT_TRUE(arrives(thief_, theirs)) << "the file still holds it";
  file_.hold({kOtherToken});
  EXPECT_TRUE(until([&] { return keeper_.seen.closed(ours) && thief_.seen.closed(theirs); }));
  EXPECT_TRUE(arrives(member_, moved));
  EXPECT_FALSE(member_.seen.closed(moved));
  EXPECT_EQ(opened(), 2U) << "what has the new one is left alone";
  EXPECT_EQ(tcp_counters(*member_.transport).links_resumed, 0U);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of("[token.dropped]", log), 1U) << log;
  EXPECT_EQ(count_of(kToken, log) + count_of(kOtherToken, log), 0U);
}

// Of a link between two whose files change: `b` has dialled. Whichever side takes the old token out first, nothing is
// lost.
class Rotates : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Tcp, Rotates, ::testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "TheDiallerFirst" : "TheListenerFirst");
});

TEST_P(Rotates, ALinkAndLosesNothing) {
  const TokenFile of_a("a"), of_b("b");
  of_a.hold({kToken});
  of_b.hold({kToken});
  const auto with = [](TcpOptions options) {
    options.connections = 2;
    options.death_wait = seconds(20);
    return options;
  };
  TcpPair pair(with(of_a.options()));
  Peer& b = pair.b;
  b.transport.reset();
  TcpPair::begin(b, with(of_b.options()));
  pair.link();
  std::uint64_t sent = 0;
  const auto some_come = [&] {
    for (int i = 0; i < 8; ++i) pair.send(Lane::kData, sent++, 200'000);
    return until([&] { return pair.a.seen.messages() == sent; });
  };
  of_a.hold({kOtherToken, kToken});
  of_b.hold({kOtherToken, kToken});
  Peer newcomer;  // once it is let in, the file was read
  TcpPair::begin(newcomer, by_token(kOtherToken));
  EXPECT_TRUE(until([&] {
    EXPECT_TRUE(some_come());
    const LinkId link = newcomer.transport->connect(pair.a.address, seconds(5));
    EXPECT_TRUE(until([&] { return newcomer.seen.connected(link) || newcomer.seen.closed(link).has_value(); }));
    return newcomer.seen.connected(link);
  }));
  const auto opened = [&] { return tcp_counters(*b.transport).connections_opened; };
  EXPECT_EQ(opened(), 3U) << "both hold both";
  (GetParam() ? of_b : of_a).hold({kOtherToken});
  EXPECT_TRUE(until([&] { return some_come() && opened() == 6; })) << "all three were made again";
  (GetParam() ? of_a : of_b).hold({kOtherToken});
  const auto until_looked = std::chrono::steady_clock::now() + seconds(2);
  EXPECT_TRUE(until([&] { return some_come() && std::chrono::steady_clock::now() > until_looked; }));
  EXPECT_EQ(opened(), 6U) << "it has moved over";
  EXPECT_EQ(pair.a.seen.closed_count() + b.seen.closed_count(), 0U);
  std::uint64_t next = 0;
  for (const Recorder::Received& entry : pair.a.seen.received()) {
    ASSERT_EQ(number_of(entry.message), next++);
    ASSERT_TRUE(follows_pattern(entry.message));
  }
}

}  // namespace
}  // namespace collab::testing
