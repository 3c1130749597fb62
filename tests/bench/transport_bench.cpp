// Two processes on this machine exchange 50 MB each way at once: a transport (B) against bare TCP sockets over
// loopback (A), one in each direction's hands. Then the time a small control message takes there and back.
//
//   transport_bench [--transport ucx|tcp] [--chunk-kib 1024] [--mb 50] [--pairs 15] [--connections 2] [--json FILE]
//     ucx: [--tls tcp] its UCX_TLS      tcp: [--token TEXT] encrypts; [--connections 0] finds their number
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/bench/bench.h"
#include "transport/tcp/tcp_transport.h"
#ifdef COLLAB_HAS_UCX
#include "transport/ucx/ucx_transport.h"
#endif

namespace collab::bench {
namespace {

struct Settings {
  std::size_t chunk_bytes = 0;
  std::size_t chunks = 0;
  std::string transport;
  std::uint32_t connections = 0;
  std::string ucx_tls;
  std::string token;
};

enum Word : std::uint8_t { kExchange = 1, kDone = 2, kPing = 3, kPong = 4 };

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "transport_bench: %s\n", what);
  std::exit(2);
}

std::unique_ptr<Transport> make_transport(const Settings& settings) {
  Result<std::unique_ptr<Transport>> made = unavailable("this build has no transport " + settings.transport);
  if (settings.transport == "tcp") {
    TcpOptions options;
    options.connections = settings.connections;
    options.token = settings.token;
    made = make_tcp_transport(options);
  }
#ifdef COLLAB_HAS_UCX
  if (settings.transport == "ucx") {
    UcxOptions options;
    options.connections = settings.connections;
    options.transports = settings.ucx_tls;
    made = make_ucx_transport(options);
  }
#endif
  require(made.ok(), made.status().to_string().c_str());
  return std::move(*made);
}

// Either side of the exchange. The child does what it is told by control messages; see Word.
class Side final : public TransportHandler {
 public:
  Side(const Settings& settings, bool child)
      : settings_(settings), child_(child), transport_(make_transport(settings)) {
    for (std::size_t i = 0; i < settings.chunks; ++i) {
      payloads_.push_back(pool_->take(settings.chunk_bytes));
      for (auto& byte : payloads_.back()->bytes()) byte = std::byte{1};
    }
    require(transport_->start(this).ok(), "the transport does not start");
  }
  ~Side() override { transport_.reset(); }

  Transport& transport() { return *transport_; }
  void wait_for_link() {
    wait([&] { return link_ != LinkId(); });
  }

  void exchange() {
    {
      const std::lock_guard lock(mutex_);
      taken_ = 0;
      done_ = false;
    }
    say(kExchange);
    send_chunks();
    wait([&] { return taken_ == settings_.chunks && done_; });
  }
  void ping() {
    {
      const std::lock_guard lock(mutex_);
      done_ = false;
    }
    say(kPing);
    wait([&] { return done_; });
  }

  void on_accepted(LinkId link, const std::string&) override { set_link(link); }
  void on_connected(LinkId link) override { set_link(link); }
  void on_sent(LinkId, std::uint64_t) override {}
  void on_message(LinkId, TransportMessage message) override {
    if (message.lane == Lane::kData) {
      const std::lock_guard lock(mutex_);
      if (++taken_ != settings_.chunks) return;
      if (child_) {
        taken_ = 0;
        say(kDone);
      }
      changed_.notify_one();
      return;
    }
    switch (static_cast<Word>(message.head.at(0))) {
      case kExchange: send_chunks(); return;
      case kPing: say(kPong); return;
      case kDone:
      case kPong: break;
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_one();
  }
  void on_closed(LinkId, Status) override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }

 private:
  void set_link(LinkId link) {
    const std::lock_guard lock(mutex_);
    link_ = link;
    changed_.notify_one();
  }
  void say(Word word) { transport_->send(link_, {Lane::kControl, {std::byte{word}}, nullptr}, 0); }
  void send_chunks() {
    for (const auto& payload : payloads_) {
      transport_->send(link_, {Lane::kData, std::vector<std::byte>(64), payload}, 0);
    }
  }
  template <typename Holds>
  void wait(Holds holds) {
    std::unique_lock lock(mutex_);
    require(changed_.wait_for(lock, std::chrono::seconds(30), holds), "the other side does not answer");
  }

  const Settings settings_;
  const bool child_;
  const std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::vector<BufferPtr> payloads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  LinkId link_;
  std::size_t taken_ = 0;
  bool done_ = false;
  bool closed_ = false;
  std::unique_ptr<Transport> transport_;
};

// Bare sockets: a thread writes all chunks while this one reads as many.
class Sockets {
 public:
  explicit Sockets(const Settings& settings)
      : out_(settings.chunk_bytes), in_(settings.chunk_bytes), settings_(settings) {}
  int fd = -1;

