// A rank's view of its leader's arena.
#include <unistd.h>

#include <array>
#include <ctime>
#include <utility>

#include "core/arena/arena.h"
#include "core/arena/inspect.h"
#include "core/arena/naming.h"
#include "core/base/log.h"

namespace collab {
namespace arena {
namespace {

class Reader final : public ArenaReader {
 public:
  Reader(std::unique_ptr<Mapping> mapping, const Geometry& geometry, std::string site, std::uint32_t ranks)
      : mapping_(std::move(mapping)),
        geometry_(geometry),
        site_(std::move(site)),
        ranks_(ranks),
        control_(reinterpret_cast<Control*>(mapping_->control())),
        rank_slots_(rank_slots(control_)),
        leader_(control_->about.owner),
        generation_(control_->generation.load()) {}

  void report(std::uint32_t rank, const ArenaWriter::RankReport& report) override {
    COLLAB_CHECK(rank != 0 && rank < ranks_, "a rank reports to the arena under its own number, 1 or more");
    COLLAB_CHECK(report.call != 0, "calls of the arena are counted from 1");
    RankSlot& slot = rank_slots_[rank];
    if (slot.known.load() == 0) {
      slot.process = this_process();
      slot.known.store(1, std::memory_order_release);
    }
    ReportEntry& entry = slot.reports[report.call % kReports];
    entry.digest_lo.store(report.digest.lo);
    entry.digest_hi.store(report.digest.hi);
    entry.samples.store(report.samples);
    entry.call.store(report.call, std::memory_order_release);
    wake_all(slot.wake);
  }

  Result<std::string> wait_published(std::uint64_t call, std::chrono::milliseconds limit) override {
    const CallResultEntry& entry = control_->call_results[call % kCallResults];
    // The generation is read second. It shows that the result is from our leader, not from one that replaced it.
    const auto ready = [&] { return entry.call.load(std::memory_order_acquire) >= call && !replaced(); };
    COLLAB_RETURN_IF_ERROR(wait_for_leader("finish call " + std::to_string(call), limit, ready));
    std::string result(entry.bytes.data(), std::min<std::size_t>(entry.length, kCallResultBytes));
    if (const std::uint64_t now = entry.call.load(std::memory_order_acquire); now != call) {
      return internal_error(leader() + " is at call " + std::to_string(now) + ", so the result of call " +
                            std::to_string(call) + " is overwritten [arena.call-lost]");
    }
    return result;
  }

