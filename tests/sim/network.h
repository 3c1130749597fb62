// A network in virtual time, with a seed: delays, faults, and the order that links promise.
//
// Everything that happens is an event in one queue ordered by (time, number); two runs with one seed are the same run.
// What a link carries arrives whole, once and in order within its lane, or the link closes: what transports promise.
// Threads: one. Ownership: owns the links and the queue, borrows the nodes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "collab/transport.h"
#include "collab/types.h"
#include "core/base/prng.h"

namespace collab::sim {

struct Frame {
  Lane lane = Lane::kControl;
  std::vector<std::byte> head;
  std::shared_ptr<const std::vector<float>> payload;
};

class Node {
 public:
  virtual ~Node() = default;
  virtual void on_connected(LinkId link, std::uint64_t token) = 0;
  virtual void on_dial_failed(std::uint64_t token, const Status& why) = 0;
  virtual void on_frame(LinkId link, const Frame& frame) = 0;
  virtual void on_sent(LinkId link, std::uint64_t token) = 0;
  virtual void on_closed(LinkId link, const Status& why) = 0;
  virtual void on_timer() = 0;
};

struct NetworkOptions {
  Duration delay_min{2'000};
  Duration delay_mean{10'000};  // of what comes on top, exponential
  double bytes_per_second = 2e6;
  Duration dial_limit{5'000'000};
};

using NodeId = std::uint32_t;

class Network {
 public:
  Network(NetworkOptions options, std::uint64_t seed) : options_(options), prng_(seed) {}

  // Time.
  [[nodiscard]] TimePoint now() const { return now_; }
  void at(TimePoint when, std::function<void()> what);
  [[nodiscard]] bool run_one();  // false when nothing is left to happen
  // Calls on_timer at that time unless an earlier wake was asked for; wakes may come early.
  void wake(NodeId node, TimePoint when);

  // Nodes. An address is the node's; an empty one cannot be dialled.
  [[nodiscard]] NodeId add(Node* node, std::string address);
  // Somebody has, or had, that address.
  [[nodiscard]] bool knows(const std::string& address) const;
  // In bytes a second, all its links together; without one each link has `bytes_per_second`.
  struct Line {
    double up = 0;
    double down = 0;
  };
  void set_line(NodeId node, Line line) { hosts_[node].line = line; }
  // Gone at once. `noticed`: the others see its links close; else they hear nothing any more.
  void kill(NodeId node, bool noticed);

  // What a node does.
  void dial(NodeId from, const std::string& address, std::uint64_t token);
  void send(NodeId from, LinkId link, Frame frame, std::uint64_t token = 0);
  void close(NodeId from, LinkId link);

  // Faults.
  void cut_links(NodeId node, Prng& choice);   // one of its links, or all, close at both ends
  void isolate(NodeId node, TimePoint until);  // what it sends and is sent waits until then
  void mute(NodeId node, TimePoint until);     // what it sends waits until then; it hears
  // The nodes of `side` and the others hear nothing of each other until then.
  void split(const std::vector<bool>& side, TimePoint until);
  void pause(NodeId node, TimePoint until);  // the process stands still
  void slow(NodeId node, double factor, TimePoint until);

  [[nodiscard]] std::size_t open_links() const { return links_.size(); }

 private:
  struct Link {
    std::array<NodeId, 2> ends{};
    std::array<std::array<TimePoint, 2>, 2> arrival{};  // the last one, by receiving end and lane
    std::array<TimePoint, 2> line_free{};               // when the line towards that end is free again
    std::array<bool, 2> hung_up{};                      // that end has closed it: it hears nothing more
    [[nodiscard]] std::size_t end_of(NodeId node) const { return ends[0] == node ? 0 : 1; }
  };
  struct Happening {
    TimePoint when;
    std::uint64_t number;
    std::function<void()> what;
    bool operator>(const Happening& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  struct Host {
    Node* node = nullptr;
    std::string address;
    bool alive = true;
    Line line;
    TimePoint up_free{};
    TimePoint down_free{};
    TimePoint isolated_until{};
    TimePoint muted_until{};
    TimePoint paused_until{};
    TimePoint slow_until{};
    double slow_factor = 1;
    TimePoint wake_at = kNever;
    std::deque<std::function<void(Node&)>> held;  // while it is paused
  };

  Duration draw_delay();
  TimePoint passable(TimePoint when, NodeId from, NodeId to) const;
  void deliver(NodeId to, std::function<void(Node&)> what);
  void resume(NodeId node);
  void break_link(LinkId link, const std::string& why);
  void send_over_lines(NodeId from, NodeId to, LinkId link, Frame frame, std::uint64_t token);
  void arrive(NodeId to, LinkId link, TimePoint when, std::function<void(Node&)> what);

  NetworkOptions options_;
  Prng prng_;
  TimePoint now_{};
  std::uint64_t number_ = 0;
  std::uint64_t next_link_ = 1;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;
  std::vector<Host> hosts_;
  std::vector<bool> side_;  // of the split, by node; later ones are on the first side
  TimePoint split_until_{};
  std::map<LinkId, Link> links_;
};

}  // namespace collab::sim
