#include "tests/unit/protocol/invariants.h"

#include <algorithm>

#include "core/protocol/agreement/anchor_order.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/agreement/quorum.h"
#include "tests/unit/protocol/attempt_text.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kRemembered = 60;  // rounds whose contributors a leader knows, at least

}  // namespace

void Invariants::coordinator_step(const std::string& coordinator, const CoordinatorEvent& event,
                                  const std::vector<CoordinatorAction>& actions) {
  CoordinatorRecord& record = coordinators_[coordinator];
  if (const auto* received = std::get_if<Received>(&event)) {
    check_leave(record, *received, actions);
    on_received(record, *received);
  }
  if (const auto* closed = std::get_if<Closed>(&event)) record.applicants.erase(closed->link);
  for (const CoordinatorAction& action : actions) {
    each_sent(action, [&](LinkId link, const wire::Message& message) {
      on_sent(coordinator, record, link, message);
      return true;
    });
    if (const auto* hangup = std::get_if<CloseLink>(&action)) record.applicants.erase(hangup->link);
  }
  if (const auto* closed = std::get_if<Closed>(&event)) record.welcomed.erase(closed->link);
}

void Invariants::on_received(CoordinatorRecord& record, const Received& received) {
  const auto from = record.welcomed.find(received.link);
  const auto* done = std::get_if<wire::Done>(&received.message);
  if (done != nullptr && done->term == record.term && from != record.welcomed.end() && record.anchor) {
    done_[{std::get<0>(*record.anchor), done->round, done->attempt}][from->second] = done->slices;
  }
  if (const auto* join = std::get_if<wire::Join>(&received.message)) {
    record.applicants.try_emplace(received.link,
                                  Applicant{join->site, join->helper, join->generation, join->resumed, join->init_from,
                                            join->offer.digest, join->offer.run.value != 0});
  }
  const auto knows = [this](const wire::Report& report) {
    for (const wire::Voter& voter : report.record.voters) {
      if (voter.left) left_.insert({voter.name, voter.acceptor});
    }
  };
  if (const auto* join = std::get_if<wire::Join>(&received.message)) knows(join->report);
  if (const auto* promise = std::get_if<wire::Promise>(&received.message)) knows(promise->report);
  const auto applicant = record.applicants.find(received.link);
  if (applicant == record.applicants.end()) return;
  const auto offers = [&applicant](const auto& message) {
    const wire::Record& its = message.report.record;
    applicant->second.held = message.offer;
    applicant->second.memory = its.acceptor;
    applicant->second.knows = !its.voters.empty();
    applicant->second.left = applicant->second.knows && its.anchor.run != message.offer.run;
  };
  if (const auto* join = std::get_if<wire::Join>(&received.message)) offers(*join);
  if (const auto* installed = std::get_if<wire::AnchorInstalled>(&received.message)) {
    applicant->second.held = {installed->run, installed->round, installed->digest};
    applicant->second.left = false;
    applicant->second.memory = installed->acceptor;
  }
  const auto* promise = std::get_if<wire::Promise>(&received.message);
  // One that waited for its disk may come from a site let in without it that holds another anchor by now.
  if (promise != nullptr && !applicant->second.site) {
    offers(*promise);
    applicant->second.recent = promise->report.record.recent;
    applicant->second.promised = promise->term;
    applicant->second.acceptor = promise->report.record.acceptor;
  }
  const bool promised = promise != nullptr && promise->offer.run.value != 0;
  if (promised || std::holds_alternative<wire::AnchorInstalled>(received.message)) applicant->second.holds = true;
  if (const auto* accepted = std::get_if<wire::Accepted>(&received.message)) {
    if (accepted->term > record.accepting) record.accepted.clear();
    record.accepting = std::max(record.accepting, accepted->term);
    if (accepted->term == record.accepting) record.accepted.insert(applicant->second.name);
  }
}