  [[nodiscard]] std::optional<SealedAnchor> sealed() const override {
    // The slot may be sealed again while it is read, but only once: between two seals the leader needs an answer from
    // us.
    for (int tries = 0; tries < 2; ++tries) {
      const std::uint32_t slot = control_->current.load(std::memory_order_acquire);
      if (slot >= kNoSlot) return std::nullopt;
      if (const auto seal = read_seal(control_->slots[slot])) {
        return SealedAnchor{RunId{seal->run}, RoundId{seal->round}, seal->digest};
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::span<const float> anchor() const override {
    const std::uint32_t slot = control_->current.load(std::memory_order_acquire);
    return slot < kNoSlot ? vector(slot) : std::span<const float>();
  }

  [[nodiscard]] std::span<const float> previous() const override {
    const std::uint32_t slot = control_->current.load(std::memory_order_acquire);
    if (slot >= kNoSlot || !read_seal(control_->slots[1 - slot])) return {};
    return vector(1 - slot);
  }

  [[nodiscard]] std::span<const float> training_copy() const override {
    return geometry_.training_copy ? vector(geometry_.copy_index()) : std::span<const float>();
  }

  [[nodiscard]] bool in_memory() const override { return mapping_->in_memory(); }

  [[nodiscard]] std::uint64_t counted() const override { return control_->counted.load(std::memory_order_acquire); }

  [[nodiscard]] Result<std::uint64_t> announced(std::uint64_t steps, std::chrono::milliseconds limit) override {
    const auto ready = [&] { return counted() >= steps && !replaced(); };
    if (!ready()) COLLAB_RETURN_IF_ERROR(wait_for_leader("reach step " + std::to_string(steps), limit, ready));
    return control_->announced_step.load(std::memory_order_relaxed);
  }

 private:
  template <typename Ready>
  Status wait_for_leader(const std::string& what, std::chrono::milliseconds limit, const Ready& ready) const {
    const auto gone = [&] { return leader_left() || liveness_of(leader_) == Liveness::kGone; };
    switch (wait_until(control_->wake, limit, ready, gone)) {
      case WaitEnd::kGone:
        return unavailable(leader() + (leader_left() ? " has left" : " is gone") + " before it could " + what +
                           ": restart the site; it goes on from the last anchor [arena.leader-gone]");
      case WaitEnd::kTimeout:
        return timed_out("waited " + seconds_text(limit) + " for " + leader() + " to " + what +
                         "; it is still running [arena.leader-slow]");
      case WaitEnd::kReady: break;
    }
    return {};
  }
  [[nodiscard]] std::span<const float> vector(std::uint32_t index) const {
    return {reinterpret_cast<const float*>(mapping_->data() + index * geometry_.vector_bytes()), geometry_.elements};
  }
  // The leader left on purpose, or it died and a new process replaced it. That process's calls are not ours.
  [[nodiscard]] bool leader_left() const {
    return control_->phase.load(std::memory_order_acquire) == Phase::kClosed || replaced();
  }
  [[nodiscard]] bool replaced() const { return control_->generation.load(std::memory_order_acquire) != generation_; }
  [[nodiscard]] std::string leader() const {
    return "the leader of site " + site_ + " (pid " + std::to_string(leader_.pid) + ")";
  }

  std::unique_ptr<Mapping> mapping_;
  Geometry geometry_;
  std::string site_;
  std::uint32_t ranks_;
  Control* control_;
  RankSlot* rank_slots_;
  ProcessIdentity leader_;
  std::uint64_t generation_;
};

// kUnavailable: not there yet, and the text says why. Any other failure is final.
Result<std::unique_ptr<ArenaReader>> try_open(const ArenaSpec& spec, const BackingFile& file) {
  const std::string& path = file.path();
  const auto start = read_file_start(file);
  if (!start || start->phase != Phase::kReady)
    return unavailable(path + " is being made or removed [arena.in-the-making]");
  if (liveness_of_owner(file, *start) == Liveness::kGone) {
    return unavailable(path + " was left by process " + std::to_string(start->about.owner.pid) +
                       ", which is gone [arena.left-behind]");
  }
  if (!same_layout(*start)) {
    return refused("the leader of site " + spec.key.site + " runs another version of collab (arena layout " +
                   std::to_string(start->about.layout_version) + ", ours is " + std::to_string(kLayoutVersion) +
                   "): install the same version for all ranks [arena.version]");
  }
  const Geometry geometry = geometry_of(start->about);
  const auto text = [](std::uint64_t elements, bool outer, bool copy) {
    return std::to_string(elements) + " elements" + (outer ? " and outer state" : " without outer state") +
           (copy ? " and with a copy for rounds behind the training (COLLAB_OVERLAP)" : "");
  };
  if (geometry.elements != spec.elements || geometry.outer_state != spec.outer_state ||
      geometry.training_copy != spec.training_copy || geometry.rank_capacity < spec.ranks ||
      file.bytes() != geometry.total_bytes()) {
    return refused("the arena of the leader of site " + spec.key.site + " is for " +
                   text(geometry.elements, geometry.outer_state, geometry.training_copy) + ", but this rank has " +
                   text(spec.elements, spec.outer_state, spec.training_copy) + " [arena.geometry]");
  }
  auto mapping = map_file(file, geometry.control_bytes(), geometry.total_bytes() - geometry.control_bytes(), false);
  if (!mapping.ok()) return mapping.status();
  return std::unique_ptr<ArenaReader>(
      std::make_unique<Reader>(*std::move(mapping), geometry, spec.key.site, spec.ranks));
}

// A live leader of our run and site that has another model.
std::optional<Status> find_other_model(const ArenaSpec& spec, const std::vector<ArenaPlace>& places) {
  for (const std::string& path : list_arenas(places, site_prefix(spec.key))) {
    Result<BackingFile> file = BackingFile::open(path, false);
    if (!file.ok()) continue;
    const auto start = read_file_start(*file);
    if (!start || start->about.fingerprint == spec.key.fingerprint || start->phase != Phase::kReady ||
        liveness_of(start->about.owner) != Liveness::kAlive) {
      continue;
    }
    return refused("the ranks of site " + spec.key.site + " hold different models: the leader (pid " +
                   std::to_string(start->about.owner.pid) + ") has fingerprint " + to_hex(start->about.fingerprint) +
                   " with " + std::to_string(start->about.elements) + " trained elements, this rank has " +
                   to_hex(spec.key.fingerprint) + " with " + std::to_string(spec.elements) + " [arena.model-mismatch]");
  }
  return std::nullopt;
}

}  // namespace
}  // namespace arena

Result<std::unique_ptr<ArenaReader>> open_arena(const ArenaSpec& spec, std::chrono::milliseconds limit) {
  using namespace arena;
  using Steady = std::chrono::steady_clock;
  if (!spec.shared) {
    return invalid_argument("the anchor of site " + spec.key.site +
                            " is in its leader's private memory [arena.private]");
  }
  const std::vector<ArenaPlace> places = spec.places.empty() ? default_arena_places() : spec.places;
  const Steady::time_point begin = Steady::now();
  const auto waited = [&] { return std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - begin); };
  // Time for our leader to appear, before another leader with the same names is taken for it.
  const std::chrono::milliseconds settle = std::min(limit / 2, std::chrono::milliseconds(5000));
  std::string why;
  bool told = false;
  while (true) {
    why.clear();
    bool at_work = false;  // a process creates the arena, or examines an old one
    for (const std::string& path : named_for(spec.key, places)) {
      const Result<BackingFile> file = BackingFile::open(path, false);
      auto reader = file.ok() ? try_open(spec, *file) : file.status();
      // Not there yet, or another user's. In that case ours has another name.
      const bool final = file.ok() && reader.status().code() != StatusCode::kUnavailable;
      if (reader.ok() || final) return reader;
      why = "; " + reader.status().message();
      at_work = at_work || (file.ok() && file->held(false));
    }
    if (waited() >= settle) {
      if (auto other = find_other_model(spec, places)) return *std::move(other);
    }
    if (waited() >= limit) {
      if (!at_work) break;
      if (!std::exchange(told, true)) {
        log_info("the leader of site " + spec.key.site + " is still making its arena" + why +
                 "; this rank waits until it is done");
      }
    }
    // The file will appear in a folder, so there is no memory word to wait on yet.
    const timespec pause{0, 2'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return timed_out("waited " + seconds_text(limit) + " for the leader of site " + spec.key.site + " of run " +
                   spec.key.run + " to make its arena " + file_name(spec.key) + " in " + places.front().folder + why +
                   "; is the site's rank 0 running on this machine? [arena.no-leader]");
}

}  // namespace collab
