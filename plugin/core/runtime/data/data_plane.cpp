#include "core/runtime/data/data_plane.h"

namespace collab {

DataPlane::DataPlane(const Settings& settings, const Parts& parts, std::optional<StoredResidual> residual)
    : settings_(settings),
      parts_(parts),
      residual_(settings.codec, settings.error_feedback, parts.parameters->size(), settings.chunk_elements,
                settings.feedback_decay, settings.kept, settings.outer_elements, parts.passing),
      reader_(*parts.parameters),
      sender_(*parts.transport),
      exchange_(settings_, parts_, sender_, reader_, residual_),
      anchors_({parts.clock, parts.arena, &sender_, parts.tell,
                [this](const SealedAnchor& anchor) {
                  tensors_.seal(anchor);
                  residual_.settle(anchor.run);
                },
                parts.passing},
               parts.parameters->size(), settings.tile_elements),
      tensors_(settings_, parts_, exchange_, anchors_, reader_, residual_) {
  if (residual) residual_.restore(std::move(*residual));
}

DataPlane::Events DataPlane::start(const protocol::StartExchange& action) {
  anchors_.forget();
  tensors_.forget_mean();
  return exchange_.start(action);
}

void DataPlane::cancel() {
  exchange_.cancel();
  tensors_.forget_mean();
}

DataPlane::Events DataPlane::on_chunk(LinkId link, SiteId from, const wire::Chunk& chunk, BufferPtr payload) {
  bytes_received_ += payload ? payload->bytes().size() : 0;
  IncomingChunk incoming{link, from, chunk, std::move(payload)};
  if (chunk.kind >= wire::ChunkKind::kAnchor) return anchors_.arrived(incoming);
  return exchange_.on_chunk(std::move(incoming));
}

DataPlane::Events DataPlane::on_sent(std::uint64_t token) {
  return anchors_.sent(token) ? Events() : exchange_.on_sent(token);
}

Result<DataPlane::Applied> DataPlane::apply(const protocol::ApplyCommit& action) {
  Result<Applied> applied = tensors_.apply(action);
  if (!applied.ok()) return applied;
  cancel();
  forget_contributions();
  return applied;
}

void DataPlane::receive_anchor(const protocol::ReceiveAnchor& action) {
  cancel();  // the scratch slot is needed
  forget_contributions();
  anchors_.receive(action);
}

}  // namespace collab
