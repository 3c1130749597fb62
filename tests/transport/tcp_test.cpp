// The tcp transport: the suite in the clear and in TLS, how it behaves as a guest in a process, who it lets in.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/transport/tcp_world.h"

namespace collab::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// This program again, as another process: see main().
pid_t spawn(const std::string& role, const std::string& argument) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "tcp_test", ("--role=" + role).c_str(), argument.c_str(), nullptr);
    _exit(127);
  }
  return child;
}

// Sanitizers take long over what a killed peer had sent, and its end comes behind that.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr milliseconds kDeathWait{100};
#else
constexpr milliseconds kDeathWait{600};
#endif

TcpOptions with_connections(TcpOptions options, std::uint32_t connections) {
  options.connections = connections;
  return options;
}

Subject subject(const std::string& name, TcpOptions options, std::size_t peers) {
  options.death_wait = kDeathWait;
  const std::string role = options.token.empty() ? (options.tls_cert.empty() ? "clear" : "certificates") : "token";
  return {name, [options] { return std::make_unique<TcpWorld>(options); }, true, peers,
          [role](const std::string& address) { return spawn(role, address); }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance,
                         ::testing::Values(subject("clear", {}, 16), subject("token", by_token(), 16),
                                           subject("certificates", with_connections(by_certificates(), 4), 4)),
                         subject_name);

// ---- a guest in a process ------------------------------------------------------------------------

class TcpIdle : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Connections, TcpIdle, ::testing::Values(0, 64), ::testing::PrintToStringParamName());

TEST_P(TcpIdle, Sleeps) {
  TcpPair pair(with_connections(by_token(), GetParam()));
  pair.link();
  ASSERT_TRUE(until([&] { return tcp_counters(*pair.b.transport).connections_opened > GetParam(); }));
  pair.check_it_works();
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr auto kMost = milliseconds(125);  // their own work is never done
#else
  constexpr auto kMost = milliseconds(25);
#endif
  const auto before = used();
  ::poll(nullptr, 0, 500);
  EXPECT_LT(used() - before, kMost) << "of processor time in half a second without traffic";
}

TEST(TcpGuest, GivesBackFilesAndThreads) {
  const auto entries = [](const char* directory) {
    return std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator());
  };
  { TcpPair first(by_token()); }
  const auto files = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  for (int i = 0; i < 3; ++i) {
    TcpPair pair(by_token());
    pair.link();
    pair.check_it_works();
  }
  EXPECT_TRUE(until([&] { return entries("/proc/self/fd") <= files; })) << entries("/proc/self/fd") - files;
  EXPECT_TRUE(until([&] { return entries("/proc/self/task") <= threads; }));
}

