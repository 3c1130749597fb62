#include "core/protocol/site/inquiry.h"

#include <algorithm>
#include <tuple>

#include "core/protocol/agreement/anchor_order.h"
#include "core/protocol/site/site_parts.h"

namespace collab::protocol {
namespace {

// If neither swarm has agreed on far more than the other, the larger one stays, and grows with each site that comes
// over. If both have the same size, the later run stays.
bool outranks(const wire::Leads& there, const wire::Leads& here) {
  if (is_far_ahead(there.round, here.round)) return true;
  if (is_far_ahead(here.round, there.round)) return false;
  return std::tie(there.members, there.run) > std::tie(here.members, here.run);
}

// A waiting site may hold far more than that swarm has agreed on. It does not give that up: the missing sites may come
// back, or an operator says that they will not. If both have agreed on about as much, the swarm that leads stays. A
// swarm at round 0 gives way to sites that come, so they may go there.
bool waits_with_more(const wire::Leads& there, const Acceptor& acceptor) {
  const wire::Offer& agreed = acceptor.agreed();
  return !acceptor.voters().empty() && there.run != agreed.run && there.round.value > 0 &&
         is_far_ahead(agreed.round, there.round);
}

// A candidate where more sites wait is better; if equally many wait, the one with the lower run is. So all sites come
// together, whichever candidates they know and can reach.
bool waits_better(const wire::Leads& there, const wire::Leads& here) {
  return there.members > here.members || (there.members == here.members && there.run < here.run);
}

}  // namespace

// True if no candidate leads here, if nothing was agreed on yet, or if the holder of the anchor to install is gone.
bool Inquiry::waits() const {
  const SitePhase phase = all_->membership.phase();
  return phase == SitePhase::kWaiting || (phase == SitePhase::kInstalling && here_ && !here_->leads) ||
         (phase == SitePhase::kAsking && all_->membership.join_sent() && !all_->membership.is_held());
}

bool Inquiry::asks_here() const { return waits() || all_->membership.phase() == SitePhase::kInstalling; }

// True if the sites here train another generation, or may come back at one. This site's own may have begun elsewhere.
bool Inquiry::held() const {
  return all_->membership.phase() == SitePhase::kAsking && all_->membership.join_sent() && all_->membership.is_held();
}

bool Inquiry::inquires() const {
  if (all_->config.coordinators.size() < 2) return false;
  return waits() || held() || (all_->membership.phase() == SitePhase::kActive && !all_->membership.join().helper);
}

void Inquiry::on_tick() {
  if (!inquires() || all_->now < next_) return;
  if (of_) return end("no answer");
  const auto count = static_cast<std::uint32_t>(all_->config.coordinators.size());
  last_ = (last_ + 1) % count;
  if (last_ == all_->coordinator.candidate()) last_ = (last_ + 1) % count;
  of_ = last_;
  // So that each is asked once per grace.
  const Duration each =
      std::max(all_->coordinator.heartbeat(), all_->coordinator.grace() / static_cast<int>(count - 1));
  // The intervals vary. Otherwise inquiries might keep step with the rounds, and two swarms could each find their own
  // better for ever.
  looks_ = (looks_ + 1) % 8;
  const Duration uneven = each * looks_ / 16;
  next_ = later(all_->now, waits() || held() ? kLeastAnswerLimit : each + uneven);
  all_->out.emplace_back(DialCoordinator{last_, true});
}

TimePoint Inquiry::next_deadline() const { return inquires() ? next_ : kNever; }

void Inquiry::begin_asking(Duration soon) {
  forget_here();
  next_ = later(all_->now, soon);
}

void Inquiry::on_connected(LinkId link, std::optional<std::uint32_t> candidate) {
  if (!of_ || candidate.value_or(*of_) != *of_) {
    all_->out.emplace_back(CloseLink{link, "no questions are left"});
    return;
  }
  link_ = link;
  all_->out.emplace_back(Send{link, wire::Inquire{all_->membership.join().swarm}});
}

void Inquiry::on_dial_failed(std::optional<std::uint32_t> candidate, const std::string& why) {
  if (!candidate || candidate == of_) end(why);
}

void Inquiry::on_closed(const std::string& why) {
  link_.reset();
  end(why);
}

void Inquiry::close_link(const std::string& why) {
  if (link_) all_->out.emplace_back(CloseLink{*link_, why});
}

void Inquiry::end(const std::string& why) {
  close_link(why);
  link_.reset();
  of_.reset();
  const TimePoint soon =
      later(all_->now, all_->coordinator.heartbeat());  // a waiting site gets through a long list in good time
  next_ = waits() || held() ? soon : std::max(next_, soon);
}

bool Inquiry::is_of_ours(const wire::Leads& leads) const {
  return leads.generation == all_->membership.join().generation ||
         (all_->membership.join().helper && all_->acceptor.agreed().run.value == 0);
}

// The swarm that this site is a member of, or that is about to let it in. None if nothing was agreed on yet.
std::optional<wire::Leads> Inquiry::swarm_here() const {
  if (waits()) return here_ && here_->leads && is_of_ours(*here_) ? here_ : std::nullopt;
  if (held()) return std::nullopt;
  const wire::Offer& agreed = all_->acceptor.agreed();
  const auto members = static_cast<std::uint32_t>(all_->roster.size());
  return wire::Leads{true, all_->membership.join().generation, agreed.run, agreed.round, members};
}

void Inquiry::on_leads(const wire::Leads& leads) {
  const std::uint32_t candidate = *of_;
  end("it has answered");
  if ((leads.leads && !is_of_ours(leads)) || !inquires() || !all_->coordinator.link()) return;
  std::string what;
  if (const std::optional<wire::Leads> swarm = swarm_here()) {
    // If two candidates lead one run, the one at the earlier round has lost its majority. Its members find that out,
    // but a waiting site does not.
    const bool same_run = leads.run == swarm->run;
    const bool better = same_run ? waits() && leads.round > swarm->round : outranks(leads, *swarm);
    if (!leads.leads || !better) return;
    what = "leads a swarm that has agreed on more rounds, of run " + std::to_string(leads.run.value);
  } else if (leads.leads) {
    if (waits() && waits_with_more(leads, all_->acceptor)) return;
    what = "leads a swarm that has begun";
  } else if (waits() && here_ && all_->now >= stays_until_ && waits_better(leads, *here_)) {
    what = "has the most sites waiting: " + std::to_string(leads.members) + " there, " +
           std::to_string(here_->members) + " here";
  } else {
    return;
  }
  all_->coordinator.drop("another candidate " + what);
  all_->coordinator.go_to(candidate);
}

}  // namespace collab::protocol
