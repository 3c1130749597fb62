// The ucx transport: the suite over shared memory and over TCP, and how it behaves as a guest in a process.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "tests/transport/conformance.h"
#include "transport/ucx/ucx_transport.h"

extern char** environ;

namespace collab::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A socket of the system's own, for peers that do not speak UCX.
class PlainSocket {
 public:
  PlainSocket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  ~PlainSocket() { ::close(fd_); }
  PlainSocket(const PlainSocket&) = delete;
  PlainSocket& operator=(const PlainSocket&) = delete;

  std::string bind_free_port(bool listens) {
    socklen_t length = sizeof(address_);
    EXPECT_EQ(bind(fd_, generic(), sizeof(address_)), 0);
    EXPECT_EQ(getsockname(fd_, generic(), &length), 0);
    if (listens) {
      EXPECT_EQ(::listen(fd_, 8), 0);
    }
    return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port));
  }
  void connect_to(const std::string& address) {
    address_.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    EXPECT_EQ(::connect(fd_, generic(), sizeof(address_)), 0);
  }
  void write(const std::vector<char>& bytes) { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

 private:
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address_); }
  const int fd_;
  sockaddr_in address_{};
};

class UcxWorld final : public World {
 public:
  explicit UcxWorld(UcxOptions options) : options_(std::move(options)) { nobody_ = unused_.bind_free_port(false); }
  std::unique_ptr<Transport> make(const std::string&) override {
    auto made = make_ucx_transport(options_);
    COLLAB_CHECK(made.ok(), made.status().to_string());
    return std::move(*made);
  }
  [[nodiscard]] std::string any_port(const std::string&) const override { return "127.0.0.1:0"; }
  [[nodiscard]] std::string nobody() const override { return nobody_; }
  std::optional<std::string> silent() override { return silent_.bind_free_port(true); }

 private:
  const UcxOptions options_;
  PlainSocket unused_;  // bound, not listening
  PlainSocket silent_;  // listening, accepting nobody
  std::string nobody_;
};

constexpr int kNotAllowedHere = 77;

// This program again, as another process: see main().
pid_t spawn(const std::string& role, const std::string& argument) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "ucx_test", ("--role=" + role).c_str(), argument.c_str(), nullptr);
    _exit(127);
  }
  return child;
}

Subject subject(const std::string& name, UcxOptions options, std::size_t peers) {
  const auto role = options.transports.empty() ? "peer" : "peer-tcp";
  return {name, [options] { return std::make_unique<UcxWorld>(options); }, true, peers,
          [role](const std::string& address) { return spawn(role, address); }};
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         ::testing::Values(subject("chosen_by_ucx", {}, 16),
                                           subject("tcp", {.connections = 4, .transports = "tcp"}, 4),
                                           subject("one_connection", {.connections = 1, .transports = "tcp"}, 2)),
                         subject_name);

struct Pair {
  Peer a, b;
  LinkId link;
  explicit Pair(UcxOptions options = {}) {
    for (Peer* peer : {&a, &b}) {
      peer->transport = std::move(*make_ucx_transport(options));
      EXPECT_TRUE(peer->transport->start(&peer->seen).ok());
    }
    a.address = *a.transport->listen("127.0.0.1:0");
    link = b.transport->connect(a.address, seconds(10));
    EXPECT_TRUE(until([&] { return b.seen.connected(link) && a.seen.accepted().size() == 1; }));
  }
  static bool until(const std::function<bool()>& holds, milliseconds limit = seconds(10)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!holds() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    return holds();
  }
  void check_it_works() {
    const auto before = a.seen.messages();
    b.transport->send(link, make_message(*make_buffer_pool(), Lane::kData, 1, 16, 1 << 20), 0);
    EXPECT_TRUE(until([&] { return a.seen.messages() == before + 1; }));
  }
};

// Local addresses of this process's listening IPv4 sockets, as /proc has them: 0100007F is 127.0.0.1.
std::set<std::string> listening_at() {
  std::set<std::string> inodes, found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::vector<std::string> column{std::istream_iterator<std::string>(words), {}};
    if (column.size() > 9 && column[3] == "0A" && inodes.count(column[9]) > 0) found.insert(column[1].substr(0, 8));
  }
  return found;
}

