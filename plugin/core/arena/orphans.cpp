// Arenas whose owners died: found for `collab doctor`, removed by `collab doctor --clean`.
#include "core/arena/arena.h"
#include "core/arena/inspect.h"
#include "core/arena/naming.h"

namespace collab {
namespace arena {
namespace {

// Why the file is an orphan. Empty: it is not one.
std::string reason(const BackingFile& file) {
  const auto start = read_file_start(file);
  if (!start) return "the process that began it did not finish it";
  const ProcessIdentity& owner = start->about.owner;
  if (start->phase == Phase::kClosed) return "owner " + std::to_string(owner.pid) + " has left";
  switch (liveness_of_owner(file, *start)) {
    case Liveness::kGone: return "owner " + std::to_string(owner.pid) + " is gone";
    case Liveness::kOtherBoot: return "from an earlier boot";
    case Liveness::kAlive:
    case Liveness::kCannotTell: return "";  // it may live in another container
  }
  return "";
}

}  // namespace
}  // namespace arena

std::vector<OrphanArena> find_orphan_arenas(const std::vector<ArenaPlace>& places) {
  using namespace arena;
  std::vector<OrphanArena> orphans;
  for (const std::string& path : list_arenas(places.empty() ? default_arena_places() : places, name_prefix())) {
    Result<BackingFile> file = BackingFile::open(path, false);
    // A file that is locked for long is being made, so it is no orphan.
    if (!file.ok() || !file->lock().ok() || !file->named()) continue;
    const std::string why = reason(*file);
    if (!why.empty()) orphans.push_back({path, file->bytes(), why});
  }
  return orphans;
}

Status remove_orphan_arena(const OrphanArena& orphan) {
  using namespace arena;
  Result<BackingFile> file = BackingFile::open(orphan.path, false);
  if (!file.ok()) return file.status().code() == StatusCode::kUnavailable ? Status() : file.status();
  COLLAB_RETURN_IF_ERROR(file->lock());
  if (!file->named()) return {};
  if (reason(*file).empty()) return refused(orphan.path + " has an owner again; it is left alone [arena.has-owner]");
  file->remove_name();
  return {};
}

}  // namespace collab
