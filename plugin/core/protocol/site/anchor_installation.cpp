#include "core/protocol/site/anchor_installation.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/site/site_parts.h"
#include "core/wire/encoding.h"

namespace collab::protocol {
namespace {

constexpr int kTransferTries = 2;

}  // namespace

void AnchorInstallation::on_install_anchor(const wire::InstallAnchor& install) {
  if (!all_->membership.is_let_in() || install.term < all_->acceptor.term() || all_->round.is_applying()) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "the coordinator offered an anchor to a site that does not wait for one [join.anchor-unasked]");
  }
  if (!is_short(install.voters)) {
    return all_->coordinator.turn_from(
        "it names a membership whose names are longer in total than a site can remember");
  }
  if (all_->membership.join().helper) {
    all_->membership.take_generation(install.generation);
  } else if (install.generation != all_->membership.join().generation) {
    return all_->note(Note::Level::kWarning, "ignored",
                      "the coordinator offered an anchor of generation " + std::to_string(install.generation) +
                          " of the model, this site trains generation " +
                          std::to_string(all_->membership.join().generation) + " [join.other-generation]");
  }
  const bool same_round = all_->held.is_of(install.run, install.round);
  const bool renamed = is_held(install.digest);
  // The data that a rebase needs lies in the slot that a renamed anchor would take.
  const bool stays = renamed && !all_->round.owes_rebase();
  if (all_->membership.join_done() && !same_round && !stays && all_->round.is_training()) {
    // This site is training: it reports the anchor that it holds, and takes this one at its next trigger.
    all_->membership.becomes_active();
    return all_->held.announce();
  }
  if (names_us(install) && all_->held.anchor() && all_->membership.join().offer.digest != install.digest) {
    // The offer crossed our report that another anchor is in place here. The coordinator chooses again once it knows.
    all_->membership.begin_waiting();
    all_->round.retract_ready();
    drop();
    return all_->held.announce();
  }
  all_->round.retract_ready();
  all_->acceptor.voters_are_newer();
  all_->membership.begin_installing();
  if (receives(install)) {  // only the sources are news; the fetch is under way
    if (taking_->install.sources != install.sources) taking_->unreachable_since = kNever;
    taking_->install = install;
    taking_->give_up = later(all_->now, all_->config.round_timeout + all_->coordinator.grace());
    return settle_sources();
  }
  begin(install);
}

bool AnchorInstallation::receives(const wire::InstallAnchor& install) const {
  return taking_ && !taking_->keeps && taking_->install.run == install.run && taking_->install.round == install.round &&
         taking_->install.digest == install.digest;
}

bool AnchorInstallation::is_held(const Digest& digest) const {
  return all_->held.anchor() && all_->held.anchor()->digest == digest;
}

bool AnchorInstallation::names_us(const wire::InstallAnchor& install) const {
  return install.sources == std::vector<SiteId>{*all_->membership.self()};
}

void AnchorInstallation::begin(const wire::InstallAnchor& install) {
  const bool same_round = all_->held.is_of(install.run, install.round);
  drop();
  if (!same_round || !is_held(install.digest)) all_->round.contribute_anew();
  taking_ = Record{};
  taking_->install = install;
  taking_->give_up = later(all_->now, all_->config.round_timeout + all_->coordinator.grace());
  taking_->keeps = names_us(install) || all_->membership.join().offer.digest == install.digest;
  if (!taking_->keeps || !same_round || !all_->round.is_done()) {
    all_->round.back_to_ready("the anchor is to be taken from " + sources_text());
  }
  if (!taking_->keeps) all_->acceptor.lose_mean();
  if (taking_->keeps) {
    all_->out.emplace_back(
        KeepAnchor{install.run, install.round, install.digest, all_->acceptor.as_known(install.voters)});
  } else {
    receive();
  }
}

void AnchorInstallation::receive() {
  const wire::InstallAnchor& install = taking_->install;
  overwritten_ = true;
  all_->out.emplace_back(
      ReceiveAnchor{install.run, install.round, install.digest, all_->acceptor.as_known(install.voters)});
  pursue();
}

void AnchorInstallation::drop() {
  if (taking_ && !taking_->keeps) all_->out.emplace_back(StopReceiving{});
  taking_.reset();
}

std::string AnchorInstallation::sources_text() const {
  std::vector<std::string> names;
  for (const SiteId source : taking_->install.sources) names.push_back(all_->name_of(source));
  return join_words(names);
}