// Where nobody here holds an anchor, the swarm begins with the parameters of the site that is named, else of the lowest
// that resumed, else of the lowest.
void Invariants::on_first_install(CoordinatorRecord& record, const wire::InstallAnchor& install) {
  if (install.round.value != 0 || !record.begun.insert(install.run).second) return;
  std::map<SiteId, const Applicant*> here;
  std::string named = init_from_;
  for (const auto& [link, applicant] : record.applicants) {
    if (!applicant.site) continue;
    if (applicant.holds) return;
    if (!applicant.helper) here[*applicant.site] = &applicant;
  }
  if (here.empty()) return;
  for (const auto& [site, applicant] : here) {
    if (named.empty()) named = applicant->init_from;
  }
  const auto is_named = [&](const auto& entry) { return entry.second->name == named; };
  const auto resumed = [](const auto& entry) { return entry.second->resumed; };
  auto first = std::find_if(here.begin(), here.end(), is_named);
  const std::uint32_t generation = here.begin()->second->generation;
  for (const auto& [site, applicant] : here) {
    check(applicant->generation == generation,
          applicant->name + " is of another generation than " + here.begin()->second->name);
  }
  // Of later generations nobody is waited for but who has left for them, and in the first nobody who has been through
  // it.
  const bool ahead = std::ranges::any_of(record.applicants, [&](const auto& entry) {
    return entry.second.name == named && entry.second.generation > generation;
  });
  check(named.empty() || first != here.end() || generation > 1 || ahead,
        "the swarm began without " + named + ", whose parameters it was to have");
  if (first == here.end()) first = std::find_if(here.begin(), here.end(), resumed);
  if (first == here.end()) first = here.begin();
  check(install.sources == std::vector{first->first} && install.digest == first->second->digest,
        "the swarm began with the parameters of site " + std::to_string(install.sources.at(0).value) +
            ", not with those of " + first->second->name);
}

// Those who go on under another run's name go on from the newest that any of them holds: what a site says of a round
// that nobody has committed, or of another result, is not so. Where nobody knows of a membership a swarm is founded.
void Invariants::on_renamed(const CoordinatorRecord& record, const wire::InstallAnchor& install) {
  const auto of_this_run = memberships_.lower_bound({install.run, RoundId{0}});
  if (of_this_run != memberships_.end() && std::get<0>(of_this_run->first) == install.run) return;
  const Applicant* source = nullptr;
  bool founded = true;
  for (const auto& [link, applicant] : record.applicants) {
    if (applicant.held.run == install.run) return;  // it was begun before
    if (!applicant.site) continue;
    founded = founded && !applicant.knows;
    if (!install.sources.empty() && *applicant.site == install.sources.front()) source = &applicant;
  }
  if (source == nullptr || founded) return;
  for (const auto& [link, applicant] : record.applicants) {
    if (!applicant.site || !applicant.knows || applicant.left ||
        !is_committed(applicant.held.run, applicant.held.round))
      continue;
    const auto state = states_.find({applicant.held.run, applicant.held.round});
    if (state != states_.end() && state->second.first != applicant.held.digest) continue;
    check(!is_newer(applicant.held, 0, source->held, 0),
          "run " + std::to_string(install.run.value) + " goes on from round " +
              std::to_string(source->held.round.value) + " of run " + std::to_string(source->held.run.value) +
              ", and " + applicant.name + " brought round " + std::to_string(applicant.held.round.value) + " of run " +
              std::to_string(applicant.held.run.value));
  }
}

void Invariants::on_sent(const std::string& coordinator, CoordinatorRecord& record, LinkId link,
                         const wire::Message& message) {
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) {
    check(welcome->term >= record.term, coordinator + " goes back to term " + std::to_string(welcome->term.value));
    if (welcome->term > record.term) {  // its own successor, perhaps: it has forgotten who was done with what
      record.anchor.reset();
      record.started.clear();
      record.led.clear();
      record.electors.clear();
      for (const auto& [from, applicant] : record.applicants) {
        if (applicant.promised != welcome->term) continue;
        record.electors[applicant.name] = {applicant.acceptor, record.asked[welcome->term].count(from) != 0};
      }
    }
    record.term = welcome->term;
    record.welcomed[link] = welcome->site;
    if (const auto applicant = record.applicants.find(link); applicant != record.applicants.end())
      applicant->second.site = welcome->site;
  }
  if (const auto* install = std::get_if<wire::InstallAnchor>(&message)) {
    on_first_install(record, *install);
    on_renamed(record, *install);
    if (!record.anchor) check_election_result(coordinator, record, *install);
    on_install_anchor(record, *install);
    if (install->counted == wire::Counted::kUnknown) check_unknown(record, link, *install);
  }
  if (const auto* prepare = std::get_if<wire::Prepare>(&message)) {
    std::set<LinkId> here;
    for (const auto& [other, applicant] : record.applicants) here.insert(other);
    record.asked.try_emplace(prepare->term, std::move(here));
  }
  if (const auto* accept = std::get_if<wire::Accept>(&message)) {
    const auto [known, fresh] = record.proposed.try_emplace(accept->term, accept->proposals);
    check(known->second == accept->proposals,
          coordinator + " asks for two things to be accepted under term " + std::to_string(accept->term.value));
  }
  if (const auto* member_left = std::get_if<wire::MemberLeft>(&message); member_left != nullptr && record.anchor) {
    left_.insert({member_left->site, member_left->acceptor});
  }
  if (const auto* start = std::get_if<wire::StartAttempt>(&message)) {
    leads(coordinator, start->run, start->term);
    on_start_attempt(record, *start);
  }
  if (const auto* commit = std::get_if<wire::Commit>(&message)) {
    // A leader that knows an earlier commit tells it again, under the name of another run, too.
    if (!is_committed(commit->run, commit->round)) leads(coordinator, commit->run, commit->term);
    on_commit(record, *commit);
  }
}

