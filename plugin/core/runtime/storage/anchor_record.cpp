#include "core/runtime/storage/anchor_record.h"

#include <utility>

#include "core/protocol/agreement/attempt.h"
#include "core/wire/encoding.h"

namespace collab {

SealedAnchor with_membership(SealedAnchor anchor, const protocol::KnownMembership& membership) {
  wire::Record record;
  record.promised = membership.promised;
  record.anchor = {anchor.run, anchor.round, anchor.digest};
  record.voters = membership.voters;
  anchor.attached = wire::encode_record(record);
  return anchor;
}

void take_membership(wire::Record& known, const SealedAnchor& sealed) {
  if (sealed.attached.empty()) return;
  const Result<wire::Record> with = wire::decode_record(sealed.attached);
  if (with.ok()) protocol::take_membership(known, *with, {sealed.run, sealed.round, sealed.digest});
}

}  // namespace collab
