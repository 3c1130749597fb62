// What a site says that claims rounds which nobody has agreed on: in its Join, and in its promise if it gives one. All
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
  std::vector<wire::Voter> voters;  // and agreed on by these; none: by the one who claims it
  bool offers = false;              // it has it, it says
  bool promises = true;             // else it is silent when it is asked

  // Of a later round of that run, or of another run with many rounds; as agreed on by itself, by those who have agreed
  // on the newest there is, or by nobody that there is.
  [[nodiscard]] static Claim draw(Prng& prng, const std::string& claimant, const wire::Record& newest);
  // False: it does not say that.
  [[nodiscard]] bool tell(TransportMessage& message) const;
};

}  // namespace collab::sim
