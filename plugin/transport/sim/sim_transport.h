// A network in virtual time: seeded delays, loss and bandwidth, partitions, cuts and crashes.
//
// Nothing happens but in step(): it moves the clock to the next event and runs it, which may call one handler.
// The same seed and the same calls give the same run. Links behave like TCP connections: loss and partitions
// delay messages and never drop them; a cut or a crash ends the link.
//
// Threads: one thread drives the network and every transport on it.
// Ownership: transports share the network; links are the network's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "core/base/prng.h"

namespace collab {

struct SimOptions {
  std::uint64_t seed = 1;
  Duration min_delay = std::chrono::milliseconds(1);  // one way, drawn for every message
  Duration max_delay = std::chrono::milliseconds(5);
  double loss = 0;  // chance that a message must be sent again
  Duration resend_after = std::chrono::milliseconds(200);
  double bytes_per_second = 125e6;  // each lane of each direction of a link
};

class SimTransport;
struct SimLink;

class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] TimePoint now() const { return clock_.now(); }
  [[nodiscard]] TimePoint next_event() const;  // kNever: nothing is due
  bool step();                                 // false: nothing is due
  void run_until(TimePoint time);              // steps, then the clock stands at `time`
  void at(TimePoint time, std::function<void()> action);

  // Messages between the two wait, in both directions, until the way is open again.
  void block(const std::string& a, const std::string& b);
  void unblock(const std::string& a, const std::string& b);
  void partition(const std::set<std::string>& side);  // blocks every pair with one host in `side`, one outside
  void heal();
  // Ends every link between the two; new ones can be made.
  void cut(const std::string& a, const std::string& b);
  // The host's transports die as if killed: their handlers are called no more, their peers see the links end.
  void crash(const std::string& host);

 private:
  friend class SimTransport;

  [[nodiscard]] Duration draw_delay();
  [[nodiscard]] bool blocked(const std::string& a, const std::string& b) const;
  [[nodiscard]] bool blocked(const SimLink& link) const;
  void after(Duration delay, std::function<void()> action) { at(now() + delay, std::move(action)); }

  void dial(const std::shared_ptr<SimLink>& link, const std::string& address, TimePoint deadline);
  void transmit(const std::shared_ptr<SimLink>& link, std::size_t from, Lane lane);
  void schedule_arrival(const std::shared_ptr<SimLink>& link, std::size_t to, TransportMessage message);
  void hand_over(const std::shared_ptr<SimLink>& link, std::size_t to, TransportMessage message);
  void close(const std::shared_ptr<SimLink>& link, std::size_t side);
  void try_finish(const std::shared_ptr<SimLink>& link);
  void end(SimLink& link, std::size_t side, Status why);
  void break_link(const std::shared_ptr<SimLink>& link, const std::string& why);
  void resume(const std::shared_ptr<SimLink>& link);  // the way is open again
  [[nodiscard]] std::vector<std::shared_ptr<SimLink>> living_links();
  void forget(SimTransport& transport, const std::string& why);

  const SimOptions options_;
  ManualClock clock_;
  Prng random_;
  std::uint64_t next_event_ = 0;
  std::map<std::pair<TimePoint, std::uint64_t>, std::function<void()>> events_;
  std::set<std::pair<std::string, std::string>> blocked_;
  std::map<std::string, SimTransport*> listeners_;
  std::map<std::uint64_t, SimTransport*> transports_;  // by the order they were made in
  std::uint64_t next_transport_ = 1;
  std::map<std::uint64_t, std::shared_ptr<SimLink>> links_;  // by the order they were dialled in
  std::uint64_t next_link_ = 1;
  std::uint32_t next_port_ = 1;
  std::shared_ptr<BufferPool> pool_;
};

// `host` is the name in this transport's addresses: "host:port".
[[nodiscard]] std::unique_ptr<Transport> make_sim_transport(std::shared_ptr<SimNetwork> network, std::string host);

}  // namespace collab