// UCX's workers listen too, at ports of their own.
TEST(Ucx, ListensOnlyWhereConfigured) {
  if (std::getenv("UCX_NET_DEVICES") != nullptr) GTEST_SKIP() << "UCX_NET_DEVICES says where";
  const Pair pair({.listen = "127.0.0.1:0", .transports = "tcp"});
  EXPECT_EQ(listening_at(), std::set<std::string>{"0100007F"});
}

TEST(UcxGuest, LeavesSignalsAndEnvironmentAlone) {
  const auto handlers = [] {
    std::vector<void*> all;
    for (int signal = 1; signal < 32; ++signal) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      all.push_back(reinterpret_cast<void*>(action.sa_handler));
    }
    return all;
  };
  const auto variables = [] {
    std::vector<std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
    return all;
  };
  const auto handlers_before = handlers();
  const auto variables_before = variables();
  char** const array_before = environ;
  {
    Pair pair;
    pair.check_it_works();
    EXPECT_EQ(handlers(), handlers_before);
    EXPECT_EQ(variables(), variables_before);
  }
  EXPECT_EQ(handlers(), handlers_before);
  EXPECT_EQ(environ, array_before);
}

TEST(UcxGuest, SleepsWhenIdle) {
  Pair pair;
  pair.check_it_works();
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const auto before = used();
  ::poll(nullptr, 0, 500);
  EXPECT_LT(used() - before, milliseconds(25)) << "of processor time in half a second without traffic";
}

TEST(UcxGuest, GivesBackFilesAndThreads) {
  const auto entries = [](const char* directory) {
    return std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator());
  };
  { Pair first; }  // what UCX keeps for good
  const auto files = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  for (int i = 0; i < 3; ++i) {
    Pair pair;
    pair.check_it_works();
  }
  EXPECT_TRUE(Pair::until([&] { return entries("/proc/self/fd") <= files; })) << entries("/proc/self/fd") - files;
  EXPECT_TRUE(Pair::until([&] { return entries("/proc/self/task") <= threads; }));
}

