// Making an arena, or taking over the one a dead leader left.
//
// The file's lock is held from the first look until the arena is ready. So two processes never make, take over or
// remove the same arena at once. A process that waited looks again at what it finds.
#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "core/arena/arena.h"
#include "core/arena/inspect.h"
#include "core/arena/naming.h"
#include "core/arena/writer.h"
#include "core/base/digest.h"
#include "core/base/log.h"

namespace collab {
namespace arena {
namespace {

std::string beside(const ArenaSpec& spec) {
  return spec.training_copy ? " with a copy of the parameters (COLLAB_OVERLAP)" : "";
}

std::unique_ptr<ArenaWriter> make_writer(std::unique_ptr<Mapping> mapping, std::optional<BackingFile> file,
                                         const Geometry& geometry, const ArenaSpec& spec) {
  return std::make_unique<Writer>(std::move(mapping), std::move(file), geometry, spec.key.site, spec.ranks);
}

Geometry geometry_for(const ArenaSpec& spec) {
  const std::uint32_t capacity = (spec.ranks + kRankStep - 1) / kRankStep * kRankStep;
  return {spec.elements, spec.outer_state, spec.training_copy, capacity};
}

// This process. `holds_file` lets a process that cannot see it ask the kernel whether it lives.
ProcessIdentity owner_of(BackingFile& file) {
  ProcessIdentity owner = this_process();
  owner.holds_file = file.hold() ? 1 : 0;
  return owner;
}

// Fresh memory is zero, so the outer state starts at zero and neither slot is sealed.
void initialise(const Mapping& mapping, const ProcessIdentity& owner, const Geometry& geometry, const ArenaSpec& spec) {
  Control* const control = new (mapping.control()) Control();
  RankSlot* const ranks = rank_slots(control);
  for (std::uint32_t r = 0; r < geometry.rank_capacity; ++r) new (ranks + r) RankSlot();
  Description& about = control->about;
  about.layout_version = kLayoutVersion;
  about.rank_capacity = geometry.rank_capacity;
  about.owner = owner;
  about.fingerprint = spec.key.fingerprint;
  about.job = spec.job;
  about.elements = geometry.elements;
  about.outer_state = geometry.outer_state ? 1 : 0;
  about.training_copy = geometry.training_copy ? 1 : 0;
  about.magic = kMagic;
  control->phase.store(Phase::kReady, std::memory_order_release);
}

// The newest slot whose floats, outer state and attached data match its seal.
std::uint32_t find_valid_slot(const Control& control, const std::byte* data, const Geometry& geometry) {
  const auto vector = [&](std::uint32_t index) {
    return std::span(reinterpret_cast<const float*>(data + index * geometry.vector_bytes()), geometry.elements);
  };
  std::array<std::uint64_t, 2> sequence{};
  for (std::uint32_t s = 0; s < 2; ++s) {
    if (const auto seal = read_seal(control.slots[s])) sequence[s] = seal->sequence;
  }
  const Digest outer = geometry.outer_state ? digest_of_vector(vector(2)) : Digest{};
  const std::uint32_t newer = sequence[1] > sequence[0] ? 1 : 0;
  for (const std::uint32_t s : {newer, 1 - newer}) {
    const auto seal = read_seal(control.slots[s]);
    if (!seal || control.slots[s].hash.load() != hash_of_slot(control, s)) continue;
    if (digest_of_state(digest_of_vector(vector(s)), outer) == seal->digest) return s;
  }
  return kNoSlot;
}

// Takes the arena over: keeps the dead leader's sealed anchor, and nothing of its calls.
void take_over(Control& control, const ProcessIdentity& owner, std::uint32_t slot) {
  control.phase.store(Phase::kBeingMade);
  control.about.owner = owner;
  control.generation.fetch_add(1);
  control.current.store(slot);
  control.slots[1 - slot].sequence.store(0);
  control.outer_changing.store(0);
  control.announced_step.store(0);
  control.counted.store(0);
  for (CallResultEntry& entry : control.call_results) entry.call.store(0);
  RankSlot* const ranks = rank_slots(&control);
  for (std::uint32_t r = 0; r < control.about.rank_capacity; ++r) new (ranks + r) RankSlot();
  control.phase.store(Phase::kReady, std::memory_order_release);
  wake_all(control.wake);
}

Status refuse_live(const BackingFile& file, const ProcessIdentity& owner, const ArenaSpec& spec, Liveness life) {
  const std::string who = life == Liveness::kCannotTell
                              ? "a process in another container (pid " + std::to_string(owner.pid) + " there)"
                              : "process " + std::to_string(owner.pid) + ", which is running";
  return refused(
      "site " + spec.key.site + " of run " + spec.key.run + " has its anchor in " + file.path() +
      ", which belongs to " + who +
      ": end that process, or give this run another COLLAB_RUN or this site another COLLAB_SITE [arena.in-use]");
}

// An arena of this name exists. Returns a writer if a valid anchor was taken over. Returns none if there was nothing to
// keep; the file is then removed.
Result<std::unique_ptr<ArenaWriter>> install(BackingFile file, const ArenaSpec& spec) {
  const Geometry geometry = geometry_for(spec);
  const auto start = read_file_start(file);
  if (start) {
    const Liveness life = liveness_of_owner(file, *start);
    const bool left = start->phase == Phase::kClosed;
    if (!left && (life == Liveness::kAlive || life == Liveness::kCannotTell)) {
      return refuse_live(file, start->about.owner, spec, life);
    }
    const Geometry theirs = same_layout(*start) ? geometry_of(start->about) : Geometry{};
    const bool fits = theirs == geometry && file.bytes() == geometry.total_bytes() &&
                      start->about.fingerprint == spec.key.fingerprint;
    const bool same_job = fits && start->about.job == spec.job;
    if (fits && !same_job && !left) {
      log_warning(
          "process " + std::to_string(start->about.owner.pid) + " of another job left an anchor in " + file.path() +
          "; the file is removed (COLLAB_STATE_DIR keeps anchors from one job to the next) [arena.of-other-job]");
    }
    if (life == Liveness::kGone && start->phase == Phase::kReady && same_job) {
      auto mapping = map_file(file, geometry.control_bytes(), geometry.total_bytes() - geometry.control_bytes(), true);
      if (!mapping.ok()) return mapping.status();
      Control& control = *reinterpret_cast<Control*>((*mapping)->control());
      const std::uint32_t slot = find_valid_slot(control, (*mapping)->data(), geometry);
      if (slot != kNoSlot) {
        log_info("the anchor of round " + std::to_string(control.slots[slot].round.load()) + " that process " +
                 std::to_string(control.about.owner.pid) + " left in " + file.path() +
                 " is complete; this site goes on from it");
        take_over(control, owner_of(file), slot);
        file.unlock();
        return make_writer(*std::move(mapping), std::move(file), geometry, spec);
      }
      log_warning("process " + std::to_string(control.about.owner.pid) + " left no complete anchor in " + file.path() +
                  (control.outer_changing.load() != 0 ? " (it died while changing the outer state)" : "") +
                  "; the file is removed [arena.not-whole]");
    }
  }
  file.remove_name();
  return std::unique_ptr<ArenaWriter>();
}

Result<std::unique_ptr<ArenaWriter>> make_in(BackingFile file, const ArenaSpec& spec) {
  const Geometry geometry = geometry_for(spec);
  // Reserving a large arena takes minutes. Meanwhile the site's other ranks see that a process is working on it.
  file.hold();
  Status reserved = file.reserve(geometry.total_bytes());
  if (!reserved.ok()) {
    file.remove_name();
    return reserved;
  }
  auto mapping = map_file(file, geometry.control_bytes(), geometry.total_bytes() - geometry.control_bytes(), true);
  if (!mapping.ok()) {
    file.remove_name();
    return mapping.status();
  }
  initialise(**mapping, owner_of(file), geometry, spec);
  file.unlock();
  return make_writer(*std::move(mapping), std::move(file), geometry, spec);
}

// Opens and locks; a file that was removed while we waited for its lock is looked up again.
Result<BackingFile> open_locked(const std::string& path, bool create) {
  for (int tries = 0; tries < 8; ++tries) {
    Result<BackingFile> file = BackingFile::open(path, create);
    if (!file.ok()) return file;
    COLLAB_RETURN_IF_ERROR(file->lock());
    if (file->named()) return file;
  }
  return unavailable(path + " keeps being created and removed by other processes [arena.contended]");
}

bool is_taken(const Result<BackingFile>& file) { return file.status().code() == StatusCode::kRefused; }

// Handles an arena that an earlier leader of this site left, or still has. Returns a writer if it was taken over, none
// if nothing is kept.
Result<std::unique_ptr<ArenaWriter>> take_over_existing(const ArenaSpec& spec, const std::vector<ArenaPlace>& places) {
  for (const std::string& path : named_for(spec.key, places)) {
    Result<BackingFile> file = open_locked(path, false);
    if (is_taken(file) || file.status().code() == StatusCode::kUnavailable) continue;  // not ours, or gone
    if (!file.ok()) return file.status();
    auto writer = install(*std::move(file), spec);
    if (!writer.ok() || *writer != nullptr) return writer;
  }
  return std::unique_ptr<ArenaWriter>();
}

// Creates the arena in one folder, under the site's name. If another user, a link or a pipe has that name, uses a
// random name.
Result<std::unique_ptr<ArenaWriter>> create_in(const std::string& folder, const ArenaSpec& spec) {
  const std::string path = folder + "/" + file_name(spec.key);
  Result<BackingFile> file = open_locked(path, true);
  if (file.ok() && file->bytes() != 0) {  // another process was quicker; install() refuses it
    auto writer = install(*std::move(file), spec);
    if (!writer.ok() || *writer != nullptr) return writer;
    file = open_locked(path, true);
  }
  if (is_taken(file)) {
    log_warning("the anchor is kept under another name: " + file.status().message() + " [arena.renamed]");
    file = open_locked(folder + "/" + chance_name(spec.key), true);
  }
  if (!file.ok()) return file.status();
  return make_in(*std::move(file), spec);
}

Result<std::unique_ptr<ArenaWriter>> create_shared(const ArenaSpec& spec, const std::vector<ArenaPlace>& places) {
  auto installed = take_over_existing(spec, places);
  if (!installed.ok() || *installed != nullptr) return installed;
  const std::uint64_t needed = geometry_for(spec).total_bytes();
  std::string tried;
  for (const ArenaPlace& place : places) {
    const std::uint64_t available = std::min(free_bytes(place.folder), place.limit_bytes);
    std::string why = place.folder + " has " + human_bytes(available);
    if (available >= needed) {
      auto writer = create_in(place.folder, spec);
      if (writer.ok()) {
        if (!tried.empty()) {
          log_warning("the anchor" + beside(spec) + " needs " + human_bytes(needed) + " and " + tried +
                      ", so it is kept in a file, " + (*writer)->describe() +
                      ", and rounds will be slower [arena.on-disk]");
        }
        return writer;
      }
      why += " (" + writer.status().message() + ")";
    }
    tried += (tried.empty() ? "" : ", ") + why;
  }
  return unavailable("the anchor of site " + spec.key.site + beside(spec) + " needs " + human_bytes(needed) +
                     " of shared memory, but " + tried +
                     " free: enlarge shared memory (containers: --shm-size or --ipc=host), or point TMPDIR at a disk "
                     "with room; `collab doctor --clean` removes what dead processes left [arena.no-memory]");
}

}  // namespace
}  // namespace arena

Result<std::unique_ptr<ArenaWriter>> create_arena(const ArenaSpec& spec) {
  using namespace arena;
  if (spec.elements == 0 || spec.elements > kMaxElements) {
    return invalid_argument("an arena holds 1 to 2^40 trained elements, but the model has " +
                            std::to_string(spec.elements) + " [arena.elements]");
  }
  if (spec.ranks == 0 || spec.ranks > (1U << 20)) {
    return invalid_argument("an arena serves 1 to 2^20 ranks, not " + std::to_string(spec.ranks) + " [arena.ranks]");
  }
  if (spec.shared) return create_shared(spec, spec.places.empty() ? default_arena_places() : spec.places);
  const Geometry geometry = geometry_for(spec);
  // The system promises more memory than there is, and ends the process once that is used.
  if (const std::uint64_t needed = geometry.total_bytes(); needed > spec.private_limit_bytes) {
    return unavailable(
        "the anchor of site " + spec.key.site + beside(spec) + " needs " + human_bytes(needed) +
        " of memory, but this machine or container may use only " + human_bytes(spec.private_limit_bytes) +
        (spec.training_copy ? ": train without COLLAB_OVERLAP, which needs that copy, or on a larger machine"
                            : ": train on a larger machine") +
        " [arena.private-limit]");
  }
  auto mapping = map_private(geometry.control_bytes(), geometry.total_bytes() - geometry.control_bytes());
  if (!mapping.ok()) return mapping.status();
  initialise(**mapping, this_process(), geometry, spec);
  return make_writer(*std::move(mapping), std::nullopt, geometry, spec);
}

}  // namespace collab
