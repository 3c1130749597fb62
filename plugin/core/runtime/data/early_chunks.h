// Chunks that come before the StartAttempt of their attempt has been acted on here: control and data travel apart, and
// links to others may still be missing. They wait for their attempt, bounded in bytes and to the rounds that can come
// next.
//
// A chunk beyond a bound is dropped, and its link is lossy: all other chunks of that link are dropped too, both waiting
// and to come. That makes room for other links, so that at least two whole contributions fit, and each attempt gets
// further than the one before. When the next attempt starts, this site closes its lossy links and the attempt fails for
// those peers, as it does for a lost link. It does not close them earlier, because it would then wait for them to come
// back before the attempt.
//
// Threads: one caller at a time. Ownership: shares the payloads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collab/transport.h"
#include "core/wire/messages.h"

namespace collab {

struct IncomingChunk {
  LinkId link;
  SiteId from;
  wire::Chunk chunk;
  BufferPtr payload;
};

class EarlyChunks {
 public:
  static constexpr std::size_t kLeastBound = std::size_t{4} << 20;

  struct Lossy {
    SiteId from;
    std::string why;
  };

  // The mean of a vector and one contribution to all of it, or two contributions; of small models more.
  explicit EarlyChunks(std::size_t encoded_vector) : bound_(std::max(kLeastBound, 2 * encoded_vector)) {}

  // `held`: the round of the anchor in place. Chunks for that round or an earlier one no longer count. Neither do
  // chunks of another run: a participant of an attempt has said before that it holds an anchor of its run.
  void keep(RunId run, RoundId held, IncomingChunk incoming) {
    const std::uint64_t round = incoming.chunk.round.value;
    if (incoming.chunk.run != run || round <= held.value || lossy_.count(incoming.link) != 0) return;
    const std::size_t bytes = cost_of(incoming);
    if (round > held.value + 2) {
      return lose(incoming, "a chunk of round " + std::to_string(round) + " arrived at a site that is at round " +
                                std::to_string(held.value));
    }
    if (bytes > bound_ - bytes_) {
      return lose(incoming, "more than " + std::to_string(bound_) +
                                " bytes of chunks arrived before their attempt could begin here");
    }
    bytes_ += bytes;
    kept_.push_back(std::move(incoming));
  }

  // All, in the order in which they came.
  [[nodiscard]] std::vector<IncomingChunk> take() {
    bytes_ = 0;
    return std::exchange(kept_, {});
  }

  void round_is_past(RunId run, RoundId held) {
    for (IncomingChunk& each : take()) keep(run, held, std::move(each));
  }

  // Links whose chunks were dropped. They stay lossy until they are closed.
  [[nodiscard]] const std::map<LinkId, Lossy>& lossy() const { return lossy_; }
  void link_closed(LinkId link) { lossy_.erase(link); }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t bound() const { return bound_; }

 private:
  [[nodiscard]] static std::size_t cost_of(const IncomingChunk& incoming) {
    return sizeof(IncomingChunk) + (incoming.payload ? incoming.payload->view().size() : 0);
  }

  void lose(const IncomingChunk& incoming, std::string why) {
    const LinkId link = incoming.link;
    lossy_[link] = {incoming.from, std::move(why)};
    std::erase_if(kept_, [link](const IncomingChunk& each) { return each.link == link; });
    bytes_ = 0;
    for (const IncomingChunk& each : kept_) bytes_ += cost_of(each);
  }

  std::size_t bound_;
  std::size_t bytes_ = 0;
  std::vector<IncomingChunk> kept_;
  std::map<LinkId, Lossy> lossy_;
};

}  // namespace collab
