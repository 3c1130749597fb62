// Carries packets between the hosts' devices and the emulated network, at the right moments, and runs the script.
//
// It wakes when a packet arrives or is due, and under load at most every kQuantum. So packets come out up to that much
// late, never early. Delays do not add up, because the network's times do not depend on when the pump calls it.
// Threads: run() is a thread's body. stop() may be called from any thread, all else before run() or after it.
// Ownership: owns the network and the packets; borrows the devices.
#pragma once

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/lab/fd.h"
#include "tools/lab/network.h"

namespace collab::lab {

class Pump {
 public:
  static constexpr Time kQuantum = std::chrono::microseconds(100);

  // The pump's thread calls `say` for each step of the script. `capture` may be null.
  Pump(const NetworkSpec& spec, std::vector<int> tuns, std::vector<ScriptStep> script,
       std::function<void(const ScriptStep&)> say, std::FILE* capture);

  // Call before run(): makes the eventfd that wakes the pump.
  [[nodiscard]] Status prepare();
  void run();
  void stop();

  [[nodiscard]] const Network& network() const { return network_; }
  [[nodiscard]] Time elapsed() const { return elapsed_; }
  // Why run() failed; empty: it did not.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  [[nodiscard]] bool take_in(Time now);
  [[nodiscard]] bool give_out(Time now);
  void run_script(Time now);
  void sleep_until_due(Time now, bool busy);
  void record(const Delivery& delivery);
  [[nodiscard]] Time now() const;

  Network network_;
  std::vector<int> tuns_;
  std::vector<ScriptStep> script_;
  std::size_t next_step_ = 0;
  std::function<void(const ScriptStep&)> say_;
  std::FILE* capture_;
  Fd wake_;
  std::atomic<bool> stop_ = false;
  Time begin_{};
  Time elapsed_{};
  std::string failure_;
  std::vector<Packet> incoming_;
  std::vector<Delivery> due_;
  std::vector<std::vector<const Packet*>> by_host_;
};

// Writes a capture's header (pcap, raw IP); record() adds packets.
[[nodiscard]] Status begin_capture(std::FILE* file);

}  // namespace collab::lab
