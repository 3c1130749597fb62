// Generations: a site that trains another model of the run than the sites here must wait, or is told to train alone.
//
// Generations (generations.h) knows which generation is trained and which sites wait for another. This part acts on
// that.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <string>

#include "core/protocol/coordinator/generations.h"
#include "core/protocol/coordinator/member.h"

namespace collab::protocol {

struct CoordinatorParts;

class GenerationGate {
 public:
  [[nodiscard]] const Generations& generations() const { return generations_; }
  // A helper has no model: it fits any generation, unless what it holds is of another one.
  [[nodiscard]] bool fits(const wire::Join& join) const;
  [[nodiscard]] TimePoint next_deadline() const;

  // If the generation is not known yet, takes that of the anchor that a helper holds.
  void learn(const wire::Join& join);
  void wait(LinkId link, const wire::Join& join);  // the site does not fit
  void forget(LinkId link);                        // its link is lost
  void came(const std::string& site) { generations_.came(site); }
  void left_for(const std::string& site, std::uint32_t generation);
  void somebody_trained();  // a site trained until now
  void begin_term() { ended_ = false; }
  void end() { ended_ = true; }
  void settle();  // lets waiting sites in, or refuses those behind
  void on_tick();

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  // Sites that are members, or ask to be; helpers train nothing.
  [[nodiscard]] std::size_t trainers_here() const;
  [[nodiscard]] std::string trainers_text() const;
  void begin(std::uint32_t generation);
  void refuse_stale(LinkId link, const std::string& who);
  void refuse_and_close(LinkId link, const std::string& who, const std::string& reason);
  void report_waiting_sites();

  CoordinatorParts* all_ = nullptr;
  Generations generations_;
  bool ended_ = false;  // the last site left in good order, and none came since
};

}  // namespace collab::protocol
