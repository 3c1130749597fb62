#include "core/runtime/storage/record_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/wire/byte_io.h"

namespace collab {
namespace {

constexpr std::array<char, 8> kMagic{'c', 'o', 'l', 'l', 'a', 'b', 'R', 'C'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kPrologueBytes = 32;
constexpr std::size_t kHashAt = 24;
constexpr std::size_t kMaxTextBytes = 1024;  // of each text of the scope
constexpr std::size_t kMaxScopeBytes = std::size_t{4} * 1024;
constexpr std::size_t kMaxFileBytes = kPrologueBytes + kMaxScopeBytes + kMaxRecordBytes;
constexpr std::size_t kMaxNamePart = 64;

constexpr const char* kDamaged = "damaged";  // in the names of records that were set aside
constexpr const char* kOther = "other";
[[nodiscard]] std::uint64_t hash_of(std::string_view text) { return hash64(std::as_bytes(std::span(text))); }

// Shortens a text to at most `most` bytes. A hash distinguishes texts that were cut.
[[nodiscard]] std::string shortened(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::string hash = "~" + hexadecimal(hash_of(text));
  return wire::fit_sentence(text, most - hash.size()) + hash;
}

struct Prologue {
  std::array<std::uint8_t, kMagic.size()> magic{};
  std::uint32_t version = kVersion;
  std::uint32_t scope_bytes = 0;
  std::uint64_t body_bytes = 0;
  std::uint64_t hash = 0;
};

template <typename Io, typename P>
void prologue_fields(Io& io, P& prologue) {
  for (auto& letter : prologue.magic) io.number("magic", letter);
  io.number("format", prologue.version);
  io.number("scope bytes", prologue.scope_bytes);
  io.number("body bytes", prologue.body_bytes);
  io.number("hash", prologue.hash);
}

template <typename Io, typename Scope>
void scope_fields(Io& io, Scope& scope) {
  io.text("run", scope.run, kMaxTextBytes);
  io.text("site", scope.site, kMaxTextBytes);
  io.number("generation", scope.generation);
  io.text("rendezvous", scope.rendezvous, kMaxTextBytes);
  io.number("model", scope.model.lo);
  io.number("model", scope.model.hi);
}

// The hash of the whole file except the hash itself.
[[nodiscard]] std::uint64_t hash_of_file(std::vector<std::byte> file) {
  std::fill_n(file.begin() + kHashAt, sizeof(std::uint64_t), std::byte{0});
  return hash64(file);
}

Result<std::vector<std::byte>> encode(const RecordScope& scope, std::span<const std::byte> body) {
  wire::Writer of_scope;
  scope_fields(of_scope, scope);
  COLLAB_RETURN_IF_ERROR(of_scope.status());
  Prologue prologue{.scope_bytes = static_cast<std::uint32_t>(of_scope.bytes().size()), .body_bytes = body.size()};
  std::ranges::copy(kMagic, prologue.magic.begin());
  std::vector<std::byte> file(kPrologueBytes);
  file.insert(file.end(), of_scope.bytes().begin(), of_scope.bytes().end());
  file.insert(file.end(), body.begin(), body.end());
  for (int pass = 0; pass < 2; ++pass) {  // without the hash, then with the hash of the first pass
    wire::Writer start;
    prologue_fields(start, prologue);
    std::ranges::copy(start.bytes(), file.begin());
    if (pass == 0) prologue.hash = hash64(file);
  }
  return file;
}

[[nodiscard]] Status damaged(const std::string& what) { return corrupt("it is damaged: " + what); }

// Explains `errno`. Anything but a plain file is not a record. In other cases the record may be whole once the system
// can read it again.
[[nodiscard]] Status unreadable() {
  const int error = errno;
  const std::string why = std::string("it cannot be read: ") + std::strerror(error);
  const bool other = error == ELOOP || error == ENXIO || error == ENODEV || error == EISDIR || error == EINVAL;
  return other ? corrupt(why) : unavailable(why);
}

[[nodiscard]] std::string text_of(const RecordScope& scope) {
  return "run " + scope.run + ", site " + scope.site + ", generation " + std::to_string(scope.generation) +
         ", rendezvous " + scope.rendezvous + ", model " + to_hex(scope.model);
}

// The body. kCorrupt: damaged. kRefused: whole, but not ours.
Result<std::vector<std::byte>> decode(const RecordScope& ours, const std::vector<std::byte>& file) {
  if (file.size() < kPrologueBytes) {
    return damaged("it has " + std::to_string(file.size()) + " bytes, at least " + std::to_string(kPrologueBytes) +
                   " were expected");
  }
  const std::span<const std::byte> bytes(file);
  wire::Reader start(bytes.first(kPrologueBytes));
  Prologue prologue;
  prologue_fields(start, prologue);
  if (!std::ranges::equal(prologue.magic, kMagic))
    return damaged("it does not begin as a record does (wrong magic number)");
  if (prologue.version != kVersion) {
    return refused("it has format " + std::to_string(prologue.version) + ", but this collab reads format " +
                   std::to_string(kVersion));
  }
  if (prologue.scope_bytes > kMaxScopeBytes || prologue.body_bytes > kMaxRecordBytes ||
      file.size() != kPrologueBytes + prologue.scope_bytes + prologue.body_bytes) {
    return damaged("it has " + std::to_string(file.size()) + " bytes, and says that " +
                   std::to_string(prologue.scope_bytes) + " and " + std::to_string(prologue.body_bytes) +
                   " follow the first " + std::to_string(kPrologueBytes));
  }
  if (hash_of_file(file) != prologue.hash) return damaged("its checksum does not match");
  RecordScope scope;
  wire::Reader reader(bytes.subspan(kPrologueBytes, prologue.scope_bytes));
  scope_fields(reader, scope);
  reader.finish();
  if (!reader.status().ok()) return damaged(reader.status().message());
  if (scope != ours) return refused("it belongs to " + text_of(scope) + "; this is " + text_of(ours));
  return std::vector<std::byte>(file.begin() + static_cast<std::ptrdiff_t>(kPrologueBytes + prologue.scope_bytes),
                                file.end());
}

Result<std::vector<std::byte>> whole_file(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return unreadable();
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || size > kMaxFileBytes) {
    return damaged("it has " + std::to_string(size) + " bytes, at most " + std::to_string(kMaxFileBytes) +
                   " were expected");
  }
  std::vector<std::byte> file(size);
  if (!read_all(fd, file, 0)) return errno != 0 ? unreadable() : damaged("it ends early");
  return file;
}

}  // namespace

AcceptorId fresh_acceptor() { return AcceptorId{random_bits() | 1}; }

std::string record_name(const RecordScope& scope) {
  const auto part = [](const std::string& text) {
    std::string name = as_file_name(text);
    if (name.size() <= kMaxNamePart) return name;
    return name.substr(0, kMaxNamePart - 17) + "~" + hexadecimal(hash_of(text));
  };
  // No result of as_file_name() contains a "~".
  return part(scope.run) + "~" + part(scope.site) + "~" + std::to_string(scope.generation) + "~" +
         hexadecimal(hash_of(scope.rendezvous)) + "~" + hexadecimal(scope.model.lo ^ scope.model.hi) +
         std::string(kRecordEnding);
}

Result<RecordStore> RecordStore::open(const std::string& folder, RecordScope scope, Disk& disk) {
  const std::string name = record_name(scope);
  for (std::string* text : {&scope.run, &scope.site, &scope.rendezvous}) {
    *text = shortened(wire::fit_sentence(*text, text->size()), kMaxTextBytes);
  }
  RecordStore store(std::move(scope), disk);
  if (folder.empty()) return store;
  store.path_ = folder + "/" + name;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    store.keep_in_memory("cannot make the folder " + folder + ": " + error.message());
    return store;
  }
  Result<FileLock> lock = FileLock::take(lock_of_record(store.path_));
  if (lock.status().code() == StatusCode::kRefused) {
    return refused("the record of site " + store.scope_.site + " of run " + store.scope_.run + ", " + store.path_ +
                   ", belongs to " + lock.status().message() +
                   ": end that, or give this run another COLLAB_RUN or this site another COLLAB_SITE [record.owned]");
  }
  if (!lock.ok()) {
    store.keep_in_memory(lock.status().message());
    return store;
  }
  store.lock_ = std::move(*lock);
  store.durable_ = true;
  COLLAB_RETURN_IF_ERROR(store.load());
  return store;
}