void Invariants::leads(const std::string& coordinator, RunId run, TermId term) {
  const auto [known, fresh] = leaders_.try_emplace({run, term}, coordinator);
  check(known->second == coordinator, coordinator + " leads term " + std::to_string(term.value) + " of run " +
                                          std::to_string(run.value) + ", and so did " + known->second);
}

// Each membership is named by the value before it, or by the founder of the run.
void Invariants::on_membership(const Round& round, const std::vector<wire::Voter>& voters) {
  std::map<std::string, AcceptorId> names;
  for (const wire::Voter& voter : voters) names[voter.name] = voter.acceptor;
  if (names.empty()) return;
  const auto [known, fresh] = memberships_.try_emplace(round, names);
  check(known->second == names, "round " + std::to_string(std::get<1>(round).value) + " of run " +
                                    std::to_string(std::get<0>(round).value) + " has two memberships");
}

// What is committed was accepted by more than half of the membership before it: by the participants, or as a
// successor proposed it again. A site without its record that came after the term was begun has no vote under it.
void Invariants::check_quorum(const CoordinatorRecord& record, const wire::StartAttempt& start,
                              const wire::Commit& commit) {
  const std::string name = "the commit of " + text_of(start.round, start.attempt);
  const bool own = start.term == commit.term;
  if (!own) {
    const auto proposed = record.proposed.find(commit.term);
    const bool same = proposed != record.proposed.end() && proposed->second.size() == 1 &&
                      proposed->second[0].start == start && proposed->second[0].settled == commit.term;
    check(same && record.accepting == commit.term,
          name + ": it was not accepted under term " + std::to_string(commit.term.value) + ", which commits it");
  }
  const auto before = memberships_.find({start.run, RoundId{start.round.value - 1}});
  if (before == memberships_.end()) {
    const auto any = memberships_.lower_bound({start.run, RoundId{0}});
    const bool begins = any == memberships_.end() || std::get<0>(any->first) != start.run;
    return check(begins, name + ": the membership before is not known");
  }
  std::vector<wire::Voter> voters;
  for (const auto& [voter, acceptor] : before->second) {
    voters.push_back({SiteId{}, voter, acceptor, left_.count({voter, acceptor}) != 0});
  }
  const auto asked = record.asked.find(commit.term);
  const bool begins = before == memberships_.lower_bound({start.run, RoundId{0}});  // then nobody was asked
  const auto is_late = [&](const wire::Voter& voter) {
    return !begins && asked != record.asked.end() && std::ranges::any_of(record.applicants, [&](const auto& entry) {
      const Applicant& applicant = entry.second;
      return applicant.site && applicant.name == voter.name && applicant.memory != voter.acceptor &&
             asked->second.count(entry.first) == 0;
    });
  };
  const Quorum quorum = quorum_of(voters, [&](const wire::Voter& voter) {
    const bool part =
        std::ranges::any_of(start.participants, [&](const auto& p) { return p.here && p.name == voter.name; });
    const bool accepts = own ? part && !is_late(voter) : record.accepted.count(voter.name) != 0;
    return accepts ? Presence::kByName : Presence::kAbsent;
  });
  check(quorum.can_accept(), name + ": accepted by " + std::to_string(quorum.by_name) + " of the " +
                                 std::to_string(quorum.voters) + " sites of the membership before");
}

