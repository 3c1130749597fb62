// Stands between two tcp transports and does what networks do: cuts connections, swallows bytes, keeps a copy.
//
// Threads: its own moves the bytes; the functions may be called from any other. Ownership: owns its sockets.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/plain_socket.h"

namespace collab::testing {

class TcpProxy {
 public:
  explicit TcpProxy(std::string target) : target_(std::move(target)) {
    address_ = listener_->bind_free_port(true);
    thread_ = std::thread([this] { run(); });
  }
  ~TcpProxy() {
    stop_ = true;
    thread_.join();
  }
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  void cut() { cuts_ = 1'000'000; }  // every connection
  // Every connection, in the midst of traffic: whenever so many bytes have passed, so many times.
  void cut_every(std::uint64_t bytes, std::uint64_t times) {
    cut_step_ = bytes;
    cut_at_ = bytes_ + bytes;
    planned_cuts_ = times;
  }
  [[nodiscard]] std::uint64_t planned_cuts() const { return planned_cuts_; }
  void cut_newest() { cuts_ = 1; }
  void swallow(bool on) { swallow_ = on; }  // nothing passes, nothing ends
  void lead_to(const std::string& target) {
    const std::lock_guard lock(mutex_);
    target_ = target;
  }
  void keep_copy() { copies_ = true; }
  [[nodiscard]] std::string copy() const {
    const std::lock_guard lock(mutex_);
    return copy_;
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t connections() const { return connections_; }
  [[nodiscard]] std::size_t admitted() const { return admitted_; }  // so far

 private:
  struct Way {
    int from = -1, to = -1;
    std::vector<char> waiting;
  };
  struct Passage {
    int near = -1, far = -1;
    std::array<Way, 2> ways;
    bool over = false;
  };

  void run() {
    while (!stop_) {
      for (; cuts_ > 0 && !passages_.empty(); --cuts_) close_last();
      cuts_ = 0;
      std::vector<pollfd> files{{listener_->fd(), POLLIN, 0}};
      for (const Passage& passage : passages_) {
        for (const Way& way : passage.ways) {
          if (swallow_) break;
          files.push_back(way.waiting.empty() ? pollfd{way.from, POLLIN, 0} : pollfd{way.to, POLLOUT, 0});
        }
      }
      ::poll(files.data(), files.size(), 2);
      if ((files[0].revents & POLLIN) != 0) admit();
      if (swallow_) continue;
      for (Passage& passage : passages_) {
        for (Way& way : passage.ways) passage.over = passage.over || !move(way);
      }
      std::erase_if(passages_, [](const Passage& passage) {
        if (passage.over) shut(passage);
        return passage.over;
      });
      connections_ = passages_.size();
      if (planned_cuts_ == 0 || bytes_ < cut_at_) continue;
      while (!passages_.empty()) close_last();
      cut_at_ = bytes_ + cut_step_;
      --planned_cuts_;
    }
    while (!passages_.empty()) close_last();
  }
  static void shut(const Passage& passage) {
    ::close(passage.near);
    ::close(passage.far);
  }
  void close_last() {
    shut(passages_.back());
    passages_.pop_back();
    connections_ = passages_.size();
  }
  void admit() {
    Passage passage;
    passage.near = ::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC);
    passage.far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    {
      const std::lock_guard lock(mutex_);
      to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(target_.substr(target_.rfind(':') + 1))));
    }
    if (::connect(passage.far, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return shut(passage);
    for (const int fd : {passage.near, passage.far}) fcntl(fd, F_SETFL, O_NONBLOCK);
    passage.ways = {Way{passage.near, passage.far, {}}, Way{passage.far, passage.near, {}}};
    passages_.push_back(std::move(passage));
    connections_ = passages_.size();
    ++admitted_;
  }
  // False: one side has ended.
  bool move(Way& way) {
    if (way.waiting.empty()) {
      way.waiting.resize(64 << 10);
      const ssize_t got = ::recv(way.from, way.waiting.data(), way.waiting.size(), 0);
      way.waiting.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
      if (got > 0) bytes_ += static_cast<std::uint64_t>(got);
      if (copies_ && got > 0) {
        const std::lock_guard lock(mutex_);
        copy_.append(way.waiting.data(), way.waiting.size());
      }
    }
    if (way.waiting.empty()) return true;
    const ssize_t put = ::send(way.to, way.waiting.data(), way.waiting.size(), MSG_NOSIGNAL);
    if (put < 0 && errno != EAGAIN) return false;
    if (put > 0) way.waiting.erase(way.waiting.begin(), way.waiting.begin() + put);
    return true;
  }

  std::unique_ptr<PlainSocket> listener_ = std::make_unique<PlainSocket>();
  std::string address_;
  mutable std::mutex mutex_;
  std::string target_;
  std::string copy_;
  std::atomic<bool> stop_{false}, swallow_{false}, copies_{false};
  std::atomic<int> cuts_{0};
  std::atomic<std::uint64_t> bytes_{0}, cut_at_{0}, cut_step_{0}, planned_cuts_{0};
  std::atomic<std::size_t> connections_{0}, admitted_{0};
  std::vector<Passage> passages_;
  std::thread thread_;
};

}  // namespace collab::testing
