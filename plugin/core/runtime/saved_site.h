// What earlier processes of a site have left here: its record, its state file with the residual, an anchor in shared
// memory, and the bytes they have sent. Read once, before the site joins.
//
// Threads: the session's caller. Ownership: what was found, until the node takes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "collab/session.h"
#include "core/arena/arena.h"
#include "core/protocol/site/egress_budget.h"
#include "core/runtime/storage/record_store.h"
#include "core/runtime/storage/state_file.h"

namespace collab {

class SavedSite {
 public:
  explicit SavedSite(const SessionOptions& options) : options_(options) {}

  // Seals the newest anchor that is kept here. Fails, with an explanation, if the files are another run's or model's,
  // or can be neither read nor replaced. `elements`: of the model.
  Status find(ArenaWriter& arena, std::uint64_t elements);

  [[nodiscard]] const wire::Record& known() const { return known_; }  // what this site remembers
  [[nodiscard]] std::optional<wire::Offer> state() const;             // the anchor in the state file
  [[nodiscard]] bool state_ended() const { return state_ && state_->ended; }
  [[nodiscard]] protocol::Egress egress() const;  // of earlier processes, and of earlier sessions of this one
  // Once each, for the node.
  [[nodiscard]] std::optional<RecordStore> take_record() { return std::exchange(store_, std::nullopt); }
  [[nodiscard]] std::optional<StoredResidual> take_residual() { return std::exchange(residual_, std::nullopt); }

 private:
  [[nodiscard]] std::string state_file() const;
  [[nodiscard]] Result<std::optional<StateHeader>> find_state_file(std::uint64_t elements) const;
  [[nodiscard]] Result<std::optional<wire::Record>> open_record();
  Status load_state_file(ArenaWriter& arena, const SealedAnchor& anchor) const;
  Status load_residual();

  const SessionOptions& options_;
  wire::Record known_;
  std::optional<RecordStore> store_;
  std::optional<StateHeader> state_;
  std::optional<StoredResidual> residual_;
  protocol::Egress egress_;
};

}  // namespace collab
