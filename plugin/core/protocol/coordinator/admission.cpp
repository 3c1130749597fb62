#include "core/protocol/coordinator/admission.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/wire/limits.h"

namespace collab::protocol {

void Admission::on_join(LinkId link, const wire::Join& join) {
  const bool ours = join.swarm == all_->config.swarm;
  if (ours && !all_->membership.has(link) && !all_->generation.fits(join)) return all_->generation.wait(link, join);
  const Leadership& leadership = all_->leadership;
  if (leadership.leads() && ours && all_->now >= free_at(join) && (leadership.founded() || refusal(join).empty())) {
    if (!all_->leadership.hear_of(link, join)) return;
  }
  if (const Member* known = all_->membership.find_by_link(link)) {
    all_->note(Note::Level::kWarning, "ignored", known->name + " sent a second Join on one link [join.twice]");
    return;
  }
  if (const std::string reason = refusal(join); !reason.empty()) {
    const std::string who = join.site.empty() ? "a site without a name" : join.site;
    return refuse_link(link, who, reason);
  }
  if (all_->now < free_at(join)) return claim(link, join);
  all_->generation.learn(join);
  const Member* namesake = leadership.leads() ? all_->membership.find_by_name(join.site) : nullptr;
  if (namesake != nullptr) {
    all_->out.emplace_back(CloseLink{namesake->link, "replaced by a new link of " + join.site});
    all_->membership.remove(namesake->id, "its old link was dead; it came back on a new one");
  }
  if (!leadership.leads()) return all_->leadership.apply(link, join);  // perhaps the namesake was the last member
  admit(link, join);
}

void Admission::admit(LinkId link, const wire::Join& join) {
  if (refused_who_ == join.site) refused_who_.clear();  // it has come after all
  all_->generation.came(join.site);
  if (!reference_) all_->membership.begin_heartbeats();
  const bool first = !reference_ || (!reference_->knows_model() && !join.helper);
  const bool another = first && reference_ && !reference_->first_difference(join).empty();
  if (first) reference_.emplace(join);
  Member& member = all_->membership.add(link, pick_id(join), join);
  if (const std::string text = reference_->differing_values(join); !text.empty()) {
    all_->note(Note::Level::kWarning, "buffers", text, {{"who", json_quote(join.site)}});
    all_->send(member, wire::Notice{"buffers", text});
  }
  all_->installer.welcome(member, join);
  if (another) close_helper_links(join.site);
}

// Helpers were given another model or other settings than the first site that trains. They give way to it.
void Admission::close_helper_links(const std::string& site) {
  for (const SiteId id : all_->membership.ids()) {
    if (!all_->members().at(id).helper) continue;
    all_->membership.close_link(id, "the model or the settings of this helper differ from those of " + site +
                                        ", the first site that trains [join.helper-differs]");
  }
}

// A clock may be wrong, so this is not a refusal: the site may come again.
std::string Admission::far_term(const wire::Message& message) const {
  const auto* join = std::get_if<wire::Join>(&message);
  const auto* promise = std::get_if<wire::Promise>(&message);
  if (join == nullptr && promise == nullptr) return {};
  const TermId promised = (join != nullptr ? join->report : promise->report).record.promised;
  TermId limit = all_->config.terms.at(all_->now);
  if (promise != nullptr) limit = std::max(limit, all_->leadership.election().term());  // the term it was asked for
  if (promised <= limit) return {};
  return "its record says that it promised term " + std::to_string(promised.value) +
         ", but by this coordinator's clock no swarm can be beyond term " + std::to_string(limit.value) +
         ": set the clocks; if they are right, the record is damaged: remove it (COLLAB_STATE_DIR) [join.far-term]";
}

std::string Admission::damage(LinkId link, const wire::Message& message) const {
  RoundId round;
  const auto look = [&](const wire::Offer& offer, const wire::Record& record) {
    round = std::max(offer.round, record.anchor.round);
  };
  if (const auto* join = std::get_if<wire::Join>(&message)) {
    if (join->swarm == all_->config.swarm) look(join->offer, join->report.record);
  } else if (const auto* promise = std::get_if<wire::Promise>(&message)) {
    look(promise->offer, promise->report.record);
  } else if (const auto* installed = std::get_if<wire::AnchorInstalled>(&message)) {
    if (all_->membership.find_by_link(link) != nullptr) round = installed->round;
  }
  if (!wire::is_too_far_ahead(round, {})) return {};
  const RoundId agreed = std::max(all_->anchor.newest().value_or(AnchorChoice::Name{}).second,
                                  all_->leadership.election().newest().anchor.round);
  if (!wire::is_too_far_ahead(round, agreed)) return {};
  return "its record says that round " + std::to_string(round.value) + " was agreed on, but the newest known here is " +
         std::to_string(agreed.value) +
         ", and no swarm can be so far ahead: the record is damaged; remove it (COLLAB_STATE_DIR) and start again "
         "[join.record-damaged]";
}

std::string Admission::refusal(const wire::Join& join) const {
  if (join.swarm != all_->config.swarm) {
    return "this coordinator serves the swarm " + json_quote(all_->config.swarm) + ", this site asks for " +
           json_quote(join.swarm) + ": set the same COLLAB_RUN, or another COLLAB_COORDINATOR [join.other-swarm]";
  }
  if (join.site.empty()) return "a site needs a name: set COLLAB_SITE [join.no-name]";
  std::size_t names = join.site.size();
  for (const auto& [id, member] : all_->members()) {  // a member that asked for another has its number as a voter
    names += member.name == join.site ? 0 : member.name.size();
    const bool both = join.index == id.value && member.join.index == join.index;
    if (both && member.name != join.site && join.report.record.voters.empty()) {
      return "index " + std::to_string(join.index) + " is taken by " + member.name +
             ": give this site another COLLAB_SITE_INDEX [join.index-taken]";
    }
  }
  if (join.elements == 0)
    return "its model has no trained parameters, so there is nothing to exchange [join.no-parameters]";
  if (all_->members().size() >= wire::kMaxSites)
    return "the swarm is full: it has " + std::to_string(all_->members().size()) +
           " sites, which is the most that it can have [join.full]";
  if (names > kMaxNamesBytes / 2)  // a round's participants may include as many lost sites
    return "the swarm is full: its sites' names have " + std::to_string(names) + " bytes together, of at most " +
           std::to_string(kMaxNamesBytes / 2) + "; choose shorter ones (COLLAB_SITE) [join.full]";
  if (std::string difference = all_->anchor.init_from_difference(join); !difference.empty()) return difference;
  const bool compared = reference_ && (reference_->knows_model() || join.helper);
  return compared ? reference_->first_difference(join) : std::string();
}

void Admission::refuse_link(LinkId link, const std::string& who, const std::string& reason) {
  all_->out.emplace_back(Send{link, wire::Refuse{reason}});
  all_->out.emplace_back(CloseLink{link, reason});
  if (all_->anchor.gathers() && all_->membership.find_by_name(who) == nullptr) {
    refused_who_ = who;
    refused_why_ = reason;
  }
  all_->note(Note::Level::kWarning, "refused", who + " was refused: " + reason, {{"who", json_quote(who)}});
}

std::string Admission::refused_text() const {
  return refused_who_.empty() ? "" : "; " + refused_who_ + " was refused: " + refused_why_;
}

SiteId Admission::pick_id(const wire::Join& join) const {
  const Voters& voters = all_->agreed.voters();
  const Voters& next_voters = all_->agreed.next_voters();
  for (const Voters* membership : {&voters, &next_voters}) {
    for (const auto& [id, voter] : *membership) {
      if (voter.name == join.site && all_->members().count(id) == 0) return id;  // back in its place
    }
  }
  for (const auto& [id, gone] : all_->round.gone()) {
    if (gone.name == join.site && all_->members().count(id) == 0) return id;
  }
  const auto taken = [&](SiteId id) {
    return all_->members().count(id) + voters.count(id) + next_voters.count(id) + all_->round.gone().count(id) != 0;
  };
  if (join.index != wire::kNoIndex && !taken(SiteId{join.index})) return SiteId{join.index};
  // Lower numbers may be the indices of sites that are still to come.
  SiteId id{join.helper ? all_->anchor.sites_wanted() : 0};
  while (taken(id)) ++id.value;
  return id;
}

// ---- names -----------------------------------------------------------------------------------------

// When another process of that name was last heard, a member or an applicant. The same process does not count: it may
// be back before its old link is seen to be dead.
std::optional<TimePoint> Admission::namesake_heard(const wire::Join& join) const {
  if (!all_->leadership.leads()) return all_->leadership.election().namesake_heard(join);
  const Member* member = all_->membership.find_by_name(join.site);
  const bool same_process = member != nullptr && join.process != 0 && join.process == member->join.process;
  return member == nullptr || same_process ? std::nullopt : std::optional(member->contact.last_heard());
}

TimePoint Admission::free_at(const wire::Join& join) const {
  const auto heard = namesake_heard(join);
  return heard ? later(*heard, kReplaceAfter * all_->config.heartbeat) : TimePoint{};
}

// A site that claims a member's name is let in once that member is gone or silent. It is refused once the member is
// heard.
void Admission::settle_claims() {
  std::vector<LinkId> due;
  for (const auto& [link, join] : claims_) {
    if (all_->now >= free_at(join)) due.push_back(link);
  }
  for (const LinkId link : due) {
    if (const auto claim = claims_.extract(link)) on_join(link, claim.mapped());  // an earlier one may have ended it
  }
}

void Admission::claim(LinkId link, const wire::Join& join) {
  if (claims_.size() >= kMaxClaims)
    return refuse_link(link, join.site, "too many sites claim names that are taken; try again [join.too-many-claims]");
  claims_[link] = join;  // until the old link is heard, or is silent for long enough
}

void Admission::refuse_claims_of(const std::string& name, const std::string& address) {
  for (auto claim = claims_.begin(); claim != claims_.end();) {
    if (claim->second.site != name) {
      ++claim;
      continue;
    }
    const LinkId link = claim->first;
    claim = claims_.erase(claim);
    refuse_link(link, name,
                "a site named " + json_quote(name) + " is in the swarm already" +
                    (address.empty() ? "" : ", at " + address) +
                    ": give this one another COLLAB_SITE [join.name-taken]");
  }
}

void Admission::close_claims(const std::string& reason) {
  for (const auto& [link, join] : claims_) all_->out.emplace_back(CloseLink{link, reason});
  claims_.clear();
}

TimePoint Admission::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [link, join] : claims_) next = std::min(next, free_at(join));
  return next;
}

}  // namespace collab::protocol
