// The work that only the site's leader does: it holds the arena and the node, and offers its anchor.
//
// Threads: the session's caller. Ownership: the arena, the node.
#pragma once

#include <memory>
#include <optional>

#include "core/arena/arena.h"
#include "core/runtime/node.h"
#include "core/runtime/saved_site.h"
#include "core/runtime/storage/record_store.h"
#include "core/runtime/termination.h"

namespace collab {

class Leader {
 public:
  Leader(const SessionOptions& options, ParameterVector& parameters) : options_(options), parameters_(parameters) {}

  // Makes the arena; the site's other ranks can open it from here on.
  Status prepare();
  // Joins the swarm with the newest anchor held here: in the arena, in COLLAB_STATE_DIR, else the parameters.
  Result<SealedAnchor> join();
  // `trigger`: all samples and steps of the site since it joined. Fails when the site's delta was unfit three times in
  // a row, unless COLLAB_ON_NONFINITE=continue.
  Result<RoundReport> round(const protocol::Trigger& trigger);
  // Starts a round behind the training (COLLAB_OVERLAP), from the parameters as they are now. On return they may change
  // again. The script stands still since `called`.
  Status start_round(const protocol::Trigger& trigger, TimePoint called);
  // True if end_round() would not wait.
  [[nodiscard]] bool round_is_over() const;
  // On return the result is in the parameters, and in the arena for the site's other ranks.
  Result<RoundReport> end_round(TimePoint called);
  // The time it took to merge the last round's result into the parameters; 0 if it was taken before.
  [[nodiscard]] Duration take_merging() { return std::exchange(merging_, Duration{}); }
  void leave(const std::string& reason, std::uint32_t next_generation);

  [[nodiscard]] ArenaWriter& arena() { return *arena_; }
  [[nodiscard]] const Node* node() const { return node_.get(); }
  [[nodiscard]] Node* node() { return node_.get(); }

 private:
  [[nodiscard]] Result<wire::Join> describe();
  Status warn_if_not_used(const SealedAnchor& anchor);
  Status judge(const RoundReport& report);
  Status merge(ParameterChange change, ElementRange range);
  Status merge(const RoundReport& report);  // a round's result
  void on_termination();
  [[nodiscard]] double seconds_since(TimePoint when) const;

  // A round behind the training.
  struct Flight {
    Node::Pending report;
    TimePoint began{};
    double stalled = 0;  // seconds that the script stood still
  };

  const SessionOptions& options_;
  ParameterVector& parameters_;
  SteadyClock clock_;
  std::unique_ptr<ArenaWriter> arena_;
  std::optional<TrainingCopy> copy_;  // with COLLAB_OVERLAP
  std::shared_ptr<void> pinned_;      // keeps the copy's memory pinned
  std::unique_ptr<Node> node_;
  SavedSite saved_{options_};
  std::uint32_t unfit_rounds_ = 0;  // in a row
  std::uint32_t fit_rounds_ = 0;    // fit rounds since the last unfit one
  std::optional<Flight> flight_;
  Duration merging_{};
  std::optional<TerminationHook> termination_hook_;  // while it is a member
};

[[nodiscard]] std::string asked_to_end();  // why a site leaves

// A setting of models with buffers: how many elements come before the buffers. It is no knob, but helpers need it, too.
inline constexpr const char* kOuterElements = "outer_elements";

[[nodiscard]] std::vector<std::string> left_out(const std::vector<TensorInfo>& model);  // left-out buffers' names
[[nodiscard]] MergeSettings merge_settings(const SessionOptions& options);
[[nodiscard]] ArenaSpec arena_spec(const SessionOptions& options, std::uint64_t elements);
[[nodiscard]] RecordScope record_scope(const SessionOptions& options);

}  // namespace collab
