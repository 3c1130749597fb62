#include "core/runtime/storage/state_saver.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/log.h"

namespace collab {
namespace {

[[nodiscard]] bool share_memory(std::span<const float> a, std::span<const float> b) {
  const std::less<const float*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

[[nodiscard]] std::string in_megabytes(std::uint64_t elements) {
  return std::to_string(elements * sizeof(float) / 1'000'000) + " MB";
}

}  // namespace

bool StateSaver::Save::needs(std::span<const float> elements) const {
  return std::ranges::any_of(sources, [elements](const Source& source) {
    return share_memory(source.elements.subspan(source.copied), elements);
  });
}

std::string StateSaver::Save::progress() const {
  std::uint64_t copied = 0;
  std::uint64_t all = 0;
  for (const Source& source : sources) {
    copied += source.copied;
    all += source.elements.size();
  }
  return in_megabytes(copied) + " of " + in_megabytes(all);
}

void StateSaver::save(StateHeader header, std::span<const float> anchor, std::span<const float> outer,
                      std::span<const float> residual) {
  Save next{std::move(header), {Source{anchor}, Source{outer}, Source{residual}}};
  {
    const std::lock_guard lock(mutex_);
    overdue_ = false;
    if (writing_) {
      waiting_ = std::move(next);
      return;
    }
    writing_ = std::move(next);
  }
  if (thread_.joinable()) thread_.join();  // it has ended
  thread_ = std::thread([this] { write_all(); });
}

void StateSaver::write_all() {
  while (true) {
    write_one();
    const std::lock_guard lock(mutex_);
    writing_ = std::exchange(waiting_, std::nullopt);
    if (writing_) continue;
    ended_.notify_all();
    return;
  }
}

void StateSaver::write_one() {
  const auto pieces = [this](StatePart part, std::uint64_t offset, std::span<float> out) {
    return copy(part, offset, out);
  };
  // Nobody else changes the header, nor which save this is.
  const Status status = write_state(disk_, path_, writing_->header, pieces);
  if (status.ok()) return;
  if (status.code() == StatusCode::kCancelled) {
    return give_up(*writing_, "when " + writing_->progress() + " were in " + path_ + ".new, which is removed");
  }
  std::optional<std::string> said;  // a full disk is full for many rounds
  {
    const std::lock_guard lock(mutex_);
    said = rate_limited_.let(SteadyClock().now(), "the state of round " + std::to_string(writing_->header.round.value) +
                                                      " was not saved: " + status.message() + " [state.not-saved]");
  }
  if (said) log_error(*said);
}

// Rounds may be shorter than the disk is slow, so not every line is said.
void StateSaver::give_up(const Save& save, const std::string& why) {
  std::optional<std::string> said;
  {
    const std::lock_guard lock(mutex_);
    overdue_ = overdue_ || !waiting_;
    said = rate_limited_.let(
        SteadyClock().now(),
        "the state of round " + std::to_string(save.header.round.value) + " was not saved: a round needed the memory " +
            why +
            "; the next round's is tried. A faster disk, or longer rounds (COLLAB_SYNC_EVERY), let it "
            "end in time [state.save-given-up]");
  }
  if (said) log_warning(*said);
}

bool StateSaver::copy(StatePart part, std::uint64_t offset, std::span<float> out) {
  const std::lock_guard lock(mutex_);
  if (writing_->given_up) return false;
  Source& source = writing_->sources[static_cast<std::size_t>(part)];
  std::ranges::copy(source.elements.subspan(offset, out.size()), out.begin());
  source.copied = offset + out.size();
  return true;
}

bool StateSaver::overdue() const {
  const std::lock_guard lock(mutex_);
  return overdue_;
}

void StateSaver::let_go(std::span<const float> elements) {
  std::optional<Save> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (writing_ && writing_->needs(elements)) writing_->given_up = true;
    if (waiting_ && waiting_->needs(elements)) dropped = std::exchange(waiting_, std::nullopt);
  }
  if (dropped) give_up(*dropped, "while the one before was on its way to " + path_);
}

void StateSaver::wait() {
  constexpr std::chrono::seconds kSayEvery{10};
  {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kSayEvery, [this] { return !writing_; })) {
      log_info("waiting for the state of round " + std::to_string(writing_->header.round.value) + " to be written to " +
               path_);
    }
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace collab