TEST(TcpGuest, AForkedChildLeavesTheParentsLinksAlone) {
  auto pair = std::make_unique<TcpPair>();
  pair->link();
  pair->check_it_works();
  const pid_t child = fork();
  if (child == 0) {
    pair->b.transport->send(pair->from, {}, 0);
    pair->b.transport->close(pair->from);
    const bool refused = !pair->b.transport->listen("127.0.0.1:0").ok();
    pair->b.transport.reset();
    pair->a.transport.reset();
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  pair->check_it_works();
  EXPECT_EQ(pair->b.seen.closed_count(), 0U);
}

// A DataLoader worker, which may outlive its parent by far.
TEST(TcpGuest, AForkedChildKeepsNoPortOfItsParent) {
  Peer first;
  TcpPair::begin(first, {});
  const std::string address = *first.transport->listen("127.0.0.1:0");
  int gate[2];
  int begun[2];
  ASSERT_EQ(pipe(gate), 0);
  ASSERT_EQ(pipe(begun), 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    close(gate[1]);
    const bool told = write(begun[1], &byte, 1) == 1;
    _exit(static_cast<int>(read(gate[0], &byte, 1)) + (told ? 0 : 1));
  }
  ASSERT_EQ(read(begun[0], &byte, 1), 1);  // it closes what it has of its parent's as it begins
  first.transport.reset();
  Peer next;
  TcpPair::begin(next, {});
  const auto listens = next.transport->listen(address);
  EXPECT_TRUE(listens.ok()) << listens.status().to_string();
  for (const int end : {gate[0], gate[1], begun[0], begun[1]}) close(end);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(TcpGuest, LinksOfAKilledProcessEndThoughItsChildLivesOn) {
  Peer a;
  TcpPair::begin(a, {});
  const pid_t killed = spawn("parent", *a.transport->listen("127.0.0.1:0"));
  ASSERT_GT(killed, 0);
  EXPECT_EQ(waitpid(killed, nullptr, 0), killed);
  EXPECT_EQ(a.seen.accepted().size(), 1U);
  EXPECT_TRUE(until([&] { return a.seen.closed_count() == 1; }, seconds(4))) << "silence is noticed after five";
}

// Unhandled messages are bounded, and nothing is lost by that.
TEST(TcpUnhandled, ASenderThatIsFasterThanItsReaderWaits) {
  constexpr std::size_t kMessages = 24;
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  TcpOptions options;
  options.connections = 2;  // the last read of each may complete one more message
  for (const Lane lane : {Lane::kControl, Lane::kData}) {
    TcpPair pair(options);
    pair.a.seen.handles = false;
    pair.link();
    for (std::uint64_t i = 0; i < kMessages; ++i) pair.send(lane, i, kBytes);
    EXPECT_TRUE(until([&] { return pair.a.seen.messages() >= 8; }));
    EXPECT_FALSE(until([&] { return pair.a.seen.messages() > 12; }, milliseconds(300)))
        << "16 MiB, and what was read: " << pair.a.seen.messages();
    EXPECT_TRUE(until([&] {
      pair.a.seen.forget();
      return pair.a.seen.messages() == kMessages;
    }));
    EXPECT_EQ(pair.a.seen.closed_count(), 0U);
  }
}

TEST(TcpUnhandled, OneLinkThatIsNotReadHoldsUpNoOther) {
  TcpPair pair;
  pair.a.seen.handles = false;
  pair.link();
  for (std::uint64_t i = 0; i < 64; ++i) pair.send(Lane::kData, i, std::size_t{2} << 20);
  EXPECT_TRUE(until([&] { return pair.a.seen.messages() >= 8; }));
  const LinkId other = pair.b.transport->connect(pair.a.address, seconds(10));
  const auto before = pair.a.seen.messages();
  pair.b.transport->send(other, make_message(*pair.pool, Lane::kControl, 1, 16, 0), 0);
  EXPECT_TRUE(until([&] { return pair.a.seen.messages() > before; }));
}

TEST(Tcp, APeerThatAsksAndDoesNotReadIsDropped) {
  TcpPair pair;
  pair.b.seen.handles = false;  // then it is not read
  pair.link();
  for (std::uint64_t i = 0; i < 128; ++i) {
    pair.a.transport->send(pair.to, make_message(*pair.pool, Lane::kControl, i, 1 << 20, 0), 0);
  }
  ASSERT_TRUE(until([&] { return pair.a.seen.closed(pair.to).has_value(); }));
  EXPECT_NE(pair.a.seen.closed(pair.to)->message().find("64 MiB of control messages wait"), std::string::npos);
}

TEST(Tcp, ACertificateProvesItsNames) {
  TcpPair pair(by_certificates());
  pair.link();
  EXPECT_EQ(pair.a.seen.proved(pair.to), std::vector<std::string>{"site"});
  EXPECT_EQ(pair.b.seen.proved(pair.from), std::vector<std::string>{"site"});
  TcpPair token(by_token());
  token.link();
  EXPECT_EQ(token.a.seen.proved(token.to), std::vector<std::string>{});
}

TEST(Tcp, NamesAreLookedUp) {
  TcpPair pair;
  const std::string port = pair.a.address.substr(pair.a.address.rfind(':'));
  const LinkId link = pair.b.transport->connect("localhost" + port, seconds(10));
  EXPECT_TRUE(until([&] { return pair.b.seen.connected(link); }));
  const LinkId unknown = pair.b.transport->connect("no-such-host.invalid" + port, seconds(10));
  ASSERT_TRUE(until([&] { return pair.b.seen.closed(unknown).has_value(); }));
  EXPECT_NE(pair.b.seen.closed(unknown)->message().find("no-such-host.invalid"), std::string::npos);
}

TEST(Tcp, AnAddressThatLeadsNowhereIsPassedOver) {
  TcpOptions options;
  options.look_up = [](const std::string&) { return std::vector<std::string>{"127.0.0.2", "127.0.0.1"}; };
  TcpPair pair(options);
  const std::string port = pair.a.address.substr(pair.a.address.rfind(':') + 1);
  PlainSocket silent(INADDR_LOOPBACK + 1, static_cast<std::uint16_t>(std::stoi(port)));
  silent.bind_free_port(true);
  const LinkId link = pair.b.transport->connect("two.example:" + port, seconds(2));
  EXPECT_TRUE(until([&] { return pair.b.seen.connected(link) || pair.b.seen.closed(link); }));
  EXPECT_TRUE(pair.b.seen.connected(link));
}

TEST(Tcp, ListensEverywhereAndGivesTheHostToAdvertise) {
  TcpPair pair;
  for (const auto* everywhere : {"0.0.0.0:0", "[::]:0"}) {
    Peer advertised;
    TcpOptions options;
    options.advertise_host = "paris.example";
    TcpPair::begin(advertised, options);
    const auto address = advertised.transport->listen(everywhere);
    ASSERT_TRUE(address.ok()) << address.status().to_string();
    EXPECT_EQ(address->substr(0, 14), "paris.example:");
    const LinkId link = pair.b.transport->connect("127.0.0.1" + address->substr(13), seconds(10));
    EXPECT_TRUE(until([&] { return pair.b.seen.connected(link); }));
  }
}

TEST(Tcp, DeclaresItsAbilities) {
  EXPECT_FALSE(make_tcp({})->abilities().encrypts);
  const Abilities can = make_tcp(by_token())->abilities();
  EXPECT_TRUE(can.encrypts && can.resumes && can.crosses_nat && can.between_hosts && can.sees_peer_death);
}

// That so many MiB take to arrive, all queued at once.
double seconds_for(TcpPair& pair, std::uint64_t mebibytes) {
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < mebibytes; ++i) pair.send(Lane::kData, i, 1 << 20);
  EXPECT_TRUE(until([&] { return pair.a.seen.messages() == mebibytes; }));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

TEST(Tcp, CapsAreKept) {
  TcpOptions options;
  options.max_mbit_up = 80;  // 10 MB a second
  TcpPair pair(options);
  pair.link();
  const double seconds_taken = seconds_for(pair, 4);
  EXPECT_GT(seconds_taken, 0.3) << "4 MiB, half a megabyte of them at once";
  EXPECT_LT(seconds_taken, 10.0);
}

TEST(Tcp, ACapOnTheDownlinkHoldsTheSenderBack) {
  TcpOptions options;
  options.max_mbit_down = 80;
  TcpPair pair(options);
  pair.link();
  const double seconds_taken = seconds_for(pair, 16);
  EXPECT_GT(seconds_taken, 0.9);
  EXPECT_LT(seconds_taken, 10.0);
}

// A sender that is held back at its own end has nothing under way that could look lost.
TEST(Tcp, ATightCapCostsNothingTwice) {
  TcpOptions options;
  options.max_mbit_down = 10;
  options.connections = 12;
  TcpPair pair(options);
  pair.link();
  const double seconds_taken = seconds_for(pair, 4);
  EXPECT_GT(seconds_taken, 2.5) << "4 MiB at 1.25 MB/s";
  EXPECT_LT(seconds_taken, 15.0);
  const TcpCounters sender = tcp_counters(*pair.b.transport);
  EXPECT_LT(sender.segments_sent_again, 4U) << "of " << (4 << 20) / (16 << 10);
  EXPECT_EQ(sender.connections_opened, 13U);
}

// What waits to be sent keeps nobody from reading.
TEST(Tcp, ATightCapOneWayLeavesTheOtherAlone) {
  TcpOptions options;
  options.max_mbit_up = 1;
  options.max_mbit_down = 80;
  TcpPair pair(options);
  Peer fast;
  TcpPair::begin(fast, {});
  const LinkId link = fast.transport->connect(pair.a.address, seconds(10));
  ASSERT_TRUE(until([&] { return !pair.a.seen.accepted().empty(); }));
  for (std::uint64_t i = 0; i < 4; ++i) {
    pair.a.transport->send(pair.a.seen.accepted().back(), make_message(*pair.pool, Lane::kData, i, 16, 1 << 20), 0);
  }
  const auto begun = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < 8; ++i) {
    fast.transport->send(link, make_message(*pair.pool, Lane::kData, i, 16, 1 << 20), 0);
  }
  ASSERT_TRUE(until([&] { return pair.a.seen.messages() == 8; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(15))
      << "8 MiB at 10 MB/s, and not the half minute of the other way";
}

// ---- who is let in -------------------------------------------------------------------------------

struct Refused {
  Status dialler;
  std::string listeners_log;
};

Refused try_to_link(const TcpOptions& listener, const TcpOptions& dialler) {
  Refused result;
  ::testing::internal::CaptureStderr();
  {
    Peer a, b;
    TcpPair::begin(a, listener);
    TcpPair::begin(b, dialler);
    const auto address = a.transport->listen("127.0.0.1:0");
    EXPECT_TRUE(address.ok());
    const auto begun = std::chrono::steady_clock::now();
    const LinkId link = b.transport->connect(*address, seconds(10));
    EXPECT_TRUE(until([&] { return b.seen.closed(link).has_value(); }));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(8)) << "refused, not given up";
    result.dialler = b.seen.closed(link).value_or(Status());
    EXPECT_TRUE(until([&] { return tcp_counters(*a.transport).connections_refused > 0; }));
    EXPECT_TRUE(a.seen.accepted().empty());
  }
  result.listeners_log = ::testing::internal::GetCapturedStderr();
  return result;
}

void expect_words(const Refused& refused, const std::vector<std::string>& dialler,
                  const std::vector<std::string>& listener) {
  EXPECT_EQ(refused.dialler.code(), StatusCode::kRefused) << refused.dialler.to_string();
  for (const std::string& word : dialler) {
    EXPECT_NE(refused.dialler.message().find(word), std::string::npos) << word << " in " << refused.dialler.message();
  }
  for (const std::string& word : listener) {
    EXPECT_NE(refused.listeners_log.find(word), std::string::npos) << word << " in " << refused.listeners_log;
  }
  for (const std::string& secret : {kToken, kOtherToken}) {
    EXPECT_EQ(refused.dialler.message().find(secret), std::string::npos);
    EXPECT_EQ(refused.listeners_log.find(secret), std::string::npos);
  }
}

TEST(TcpKeys, AWrongTokenIsRefusedOnBothSides) {
  expect_words(try_to_link(by_token(), by_token(kOtherToken)), {"COLLAB_TOKEN", "`collab token`"},
               {"127.0.0.1", "COLLAB_TOKEN", "`collab token`"});
}

TEST(TcpKeys, NoTokenMeetsAToken) {
  expect_words(try_to_link(by_token(), {}), {"COLLAB_TOKEN"}, {"does not encrypt", "COLLAB_TOKEN"});
  expect_words(try_to_link({}, by_token()), {"COLLAB_TOKEN"}, {"encryption", "COLLAB_TOKEN"});
}

TEST(TcpKeys, ACertificateOfAnotherAuthorityIsRefused) {
  TcpOptions stranger = by_certificates("stranger");
  expect_words(try_to_link(by_certificates(), stranger), {"COLLAB_TLS_CA"}, {"COLLAB_TLS_CA"});
  stranger.tls_ca = stranger.tls_cert;
  expect_words(try_to_link(by_certificates(), stranger), {"COLLAB_TLS_CA"}, {"COLLAB_TLS_CA"});
  expect_words(try_to_link(stranger, by_certificates()), {"COLLAB_TLS_CA"}, {"COLLAB_TLS_CA"});
}

TEST(TcpKeys, ATokenMeetsCertificates) {
  expect_words(try_to_link(by_certificates(), by_token()), {"COLLAB_TOKEN"}, {"COLLAB_TLS_CA"});
  expect_words(try_to_link(by_token(), by_certificates()), {"COLLAB_TLS_CA"}, {"COLLAB_TOKEN"});
}

TEST(TcpKeys, WithoutAKeyOnlyPrivateAddressesAreDialled) {
  Peer peer;
  TcpPair::begin(peer, {});
  const LinkId link = peer.transport->connect("203.0.113.7:29400", seconds(10));
  ASSERT_TRUE(until([&] { return peer.seen.closed(link).has_value(); }));
  EXPECT_EQ(peer.seen.closed(link)->code(), StatusCode::kRefused);
  for (const auto* word : {"203.0.113.7", "COLLAB_TOKEN", "COLLAB_INSECURE=1"}) {
    EXPECT_NE(peer.seen.closed(link)->message().find(word), std::string::npos) << peer.seen.closed(link)->message();
  }
}

TEST(TcpKeys, ATokenComesFromAFile) {
  const auto file = std::filesystem::temp_directory_path() / ("collab-token-" + std::to_string(getpid()));
  std::ofstream(file) << kToken << "\n";
  TcpOptions options;
  options.token_file = file.string();
  Peer a;
  TcpPair::begin(a, options);
  Peer b;
  TcpPair::begin(b, by_token());
  const LinkId link = b.transport->connect(*a.transport->listen("127.0.0.1:0"), seconds(10));
  EXPECT_TRUE(until([&] { return b.seen.connected(link); }));
  std::filesystem::remove(file);
}

TEST(TcpKeys, WrongSettingsAreNamed) {
  const auto expect_names = [](const TcpOptions& options, const std::string& knob) {
    const auto made = make_tcp_transport(options);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(made.status().message().find(knob), std::string::npos) << made.status().message();
  };
  expect_names(by_token("guess"), "`collab token`");
  TcpOptions both = by_token();
  both.tls_cert = "x.pem";
  expect_names(both, "COLLAB_TLS_CERT");
  TcpOptions twice = by_token();
  twice.token_file = "x";
  expect_names(twice, "COLLAB_TOKEN_FILE");
  TcpOptions missing;
  missing.token_file = "/nonexistent/token";
  expect_names(missing, "/nonexistent/token");
  TcpOptions half = by_certificates();
  half.tls_ca.clear();
  expect_names(half, "COLLAB_TLS_CA");
  half = by_certificates();
  half.tls_key = by_certificates("stranger").tls_key;
  expect_names(half, "COLLAB_TLS_KEY");
  TcpOptions many;
  many.connections = 65;
  expect_names(many, "64");
}

// The roles of spawned processes: each sends without end until it is killed.
int run_role(const std::string& role, const std::string& address) {
  const TcpOptions options = role == "token" ? by_token() : role == "certificates" ? by_certificates() : TcpOptions();
  auto made = make_tcp_transport(options);
  Recorder seen;
  const auto payload = make_message(*make_buffer_pool(), Lane::kData, 0, 0, 1 << 20).payload;
  const auto send_one = [&](LinkId link) {
    (*made)->send(link, {Lane::kData, std::vector<std::byte>(16), payload}, 1);
  };
  seen.when_connected = [&](LinkId link) {
    for (int i = 0; i < 8; ++i) send_one(link);
  };
  seen.when_sent = [&](LinkId link, std::uint64_t) { send_one(link); };
  if (!made.ok() || !(*made)->start(&seen).ok()) return 2;
  const LinkId link = (*made)->connect(address, seconds(10));
  alarm(60);
  if (role == "parent") {
    until([&] { return seen.connected(link); });
    // A second connection may be under way, which a child would keep, not knowing of it.
    until([] { return false; }, milliseconds(500));
    if (fork() != 0) kill(getpid(), SIGKILL);
    for (const int standard : {0, 1, 2}) close(standard);  // who reads what this program says need not wait
    alarm(15);
  }
  pause();  // until killed
  return 3;
}

}  // namespace
}  // namespace collab::testing

int main(int argc, char** argv) {
  const std::string first = argc > 2 ? argv[1] : "";
  if (first.starts_with("--role=")) return collab::testing::run_role(first.substr(7), argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