void AnchorInstallation::pursue() {
  if (!taking_ || taking_->keeps) return;
  bool reachable = false;
  for (const SiteId source : taking_->install.sources) {
    if (taking_->useless.count(source) != 0) continue;
    const wire::Member* const member = all_->roster.find(source);
    // Not listed yet: the roster that lists it, or another InstallAnchor, is on its way.
    reachable = reachable || all_->peers.linked(source) || member == nullptr || !member->address.empty() ||
                !all_->membership.join().address.empty();
    if (taking_->over.count(source) != 0) continue;
    if (const auto link = all_->peers.link_to(source)) {
      taking_->over[source] = *link;
      all_->out.emplace_back(AddAnchorSource{source, all_->name_of(source), *link});
    } else if (member != nullptr && !member->address.empty()) {
      all_->peers.dial(source);
    }
    // Otherwise it dials us: a site that cannot be dialled dials every member that can.
  }
  if (!reachable) return unreachable("neither it nor this site can be dialled");
  if (reaches()) {
    taking_->unreachable_since = kNever;
  } else if (taking_->unreachable_since == kNever) {
    taking_->unreachable_since = all_->now;
  }
}

void AnchorInstallation::give_up_source(SiteId source) {
  if (taking_->over.erase(source) != 0) all_->out.emplace_back(DropAnchorSource{source});
  taking_->useless.insert(source);
  settle_sources();
}

void AnchorInstallation::settle_sources() {
  const auto& sources = taking_->install.sources;
  const bool some_left =
      std::any_of(sources.begin(), sources.end(), [this](SiteId other) { return taking_->useless.count(other) == 0; });
  if (some_left) return pursue();
  const std::string what = "the anchor of round " + std::to_string(taking_->install.round.value) +
                           " cannot be fetched from " + sources_text();
  if (taking_->overtaken) {  // a site that asks again is told the newer one
    all_->membership.may_ask_for(all_->config.join_timeout);
    return all_->coordinator.drop(what + " any more: they now hold another one");
  }
  begin_again(what);
}

void AnchorInstallation::begin_again(const std::string& what) {
  if (taking_->here > std::exchange(taking_->here_then, taking_->here)) taking_->tries = 0;
  if (++taking_->tries >= kTransferTries) {
    // One source alone may be wrong, or lie. By the next round the coordinator knows what most sites hold.
    if (all_->membership.join_done() || taking_->install.sources.size() == 1) return all_->coordinator.drop(what);
    return all_->membership.fail(
        corrupt(what + ": restart this site; if this happens again, suspect its memory [join.memory]"));
  }
  all_->note(Note::Level::kError, "repair",
             what + "; it is fetched once more from " + sources_text() + " [join.anchor-damaged]");
  for (const auto& [site, link] : std::exchange(taking_->over, {})) all_->out.emplace_back(DropAnchorSource{site});
  taking_->useless.clear();
  receive();
}

void AnchorInstallation::on_anchor_moved(SiteId source, const wire::AnchorMoved& moved) {
  if (!taking_ || taking_->over.count(source) == 0) return;
  if (moved.run == taking_->install.run && moved.round == taking_->install.round) return;  // from an earlier request
  all_->note(Note::Level::kWarning, "join",
             all_->name_of(source) + " no longer holds the anchor of round " +
                 std::to_string(taking_->install.round.value) + ", but that of run " + std::to_string(moved.run.value) +
                 " round " + std::to_string(moved.round.value) + " [join.anchor-moved]");
  taking_->overtaken = true;
  give_up_source(source);
}

void AnchorInstallation::on_in_place(const AnchorInPlace& event) {
  if (!taking_ || event.run != taking_->install.run || event.round != taking_->install.round) return;
  if (event.digest == taking_->install.digest) return done();

  const std::string from = taking_->keeps ? "here" : "fetched from " + sources_text();
  const std::string what = "the anchor of round " + std::to_string(event.round.value) + " " + from +
                           " has the digest " + to_hex(event.digest) + ", but the coordinator expects " +
                           to_hex(taking_->install.digest);
  if (!taking_->keeps) return begin_again(what);
  all_->held.has_digest(event.digest);  // the anchor to keep is not here, and is not offered again
  if (names_us(taking_->install) && (all_->membership.join_done() || overwritten_)) {
    all_->note(Note::Level::kError, "repair", what + "; this site tells the coordinator [join.own-anchor-differs]");
    all_->membership.begin_waiting();
    drop();
    return all_->coordinator.send(wire::AnchorInstalled{event.run, event.round, event.digest, all_->acceptor.id()});
  }
  if (names_us(taking_->install)) {
    return all_->membership.fail(
        corrupt(what + ": restart this site; if this happens again, suspect its memory [join.memory]"));
  }
  all_->note(Note::Level::kError, "repair", what + "; it is fetched from " + sources_text() + " [join.anchor-differs]");
  taking_->keeps = false;
  receive();
}