// A record that is found is trusted only after it could be written back. If the folder took no more writes, this
// process could make promises that a later one does not read.
Status RecordStore::load() {
  Result<std::optional<std::vector<std::byte>>> found = read_file();
  if (found.status().code() == StatusCode::kUnavailable) {
    return unavailable("the record of site " + scope_.site + ", " + path_ + ": " + found.status().message() +
                       ". It holds what this site has promised the others: fix that and start again, or remove the "
                       "file; the site then counts as one that has lost its memory [record.unreadable]");
  }
  if (!found.ok()) {
    const bool other = found.status().code() == StatusCode::kRefused;
    if (const Status moved = move_aside(other ? kOther : kDamaged, found.status().message()); !moved.ok()) {
      keep_in_memory(moved.message());
    }
    return {};
  }
  if (!found->has_value()) return {};
  if (const Status written = write_file(**found); !written.ok()) {
    keep_in_memory(written.message() + "; the record that an earlier process left there is not used");
    return {};
  }
  found_ = *std::move(found);
  return {};
}

Result<std::optional<std::vector<std::byte>>> RecordStore::read_file() const {
  const int fd = open_plain(*disk_, path_.c_str(), O_RDONLY);
  if (fd < 0 && errno == ENOENT) return std::optional<std::vector<std::byte>>();
  if (fd < 0) return unreadable();
  Result<std::vector<std::byte>> file = whole_file(fd);
  ::close(fd);
  if (!file.ok()) return file.status();
  Result<std::vector<std::byte>> body = decode(scope_, *file);
  if (!body.ok()) return body.status();
  return std::optional(std::move(*body));
}