// A leader that continues a run has the promises of more than half of its membership; those with records are half of
// it. A site that came without its record after the term was begun has promised nothing.
void Invariants::check_election_result(const std::string& coordinator, const CoordinatorRecord& record,
                                       const wire::InstallAnchor& install) {
  const auto membership = memberships_.find({install.run, install.round});
  if (membership == memberships_.end()) return;  // it is founded, or goes on under another name
  std::vector<wire::Voter> voters;
  for (const auto& [name, acceptor] : membership->second) {
    const auto elector = record.electors.find(name);  // what it has promised it has promised before it left
    const bool left = elector == record.electors.end() || elector->second.acceptor != acceptor;
    voters.push_back({SiteId{}, name, acceptor, left && left_.count({name, acceptor}) != 0});
  }
  const Quorum quorum = quorum_of(voters, [&](const wire::Voter& voter) {
    const auto elector = record.electors.find(voter.name);
    if (elector == record.electors.end()) return Presence::kAbsent;
    if (elector->second.acceptor == voter.acceptor) return Presence::kWithRecord;
    return elector->second.early ? Presence::kByName : Presence::kAbsent;
  });
  check(quorum.can_promise(), coordinator + " leads term " + std::to_string(install.term.value) +
                                  " by the promises of " + std::to_string(quorum.by_name) + " of " +
                                  std::to_string(quorum.voters) + " voters, " + std::to_string(quorum.with_record) +
                                  " with their records");
}

// Where a voter goes in good order the others hear of it: else they would miss it for ever.
void Invariants::check_leave(const CoordinatorRecord& record, const Received& received,
                             const std::vector<CoordinatorAction>& actions) {
  const auto leaver = record.applicants.find(received.link);
  if (!std::holds_alternative<wire::Leave>(received.message) || !record.anchor || leaver == record.applicants.end())
    return;
  const auto membership = memberships_.find(*record.anchor);
  const auto& [name, memory] = std::tie(leaver->second.name, leaver->second.memory);
  const bool counts = membership != memberships_.end() && membership->second.count(name) != 0 &&
                      membership->second.at(name) == memory && left_.count({name, memory}) == 0;
  const bool alone = std::ranges::none_of(
      record.applicants, [&](const auto& entry) { return entry.second.site && entry.first != received.link; });
  if (!leaver->second.site || !counts || alone) return;
  bool told = false;
  for (const CoordinatorAction& action : actions) {
    each_sent(action, [&](LinkId, const wire::Message& message) {
      const auto* left = std::get_if<wire::MemberLeft>(&message);
      told = told || (left != nullptr && left->acceptor == memory);
      return true;
    });
  }
  check(told, name + " leaves, and the others do not hear of it");
}

// A site that takes no part, and had no vote before, might be anybody.
void Invariants::check_voters(const wire::StartAttempt& start) {
  const auto before = memberships_.find({start.run, RoundId{start.round.value - 1}});
  if (before == memberships_.end()) return;
  for (const wire::Voter& voter : start.voters) {
    const bool part = std::ranges::any_of(start.participants, [&](const auto& p) { return p.site == voter.site; });
    check(part || before->second.count(voter.name) != 0,
          text_of(start.round, start.attempt) + ": " + voter.name + " takes no part, had no say, and is to have one");
  }
}

// Nobody is told that nobody knows what became of its contribution where the leader has committed that round itself, or
// was told of its commit when it was elected. (A later site may know of one more; that is not looked at.)
void Invariants::check_unknown(const CoordinatorRecord& record, LinkId link, const wire::InstallAnchor& install) {
  const auto to = record.applicants.find(link);
  if (to == record.applicants.end() || distrusted_.contains(to->second.name)) return;
  if (to->second.held.run != install.run || to->second.held.round >= install.round) return;
  const RoundId asked{to->second.held.round.value + 1};
  const std::string what =
      to->second.name + " is told that nobody knows whether it counted in round " + std::to_string(asked.value) + ", ";
  const bool remembered = install.round.value - asked.value < kRemembered;
  check(!remembered || record.led.count({install.run, asked}) == 0, what + "which the leader committed itself");
  for (const auto& [other, applicant] : record.applicants) {
    const bool knows = applicant.site && applicant.promised == install.term &&
                       std::ranges::any_of(applicant.recent, [&](const wire::Past& past) {
                         return past.run == install.run && past.round == asked;
                       });
    check(!knows, what + "whose commit " + applicant.name + " has told of");
  }
}

