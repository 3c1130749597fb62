// A site's durable record: a body of bytes in one small file, which a later process of the site finds as it was written
// last, whole or not at all. The format is described in docs/protocol/beside.md ("Record").
//
//   open: locked, read, written back, trusted --> write ... --> remove (a clean end)
//                 |                                 | fails
//                 +-- cannot be kept here --> in memory: writes succeed, a later process finds nothing
//
// Threads: one caller at a time; its calls wait for the disk (RecordWriter does not). Ownership: the lock, for as long
// as it lives; the file stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collab/status.h"
#include "collab/types.h"
#include "core/runtime/storage/disk.h"
#include "core/runtime/storage/file_lock.h"

namespace collab {

inline constexpr std::size_t kMaxRecordBytes = std::size_t{8} << 20;

// Identifies a record. Two records that differ in any of these fields share nothing.
struct RecordScope {
  std::string run;  // COLLAB_RUN
  std::string site;
  std::uint32_t generation = 1;
  std::string rendezvous;  // where the sites find each other, in words
  Digest model;            // digest of its description
  bool operator==(const RecordScope&) const = default;
};

class RecordStore {
 public:
  // An empty folder: in memory. kRefused: another process has this record. If the folder cannot be made or written, a
  // warning says so, and the record is kept in memory. `disk` outlives the store.
  static Result<RecordStore> open(const std::string& folder, RecordScope scope, Disk& disk = system_disk());

  // What an earlier process wrote last; none: nothing that can be trusted.
  [[nodiscard]] const std::optional<std::vector<std::byte>>& read() const { return found_; }
  // On ok the body is durable, or the record is in memory. The first failure is returned; from then on it is in memory.
  Status write(std::span<const std::byte> body);
  // Moves the kept record to another name, for inspection: read() then gives none, also in later processes.
  Status set_aside(const std::string& why);
  // For a clean end: removes file and lock; records that were moved aside stay.
  Status remove();

  [[nodiscard]] bool durable() const { return durable_; }
  // An outdated record is on disk and cannot be removed: a later process may trust it.
  [[nodiscard]] bool stale() const { return stale_; }
  [[nodiscard]] const std::string& path() const { return path_; }  // empty: in memory from the start

 private:
  RecordStore(RecordScope scope, Disk& disk) : disk_(&disk), scope_(std::move(scope)) {}
  Status load();
  Result<std::optional<std::vector<std::byte>>> read_file() const;
  Status write_file(std::span<const std::byte> body);
  Status move_aside(const char* as, const std::string& why);
  Status remove_file();
  void keep_in_memory(const std::string& why);

  Disk* disk_;
  RecordScope scope_;
  std::string path_;
  std::optional<FileLock> lock_;
  std::optional<std::vector<std::byte>> found_;
  bool durable_ = false;
  bool stale_ = false;
};

// The name of a new acceptor, drawn at random: never zero.
[[nodiscard]] AcceptorId fresh_acceptor();

// The name of a record's file in its folder, and below the path of its lock.
[[nodiscard]] std::string record_name(const RecordScope& scope);
inline constexpr std::string_view kRecordEnding = ".record";
[[nodiscard]] inline std::string lock_of_record(const std::string& path) { return path + ".lock"; }

}  // namespace collab
