// What a site has trained since it joined, as its triggers report it: the samples and steps of all its ranks, without
// those dropped with an unfit delta, and its loss.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "core/protocol/actions.h"
#include "core/wire/messages.h"

namespace collab {

class TrainedWork {
 public:
  // `samples`: of all ranks, since the previous call.
  void count(std::uint64_t samples) { before_ = std::exchange(samples_, samples_ + samples); }
  // Drops the samples that were counted last, and so many steps.
  void drop(std::uint64_t steps) {
    samples_ = before_;
    dropped_steps_ += steps;
  }
  void note_loss(float loss) { loss_ = std::bit_cast<std::uint32_t>(loss); }
  // A trigger with samples, steps and loss. `steps`: taken so far; `measured`: all else that the trigger reports.
  [[nodiscard]] protocol::Trigger trigger(std::uint64_t steps, const wire::Measured& measured = {}) const {
    protocol::Trigger told;
    told.samples = samples_;
    told.steps = steps - dropped_steps_;
    told.measured = measured;
    told.measured.loss = loss_;
    return told;
  }

 private:
  std::uint64_t samples_ = 0;
  std::uint64_t before_ = 0;  // `samples_` before the last count
  std::uint64_t dropped_steps_ = 0;
  std::uint32_t loss_ = wire::kNoLoss;
};

}  // namespace collab
