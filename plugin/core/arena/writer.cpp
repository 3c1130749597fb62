// The leader's side of an arena. create.cpp creates it, or takes it over from a leader that died.
#include "core/arena/writer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/arena/inspect.h"
#include "core/arena/naming.h"
#include "core/base/log.h"

namespace collab::arena {

Writer::Writer(std::unique_ptr<Mapping> mapping, std::optional<BackingFile> file, Geometry geometry, std::string site,
               std::uint32_t ranks)
    : mapping_(std::move(mapping)),
      file_(std::move(file)),
      geometry_(geometry),
      site_(std::move(site)),
      ranks_(ranks),
      owner_pid_(::getpid()),
      control_(reinterpret_cast<Control*>(mapping_->control())),
      rank_slots_(rank_slots(control_)) {}

Writer::~Writer() {
  // A forked child has a copy of this object but neither the memory nor the right to the name.
  if (::getpid() != owner_pid_) return;
  control_->phase.store(Phase::kClosed, std::memory_order_release);
  wake_all(control_->wake);
  if (file_) file_->remove_name();
}

float* Writer::vector(std::uint32_t index) const {
  return reinterpret_cast<float*>(mapping_->data() + index * geometry_.vector_bytes());
}

std::optional<SealedAnchor> Writer::sealed() const {
  const std::uint32_t slot = control_->current.load(std::memory_order_acquire);
  if (slot == kNoSlot) return std::nullopt;
  const auto seal = read_seal(control_->slots[slot]);
  if (!seal) return std::nullopt;
  const std::span<const std::byte> attached = attached_to(*control_, slot);
  return SealedAnchor{RunId{seal->run}, RoundId{seal->round}, seal->digest, {attached.begin(), attached.end()}};
}

std::span<const float> Writer::anchor() const {
  const std::uint32_t slot = control_->current.load(std::memory_order_acquire);
  if (slot == kNoSlot) return {};
  return {vector(slot), geometry_.elements};
}

std::uint32_t Writer::scratch_slot() const { return control_->current.load(std::memory_order_acquire) == 0 ? 1 : 0; }

std::span<float> Writer::scratch() { return {vector(scratch_slot()), geometry_.elements}; }

std::span<float> Writer::outer() {
  if (!geometry_.outer_state) return {};
  return {vector(2), geometry_.elements};
}

std::span<float> Writer::training_copy() {
  if (!geometry_.training_copy) return {};
  return {vector(geometry_.copy_index()), geometry_.elements};
}

void Writer::begin_outer_update() { control_->outer_changing.store(1, std::memory_order_release); }

void Writer::seal(const SealedAnchor& as) {
  const std::uint32_t slot = scratch_slot();
  std::uint64_t newest = 0;
  for (const SlotHeader& header : control_->slots) newest = std::max(newest, header.sequence.load());
  SlotHeader& header = control_->slots[slot];
  header.sequence.store(0);  // if killed from here on, this slot is not sealed, but the other one is
  header.run.store(as.run.value);
  header.round.store(as.round.value);
  header.digest_lo.store(as.digest.lo);
  header.digest_hi.store(as.digest.hi);
  const bool fits = as.attached.size() <= kMaxAttachedBytes;
  if (!fits) {
    log_error("the anchor of round " + std::to_string(as.round.value) + " is sealed without the " +
              std::to_string(as.attached.size()) + " bytes that belong to it: there is room for " +
              std::to_string(kMaxAttachedBytes) + " [arena.attached-too-long]");
  }
  header.attached_bytes.store(fits ? as.attached.size() : 0);
  if (fits) std::ranges::copy(as.attached, control_->attached[slot].bytes.begin());
  header.hash.store(hash_of_slot(*control_, slot));
  header.sequence.store(newest + 1);
  control_->current.store(slot);
  control_->outer_changing.store(0);
}

void Writer::publish(std::uint64_t call, const std::string& result) {
  COLLAB_CHECK(call != 0, "calls of the arena are counted from 1");
  CallResultEntry& entry = control_->call_results[call % kCallResults];
  entry.call.store(0);
  entry.length = std::min(result.size(), kCallResultBytes);
  std::copy_n(result.begin(), entry.length, entry.bytes.begin());
  entry.call.store(call, std::memory_order_release);
  wake_all(control_->wake);
}

Result<ArenaWriter::RankReport> Writer::wait_report(std::uint32_t rank, std::uint64_t call,
                                                    std::chrono::milliseconds limit) {
  if (rank == 0 || rank >= ranks_) {
    return invalid_argument("the arena of site " + site_ + " has reports of ranks 1 to " + std::to_string(ranks_ - 1) +
                            ", not of rank " + std::to_string(rank) + " [arena.no-such-rank]");
  }
  const RankSlot& slot = rank_slots_[rank];
  const ReportEntry& entry = slot.reports[call % kReports];
  const auto ready = [&] { return entry.call.load(std::memory_order_acquire) >= call; };
  // A rank that has never reported cannot be checked: only the limit ends the wait for it.
  const auto gone = [&] {
    return slot.known.load(std::memory_order_acquire) != 0 && liveness_of(slot.process) == Liveness::kGone;
  };
  const std::string who = "rank " + std::to_string(rank) + " of site " + site_;
  switch (wait_until(slot.wake, limit, ready, gone)) {
    case WaitEnd::kGone:
      return unavailable(who + " (pid " + std::to_string(slot.process.pid) + ") is gone; call " + std::to_string(call) +
                         " cannot be finished without it: restart the site [arena.rank-gone]");
    case WaitEnd::kTimeout:
      return timed_out("waited " + seconds_text(limit) + " for " + who + " to reach call " + std::to_string(call) +
                       "; all ranks of a site must make the same calls in the same order [arena.rank-slow]");
    case WaitEnd::kReady: break;
  }
  RankReport report;
  report.digest = {entry.digest_lo.load(), entry.digest_hi.load()};
  report.samples = entry.samples.load();
  report.call = entry.call.load(std::memory_order_acquire);
  if (report.call != call) {
    return internal_error(who + " is already at call " + std::to_string(report.call) + ", so its report of call " +
                          std::to_string(call) + " is overwritten [arena.report-lost]");
  }
  return report;
}

void Writer::count(std::uint64_t steps, std::uint64_t announced) {
  if (announced != 0) control_->announced_step.store(announced, std::memory_order_relaxed);
  control_->counted.store(steps, std::memory_order_release);
  wake_all(control_->wake);
}

std::string Writer::describe() const {
  const std::string size = human_bytes(geometry_.total_bytes());
  return file_ ? file_->path() + " (" + size + ")" : "private memory (" + size + ")";
}

}  // namespace collab::arena
