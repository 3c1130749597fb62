#include "core/runtime/saved_site.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"
#include "core/protocol/formatting.h"
#include "core/runtime/leader.h"
#include "core/runtime/storage/beginning.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

// If a state file's model differs from ours in the buffers left out: how it differs. Else empty.
[[nodiscard]] std::string other_buffers(const std::vector<TensorInfo>& here, const std::vector<TensorInfo>& there) {
  const std::vector<std::string> ours = left_out(here);
  const std::vector<std::string> theirs = left_out(there);
  if (ours == theirs) return {};
  return ", buffers left out of the average: " + protocol::names_text(theirs, ours) + " there, " +
         protocol::names_text(ours, theirs) + " here";
}

}  // namespace

std::string SavedSite::state_file() const {
  return state_path(options_.config.state_dir, options_.site, options_.generation);
}

std::optional<wire::Offer> SavedSite::state() const {
  return state_ ? std::optional(wire::Offer{state_->run, state_->round, state_->digest}) : std::nullopt;
}

protocol::Egress SavedSite::egress() const {
  protocol::Egress all = egress_;
  all.spent = std::max(all.spent, options_.egress_spent);
  return all;
}

// Returns what this site has promised and accepted, if an earlier process has left it.
Result<std::optional<wire::Record>> SavedSite::open_record() {
  Result<RecordStore> store = RecordStore::open(options_.record.dir, record_scope(options_),
                                                options_.disk != nullptr ? *options_.disk : system_disk());
  if (!store.ok()) return store.status();
  store_ = std::move(*store);
  if (store_->stale()) {
    return invalid_argument(
        "the record " + store_->path() +
        " can be neither written nor removed, and it would be out of date after this start: remove it, or name another "
        "folder with COLLAB_STATE_DIR [record.stuck]");
  }
  if (!store_->read()) return std::optional<wire::Record>();
  Result<wire::Record> found = wire::decode_record(*store_->read());
  if (found.ok()) return std::optional(std::move(*found));
  COLLAB_RETURN_IF_ERROR(store_->set_aside(found.status().message()));
  return std::optional<wire::Record>();
}

// Called before the record is opened: a start that fails here changes nothing.
Result<std::optional<StateHeader>> SavedSite::find_state_file(std::uint64_t elements) const {
  if (options_.config.state_dir.empty()) return std::optional<StateHeader>();
  const std::string path = state_file();
  COLLAB_RETURN_IF_ERROR(check_state_writable(path));
  Result<std::optional<StateHeader>> found = read_state_header(path);
  if (!found.ok() || !found->has_value()) return found;
  const StateHeader& header = **found;
  const ArenaSpec spec = arena_spec(options_, elements);
  if (header.swarm != options_.config.run && options_.run_of_rendezvous) {
    log_info("this site goes on with the state of run " + header.swarm + " in " + path + ", as run " +
             options_.config.run);
  } else if (header.swarm != options_.config.run) {
    return invalid_argument("COLLAB_STATE_DIR: " + path + " belongs to run " + header.swarm + ", but this is run " +
                            options_.config.run + "; name another directory, move the file away, or set COLLAB_RUN=" +
                            header.swarm + " to go on with it [state.other-run]");
  }
  if (header.elements != spec.elements || header.fingerprint != spec.key.fingerprint) {
    return invalid_argument("COLLAB_STATE_DIR: " + path + " belongs to another model (" +
                            std::to_string(header.elements) + " elements, this model has " +
                            std::to_string(spec.elements) + other_buffers(options_.model, header.model) +
                            "); move it away or name another directory [state.other-model]");
  }
  if (header.outer_state != spec.outer_state) {
    return invalid_argument(
        "COLLAB_STATE_DIR: " + path + (header.outer_state ? " holds" : " lacks") +
        " the state of an outer optimizer, but COLLAB_OUTER_OPTIMIZER says otherwise; set it as it was, or "
        "move the file away [state.other-outer]");
  }
  return found;
}

Status SavedSite::find(ArenaWriter& arena, std::uint64_t elements) {
  Result<std::optional<StateHeader>> file = find_state_file(elements);
  if (!file.ok()) return file.status();
  state_ = std::move(*file);
  const Result<std::optional<wire::Record>> record = open_record();
  if (!record.ok()) return record.status();
  Remains remains{*record, arena.sealed()};
  // Sites of another COLLAB_RUN do not come to this swarm, so its membership counts as ended.
  if (state_) remains.state = {*state(), state_->record, state_->ended || state_->swarm != options_.config.run};
  Beginning beginning = begin_with(remains, fresh_acceptor());
  known_ = std::move(beginning.record);
  if (!state_) return {};
  COLLAB_RETURN_IF_ERROR(load_residual());
  egress_ = state_->egress;
  // Adds the rounds that a killed process made after its last write to the disk.
  const std::optional<SealedAnchor>& held = remains.arena;
  if (held && held->run == state_->run && held->round > state_->round) {
    egress_.spent += (held->round.value - state_->round.value) * egress_.round;
  }
  return beginning.from_state ? load_state_file(arena, *beginning.anchor) : Status();
}

Status SavedSite::load_state_file(ArenaWriter& arena, const SealedAnchor& anchor) const {
  const std::string path = state_file();
  if (!arena.outer().empty()) arena.begin_outer_update();
  COLLAB_RETURN_IF_ERROR(read_state_into(path, *state_, arena.next_anchor(), arena.outer()));
  arena.seal(anchor);
  log_info("found the anchor of round " + std::to_string(state_->round.value) + " in " + path);
  return {};
}

// A residual of an older round is closer to what is missing than none.
Status SavedSite::load_residual() {
  const Codecs& codec = options_.config.codec;
  const bool wanted =
      options_.config.error_feedback && (needs_error_feedback(codec.up) || needs_error_feedback(codec.down));
  if (!wanted || state_->residual.empty()) return {};
  Result<StoredResidual> stored = read_residual(state_file(), *state_);
  if (!stored.ok()) return stored.status();
  residual_ = std::move(*stored);
  return {};
}

}  // namespace collab
