// Writes the sealed anchor to COLLAB_STATE_DIR in the background, so that neither a step nor a heartbeat waits for the
// disk.
//
// A save copies memory that belongs to the rounds, piece by piece; while one save runs, the next waits. Code that is
// about to change some of that memory calls release_for_write(). If the save has not copied that part yet, it is given
// up, with a warning, and another is due at the next round. A state from which the swarm does not go on is not
// overwritten: it is moved aside. Threads: one caller; one writer thread at a time. Ownership: the thread; borrows what
// is saved, until wait() has returned. If the disk takes nothing for `disk_limit`, the thread stays until the process
// ends, but no longer touches memory of the rounds.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "core/runtime/storage/state_file.h"

namespace collab {

class StateSaver {
 public:
  explicit StateSaver(std::string path, Disk& disk = system_disk(),
                      std::chrono::milliseconds disk_limit = std::chrono::minutes(5));
  ~StateSaver();
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  [[nodiscard]] bool enabled() const;  // an empty path: nothing is written
  // The state that an earlier process has left there.
  void found(const wire::Offer& anchor);
  // The site goes on from this anchor. If its run is another and its round no later, the state on disk is moved aside.
  void takes(const wire::Offer& anchor);
  // Returns at once. The spans stay valid until wait() has returned, and unchanged until release_for_write(). Of saves
  // that wait, the newest counts.
  void save(StateHeader header, std::span<const float> anchor, std::span<const float> outer,
            std::span<const float> residual);
  // Marks the file, once all is saved, as that of a site that has ended in good order, or that goes on. A file of
  // another run is not marked.
  void mark(bool ended);
  // The last save was given up.
  [[nodiscard]] bool overdue() const;
  // These elements are about to change. Waits for the copy of one piece at most, never for the disk.
  void release_for_write(std::span<const float> elements);
  void wait();  // for the disk, while it makes progress

 private:
  struct Save;
  struct Shared;
  void start();
  std::shared_ptr<Shared> shared_;
  std::chrono::milliseconds disk_limit_;
  std::optional<wire::Offer> anchor_on_disk_;
  std::thread thread_;
};

}  // namespace collab
