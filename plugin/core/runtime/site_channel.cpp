#include "core/runtime/site_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/log.h"
#include "core/runtime/schedule.h"
#include "core/wire/byte_io.h"

namespace collab {
namespace {

// In the arena's form: the decision, then the error.
std::string bytes_of(const CallResult& result) {
  const Decision& decision = result;
  return std::string(reinterpret_cast<const char*>(&decision), sizeof decision) +
         wire::fit_sentence(result.error, kCallResultBytes - sizeof decision);
}

class SoloChannel final : public SiteChannel {
 public:
  Result<std::vector<RankReport>> report(const RankReport& own) override { return std::vector{own}; }
  Result<CallResult> share(std::uint64_t, const CallResult& mine) override { return mine; }
  Result<std::uint64_t> announcement(std::uint64_t mine, std::uint64_t) override {
    if (mine != 0) announced_ = mine;
    return announced_;
  }

 private:
  std::uint64_t announced_ = 0;
};

class ArenaLeaderChannel final : public SiteChannel {
 public:
  ArenaLeaderChannel(ArenaWriter& arena, std::uint32_t ranks, std::chrono::milliseconds limit)
      : arena_(arena), ranks_(ranks), limit_(limit) {}

  Result<std::vector<RankReport>> report(const RankReport& own) override {
    std::vector<RankReport> reports{own};
    for (std::uint32_t rank = 1; rank < ranks_; ++rank) {
      Result<RankReport> report = arena_.wait_report(rank, own.call, limit_);
      if (!report.ok()) {  // the ranks that have reported wait for a result
        arena_.publish(own.call, bytes_of({{}, report.status().message()}));
        return report.status();
      }
      reports.push_back(*report);
    }
    return reports;
  }

  Result<CallResult> share(std::uint64_t call, const CallResult& mine) override {
    arena_.publish(call, bytes_of(mine));
    return mine;
  }

  Result<std::uint64_t> announcement(std::uint64_t mine, std::uint64_t steps) override {
    arena_.count(steps, mine);
    if (mine != 0) announced_ = mine;
    return announced_;
  }

 private:
  ArenaWriter& arena_;
  std::uint32_t ranks_;
  std::chrono::milliseconds limit_;
  std::uint64_t announced_ = 0;
};

class ArenaFollowerChannel final : public SiteChannel {
 public:
  ArenaFollowerChannel(std::unique_ptr<ArenaReader> arena, std::uint32_t rank, ParameterVector& parameters,
                       const MergeSettings& merge, std::chrono::milliseconds limit)
      : arena_(std::move(arena)), rank_(rank), parameters_(parameters), merge_(merge), limit_(limit) {
    if (arena_->in_memory()) pinned_ = parameters_.pin_memory(arena_->training_copy());
  }

  Result<std::vector<RankReport>> report(const RankReport& own) override {
    arena_->report(rank_, own);
    return std::vector<RankReport>{};
  }

  Result<CallResult> share(std::uint64_t call, const CallResult&) override {
    const Result<std::string> published = arena_->wait_published(call, limit_);
    if (!published.ok()) return published.status();
    Decision decision;
    if (published->size() < sizeof decision)
      return internal_error("the leader's result has only " + std::to_string(published->size()) +
                            " bytes [round.outcome]");
    std::memcpy(&decision, published->data(), sizeof decision);
    CallResult result{decision, published->substr(sizeof decision)};
    if (!result.ok()) return result;
    if (takes_copy(result.change)) {
      COLLAB_RETURN_IF_ERROR(merge_copy(parameters_, result.change, arena_->training_copy(), merge_, result.range));
    } else {
      COLLAB_RETURN_IF_ERROR(change_parameters(parameters_, result.change, arena_->anchor(),
                                               {arena_->previous(), merge_.trained}, result.range));
    }
    return result;
  }

  Result<std::uint64_t> announcement(std::uint64_t, std::uint64_t steps) override {
    return arena_->announced(least(steps), limit_);
  }
  [[nodiscard]] bool is_ahead(std::uint64_t steps) const override { return arena_->counted() < least(steps); }