  void exchange() {
    std::thread writer([this] {
      for (std::size_t i = 0; i < settings_.chunks; ++i) {
        for (std::size_t done = 0; done < out_.size();) {
          const auto n = ::send(fd, out_.data() + done, out_.size() - done, MSG_NOSIGNAL);
          require(n > 0, "a socket does not take bytes");
          done += static_cast<std::size_t>(n);
        }
      }
    });
    for (std::size_t i = 0; i < settings_.chunks; ++i) {
      require(::recv(fd, in_.data(), in_.size(), MSG_WAITALL) == static_cast<ssize_t>(in_.size()), "a socket closed");
    }
    writer.join();
  }
  // The child takes part until the parent closes.
  void serve() {
    char go = 0;
    while (::recv(fd, &go, 1, MSG_WAITALL) == 1) exchange();
  }
  void lead() {
    const char go = 1;
    require(::send(fd, &go, 1, MSG_NOSIGNAL) == 1, "a socket does not take bytes");
    exchange();
  }

 private:
  std::vector<char> out_, in_;
  const Settings settings_;
};

int child(const Settings& settings, const std::string& address, std::uint16_t tcp_port) {
  Side side(settings, true);
  side.transport().connect(address, std::chrono::seconds(10));
  side.wait_for_link();
  Sockets sockets(settings);
  sockets.fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(tcp_port);
  require(::connect(sockets.fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0, "no TCP connection");
  sockets.serve();
  return 0;
}

int run(int argc, char** argv) {
  Settings settings;
  const auto number = [&](const char* name, const char* otherwise) {
    return static_cast<std::size_t>(std::strtoull(argument(argc, argv, name, otherwise).c_str(), nullptr, 10));
  };
  settings.chunk_bytes = number("--chunk-kib", "1024") << 10;
  settings.chunks = (number("--mb", "50") * 1'000'000 + settings.chunk_bytes - 1) / settings.chunk_bytes;
#ifdef COLLAB_HAS_UCX
  settings.transport = argument(argc, argv, "--transport", "ucx");
#else
  settings.transport = argument(argc, argv, "--transport", "tcp");
#endif
  settings.connections = static_cast<std::uint32_t>(number("--connections", "2"));
  settings.ucx_tls = argument(argc, argv, "--tls", "");
  settings.token = argument(argc, argv, "--token", "");
  if (const std::string address = argument(argc, argv, "--child", ""); !address.empty()) {
    return child(settings, address, static_cast<std::uint16_t>(number("--tcp-port", "0")));
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(own);
  require(bind(listener, reinterpret_cast<sockaddr*>(&own), length) == 0 && ::listen(listener, 1) == 0 &&
              getsockname(listener, reinterpret_cast<sockaddr*>(&own), &length) == 0,
          "no TCP port");
  Side side(settings, false);
  const std::string address = *side.transport().listen("127.0.0.1:0");
  const pid_t other = fork();
  if (other == 0) {
    const std::string port = std::to_string(ntohs(own.sin_port));
    std::vector<char*> words(argv, argv + argc);
    for (const std::string& word : {std::string("--child"), address, std::string("--tcp-port"), port}) {
      words.push_back(strdup(word.c_str()));
    }
    words.push_back(nullptr);
    execv("/proc/self/exe", words.data());
    _exit(127);
  }
  side.wait_for_link();
  Sockets sockets(settings);
  sockets.fd = accept(listener, nullptr, nullptr);

  const std::size_t pairs = number("--pairs", "15");
  const Pairs exchange = interleave(
      pairs, [&] { sockets.lead(); }, [&] { side.exchange(); });
  constexpr int kPings = 2000;
  const double ping_seconds = seconds_of([&] {
    for (int i = 0; i < kPings; ++i) side.ping();
  });
  const auto bytes = static_cast<double>(settings.chunks * settings.chunk_bytes);
  Report report("two processes exchange " + std::to_string(settings.chunks) + " chunks of " +
                std::to_string(settings.chunk_bytes >> 10) + " KiB each way: bare TCP (A), " + settings.transport +
                " (B)");
  report.add("exchange", exchange, 0);
  report.add_figure("TCP goodput", bytes / median_interval(exchange.a_seconds).median / 1e9, "GB/s each way", 0);
  report.add_figure(settings.transport + " goodput", bytes / median_interval(exchange.b_seconds).median / 1e9,
                    "GB/s each way", 0);
  report.add_figure("control there and back", 1e6 * ping_seconds / kPings, "microseconds", 0);
  ::close(sockets.fd);
  ::close(listener);
  waitpid(other, nullptr, 0);
  return finish(report, argc, argv);
}

}  // namespace
}  // namespace collab::bench

int main(int argc, char** argv) { return collab::bench::run(argc, argv); }
