#include "core/runtime/storage/record_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/runtime/storage/file_lock.h"
#include "core/runtime/storage/record_store.h"

namespace collab {
namespace {

// RUN~SITE~GENERATION~<16 hex digits>~<16 hex digits>.record. The user may keep anything in the folder.
[[nodiscard]] bool is_record(std::string_view name) {
  constexpr std::size_t kHash = 17;  // including its "~"
  constexpr std::size_t kLeast = 2 * kHash + kRecordEnding.size();
  if (name.size() <= kLeast || !name.ends_with(kRecordEnding)) return false;
  name.remove_suffix(kRecordEnding.size());
  for (int hash = 0; hash < 2; ++hash) {
    const std::string_view part = name.substr(name.size() - kHash);
    if (part.front() != '~' || part.find_first_not_of("0123456789abcdef", 1) != part.npos) return false;
    name.remove_suffix(kHash);
  }
  return std::ranges::count(name, '~') >= 2;
}

// The record that a file in its folder belongs to: the record itself, its lock, or one that was moved aside. Empty:
// none.
[[nodiscard]] std::string record_of(const std::string& name) {
  const std::size_t at = name.rfind(kRecordEnding);
  if (at == std::string::npos) return {};
  const std::string record = name.substr(0, at + kRecordEnding.size());
  const std::string rest = name.substr(record.size());
  const bool ours =
      rest.empty() || rest == ".lock" || rest == ".new" || rest.starts_with(".damaged-") || rest.starts_with(".other-");
  return ours && is_record(record) ? record : std::string();
}

struct Files {
  std::vector<std::string> paths;  // all but the lock
  std::uint64_t bytes = 0;
  std::time_t written = 0;  // of the newest file
  std::time_t locked = 0;   // when a process last locked it
};

[[nodiscard]] std::map<std::string, Files> files_in(const std::string& folder) {
  std::map<std::string, Files> found;  // by the record's path
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string record = record_of(it->path().filename().string());
    struct stat info {};
    if (record.empty() || ::lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const std::string path = folder + "/" + record;
    Files& files = found[path];
    files.bytes += static_cast<std::uint64_t>(info.st_size);
    if (it->path().filename().string() == lock_of_record(record)) {
      files.locked = info.st_mtime;
    } else {
      files.paths.push_back(it->path().string());
      files.written = std::max(files.written, info.st_mtime);
    }
  }
  return found;
}

[[nodiscard]] std::chrono::seconds age_of(const Files& files) {
  const std::time_t then = files.paths.empty() ? files.locked : files.written;
  return std::chrono::seconds(std::max<std::time_t>(0, std::time(nullptr) - then));
}

[[nodiscard]] Status check_age(const std::string& path, const Files& files, std::chrono::seconds least) {
  if (age_of(files) >= least) return {};
  return refused(path + " was written " + std::to_string(age_of(files).count()) + " s ago, at least " +
                 std::to_string(least.count()) + " were expected; it is left alone [record.fresh]");
}

}  // namespace

std::vector<RecordFile> find_records(const std::string& folder) {
  std::vector<RecordFile> records;
  for (const auto& [path, files] : files_in(folder)) {
    records.push_back({path, files.bytes, age_of(files), FileLock::holder_of(lock_of_record(path))});
  }
  return records;
}

Status remove_record(const std::string& path, std::chrono::seconds least) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::map<std::string, Files> found = files_in(folder);
  if (!found.contains(path)) return {};
  COLLAB_RETURN_IF_ERROR(check_age(path, found[path], least));
  Result<FileLock> lock = FileLock::take(lock_of_record(path));
  if (lock.status().code() == StatusCode::kRefused) {
    return refused(path + " belongs to " + lock.status().message() + "; it is left alone [record.in-use]");
  }
  if (!lock.ok()) return lock.status();
  found = files_in(folder);  // another process may have had it until now
  if (!found[path].paths.empty()) COLLAB_RETURN_IF_ERROR(check_age(path, found[path], least));
  for (const std::string& each : found[path].paths) {
    if (::unlink(each.c_str()) != 0 && errno != ENOENT) {
      return unavailable("cannot remove " + each + ": " + std::strerror(errno) + " [record.remove]");
    }
  }
  lock->remove_name();
  return {};
}

}  // namespace collab