TEST(UcxGuest, AForkedChildLeavesTheParentsLinksAlone) {
  auto pair = std::make_unique<Pair>();
  pair->check_it_works();
  const pid_t child = fork();
  if (child == 0) {
    pair->b.transport->send(pair->link, {}, 0);
    pair->b.transport->close(pair->link);
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

TEST(Ucx, NamesAreLookedUp) {
  Pair pair;
  const std::string port = pair.a.address.substr(pair.a.address.rfind(':'));
  const LinkId link = pair.b.transport->connect("localhost" + port, seconds(10));
  EXPECT_TRUE(Pair::until([&] { return pair.b.seen.connected(link); }));
  const LinkId unknown = pair.b.transport->connect("no-such-host.invalid" + port, seconds(10));
  ASSERT_TRUE(Pair::until([&] { return pair.b.seen.closed(unknown).has_value(); }, seconds(12)));
  EXPECT_NE(pair.b.seen.closed(unknown)->message().find("no-such-host.invalid"), std::string::npos);
}

TEST(Ucx, ListensEverywhereAndGivesTheHostToAdvertise) {
  Pair pair;
  Peer advertised;
  advertised.transport = std::move(*make_ucx_transport({.advertise_host = "paris.example"}));
  ASSERT_TRUE(advertised.transport->start(&advertised.seen).ok());
  const auto everywhere = advertised.transport->listen("0.0.0.0:0");
  ASSERT_TRUE(everywhere.ok()) << everywhere.status().to_string();
  EXPECT_EQ(everywhere->substr(0, 14), "paris.example:");
  const LinkId link = pair.b.transport->connect("127.0.0.1" + everywhere->substr(13), seconds(10));
  EXPECT_TRUE(Pair::until([&] { return pair.b.seen.connected(link); }));
}

TEST(Ucx, StrangersBytesDoNoHarm) {
  Pair pair({.transports = "tcp"});
  std::uint64_t state = 12345;
  for (int i = 0; i < 5; ++i) {
    PlainSocket stranger;
    stranger.connect_to(pair.a.address);
    std::vector<char> bytes(4000);
    for (auto& byte : bytes) byte = static_cast<char>((state = state * 6364136223846793005 + 1) >> 56);
    stranger.write(bytes);
  }
  pair.check_it_works();
  EXPECT_EQ(pair.a.seen.accepted().size(), 1U);
}

TEST(Ucx, OnlyNearAddressesAreDialledUnlessAskedFor) {
  Pair pair;
  const LinkId link = pair.b.transport->connect("93.184.216.34:29400", seconds(10));
  ASSERT_TRUE(Pair::until([&] { return pair.b.seen.closed(link).has_value(); }));
  const Status why = *pair.b.seen.closed(link);
  EXPECT_EQ(why.code(), StatusCode::kRefused);
  for (const char* words : {"93.184.216.34:29400", "not encrypted", "COLLAB_TOKEN", "COLLAB_INSECURE=1"}) {
    EXPECT_NE(why.message().find(words), std::string::npos) << why.message();
  }
}

// A dialler from afar is turned away, though the port is open to all.
TEST(Ucx, OnlyNearAddressesAreAcceptedUnlessAskedFor) {
  int status = -1;
  const pid_t child = spawn("called-from-afar", "");
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNotAllowedHere) GTEST_SKIP() << "no network of its own for a process here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Ucx, SaysWhatItLoaded) {
  const auto description = ucx_description("");
  ASSERT_TRUE(description.ok()) << description.status().to_string();
  EXPECT_EQ(description->version.substr(0, 2), "1.");
  EXPECT_TRUE(std::filesystem::exists(description->path)) << description->path;
}

TEST(Ucx, SaysWhyItIsMissing) {
  int status = -1;
  const char* const before = getenv("COLLAB_UCX_LIBRARY");
  const std::string saved = before != nullptr ? before : "";
  setenv("COLLAB_UCX_LIBRARY", "/nonexistent/libucp.so.0", 1);
  const pid_t child = spawn("expect-no-ucx", "");
  if (before != nullptr) {
    setenv("COLLAB_UCX_LIBRARY", saved.c_str(), 1);
  } else {
    unsetenv("COLLAB_UCX_LIBRARY");
  }
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Ucx, OptionsAreBounded) {
  for (const std::uint32_t connections : {0U, 17U}) {
    const auto made = make_ucx_transport({.connections = connections});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  }
  const auto made = make_ucx_transport({.transports = "carrier_pigeon"});
  EXPECT_FALSE(made.ok());
}

// In a network of its own, whose one address is public: 0 when a call from there is refused, and taken once asked for.
int called_from_afar() {
  const uid_t user = getuid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return kNotAllowedHere;
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";  // so that `ip` keeps the right to its network
  if (std::system("ip link set lo up && ip addr flush dev lo && ip addr add 203.0.113.7/32 dev lo") != 0)
    return kNotAllowedHere;
  Peer careful, open;
  careful.transport = std::move(*make_ucx_transport({.transports = "tcp"}));
  open.transport = std::move(*make_ucx_transport({.transports = "tcp", .insecure = true}));
  for (Peer* peer : {&careful, &open}) {
    if (!peer->transport->start(&peer->seen).ok()) return 2;
    peer->address = *peer->transport->listen("203.0.113.7:0");
  }
  const LinkId refused = open.transport->connect(careful.address, seconds(10));
  const LinkId taken = open.transport->connect(open.address, seconds(10));
  if (!Pair::until([&] { return open.seen.connected(taken) && open.seen.closed(refused).has_value(); })) return 3;
  return careful.seen.accepted().empty() && !open.seen.connected(refused) ? 0 : 4;
}

// The roles of spawned processes.
int run_role(const std::string& role, const std::string& argument) {
  if (role == "called-from-afar") return called_from_afar();
  auto made = make_ucx_transport({.transports = role == "peer-tcp" ? "tcp" : ""});
  if (role == "expect-no-ucx") {
    const std::string message = made.ok() ? "" : made.status().message();
    return message.find("/nonexistent") != std::string::npos && message.find("pip install") != std::string::npos ? 0
                                                                                                                 : 1;
  }
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
  (*made)->connect(argument, seconds(10));
  alarm(60);
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
