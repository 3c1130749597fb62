// Orders the chunks of one attempt: which to encode, send, reduce and take next.
//
// Each member sends each slice of its delta to the slice's owner, chunk by chunk. The owner reduces a chunk when all
// contributions to it are here, and sends the mean to all. Encode, send, reduce and return overlap. Each peer has its
// own window, so that a slow peer holds up no other. Contributions go before means, because other sites need them to go
// on; means are needed only at the end. A chunk is reduced only when its mean can be sent to a peer at once, because a
// mean takes memory until the slowest peer has it. Pure. Threads: one caller at a time. Ownership: its own state; never
// a byte of tensors.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collab/status.h"
#include "core/protocol/actions.h"

namespace collab::protocol {

struct ExchangePlan {
  wire::StartAttempt start;
  SiteId self;
  std::uint64_t chunk_elements = 0;  // a multiple of kBlockElements
  std::uint32_t window = 16;         // contributions in flight to one peer
  std::uint32_t mean_window = 16;    // means in flight to one peer
  std::vector<SiteId> peers{};       // linked with us: they get our means
  // Contributions from earlier attempts (carryover.h) that fit this one's chunks: those already here, and ours that
  // their owners already have.
  std::vector<ContributionArrived> held{};
  std::vector<SendContribution> delivered{};
};

class Exchange {
 public:
  explicit Exchange(ExchangePlan plan);
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  // kCorrupt for a chunk that does not belong here (not a contributor, not our slice, not a chunk boundary,
  // a duplicate). The error names what was expected and what came.
  [[nodiscard]] Result<std::vector<ExchangeAction>> step(const ExchangeEvent& event);
  [[nodiscard]] bool done() const;
  [[nodiscard]] bool contributes(SiteId site) const;  // to this attempt
  // Whether `chunk` is exactly one of the chunks of our own slices.
  [[nodiscard]] bool owns(const ElementRange& chunk) const;
  // The sites whose parts are missing here, ascending, at most `most`. Parts are contributions until all are here, then
  // means.
  struct Missing {
    bool means = false;
    std::vector<SiteId> sites{};
  };
  [[nodiscard]] Missing missing(std::size_t most) const;
  // A contributor that is not here any more and whose contribution to our slices is incomplete. With one, the attempt
  // would never end.
  [[nodiscard]] std::optional<SiteId> lacks() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace collab::protocol