void Invariants::on_install_anchor(CoordinatorRecord& record, const wire::InstallAnchor& install) {
  record.anchor = {install.run, install.round};
  on_membership(*record.anchor, install.voters);
}

// An attempt is one and the same for all its members, whole, and the newest of its round.
void Invariants::on_start_attempt(CoordinatorRecord& record, const wire::StartAttempt& start) {
  const std::string name = text_of(start.round, start.attempt);
  record.started.insert({start.run, start.round, start.attempt});
  const auto [known, fresh] = starts_.try_emplace({start.run, start.round, start.attempt}, start);
  check(known->second == start, name + " was formed in two ways");
  if (!fresh) return;
  check(record.committed.count({start.run, start.round}) == 0, name + " was formed after the round's commit");
  AttemptId& last = last_attempt_[{start.run, start.round}];
  check(start.attempt > last || start.attempt.value >> 16 < last.value >> 16,
        name + " was formed after attempt " + std::to_string(last.value));
  last = std::max(last, start.attempt);
  if (record.anchor) {
    check(std::get<0>(*record.anchor) == start.run && std::get<1>(*record.anchor).value + 1 == start.round.value,
          name + " does not follow the swarm's anchor");
  }
  check(std::is_sorted(start.participants.begin(), start.participants.end(),
                       [](const auto& a, const auto& b) { return a.site < b.site; }),
        name + ": participants are not in site order");
  for (const wire::Participant& p : start.participants) {
    const auto is_voter = [&](const auto& v) { return v.site == p.site; };
    check(!p.here || std::any_of(start.voters.begin(), start.voters.end(), is_voter),
          name + ": site " + std::to_string(p.site.value) + " takes part and is no voter");
  }
  check_voters(start);
  std::uint64_t end = start.slices.empty() ? 0 : start.slices.front().range.begin;
  for (const wire::Slice& slice : start.slices) {
    check(slice.range.begin == end && slice.range.end > end, name + ": slices leave a gap or overlap");
    check(takes_part(start, slice.owner), name + ": a slice's owner takes no part");
    end = slice.range.end;
  }
}

// One commit a round, of one attempt, the newest, done alike by all its members.
void Invariants::on_commit(CoordinatorRecord& record, const wire::Commit& commit) {
  const std::string name = "the commit of " + text_of(commit.round, commit.attempt);
  const RunId run = commit.run;
  const auto [known, fresh] = commits_.try_emplace({run, commit.round}, commit);
  check(known->second.attempt == commit.attempt && known->second.contributors == commit.contributors,
        name + " contradicts that of " + text_of(commit.round, known->second.attempt));
  if (!record.anchor) record.anchor = {run, commit.round};
  if (std::get<0>(*record.anchor) == run) {
    record.anchor = {run, std::max(std::get<1>(*record.anchor), commit.round)};
  }
  record.committed.insert({run, commit.round});
  record.led.insert({run, commit.round});
  if (!fresh) return;
  const Attempt attempt{run, commit.round, commit.attempt};
  const auto start = starts_.find(attempt);
  check(start != starts_.end(), name + ": it was never formed");
  if (start == starts_.end()) return;
  check_quorum(record, start->second, commit);
  on_membership({run, commit.round}, start->second.voters);
  std::vector<SiteId> weighed;
  for (const wire::Participant& p : start->second.participants) {
    if (p.weight > 0) weighed.push_back(p.site);
  }
  check(weighed == commit.contributors, name + ": the contributors are not those who had a weight");
  if (record.started.count(attempt) == 0) return;  // a successor's: it knows those it reaches
  check((last_attempt_[{run, commit.round}] == commit.attempt), name + ": a later attempt was formed");
  const auto& done = done_[attempt];
  const std::vector<Digest>* mean = nullptr;
  for (const wire::Participant& p : start->second.participants) {
    if (!p.here) continue;
    const auto said = done.find(p.site);
    check(said != done.end(), name + ": site " + std::to_string(p.site.value) + " was not done");
    const bool sent = sites_.empty() || done_sent_[attempt].count(p.site) == 1;
    check(sent, name + ": site " + std::to_string(p.site.value) + " never said that it was done");
    if (said == done.end()) continue;
    if (mean == nullptr) mean = &said->second;
    check(said->second == *mean, name + ": the means differ");
  }
}

}  // namespace collab::protocol
