#include "core/runtime/storage/state_saver.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "core/base/rate_limit.h"
#include "core/base/text.h"

namespace collab {
namespace {

[[nodiscard]] bool share_memory(std::span<const float> a, std::span<const float> b) {
  const std::less<const float*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

}  // namespace

struct StateSaver::Save {
  struct Source {
    std::span<const float> elements;
    std::uint64_t copied = 0;
  };

  StateHeader header;
  std::array<Source, 3> sources{};  // index: StatePart
  bool given_up = false;
  bool sets_aside = false;  // the state on disk, before this save

  [[nodiscard]] bool needs(std::span<const float> elements) const {
    return std::ranges::any_of(sources, [elements](const Source& source) {
      return share_memory(source.elements.subspan(source.copied), elements);
    });
  }
  [[nodiscard]] std::string progress() const {
    std::uint64_t copied = 0;
    std::uint64_t all = 0;
    for (const Source& source : sources) {
      copied += source.copied;
      all += source.elements.size();
    }
    return in_megabytes(copied * sizeof(float)) + " of " + in_megabytes(all * sizeof(float));
  }
};

// Outlives the saver if its thread hangs in a call of the disk.
struct StateSaver::Shared {
  Shared(std::string to, Disk& with) : path(std::move(to)), disk(with) {}

  void write_all();
  void write_one();
  void write_mark(bool ended);
  [[nodiscard]] Status move_aside();
  [[nodiscard]] bool copy(StatePart part, std::uint64_t offset, std::span<float> out);
  void give_up(const Save& save, const std::string& why);

  const std::string path;
  Disk& disk;
  const SteadyClock clock{};

  std::mutex mutex;  // guards what follows
  std::condition_variable ended;
  std::optional<Save> writing;
  std::optional<Save> waiting;
  std::optional<bool> mark;  // to be written once no save waits
  bool busy = false;         // the thread is busy
  TimePoint taken{};         // when the disk last took a piece
  bool left = false;         // nothing waits any more, and the memory is gone
  bool overdue = false;
  std::string not_used;  // why the state on disk is to be moved aside; empty: it is not
  std::optional<RunId> run_there;
  std::optional<RunId> run_taken;
  RateLimit not_saved_line{std::chrono::minutes(1)};
};

StateSaver::StateSaver(std::string path, Disk& disk, std::chrono::milliseconds disk_limit)
    : shared_(std::make_shared<Shared>(std::move(path), disk)), disk_limit_(disk_limit) {}

StateSaver::~StateSaver() { wait(); }

bool StateSaver::enabled() const { return !shared_->path.empty(); }

void StateSaver::found(const wire::Offer& anchor) {
  anchor_on_disk_ = anchor;
  const std::lock_guard lock(shared_->mutex);
  shared_->run_there = anchor.run;
}

void StateSaver::takes(const wire::Offer& anchor) {
  const std::lock_guard lock(shared_->mutex);
  shared_->run_taken = anchor.run;
  if (!anchor_on_disk_) return;
  if (anchor.run == anchor_on_disk_->run) return shared_->not_used.clear();
  if (anchor.round > anchor_on_disk_->round || anchor.digest == anchor_on_disk_->digest) return;
  shared_->not_used = "the state of round " + std::to_string(anchor_on_disk_->round.value) + " of run " +
                      std::to_string(anchor_on_disk_->run.value) + " in " + shared_->path +
                      " is not what the swarm goes on from: it is at round " + std::to_string(anchor.round.value) +
                      " of run " + std::to_string(anchor.run.value);
}

void StateSaver::save(StateHeader header, std::span<const float> anchor, std::span<const float> outer,
                      std::span<const float> residual) {
  Save next{std::move(header), {Save::Source{anchor}, Save::Source{outer}, Save::Source{residual}}};
  anchor_on_disk_ = wire::Offer{next.header.run, next.header.round, next.header.digest};
  {
    const std::lock_guard lock(shared_->mutex);
    next.sets_aside = !shared_->not_used.empty();
    shared_->overdue = false;
    shared_->waiting = std::move(next);
    shared_->mark.reset();  // a site that saves has not ended
  }
  start();
}

void StateSaver::mark(bool ended) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->mark = ended;
  }
  start();
}

void StateSaver::start() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (std::exchange(shared_->busy, true)) return;
    shared_->writing = std::exchange(shared_->waiting, std::nullopt);
    shared_->taken = shared_->clock.now();
  }
  if (thread_.joinable()) thread_.join();  // it has ended
  thread_ = std::thread([shared = shared_] { shared->write_all(); });
}

void StateSaver::Shared::write_all() {
  std::optional<bool> marked;
  while (true) {
    if (writing) write_one();
    if (marked) write_mark(*marked);
    const std::lock_guard lock(mutex);
    writing = left ? std::nullopt : std::exchange(waiting, std::nullopt);
    marked = left || writing ? std::nullopt : std::exchange(mark, std::nullopt);
    taken = clock.now();
    if (writing || marked) continue;
    busy = false;
    ended.notify_all();
    return;
  }
}

