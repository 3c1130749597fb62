// The optimizer's state at a simulated site: what it serves to joiners, and what it fetches from others before its
// first step, by the production's transfer. What arrives is compared with what was served.
//
// Threads: one. Ownership: the transfer and the copies; borrows driver, clock and checkers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/prng.h"
#include "core/runtime/data/optimizer_transfer.h"
#include "tests/sim/checkers.h"

namespace collab::sim {

class SimOptimizer {
 public:
  struct Options {
    std::string process;
    std::uint64_t elements = 0;
    bool on = false;   // otherwise none is served, and none is fetched
    Duration limit{};  // how long to wait for a copy, and for a silent fetcher
    std::uint64_t seed = 0;
  };
  struct Report {
    std::uint64_t taken = 0;
    std::uint64_t cold = 0;   // no site had one, or it did not come
    std::uint64_t wrong = 0;  // copies that were not what had been offered, as was seen
  };
  // `feed`: an event for the site's machine.
  using Feed = std::function<void(protocol::SiteEvent)>;
  using Later = std::function<void(Duration, std::function<void()>)>;
  SimOptimizer(const Options& options, Transport& transport, const Clock& clock, Checkers& checkers, Feed feed,
               Later later);

  [[nodiscard]] bool on() const { return options_.on; }
  [[nodiscard]] const Report& report() const { return report_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return transfer_.bytes_sent(); }

  // ---- serving
  void asked(const protocol::ServeOptimizer& action, const std::string& why_none);
  // A copy is made between two steps, or while the site stands in a round.
  void stepped();
  void stands();
  void sent(std::uint64_t token) { transfer_.sent(token); }
  void link_closed(LinkId link) { transfer_.link_closed(link); }
  void tick() {
    if (clock_.now() >= transfer_.next_deadline()) transfer_.tick();
  }
  [[nodiscard]] TimePoint next_deadline() const { return transfer_.next_deadline(); }

  // ---- fetching
  void fetch(std::function<void()> ready);  // called once it has a state, or is to begin without
  [[nodiscard]] protocol::OptimizerPart arrived(LinkId link, const wire::Chunk& chunk, BufferPtr payload) {
    return transfer_.arrived(link, chunk, std::move(payload));
  }
  void act(const protocol::OptimizerOffered& action);
  void act(const protocol::NoOptimizer& action) { end(action.why.message()); }
  void act(const protocol::TakeOptimizerPart& action) { transfer_.take_part(action); }
  void act(const protocol::OptimizerComplete& action);
  void act(const protocol::OptimizerLost& action);

 private:
  void serve();
  void end(const std::string& cold);
  [[nodiscard]] static std::vector<std::byte> content_of(const std::string& description, std::uint64_t bytes);

  Options options_;
  const Clock& clock_;
  Checkers& checkers_;
  Feed feed_;
  Later later_;
  Prng prng_;
  OptimizerTransfer transfer_;
  std::uint64_t steps_ = 0;      // none: there is no state yet
  std::function<void()> ready_;  // set while it is fetched
  protocol::OptimizerOffered offered_;
  Report report_;
};

}  // namespace collab::sim