void AnchorInstallation::done() {
  const wire::InstallAnchor install = taking_->install;
  const bool received = !taking_->keeps;
  taking_.reset();
  overwritten_ = false;
  for (const SiteId source : install.sources) all_->peers.forget_dial(source);
  const bool moves = all_->held.anchor() && !all_->held.is_of(install.run, install.round);
  if (all_->membership.join_done() && moves) all_->round.rebase(install, received);
  const wire::Offer anchor{install.run, install.round, install.digest};
  all_->held.hold(anchor);
  all_->acceptor.agree_on(anchor, install.voters);
  all_->writes.keep();
  all_->membership.becomes_active();
  all_->inquiry.not_before(later(all_->now, all_->coordinator.grace()));
  all_->coordinator.forget_failures();
  all_->held.announce();
  all_->membership.installed(install);
  all_->held.answer_fetches();
  all_->round.send_ready();
}

void AnchorInstallation::on_source_wrong(const AnchorSourceWrong& event) {
  if (!taking_ || taking_->keeps) return;
  const std::string name = all_->name_of(event.site);
  all_->out.emplace_back(
      make_note(Note::Level::kError, "repair",
                "the anchor of round " + std::to_string(taking_->install.round.value) + " is no longer fetched from " +
                    name + ": " + event.reason + " [join.part-refused]",
                {{"who", json_quote(name)}, {"round", std::to_string(taking_->install.round.value)}}));
  taking_->here = event.here;
  give_up_source(event.site);
}

// A site that is about to get the anchor counts too: it becomes a source then.
bool AnchorInstallation::reaches() const {
  const auto& sources = taking_->install.sources;
  return std::ranges::any_of(
             sources,
             [this](SiteId source) { return all_->peers.linked(source) && taking_->useless.count(source) == 0; }) ||
         std::ranges::any_of(all_->roster.members(), [this](const auto& entry) {
           return entry.second.state == wire::MemberState::kJoining && all_->peers.linked(entry.first);
         });
}

// kNever if this site can be dialled: the others may still dial it.
TimePoint AnchorInstallation::unreachable_until() const {
  if (!taking_ || taking_->keeps || !all_->peers.cannot_be_dialled()) return kNever;
  return later(taking_->unreachable_since, all_->coordinator.grace());
}

// A site that has joined once trains on, and asks again at its next trigger.
void AnchorInstallation::unreachable(const std::string& what) {
  const std::string reason = "the anchor is at " + sources_text() + ", and " + what +
                             ": set COLLAB_LISTEN and COLLAB_ADVERTISE at one of them, or run `collab helper` on a "
                             "machine that both reach [join.source-unreachable]";
  if (!all_->membership.join_done()) return all_->membership.fail(unavailable(reason));
  all_->coordinator.drop(reason);
  if (all_->round.at_trigger()) all_->round.skip(reason);
}

void AnchorInstallation::on_unreachable_tick() {
  if (all_->now < unreachable_until()) return;
  std::string last;
  for (const SiteId source : taking_->install.sources) {
    if (const auto reason = all_->peers.last_reason(source)) last = ", last: " + *reason;
  }
  unreachable("neither it nor this site can be dialled (no link within " + in_seconds(all_->coordinator.grace()) +
              ", COLLAB_LINK_GRACE" + last + ")");
}

TimePoint AnchorInstallation::next_deadline() const {
  return taking_ ? std::min(taking_->give_up, unreachable_until()) : kNever;
}

void AnchorInstallation::on_tick() {
  if (!taking_ || all_->now < taking_->give_up) return on_unreachable_tick();
  const std::string what =
      "the anchor of round " + std::to_string(taking_->install.round.value) + " did not arrive from " + sources_text();
  if (all_->membership.join_done()) return all_->coordinator.drop(what);
  all_->membership.fail(timed_out(what + " within " + in_seconds(all_->config.round_timeout) +
                                  " (COLLAB_ROUND_TIMEOUT) [join.anchor-timeout]"));
}

void AnchorInstallation::link_lost(SiteId source, LinkId link) {
  if (!taking_) return;
  const auto over = taking_->over.find(source);
  if (over == taking_->over.end() || over->second != link) return;
  taking_->over.erase(over);
  all_->out.emplace_back(DropAnchorSource{source});
  pursue();
}

std::string AnchorInstallation::waiting_text(TimePoint at) const {
  return "waiting for the anchor of round " + std::to_string(taking_->install.round.value) + " from " + sources_text() +
         unreachable_text(at);
}

std::string AnchorInstallation::unreachable_text(TimePoint at) const {
  if (unreachable_until() == kNever) return "";
  return " (no link with it so far, and other sites cannot dial this site: it gives up in " +
         in_seconds(std::max(Duration{0}, unreachable_until() - at)) +
         ", unless `collab helper` runs on a machine that both reach)";
}

}  // namespace collab::protocol
