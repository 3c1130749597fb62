// The anchor that is in place here, and the sites that wait to fetch it.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "core/protocol/actions.h"

namespace collab::protocol {

struct SiteParts;

class HeldAnchor {
 public:
  [[nodiscard]] const std::optional<wire::Offer>& anchor() const { return anchor_; }
  [[nodiscard]] bool is_of(RunId run, RoundId round) const {
    return anchor_ && anchor_->run == run && anchor_->round == round;
  }
  [[nodiscard]] RoundId next_round() const { return RoundId{anchor_ ? anchor_->round.value + 1 : 0}; }

  void hold(const wire::Offer& anchor);
  void has_digest(const Digest& digest);  // the anchor has another digest than was thought
  void announce();                        // tells the coordinator that it is in place

  // ---- other sites fetch it, perhaps before it is in place
  void on_fetch(LinkId link, const wire::FetchAnchor& fetch);
  void answer_fetches();
  void forget(LinkId link) { fetches_.erase(link); }

 private:
  friend struct SiteParts;
  friend struct Inside;

  SiteParts* all_ = nullptr;
  std::optional<wire::Offer> anchor_;
  std::map<LinkId, std::vector<wire::FetchAnchor>> fetches_;
};

}  // namespace collab::protocol
