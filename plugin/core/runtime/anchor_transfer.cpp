// Anchors from and to other sites: exact float32 chunks of the sealed slot and the outer state.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/runtime/data_plane.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

constexpr std::uint32_t kTransferWindow = 8;  // chunks on their way to one joiner

}  // namespace

Result<SealedAnchor> DataPlane::keep_anchor(RunId run, RoundId round, const Digest& digest) {
  ArenaWriter& arena = *parts_.arena;
  const std::optional<SealedAnchor> sealed = arena.sealed();
  if (sealed && sealed->run == run && sealed->round == round) return *sealed;
  if (sealed && sealed->digest == digest) {  // the same anchor under another name
    std::ranges::copy(arena.anchor(), arena.scratch().begin());
    const SealedAnchor renamed{run, round, digest};
    arena.seal(renamed);
    return renamed;
  }
  if (round.value != 0) {
    return internal_error("asked to keep the anchor of round " + std::to_string(round.value) +
                          ", which this site does not hold");
  }
  const std::span<float> slot = arena.scratch();
  COLLAB_RETURN_IF_ERROR(parts_.parameters->read(0, slot));
  const std::span<float> outer = arena.outer();
  if (!outer.empty()) {
    arena.begin_outer_update();
    std::ranges::fill(outer, 0.0F);
  }
  const Digest state = digest_of_state(digest_of_vector(slot), outer.empty() ? Digest{} : digest_of_vector(outer));
  const SealedAnchor anchor{run, round, state};
  arena.seal(anchor);
  return anchor;
}

Status DataPlane::send_anchor(const protocol::SendAnchor& action) {
  const std::optional<SealedAnchor> sealed = parts_.arena->sealed();
  if (!sealed || sealed->run != action.run || sealed->round != action.round) {
    return unavailable("the anchor of round " + std::to_string(action.round.value) + " is not held here (" +
                       (sealed ? "round " + std::to_string(sealed->round.value) : std::string("none")) + " is)");
  }
  Outgoing& job = outgoing_[action.to];
  job = Outgoing{.action = action, .anchor = *sealed};
  pump(job);
  return {};
}

void DataPlane::pump(Outgoing& job) {
  const std::uint64_t elements = parts_.parameters->size();
  const std::span<const float> outer = parts_.arena->outer();
  const std::uint64_t total = elements + outer.size();
  const std::optional<SealedAnchor> sealed = parts_.arena->sealed();
  const LinkId to = job.action.to;
  if (sealed->round != job.anchor.round) {  // a commit has moved it away under the transfer
    log_warning("a joiner's transfer of round " + std::to_string(job.anchor.round.value) + " was overtaken by round " +
                std::to_string(sealed->round.value) + "; it asks again");
    outgoing_.erase(to);
    return;
  }
  while (job.next < total && job.in_flight < kTransferWindow) {
    const bool of_anchor = job.next < elements;
    const std::uint64_t base = of_anchor ? 0 : elements;
    const std::uint64_t begin = job.next - base;
    const std::uint64_t end = std::min(begin + settings_.chunk_elements, elements);
    const std::span<const float> source = (of_anchor ? parts_.arena->anchor() : outer).subspan(begin, end - begin);
    BufferPtr payload = pool_->take(source.size_bytes());
    std::memcpy(payload->bytes().data(), source.data(), source.size_bytes());
    const wire::Chunk chunk{.kind = of_anchor ? wire::ChunkKind::kAnchor : wire::ChunkKind::kOuter,
                            .round = job.action.round,
                            .attempt = {},
                            .from = {},
                            .range = {begin, end},
                            .codec = CodecId::kFp32,
                            .payload_hash = hash64(payload->view())};
    const std::uint64_t token = next_token_++;
    anchors_on_their_way_[token] = to;
    ++job.in_flight;
    job.next = base + end;
    send_chunk(to, chunk, std::move(payload), token);
  }
  if (job.next == total && job.in_flight == 0) {
    const wire::AnchorSent message{job.action.run, job.action.round, job.anchor.digest};
    // On the data lane, so that it cannot overtake the chunks.
    parts_.transport->send(to, {.lane = Lane::kData, .head = wire::encode(message), .payload = nullptr}, 0);
    outgoing_.erase(to);
  }
}

void DataPlane::receive_anchor(const protocol::ReceiveAnchor& action) {
  cancel();  // the scratch slot is needed
  receiving_ = Receiving{.action = action};
  if (!parts_.arena->outer().empty()) parts_.arena->begin_outer_update();
}

Status DataPlane::take_anchor_chunk(const Incoming& incoming) {
  const wire::Chunk& chunk = incoming.chunk;
  if (!receiving_ || receiving_->action.from != incoming.link || receiving_->action.round != chunk.round) {
    return corrupt("no transfer of round " + std::to_string(chunk.round.value) + " is expected from there");
  }
  const bool of_anchor = chunk.kind == wire::ChunkKind::kAnchor;
  const std::span<float> target = of_anchor ? parts_.arena->scratch() : parts_.arena->outer();
  const std::size_t got = incoming.payload ? incoming.payload->bytes().size() : 0;
  if (chunk.range.end > target.size() || chunk.range.begin >= chunk.range.end || chunk.codec != CodecId::kFp32 ||
      got != chunk.range.size() * sizeof(float)) {
    return corrupt("elements [" + std::to_string(chunk.range.begin) + ", " + std::to_string(chunk.range.end) +
                   ") with " + std::to_string(got) + " bytes do not fit " + std::to_string(target.size()) +
                   " float32 elements");
  }
  if (hash64(incoming.payload->view()) != chunk.payload_hash) return corrupt("its hash differs");
  std::memcpy(target.data() + chunk.range.begin, incoming.payload->bytes().data(), got);
  return {};
}

DataPlane::Events DataPlane::on_anchor_sent(LinkId link, const wire::AnchorSent& message) {
  if (!receiving_ || receiving_->action.from != link || receiving_->action.round != message.round ||
      receiving_->action.run != message.run) {
    return {};
  }
  const Digest expected = receiving_->action.digest;
  receiving_.reset();
  ArenaWriter& arena = *parts_.arena;
  const Digest outer = arena.outer().empty() ? Digest{} : digest_of_vector(arena.outer());
  const Digest state = digest_of_state(digest_of_vector(arena.scratch()), outer);
  // A wrong digest is not sealed: the machine compares and asks again.
  if (state == expected) arena.seal({message.run, message.round, state});
  return {protocol::AnchorInPlace{message.run, message.round, state}};
}

void DataPlane::link_closed(LinkId link) {
  outgoing_.erase(link);
  if (receiving_ && receiving_->action.from == link) receiving_.reset();
}

}  // namespace collab
