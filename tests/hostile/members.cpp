// Attacks by joining: members that do nothing, members that pretend to be another, and invented terms.
#include <algorithm>
#include <string>
#include <vector>

#include "core/protocol/agreement/term_limit.h"
#include "core/wire/limits.h"
#include "tests/hostile/attack.h"

namespace collab::hostile {
namespace {

constexpr Duration kAnswerLimit = std::chrono::milliseconds(300);
constexpr Duration kInstallLimit = std::chrono::seconds(2);

// A number of a term near an edge.
TermId draw_term(Context& context) {
  const std::uint64_t known = context.swarm.term;
  const TimePoint now = SteadyClock().now();
  const std::uint64_t highest =
      protocol::term_limit(std::chrono::system_clock::now().time_since_epoch(), now).at(now).value;
  const std::vector<std::uint64_t> edges{
      wire::kMaxTerm,      wire::kMaxTerm - 1, highest - 1, highest,
      highest + 60 * 4096, known + 1,          0,           context.prng.below(wire::kMaxTerm)};
  return TermId(std::min(edges[context.prng.below(edges.size())], wire::kMaxTerm));
}

// Joins as the voter that promised this term: the coordinator names the voter's memory to any site that joins.
void join_with_a_memory(Context& context, const std::vector<wire::Voter>& voters, const std::string& name) {
  const std::optional<LinkId> link = context.peer->dial(context.target);
  if (!link) return wait_ms(10);
  wire::Join join = proper_join(context.swarm, name, "", true, context.prng);
  join.report.record.promised = draw_term(context);
  if (!voters.empty() && context.prng.chance(0.7)) {
    join.report.record.acceptor = voters[context.prng.below(voters.size())].acceptor;
    join.report.record.voters = voters;
    join.report.member = true;
  }
  context.peer->send(*link, join);
  if (context.peer->next(*link, kInstallLimit / 10)) context.counts.arrives();
  context.peer->send(*link, wire::Promise{draw_term(context), join.offer, join.report});
  context.peer->send(*link, wire::Accepted{draw_term(context)});
  context.peer->close(*link);
}

// Says on links to all listening sites what a coordinator says.
void command_sites(Context& context) {
  for (const wire::Member& member : context.swarm.members) {
    if (member.address.empty() || context.done()) continue;
    const std::optional<LinkId> link = context.peer->dial(member.address);
    if (!link) continue;
    const TermId term = draw_term(context);
    context.peer->send(*link, wire::Prepare{term});
    context.peer->send(*link, wire::Welcome{term, member.site, 1, 1, true});
    context.peer->send(*link, wire::Roster{term, {}});
    context.peer->send(*link, wire::Refuse{"go away", true});
    context.peer->close(*link);
  }
}

// What a record may say of the past, without a proof: rounds that were never trained, another model, another swarm.
wire::Record draw_record(Context& context) {
  Prng& prng = context.prng;
  wire::Record record;
  record.acceptor = AcceptorId(1 + prng.below(UINT64_MAX - 1));
  record.anchor.run = prng.chance(0.5) ? context.swarm.run : RunId(prng.next());
  record.anchor.round = RoundId(context.swarm.round.value + prng.below(1'000'000));
  record.voters = {{SiteId(0), context.draw_name(), record.acceptor, false}};
  return record;
}

}  // namespace

void attack_records(Context& context) {
  while (!context.done()) {
    const std::optional<LinkId> link = context.peer->dial(context.target);
    if (!link) {
      wait_ms(10);
      continue;
    }
    wire::Join join = proper_join(context.swarm, context.draw_name(), "", context.prng.chance(0.5), context.prng);
    join.report.record = draw_record(context);
    join.report.member = true;
    join.offer = join.report.record.anchor;
    if (!join.helper) join.generation += static_cast<std::uint32_t>(1 + context.prng.below(3));
    context.peer->send(*link, join);
    const std::optional<wire::Message> answer = context.peer->next(*link, kInstallLimit / 10);
    if (answer) context.counts.arrives();
    context.peer->close(*link);
  }
}

// Under one name it is told the anchor; under the next it holds that, and then says that it holds another.
void attack_anchors(Context& context) {
  Member member(context);
  std::optional<wire::InstallAnchor> known;
  while (!context.done()) {
    wire::Join join = proper_join(context.swarm, context.draw_name(), "", true, context.prng);
    join.expected_sites = 1 + static_cast<std::uint32_t>(context.prng.below(wire::kMaxSites));
    if (known) join.offer = {known->run, known->round, known->digest};
    if (!member.join(join)) {
      wait_ms(20);
      continue;
    }
    known = context.peer->wait_for<wire::InstallAnchor>(member.link(), kInstallLimit);
    if (!known || known->sources != std::vector{member.site()}) continue;
    context.counts.arrives();
    const RunId run(context.prng.chance(0.5) ? context.prng.next() >> 1U : known->run.value);
    const RoundId round(known->round.value + context.prng.below(1'000'000));
    const Digest digest{context.prng.next(), context.prng.next()};
    context.peer->send(member.link(), wire::AnchorInstalled{run, round, digest, join.report.record.acceptor});
    for (int beats = 0; beats < 10 && member.beat() && !context.done(); ++beats) wait_ms(20);
  }
}

void attack_join_and_stall(Context& context) {
  learn_model(*context.peer, context.swarm, context.prng);
  if (context.swarm.model.empty()) context.counts.answered("the model was not learnt: helpers alone");
  Member member(context);
  for (std::uint64_t number = 0; !context.done(); ++number) {
    const bool helper = context.swarm.model.empty() || number % 2 == 1;
    // Now under one name, now under another: both are to be held.
    if (!member.join(context.prng.chance(0.5) ? "mallory" : context.draw_name(), helper)) {
      wait_ms(20);
      continue;
    }
    context.counts.arrives();
    while (member.beat() && !context.done()) wait_ms(20);
  }
}

void attack_churn(Context& context) {
  learn_model(*context.peer, context.swarm, context.prng);
  Member member(context);
  while (!context.done()) {
    const bool helper = context.swarm.model.empty() || context.prng.chance(0.5);
    member.join(context.draw_name(), helper) ? context.counts.arrives() : wait_ms(1);
    if (context.prng.chance(0.5)) {
      member.leave();  // in good order; otherwise the next join finds this one gone
    } else {
      context.peer->close(member.link());
    }
  }
}

void attack_impersonate(Context& context) {
  while (!context.done()) {
    for (const wire::Member& victim : context.swarm.members) {
      if (context.done()) return;
      const std::optional<LinkId> link = context.peer->dial(context.target);
      if (!link) continue;
      // From its address: to a coordinator that is the same process, back before its old link was seen to die.
      wire::Join join = proper_join(context.swarm, victim.name, victim.address, context.prng.chance(0.5), context.prng);
      context.peer->send(*link, join);
      for (const wire::Member& to : context.swarm.members) {
        if (to.address.empty() || to.site == victim.site) continue;
        const std::optional<LinkId> site = context.peer->dial(to.address);
        if (!site) continue;
        context.peer->send(*site,
                           wire::Hello{context.swarm.name, TermId(context.swarm.term), victim.site, victim.name});
        if (context.peer->wait_for<wire::Hello>(*site, std::chrono::milliseconds(50))) {
          context.counts.answered("the site takes us for another");
          context.peer->send(*site, wire::Heartbeat{0, true});
        }
        context.peer->close(*site);
      }
      // While the one it takes the name of is heard it is refused: then the join has come there.
      const std::optional<wire::Message> answer = context.peer->next(*link, kAnswerLimit);
      if (answer) context.counts.arrives();
      if (answer && std::holds_alternative<wire::Welcome>(*answer)) {
        context.counts.answered("the coordinator takes us for another");
      }
      context.peer->close(*link);
    }
    if (context.swarm.members.empty()) return;
  }
}

void attack_terms(Context& context) {
  Member member(context);
  const TimePoint until = context.now() + kInstallLimit;
  if (member.join(context.draw_name(), true)) {
    while (member.voters().empty() && member.beat() && context.now() < until) member.hear(kAnswerLimit / 10);
  }
  const std::vector<wire::Voter> voters = member.voters();
  member.leave();
  if (voters.empty()) context.counts.answered("no voters were learnt");
  for (std::uint64_t number = 0; !context.done(); ++number) {
    join_with_a_memory(context, voters, context.draw_name());
    if (number % 8 == 0) command_sites(context);
  }
}

}  // namespace collab::hostile
