// Writes the sealed anchor to COLLAB_STATE_DIR in the background, so that no step waits for the disk.
//
// The sealed slot stands until the exchange after next, outer state and residual until the next commit: wait() comes
// before any of them is touched. Threads: one caller; one writer thread at a time. Ownership: the thread.
#pragma once

#include <span>
#include <string>
#include <thread>

#include "core/runtime/state_file.h"

namespace collab {

class StateSaver {
 public:
  explicit StateSaver(std::string path) : path_(std::move(path)) {}  // empty: nothing is written
  ~StateSaver() { wait(); }
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  [[nodiscard]] bool enabled() const { return !path_.empty(); }
  // The spans stay valid and unchanged until wait() returns.
  void save(StateHeader header, std::span<const float> anchor, std::span<const float> outer,
            std::span<const float> residual);
  void wait();

 private:
  std::string path_;
  std::thread thread_;
};

}  // namespace collab
