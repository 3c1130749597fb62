#include "core/runtime/storage/site_storage.h"

#include <utility>
#include <vector>

#include "core/wire/encoding.h"

namespace collab {

SiteStorage::SiteStorage(Options options, ArenaWriter& arena, RecordWriter::Callback told)
    : options_(std::move(options)),
      arena_(arena),
      saver_(options_.path, options_.disk != nullptr ? *options_.disk : system_disk()) {
  if (options_.record) records_.emplace(*std::exchange(options_.record, std::nullopt), std::move(told));
  if (options_.found) saver_.found(*options_.found);
}

void SiteStorage::state_changes(const Residual& residual) {
  slot_changes();
  saver_.release_for_write(arena_.outer());
  saver_.release_for_write(residual.values());
}

void SiteStorage::joined() {
  if (options_.found_ended) saver_.mark(false);
}

bool SiteStorage::is_due(RoundId round) const {
  const bool due = round.value % options_.every_rounds == 0 || saver_.overdue();
  return due && saver_.enabled() && arena_.sealed().has_value();
}

void SiteStorage::save(wire::Record record, const Residual& residual, const protocol::Egress& egress) {
  const std::optional<SealedAnchor> anchor = arena_.sealed();
  StateHeader header = options_.header;
  header.run = anchor->run;
  header.round = anchor->round;
  header.digest = anchor->digest;
  header.elements = arena_.anchor().size();
  header.outer_state = !arena_.outer().empty();
  header.record = std::move(record);
  if (residual.on()) header.residual.push_back({{}, residual.units()});
  header.model.assign(options_.model.begin(), options_.model.end());
  header.egress = egress;
  saver_.save(std::move(header), arena_.anchor(), arena_.outer(), residual.values());
}

bool SiteStorage::write(const wire::Record& record, std::uint64_t number) {
  if (records_) records_->write(wire::encode_record(record), number);
  return records_.has_value();
}

void SiteStorage::left() {
  if (records_) records_->remove();
  if (saver_.enabled()) saver_.mark(true);
}

}  // namespace collab
