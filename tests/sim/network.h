// A network in virtual time, with a seed: delays, faults, and the order that links promise. SimTransport is a host's
// end of it.
//
// Everything that happens is an event in one queue ordered by (time, number); two runs with one seed are the same run.
// What a link carries arrives whole, once and in order within its lane, or the link closes: what transports promise.
// Threads: one. Ownership: owns the links and the queue, borrows the handlers.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "collab/transport.h"
#include "collab/types.h"
#include "core/base/prng.h"

namespace collab::sim {

struct NetworkOptions {
  Duration delay_min{2'000};
  Duration delay_mean{10'000};  // of what comes on top, exponential
  double bytes_per_second = 2e6;
};

using NodeId = std::uint32_t;

class Network {
 public:
  Network(NetworkOptions options, std::uint64_t seed) : options_(options), prng_(seed), pool_(make_buffer_pool()) {}

  // Time.
  [[nodiscard]] TimePoint now() const { return now_; }
  void at(TimePoint when, std::function<void()> what);
  [[nodiscard]] bool run_one();  // false when nothing is left to happen

  // Nodes. Each has a clock of its own, which shows now() unless it is told otherwise.
  [[nodiscard]] NodeId add();
  [[nodiscard]] std::size_t nodes() const { return hosts_.size(); }
  void start(NodeId node, TransportHandler* handler) { hosts_[node].handler = handler; }
  void on_timer(NodeId node, std::function<void()> what) { hosts_[node].on_timer = std::move(what); }
  // By the node's own clock, unless an earlier wake was asked for. Wakes may come early.
  void wake(NodeId node, TimePoint when);
  [[nodiscard]] TimePoint local_time(NodeId node) const { return local_time(hosts_[node]); }
  void set_clock_rate(NodeId node, double rate);
  void jump_clock(NodeId node, Duration by);  // forward: clocks are monotonic
  // In bytes a second, all its links together; without one each link has `bytes_per_second`.
  struct Line {
    double up = 0;
    double down = 0;
  };
  void set_line(NodeId node, Line line) { hosts_[node].line = line; }
  // Gone at once. `noticed`: the others see its links close. Otherwise they hear nothing more.
  void kill(NodeId node, bool noticed);
  // A node listens there, or did.
  [[nodiscard]] bool knows(const std::string& address) const { return listeners_.count(address) != 0; }
  // Bytes of control messages that a node has sent and that have not arrived.
  [[nodiscard]] std::size_t under_way(NodeId from) const { return hosts_[from].under_way; }

  // What a node does: see Transport.
  Result<std::string> listen(NodeId node, const std::string& address);
  [[nodiscard]] LinkId connect(NodeId from, const std::string& address, Duration timeout);
  void send(NodeId from, LinkId link, TransportMessage message, std::uint64_t token);
  void close(NodeId from, LinkId link);
  // It is sent, as its sender sees it, and comes nowhere.
  void swallow(NodeId from, LinkId link, std::uint64_t token) { sent(from, link, now_, token); }

  // Faults.
  void cut_links(NodeId node, Prng& choice);   // one of its links, or all, close at both ends
  void isolate(NodeId node, TimePoint until);  // what it sends and is sent waits until then
  void mute(NodeId node, TimePoint until);     // what it sends waits until then; it hears
  // The nodes of `side` and the others hear nothing of each other until then.
  void split(const std::vector<bool>& side, TimePoint until);
  void pause(NodeId node, TimePoint until);  // the process stands still
  void slow(NodeId node, double factor, TimePoint until);

 private:
  struct Link {
    std::array<NodeId, 2> ends{};
    bool made = false;                                                // the dial, by end 0, has succeeded
    std::vector<std::pair<TransportMessage, std::uint64_t>> waiting;  // until then
    std::array<std::array<TimePoint, 2>, 2> arrival{};                // the last one, by receiving end and lane
    std::array<TimePoint, 2> line_free{};                             // when the line towards that end is free again
    std::array<bool, 2> hung_up{};                                    // that end closes it: it hears nothing more
    std::array<bool, 2> told{};                                       // that end knows that it is closed
    [[nodiscard]] std::size_t end_of(NodeId node) const { return ends[0] == node ? 0 : 1; }
  };
  struct ScheduledEvent {
    TimePoint when;
    std::uint64_t number;
    std::function<void()> what;
    bool operator>(const ScheduledEvent& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  struct Host {
    TransportHandler* handler = nullptr;
    std::function<void()> on_timer;
    bool alive = true;
    bool silent = false;  // it is gone, and nothing answers in its place
    Line line;
    std::size_t under_way = 0;
    TimePoint up_free{};
    TimePoint down_free{};
    TimePoint isolated_until{};
    TimePoint muted_until{};
    TimePoint paused_until{};
    TimePoint slow_until{};
    double slow_factor = 1;
    TimePoint wake_at = kNever;  // by its clock, which showed `local` at `global`
    TimePoint global{};
    TimePoint local{};
    double clock_rate = 1;
    std::deque<std::function<void()>> held;  // while it is paused
  };
  using Call = std::function<void(TransportHandler&)>;

  Duration draw_delay();
  [[nodiscard]] TimePoint local_time(const Host& host) const;
  void set_clock(Host& host, double rate, Duration by);
  TimePoint passable(TimePoint when, NodeId from, NodeId to) const;
  void deliver(NodeId to, std::function<void()> what);
  void tell(NodeId to, Call call);
  void tell_closed(LinkId id, std::size_t end, const Status& why);
  void resume(NodeId node);
  void made(LinkId id, NodeId to, const std::string& address);
  void break_link(LinkId id, const std::string& why);
  [[nodiscard]] std::vector<LinkId> links_of(NodeId node) const;
  void send_over_lines(NodeId from, NodeId to, LinkId link, TransportMessage message, std::uint64_t token);
  void arrive(NodeId from, NodeId to, LinkId link, TimePoint when, TransportMessage message);
  void sent(NodeId from, LinkId link, TimePoint when, std::uint64_t token);
  [[nodiscard]] Link* find(LinkId id);

  NetworkOptions options_;
  Prng prng_;
  std::shared_ptr<BufferPool> pool_;
  TimePoint now_{};
  std::uint64_t number_ = 0;
  std::uint64_t next_link_ = 1;
  std::uint32_t next_port_ = 1;
  std::vector<ScheduledEvent> queue_;  // a heap
  std::vector<Host> hosts_;
  std::map<std::string, NodeId> listeners_;  // the newest at each address
  std::vector<bool> side_;                   // of the split, by node; later ones are on the first side
  TimePoint split_until_{};
  std::map<LinkId, Link> links_;
};

}  // namespace collab::sim
