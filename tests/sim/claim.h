// What a site says if it claims rounds that no site has agreed on: in its Join, and in its promise if it gives one. All
// else that it says is true.
//
// Threads: one. Ownership: plain values.
#pragma once

#include <string>
#include <vector>

#include "collab/transport.h"
#include "core/base/prng.h"
#include "core/wire/messages.h"

namespace collab::sim {

struct Claim {
  std::string claimant;             // the site
  wire::Offer anchor;               // said to be the newest
  std::vector<wire::Voter> voters;  // and agreed on by these; none: by the claimant
  bool offers = false;              // it has it, it says
  bool promises = true;             // otherwise it is silent when it is asked

  // A claim of a later round of that run, or of another run with many rounds. It is agreed on by itself, by the sites
  // that agreed on the newest round, or by no site that exists.
  [[nodiscard]] static Claim draw(Prng& prng, const std::string& claimant, const wire::Record& newest);
  // False: it does not say that.
  [[nodiscard]] bool tell(TransportMessage& message) const;
};

}  // namespace collab::sim