Status RecordStore::write_file(std::span<const std::byte> body) {
  const Result<std::vector<std::byte>> file = encode(scope_, body);
  if (!file.ok()) return file.status();
  Result<NewFile> fresh = NewFile::make(*disk_, path_);
  if (!fresh.ok()) return fresh.status();
  COLLAB_RETURN_IF_ERROR(fresh->write(0, *file));
  COLLAB_RETURN_IF_ERROR(fresh->sync());
  return fresh->place();
}

Status RecordStore::write(std::span<const std::byte> body) {
  if (body.size() > kMaxRecordBytes) {
    return invalid_argument("a record has at most " + std::to_string(kMaxRecordBytes) + " bytes, this one " +
                            std::to_string(body.size()) + " [record.too-long]");
  }
  if (!durable_) return {};
  Status written = write_file(body);
  if (!written.ok()) keep_in_memory(written.message());
  return written;
}

Status RecordStore::set_aside(const std::string& why) {
  found_.reset();
  if (!durable_) return {};
  Status moved = move_aside(kDamaged, why);
  if (!moved.ok()) keep_in_memory(moved.message());
  return moved;
}

// The lock keeps the free name free until it is taken.
Status RecordStore::move_aside(const char* as, const std::string& why) {
  const std::string name = free_name_beside(path_, as);
  if (disk_->rename(path_.c_str(), name.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return unavailable("cannot rename " + path_ + ": " + std::strerror(errno) + " [record.rename]");
  }
  log_warning("the record " + path_ + " is not used: " + why + ". The file is kept beside it (" +
              name.substr(path_.size()) + "), and this site counts as one that has lost its memory [record.not-used]");
  return sync_folder_of(*disk_, path_);
}

Status RecordStore::remove_file() {
  if (disk_->unlink(path_.c_str()) != 0 && errno != ENOENT) {
    return unavailable("cannot remove " + path_ + ": " + std::strerror(errno) + " [record.unlink]");
  }
  return sync_folder_of(*disk_, path_);
}

Status RecordStore::remove() {
  found_.reset();
  if (!lock_) return {};
  durable_ = false;
  Status removed = remove_file();
  stale_ = !removed.ok();
  lock_->remove_name();
  return removed;
}

void RecordStore::keep_in_memory(const std::string& why) {
  durable_ = false;
  struct stat info {};
  const bool there = ::lstat(path_.c_str(), &info) == 0;
  // Without the lock it may belong to another process.
  Status gone = there && !lock_ ? unavailable(path_ + " is not removed [record.stays]") : Status();
  if (lock_) gone = there ? remove_file() : sync_folder_of(*disk_, path_);
  stale_ = !gone.ok();
  const std::string now = there && stale_ ? gone.message() + ", so remove it before the next start"
                                          : "it is kept in memory only, and a restart of this site loses it";
  log_warning("the record of site " + scope_.site + " cannot be kept on disk: " + why + "; " + now +
              ". COLLAB_STATE_DIR or XDG_STATE_HOME name a folder with room that this process may write to "
              "[record.in-memory]");
}

}  // namespace collab
