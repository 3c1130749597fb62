#include "core/runtime/anchor_record.h"

#include <utility>

#include "core/wire/encoding.h"

namespace collab {

SealedAnchor with_membership(SealedAnchor anchor, const std::vector<wire::Voter>& voters) {
  wire::Record record;
  record.anchor = {anchor.run, anchor.round, anchor.digest};
  record.voters = voters;
  anchor.attached = wire::encode_record(record);
  return anchor;
}

void take_membership(wire::Record& known, const wire::Record& with, const wire::Offer& anchor) {
  const bool newer = known.anchor.run == anchor.run && known.anchor.round < anchor.round;
  if (with.voters.empty() || (known.anchor.run.value != 0 && !newer)) return;
  known.anchor = anchor;
  known.voters = with.voters;
  std::erase_if(known.proposals, [&](const wire::Proposal& p) { return p.form.round <= anchor.round; });
}

void take_membership(wire::Record& known, const SealedAnchor& sealed) {
  if (sealed.attached.empty()) return;
  const Result<wire::Record> with = wire::decode_record(sealed.attached);
  if (with.ok()) take_membership(known, *with, {sealed.run, sealed.round, sealed.digest});
}

}  // namespace collab
