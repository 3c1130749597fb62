// What a site keeps on disk: the anchor with what belongs to it (StateSaver), and its record (RecordWriter).
//
// Threads: the node's loop; the outcome of a record's write is told on its writer's. Ownership: both writers; borrows
// the arena and the model, and what is saved until wait() has returned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/arena/arena.h"
#include "core/protocol/site/egress_budget.h"
#include "core/runtime/storage/record_writer.h"
#include "core/runtime/storage/state_saver.h"
#include "core/runtime/tensors/residual.h"

namespace collab {

class SiteStorage {
 public:
  struct Options {
    std::string path;  // of the state file; empty: no state is saved
    std::uint64_t every_rounds = 1;
    StateHeader header{};                 // what all its states have in common, except the model
    std::span<const TensorInfo> model{};  // names the vector's tensors
    std::optional<wire::Offer> found{};   // the anchor found there
    bool found_ended = false;             // its site has ended in good order
    std::optional<RecordStore> record{};  // none: it is in memory
    Disk* disk = nullptr;                 // none: the system's
  };
  SiteStorage(Options options, ArenaWriter& arena, RecordWriter::Callback told);

  // ---- the state. Memory that a save may still read is about to change: the arena's other slot; or that slot, outer
  // state and residual.
  void slot_changes() { saver_.release_for_write(arena_.scratch()); }
  void state_changes(const Residual& residual);
  // The site goes on from this anchor; see StateSaver.
  void takes(const wire::Offer& anchor) { saver_.takes(anchor); }
  void joined();
  // Whether the sealed anchor is to be saved after this round.
  [[nodiscard]] bool is_due(RoundId round) const;
  void save(wire::Record record, const Residual& residual, const protocol::Egress& egress);
  void wait() { saver_.wait(); }

  // ---- the record. False: it is in memory, and no outcome is told.
  [[nodiscard]] bool write(const wire::Record& record, std::uint64_t number);
  // There is a record that can be neither replaced nor removed.
  [[nodiscard]] bool record_is_stale() const { return records_ && records_->stale(); }

  // The site has left in good order: nobody counts on it any more.
  void left();

 private:
  Options options_;
  ArenaWriter& arena_;
  StateSaver saver_;
  std::optional<RecordWriter> records_;
};

}  // namespace collab
