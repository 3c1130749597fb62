// Writes a site's record on its own thread, so that the caller does not wait for the disk.
//
//   writer_.emplace(std::move(store), [this](std::uint64_t number, const Status& how) {
//     mailbox_.post([this, number, how] { ... });
//   });
//   writer_->write(encoded, number);  // returns at once
//
// Only the newest of the waiting bodies is written. Each body's number is reported once that body, or a newer one, is
// on disk. Threads: one caller; one writer thread. Ownership: the store. Both end within `disk_limit` of destruction;
// if the disk hangs for longer, they stay, with the record's lock, until the process ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collab/status.h"
#include "core/runtime/storage/record_store.h"

namespace collab {

class RecordWriter {
 public:
  // Called on the writer's thread, once for each number in the order they were given, never after the destructor.
  using Callback = std::function<void(std::uint64_t number, const Status& how)>;

  RecordWriter(RecordStore store, Callback told, std::chrono::milliseconds disk_limit = std::chrono::seconds(10));
  ~RecordWriter();  // a waiting body is written first
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  void write(std::vector<std::byte> body, std::uint64_t number);
  void remove();  // in its turn, after earlier writes; see RecordStore
  // As of the numbers reported so far; see RecordStore.
  [[nodiscard]] bool durable() const;
  [[nodiscard]] bool stale() const;

 private:
  struct Job;
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::chrono::milliseconds disk_limit_;
  std::thread thread_;
};

}  // namespace collab
