// Writes the sealed anchor to COLLAB_STATE_DIR in the background, so that neither a step nor a heartbeat waits for the
// disk.
//
// A save copies a piece at a time out of memory that belongs to the rounds; while one is on its way, the next waits.
// Who is about to change some of that memory says so with let_go(): a save that has not come so far is given up, which
// is said, and one is due again at the next round. Threads: one caller; one writer thread at a time. Ownership: the
// thread; borrows what is saved.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "core/base/rate_limited.h"
#include "core/runtime/storage/state_file.h"

namespace collab {

class StateSaver {
 public:
  explicit StateSaver(std::string path, Disk& disk = system_disk()) : path_(std::move(path)), disk_(disk) {}
  ~StateSaver() { wait(); }
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  [[nodiscard]] bool enabled() const { return !path_.empty(); }  // an empty path: nothing is written
  // Returns at once. The spans stay valid until wait() has returned, and unchanged until let_go(). Of saves that wait,
  // the newest counts.
  void save(StateHeader header, std::span<const float> anchor, std::span<const float> outer,
            std::span<const float> residual);
  // The last one was given up.
  [[nodiscard]] bool overdue() const;
  // These elements are about to change. Waits for the copy of one piece at most, never for the disk.
  void let_go(std::span<const float> elements);
  void wait();  // for the disk

 private:
  struct Source {
    std::span<const float> elements;
    std::uint64_t copied = 0;
  };
  struct Save {
    StateHeader header;
    std::array<Source, 3> sources{};  // by StatePart
    bool given_up = false;

    [[nodiscard]] bool needs(std::span<const float> elements) const;
    [[nodiscard]] std::string progress() const;
  };
  void write_all();
  void write_one();
  [[nodiscard]] bool copy(StatePart part, std::uint64_t offset, std::span<float> out);
  void give_up(const Save& save, const std::string& why);

  const std::string path_;
  Disk& disk_;
  std::thread thread_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable ended_;
  std::optional<Save> writing_;
  std::optional<Save> waiting_;
  bool overdue_ = false;
  RateLimited rate_limited_{std::chrono::minutes(1)};
};

}  // namespace collab