void StateSaver::Shared::write_mark(bool ended_well) {
  {
    const std::lock_guard lock(mutex);
    if (run_there && run_taken && *run_there != *run_taken) return;
  }
  const Status status = mark_ended(disk, path, ended_well);
  if (status.ok()) return;
  log_warning("the state file could not be marked as " +
              std::string(ended_well ? "that of a run that has ended in good order: the next start waits for the others"
                                     : "that of a run that goes on: without its record this site would not wait") +
              ": " + status.message() + " [state.not-marked]");
}

void StateSaver::Shared::write_one() {
  const auto pieces = [this](StatePart part, std::uint64_t offset, std::span<float> out) {
    return copy(part, offset, out);
  };
  // Nothing else changes the header, or which save this is.
  Status status = writing->sets_aside ? move_aside() : Status();
  if (status.ok()) status = write_state(disk, path, writing->header, pieces);
  if (status.ok()) {
    const std::lock_guard lock(mutex);
    run_there = writing->header.run;
    return;
  }
  if (status.code() == StatusCode::kCancelled) {
    return give_up(*writing, "when " + writing->progress() + " were in " + path + ".new, which is removed");
  }
  std::optional<std::string> said;  // a full disk stays full for many rounds
  {
    const std::lock_guard lock(mutex);
    said = not_saved_line.allow(clock.now(), "the state of round " + std::to_string(writing->header.round.value) +
                                                 " was not saved: " + status.message() + " [state.not-saved]");
  }
  if (said) log_error(*said);
}

// Until this succeeds, no state is saved.
Status StateSaver::Shared::move_aside() {
  std::string why;
  {
    const std::lock_guard lock(mutex);
    why = not_used;
  }
  const std::string name = free_name_beside(path, "not-used");
  const bool moved = !why.empty() && disk.rename(path.c_str(), name.c_str()) == 0;
  if (!moved && !why.empty() && errno != ENOENT) {
    return unavailable("cannot rename " + path + " to " + name + ": " + std::strerror(errno));
  }
  {
    const std::lock_guard lock(mutex);
    if (not_used == why) not_used.clear();  // otherwise another state is to be moved aside by now
  }
  if (!moved) return {};
  log_warning(
      why + ". It is kept as " + name + ". To go on from it, stop all sites. Move everything else out of " + path +
      "'s folder. At the other sites, move away the folder of COLLAB_STATE_DIR or, without one, the site's record in "
      "$XDG_STATE_HOME/torch-collab (~/.local/state/torch-collab). A site that was stopped hard leaves that record, a "
      "file <run>~<site>~....record, and it binds the site to the other run. Then give the state its name back "
      "[state.not-used]");
  return sync_folder_of(disk, path);
}

// Rounds may be shorter than a write of a slow disk, so not every line is logged.
void StateSaver::Shared::give_up(const Save& save, const std::string& why) {
  std::optional<std::string> said;
  {
    const std::lock_guard lock(mutex);
    if (left) return;  // that was logged already
    overdue = overdue || !waiting;
    said = not_saved_line.allow(
        clock.now(),
        "the state of round " + std::to_string(save.header.round.value) + " was not saved: a round needed the memory " +
            why +
            "; the next round's state is tried instead. A faster disk, or longer rounds (COLLAB_SYNC_EVERY), "
            "let a save end in time [state.save-given-up]");
  }
  if (said) log_warning(*said);
}

bool StateSaver::Shared::copy(StatePart part, std::uint64_t offset, std::span<float> out) {
  const std::lock_guard lock(mutex);
  if (left || writing->given_up) return false;
  Save::Source& source = writing->sources[static_cast<std::size_t>(part)];
  std::ranges::copy(source.elements.subspan(offset, out.size()), out.begin());
  source.copied = offset + out.size();
  taken = clock.now();
  return true;
}

bool StateSaver::overdue() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->overdue;
}

void StateSaver::release_for_write(std::span<const float> elements) {
  std::optional<Save> dropped;
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->writing && shared_->writing->needs(elements)) shared_->writing->given_up = true;
    if (shared_->waiting && shared_->waiting->needs(elements)) {
      dropped = std::exchange(shared_->waiting, std::nullopt);
    }
  }
  if (dropped) shared_->give_up(*dropped, "while the state before it was being written to " + shared_->path);
}

void StateSaver::wait() {
  constexpr std::chrono::milliseconds kSayEvery = std::chrono::seconds(10);
  if (!thread_.joinable()) return;
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  while (!shared.ended.wait_for(lock, std::min(kSayEvery, disk_limit_), [&] { return !shared.busy; })) {
    const std::string round = shared.writing ? std::to_string(shared.writing->header.round.value) : "saved last";
    if (shared.clock.now() < shared.taken + disk_limit_) {
      log_info("waiting for the state of round " + round + " to be written to " + shared.path);
      continue;
    }
    shared.left = true;
    shared.waiting.reset();
    log_warning("the disk has accepted no part of the state of round " + round + " for " +
                std::to_string(disk_limit_.count()) + " ms: collab no longer waits for it, and " + shared.path +
                " holds an earlier round [state.save-left]");
    return thread_.detach();
  }
  lock.unlock();
  thread_.join();
}

}  // namespace collab