 private:
  // The leader's steps from which on it announces only steps later than `steps`.
  static std::uint64_t least(std::uint64_t steps) {
    return steps - std::min<std::uint64_t>(steps, SyncSchedule::kAhead);
  }

  std::unique_ptr<ArenaReader> arena_;
  std::uint32_t rank_;
  ParameterVector& parameters_;
  MergeSettings merge_;
  std::chrono::milliseconds limit_;
  std::shared_ptr<void> pinned_;
};

class GroupChannel final : public SiteChannel {
 public:
  GroupChannel(SiteGroup& group, bool leader, ParameterVector& parameters)
      : group_(group), leader_(leader), parameters_(parameters) {}

  Result<std::vector<RankReport>> report(const RankReport& own) override {
    static_assert(std::is_trivially_copyable_v<RankReport> && std::has_unique_object_representations_v<RankReport>);
    const Result<std::vector<std::byte>> all = group_.gather_all(std::as_bytes(std::span(&own, 1)));
    if (!all.ok()) return all.status();
    std::vector<RankReport> reports;
    if (!leader_) return reports;
    reports.resize(all->size() / sizeof own);
    std::memcpy(reports.data(), all->data(), reports.size() * sizeof own);
    return reports;
  }

  Result<CallResult> share(std::uint64_t, const CallResult& mine) override {
    struct Head {
      Decision decision;
      std::uint64_t error_bytes;
    } head{static_cast<const Decision&>(mine), mine.error.size()};
    COLLAB_RETURN_IF_ERROR(group_.broadcast(std::as_writable_bytes(std::span(&head, 1))));
    CallResult result{head.decision, mine.error};
    if (head.error_bytes > 0) {
      result.error.resize(head.error_bytes);
      COLLAB_RETURN_IF_ERROR(group_.broadcast(std::as_writable_bytes(std::span(result.error))));
      return result;
    }
    if (result.change != ParameterChange::kUnchanged) COLLAB_RETURN_IF_ERROR(broadcast_parameters(result.range));
    return result;
  }

  Result<std::uint64_t> announcement(std::uint64_t mine, std::uint64_t) override {
    COLLAB_RETURN_IF_ERROR(group_.broadcast(std::as_writable_bytes(std::span(&mine, 1))));
    if (mine != 0) announced_ = mine;
    return announced_;
  }

 private:
  Status broadcast_parameters(ElementRange range) {
    constexpr std::uint64_t kTile = 1 << 20;
    std::vector<float> tile;
    const auto [begin, end] = common(range, {0, parameters_.size()});
    for (std::uint64_t at = begin; at < end; at += kTile) {
      tile.resize(std::min(kTile, end - at));
      if (leader_) COLLAB_RETURN_IF_ERROR(parameters_.read(at, tile));
      COLLAB_RETURN_IF_ERROR(group_.broadcast(std::as_writable_bytes(std::span(tile))));
      if (!leader_) COLLAB_RETURN_IF_ERROR(parameters_.write(at, tile));
    }
    return {};
  }

  SiteGroup& group_;
  bool leader_;
  ParameterVector& parameters_;
  std::uint64_t announced_ = 0;
};

}  // namespace

std::unique_ptr<SiteChannel> make_solo_channel() { return std::make_unique<SoloChannel>(); }

std::unique_ptr<SiteChannel> make_arena_leader_channel(ArenaWriter& arena, std::uint32_t ranks,
                                                       std::chrono::milliseconds limit) {
  return std::make_unique<ArenaLeaderChannel>(arena, ranks, limit);
}

std::unique_ptr<SiteChannel> make_arena_follower_channel(std::unique_ptr<ArenaReader> arena, std::uint32_t rank,
                                                         ParameterVector& parameters, const MergeSettings& merge,
                                                         std::chrono::milliseconds limit) {
  return std::make_unique<ArenaFollowerChannel>(std::move(arena), rank, parameters, merge, limit);
}

std::unique_ptr<SiteChannel> make_group_channel(SiteGroup& group, bool leader, ParameterVector& parameters) {
  return std::make_unique<GroupChannel>(group, leader, parameters);
}

}  // namespace collab
