// Anchors from and to other sites: parts of the sealed slot and of the outer state, exact float32, and the digests of
// their tiles. AnchorFetch decides which part is asked of which member; this class moves the bytes.
//
// From receive() on, an incoming anchor is written into the arena's free slot, and its outer state into its place,
// until it is whole or forget() is called. Code that needs the slot for something else calls forget() first. Threads:
// one caller at a time. Ownership: its streams; borrows clock, arena and sender.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collab/clock.h"
#include "collab/transport.h"
#include "core/arena/arena.h"
#include "core/protocol/actions.h"
#include "core/protocol/site/anchor_fetch.h"
#include "core/runtime/data/chunk_sender.h"
#include "core/runtime/data/early_chunks.h"

namespace collab {

// The digest of the arena's outer state and this vector.
[[nodiscard]] Digest state_digest(ArenaWriter& arena, std::span<const float> anchor, std::uint64_t tile_elements,
                                  const std::function<void()>& passing = {});

class AnchorStreams {
 public:
  using Events = std::vector<protocol::SiteEvent>;
  struct Parts {
    const Clock* clock = nullptr;
    ArenaWriter* arena = nullptr;
    ChunkSender* sender = nullptr;
    std::function<void(const protocol::Note&)> tell{};  // progress of a transfer
    // A received anchor is complete and the one asked for: it becomes the sealed one.
    std::function<void(const SealedAnchor&)> seal{};
    std::function<void()> passing{};  // called often during a pass over all elements
  };
  AnchorStreams(Parts parts, std::uint64_t elements, std::uint64_t tile_elements);

  // ---- to joiners, which share these bounds on bytes in flight
  static constexpr std::uint64_t kShared = std::uint64_t{64} << 20;      // bytes; beyond it, one part for each
  static constexpr std::uint64_t kMostInAll = std::uint64_t{256} << 20;  // for all, in any case

  static constexpr Duration kTakesNothing = std::chrono::seconds(30);

  Status send(const protocol::SendAnchor& action);
  // If a site waits for room: of the sites that have taken nothing for a while, the one with most in flight.
  [[nodiscard]] std::optional<LinkId> stalled_receiver() const;
  // True if it was a part of an anchor.
  bool sent(std::uint64_t token);
  void link_closed(LinkId link);

  // ---- to us
  void receive(const protocol::ReceiveAnchor& action);
  Events add_source(const protocol::AddAnchorSource& action);
  Events drop_source(SiteId site);
  void stop();                           // received parts stay, in case the same anchor is wanted again
  void forget() { receiving_.reset(); }  // its place is needed for something else
  Events arrived(const IncomingChunk& incoming);
  // An unfinished transfer has overwritten parts of the outer state, which belongs to no anchor until one is sealed.
  [[nodiscard]] bool outer_overwritten() const { return outer_overwritten_; }
  void outer_is_whole() { outer_overwritten_ = false; }

 private:
  // Parts of an anchor on their way to a joiner.
  struct Outgoing {
    std::deque<wire::FetchAnchor> asked{};
    std::uint32_t in_flight = 0;
    std::uint64_t bytes = 0;  // of the parts in flight
    TimePoint since{};        // when it last took a part, or the first part left
  };
  struct InFlight {
    LinkId to;
    std::uint64_t bytes = 0;
  };
  // An anchor on its way to us.
  struct Receiving {
    struct Source {
      std::string name{};
      std::optional<LinkId> link{};  // none: it is not asked
      std::uint64_t elements = 0;    // received from it
    };
    protocol::ReceiveAnchor action;
    protocol::AnchorFetch fetch;
    std::map<SiteId, Source> sources{};
    TimePoint began = kNever;
    TimePoint told = kNever;
  };

  [[nodiscard]] std::uint64_t bytes_of(const wire::FetchAnchor& part) const;
  [[nodiscard]] bool has_room(const Outgoing& job, std::uint64_t bytes) const;
  void pump(LinkId to, Outgoing& job);
  void pump_after(LinkId link);  // all receivers in turn, from the one after `link`
  void drop_idle();              // their shares go to the others
  [[nodiscard]] BufferPtr payload_of(const wire::FetchAnchor& part) const;
  Events fetch(const protocol::AnchorFetchEvent& event, const IncomingChunk* incoming);
  void take_part(const protocol::TakePart& part, const IncomingChunk& incoming);
  [[nodiscard]] protocol::SiteEvent seal_received();
  void report_progress(bool whole);

  Parts parts_;
  std::uint64_t elements_;
  std::uint64_t tile_elements_;
  std::map<LinkId, Outgoing> outgoing_;
  std::map<std::uint64_t, InFlight> in_flight_;  // by token
  std::uint64_t bytes_in_flight_ = 0;
  std::optional<Receiving> receiving_;
  bool outer_overwritten_ = false;
};

}  // namespace collab
