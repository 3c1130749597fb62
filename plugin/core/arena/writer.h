// The leader's side of an arena, over memory that create.cpp has made or taken over.
//
// Threads: one. Ownership: the mapping, and the file's name, which it removes unless it is a forked copy.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "core/arena/arena.h"
#include "core/arena/layout.h"
#include "core/arena/mapping.h"

namespace collab::arena {

class Writer final : public ArenaWriter {
 public:
  Writer(std::unique_ptr<Mapping> mapping, std::optional<BackingFile> file, Geometry geometry, std::string site,
         std::uint32_t ranks);
  ~Writer() override;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  [[nodiscard]] std::optional<SealedAnchor> sealed() const override;
  [[nodiscard]] std::span<const float> anchor() const override;
  [[nodiscard]] std::span<float> scratch() override;
  [[nodiscard]] std::span<float> outer() override;
  [[nodiscard]] std::span<float> training_copy() override;
  void begin_outer_update() override;
  void seal(const SealedAnchor& as) override;
  void publish(std::uint64_t call, const std::string& result) override;
  Result<RankReport> wait_report(std::uint32_t rank, std::uint64_t call, std::chrono::milliseconds limit) override;
  void count(std::uint64_t steps, std::uint64_t announced) override;
  [[nodiscard]] bool in_memory() const override { return mapping_->in_memory(); }
  [[nodiscard]] std::string describe() const override;

 private:
  [[nodiscard]] float* vector(std::uint32_t index) const;  // by number, as in the layout
  [[nodiscard]] std::uint32_t scratch_slot() const;

  std::unique_ptr<Mapping> mapping_;
  std::optional<BackingFile> file_;  // none: private memory
  Geometry geometry_;
  std::string site_;
  std::uint32_t ranks_;
  pid_t owner_pid_;
  Control* control_;
  RankSlot* rank_slots_;
};

}  // namespace collab::arena
