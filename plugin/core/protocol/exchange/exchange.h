// The chunks of one attempt: which to encode, send, reduce and take, in which order.
//
// Each member sends each slice of its delta to the slice's owner, chunk by chunk. The owner reduces a chunk when all
// contributions to it are here, and sends the mean to all. Encode, send, reduce and return overlap. Each peer has its
// own window, so that a slow peer holds up no other. Contributions go before means, because other sites need them to go
// on; means are needed only at the end. A chunk is reduced only when its mean can leave to one peer, because it takes
// memory until it has been sent to the slowest. Pure. Threads: one caller at a time. Ownership: its own state; never a
// byte of tensors.
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
  std::uint32_t window = 16;         // contributions on their way to one peer at once
  std::uint32_t mean_window = 16;    // means
  std::vector<SiteId> peers{};       // linked with us: they get our means
  // From earlier attempts (carryover.h), whatever fits this one's chunks: what is here already, and what is at its
  // owner already.
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
  // twice): it names what was expected and what came.
  [[nodiscard]] Result<std::vector<ExchangeAction>> step(const ExchangeEvent& event);
  [[nodiscard]] bool done() const;
  [[nodiscard]] bool contributes(SiteId site) const;  // to this attempt
  // Exactly one of the chunks of our own slices.
  [[nodiscard]] bool owns(const ElementRange& chunk) const;
  // Whose parts are missing here, ascending and at most so many: contributions, or, once all are here, means.
  struct Missing {
    bool means = false;
    std::vector<SiteId> sites{};
  };
  [[nodiscard]] Missing missing(std::size_t most) const;
  // A contributor that is not here any more, and whose contribution to our slices is incomplete: such an attempt would
  // not end.
  [[nodiscard]] std::optional<SiteId> lacks() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace collab::protocol
