// Admission: which sites are let in, under which name and number.
//
// A site that joins under a member's name has to wait. If the member stays silent, the two are the same site,
// restarted. If the member is heard, two sites use one name, and the new one is refused.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/protocol/coordinator/member.h"
#include "core/protocol/coordinator/model_reference.h"

namespace collab::protocol {

struct CoordinatorParts;

inline constexpr std::size_t kMaxClaims = 64;

class Admission {
 public:
  [[nodiscard]] const std::optional<ModelReference>& reference() const { return reference_; }
  [[nodiscard]] bool has_claim(LinkId link) const { return claims_.count(link) != 0; }
  [[nodiscard]] TimePoint next_deadline() const;
  // The last refusal while sites gather: "; <site> was refused: <reason>". Empty if there was none.
  [[nodiscard]] std::string refused_text() const;

  void on_join(LinkId link, const wire::Join& join);
  // Why no swarm can have agreed on the round that this message claims; empty if one can.
  [[nodiscard]] std::string damage(LinkId link, const wire::Message& message) const;
  [[nodiscard]] std::string far_term(const wire::Message& message) const;
  void refuse_link(LinkId link, const std::string& who, const std::string& reason);
  void settle_claims();
  // Refuses the claims to a name, as the member that has it was heard.
  void refuse_claims_of(const std::string& name, const std::string& address);
  void drop_claim(LinkId link) { claims_.erase(link); }
  void close_claims(const std::string& reason);
  void start_gathering() { refused_who_.clear(); }
  void forget() { reference_.reset(); }

 private:
  friend struct CoordinatorParts;
  friend struct Inside;
  void admit(LinkId link, const wire::Join& join);
  void close_helper_links(const std::string& site);
  void claim(LinkId link, const wire::Join& join);
  [[nodiscard]] std::string refusal(const wire::Join& join) const;
  [[nodiscard]] std::optional<TimePoint> namesake_heard(const wire::Join& join) const;
  [[nodiscard]] TimePoint free_at(const wire::Join& join) const;  // when its name may be taken over
  [[nodiscard]] SiteId pick_id(const wire::Join& join) const;

  CoordinatorParts* all_ = nullptr;
  std::map<LinkId, wire::Join> claims_;      // joins under a name whose old link may be dead
  std::optional<ModelReference> reference_;  // set by the first joiner, cleared when the last member goes
  std::string refused_who_, refused_why_;    // the last refusal while sites gather
};

}  // namespace collab::protocol
