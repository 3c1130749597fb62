// What the processes of a site find when they start again: on disk and in shared memory. Each part can be lost, be an
// older version, or be torn, whatever becomes of the others.
//
// Threads: one. Ownership: its versions.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "core/wire/messages.h"
#include "tests/sim/sim_data.h"

namespace collab::sim {

template <typename T>
class Part {
 public:
  void write(T value) {
    if (versions_.size() == kKept) versions_.pop_front();
    versions_.push_back(std::move(value));
    torn_ = false;
  }
  // Null: nothing is there, or nothing that can be read.
  [[nodiscard]] const T* read() const { return torn_ || versions_.empty() ? nullptr : &versions_.back(); }

  void lose() {
    versions_.clear();
    torn_ = false;
  }
  void tear() { torn_ = true; }
  // What was written last is not there, but what was before it.
  void age() {
    if (versions_.size() > 1) versions_.pop_back();
  }

 private:
  static constexpr std::size_t kKept = 3;
  std::deque<T> versions_;
  bool torn_ = false;
};

struct Store {
  // Never an older version: what was durable once is there, or nothing is. Without that nothing could be promised.
  Part<wire::Record> record;
  Part<StoredAnchor> state;  // COLLAB_STATE_DIR
  Part<StoredAnchor> arena;  // gone with the host
  bool ended = false;        // its state: in good order
  bool full = false;         // the disk: nothing more can be written to it
  bool slow = false;         // what is written takes longer than a grace

  // A state of another run is not marked.
  void mark_ended(RunId run, bool how) {
    if (const StoredAnchor* there = state.read(); there != nullptr && there->sealed.run == run) ended = how;
  }
  void lose() {
    record.lose();
    state.lose();
    arena.lose();
    ended = false;
  }
};

}  // namespace collab::sim
