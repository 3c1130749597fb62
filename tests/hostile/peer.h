// The attacker's own transport, the production one, and what it counts.
//
// Threads: Peer's calls from one thread; the transport's calls come from its own. Ownership: owns the transport.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "collab/transport.h"
#include "core/wire/encoding.h"
#include "core/wire/messages.h"
#include "transport/tcp/tcp_transport.h"

namespace collab::hostile {

struct Counts {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t opened = 0;
  std::uint64_t failed = 0;                      // dials
  std::uint64_t arrived = 0;                     // what the other side shows to have come: each attack says what
  std::map<std::string, std::uint64_t> endings;  // how links were closed by the target
  std::map<std::string, std::uint64_t> answers;  // messages that came, with a refusal's words

  void ended(const std::string& why) { ++entry(endings, why); }
  void answered(const std::string& what) { ++entry(answers, what); }
  void arrives(std::uint64_t times = 1) { arrived += times; }

 private:
  // One line for all words that differ only in numbers and names.
  static std::uint64_t& entry(std::map<std::string, std::uint64_t>& in, const std::string& words);
};

class Peer final : public TransportHandler {
 public:
  static Result<std::unique_ptr<Peer>> make(const TcpOptions& options, Counts& counts);
  ~Peer() override;

  // An address for others to dial. Nothing that comes there is answered.
  [[nodiscard]] Result<std::string> listen() { return transport_->listen("127.0.0.1:0"); }
  // No value: there was no answer.
  [[nodiscard]] std::optional<LinkId> dial(const std::string& address);
  [[nodiscard]] bool is_open(LinkId link);
  void close(LinkId link);

  // Waits while more is on its way than the window holds, at most so long; false: it was not sent.
  bool send(LinkId link, const wire::Message& message, BufferPtr payload = nullptr);
  bool send_frame(LinkId link, std::vector<std::byte> head, BufferPtr payload, Lane lane);

  // The next message on this link that is of this kind; others are passed over.
  template <typename M>
  [[nodiscard]] std::optional<M> wait_for(LinkId link, Duration limit) {
    const TimePoint until = clock_.now() + limit;
    while (std::optional<wire::Message> message = next(link, until - clock_.now())) {
      if (auto* wanted = std::get_if<M>(&*message)) return std::move(*wanted);
    }
    return std::nullopt;
  }
  // Nothing: none came in time, or the link is closed.
  [[nodiscard]] std::optional<wire::Message> next(LinkId link, Duration limit);

  void on_accepted(LinkId, const std::string&) override {}
  void on_connected(LinkId link) override;
  void on_message(LinkId link, TransportMessage message) override;
  void on_sent(LinkId link, std::uint64_t token) override;
  void on_closed(LinkId link, Status why) override;

 private:
  explicit Peer(Counts& counts) : counts_(counts) {}

  struct Line {
    bool connected = false;
    bool closed = false;
    bool ours = false;      // closed by us
    std::size_t waits = 0;  // bytes that have not left
    std::deque<wire::Message> came;
  };

  SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Counts& counts_;  // guarded by mutex_ while the transport lives, as are the next ones
  std::map<LinkId, Line> lines_;
  std::map<std::uint64_t, std::size_t> costs_;  // by token
  std::uint64_t next_token_ = 1;
  std::unique_ptr<Transport> transport_;
};

}  // namespace collab::hostile
