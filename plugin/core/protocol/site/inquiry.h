// Asks the other candidates: two swarms of one run may have been founded apart, or another candidate may lead while
// this site only waits.
//
//   member that waits or is held --once per grace: the next candidate--> asked
//   asked --it leads, and has agreed on more--> the site goes there. A site that waits where no candidate leads goes to
//                                               any swarm that has begun, unless that has agreed on far less
//
// The answer alone decides, and in the same way at all sites: if one goes, the others follow.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/protocol/actions.h"

namespace collab::protocol {

struct SiteParts;

class Inquiry {
 public:
  [[nodiscard]] bool is_over(LinkId link) const { return link_ == link; }
  // The last answer of this site's own candidate, which sites may ask with each heartbeat.
  [[nodiscard]] const std::optional<wire::Leads>& here() const { return here_; }
  [[nodiscard]] bool waits() const;      // no candidate leads here, or nothing was agreed on yet
  [[nodiscard]] bool asks_here() const;  // with each heartbeat
  [[nodiscard]] TimePoint next_deadline() const;

  void begin_asking(Duration soon);  // to be let in here; after `soon` others are asked too
  void not_before(TimePoint time) { next_ = time; }
  void stays_until(TimePoint time) { stays_until_ = time; }
  void on_here(const wire::Leads& leads) { here_ = leads; }
  void forget_here() { here_.reset(); }
  void on_connected(LinkId link, std::optional<std::uint32_t> candidate);
  void on_dial_failed(std::optional<std::uint32_t> candidate, const std::string& why);
  void on_closed(const std::string& why);
  void on_leads(const wire::Leads& leads);
  void close_link(const std::string& why);
  void on_tick();  // asks another candidate, once in a while

 private:
  friend struct SiteParts;
  friend struct Inside;
  [[nodiscard]] bool held() const;
  [[nodiscard]] bool inquires() const;
  [[nodiscard]] bool is_of_ours(const wire::Leads& leads) const;
  [[nodiscard]] std::optional<wire::Leads> swarm_here() const;
  void end(const std::string& why);

  SiteParts* all_ = nullptr;
  std::optional<wire::Leads> here_;
  TimePoint stays_until_{};  // the candidate here is being elected: leaving now delays that
  std::optional<std::uint32_t> of_;
  std::optional<LinkId> link_;
  std::uint32_t last_ = 0;  // the candidate asked last
  TimePoint next_{};
  int looks_ = 0;  // inquiries so far, modulo 8
};

}  // namespace collab::protocol
