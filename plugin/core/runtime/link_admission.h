// Which incoming links this process keeps: which wait for admission, which are admitted (and which is closed to make
// room), whose peer has proved its name, and which are being closed.
//
//   came --> waits at the door --take_in--> taken in
//              | says nothing of use, or      | too many of its host
//              v too many wait there          v
//            closed                         expelled: nothing that is said there is heard any more
//
// Threads: one caller at a time. Ownership: plain values; borrows transport and clock.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/transport.h"
#include "core/base/log.h"
#include "core/base/rate_limit.h"
#include "core/runtime/admitted_links.h"
#include "core/runtime/authenticated_names.h"
#include "core/runtime/closing_links.h"
#include "core/runtime/pending_links.h"

namespace collab {

class LinkAdmission {
 public:
  using IsKnown = std::function<bool(LinkId)>;                                 // a protocol machine has admitted it
  using Refusal = std::function<std::string(LinkId, const std::string& why)>;  // the line for the log
  LinkAdmission(Transport& transport, const Clock& clock, IsKnown is_known, Refusal refusal)
      : transport_(transport), clock_(clock), is_known_(std::move(is_known)), refusal_(std::move(refusal)) {}

  // `peer` as the transport names it.
  void on_accepted(LinkId link, const std::string& peer) {
    close_all(pending_links_.on_accepted(clock_.now(), link, peer, is_known_));
  }
  void tick() { close_all(pending_links_.due(clock_.now(), is_known_)); }
  [[nodiscard]] TimePoint next_deadline() const { return pending_links_.next_deadline(); }

  void on_authenticated(LinkId link, std::vector<std::string> names) { authenticated_.put(link, std::move(names)); }
  // Why the peer is not the site `name`; empty: it may be.
  [[nodiscard]] std::string difference(LinkId link, const std::string& name) const {
    return authenticated_.difference(link, name);
  }

  // See AdmittedLinks::admit(). Returns the link to expel, which may be this one.
  template <typename IsVoter>
  [[nodiscard]] std::optional<LinkId> take_in(LinkId link, std::string network, std::string name, IsVoter is_voter) {
    const auto gone = taken_.admit(link, std::move(network), std::move(name), is_voter);
    if (gone) taken_.closed(*gone);
    return gone;
  }
  [[nodiscard]] bool is_taken(LinkId link) const { return taken_.has(link); }

  // From here on messages on this link are ignored.
  void leave(LinkId link) { closing_.begin(link); }
  [[nodiscard]] bool has_left(LinkId link) const { return closing_.has(link); }
  void close_link(LinkId link) {
    leave(link);
    transport_.close(link);
  }
  // Closes the link and logs why; the rate of these lines is limited.
  void refuse(LinkId link, const std::string& why) {
    if (const auto line = refused_.allow(clock_.now(), refusal_(link, why))) log_warning(*line);
    transport_.close(link);
  }
  void expel(LinkId link, const std::string& why) {
    leave(link);
    refuse(link, why);
  }

  void closed(LinkId link) {
    closing_.closed(link);
    pending_links_.closed(link);
    taken_.closed(link);
    authenticated_.closed(link);
  }

 private:
  void close_all(const std::vector<LinkId>& links) {
    for (const LinkId link : links) transport_.close(link);
  }

  Transport& transport_;
  const Clock& clock_;
  const IsKnown is_known_;
  const Refusal refusal_;
  PendingLinks pending_links_;
  AdmittedLinks taken_;
  AuthenticatedNames authenticated_;
  ClosingLinks closing_;
  RateLimit refused_{std::chrono::seconds(10)};
};

}  // namespace collab
