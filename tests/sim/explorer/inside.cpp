#include "tests/sim/explorer/inside.h"

#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/site/site_parts.h"

// Each part is found by the name of its type, so these are in the same namespace.
namespace collab::protocol {

using sim::Canon;

static void write(Canon& canon, const WaitProgress& progress) { Inside::write(canon, progress); }

// ---- a coordinator's parts -------------------------------------------------------------------------

static void write(Canon& canon, const Member& member) { Inside::write(canon, member); }

static void write(Canon& canon, const AnchorRecord& anchor) {
  const auto& [run, round, digest] = anchor;
  canon.all(run, round, digest);
}

static void write(Canon& canon, const ModelReference& reference) { Inside::write(canon, reference); }

static void write(Canon& canon, const Round::Gone& gone) {
  const auto& [name, weight, since, samples] = gone;
  canon.all(name, weight, since, samples);
}

static void write(Canon& canon, const InCall& call) {
  const auto& [text, awaits, stands_still] = call;
  canon.all(text, awaits, stands_still);
}

static void write(Canon& canon, const Election& election) { Inside::write(canon, election); }
static void write(Canon& canon, const Generations& generations) { Inside::write(canon, generations); }
static void write(Canon& canon, const DuplicateData& duplicate_data) { Inside::write(canon, duplicate_data); }
static void write(Canon& canon, const CommittedRounds& committed) { Inside::write(canon, committed); }
static void write(Canon& canon, const Reachability& reachability) { Inside::write(canon, reachability); }
static void write(Canon& canon, const ExchangeWatch& watch) { Inside::write(canon, watch); }
static void write(Canon& canon, const BandwidthPartition& partition) { Inside::write(canon, partition); }

// ---- a site's parts --------------------------------------------------------------------------------

static void write(Canon& canon, const Trigger& trigger) {
  const auto& [samples, steps, sampled_delta, measured] = trigger;
  const auto& [up, down, step_us, round_us, waited, overlapped, merged, loss] = measured;
  canon.all(samples, steps, sampled_delta, up, down, step_us, round_us, waited, overlapped, merged, loss);
}

static void write(Canon& canon, const RoundDone& done) {
  const auto& [round, attempts, members, contributors, samples, period] = done;
  canon.all(round, attempts, members, contributors, samples, period);
}

static void write(Canon& canon, const ContributedWork& work) { Inside::write(canon, work); }

// ---- the machines ----------------------------------------------------------------------------------

void Inside::write(Canon& canon, const WaitProgress& progress) {
  const auto& [since, next] = progress;
  canon.all(since, next);
}

void Inside::write(Canon& canon, const DuplicateData& duplicate_data) {
  const auto& [alike] = duplicate_data;
  canon.put(alike);
}

void Inside::write(Canon& canon, const BandwidthPartition& partition) {
  const auto& [run, round, of] = partition;
  canon.all(run, round, of);
}

void Inside::write(Canon& canon, const Reachability& reachability) {
  const auto& [apart, failures] = reachability;
  canon.all(apart, failures);
}

void Inside::write(Canon& canon, const ExchangeWatch& watch) {
  const auto& [began, sites, held_up] = watch;
  canon.all(began);
  for (const auto& [id, site] : sites) {
    const auto& [said, moved_at, moved_before] = site;
    const auto& [moved, means, lacks] = said;
    canon.all(id, moved, means, lacks, moved_at, moved_before);
  }
  canon.put(held_up);
}

void Inside::write(Canon& canon, const CommittedRounds& committed) {
  const auto& [rounds, run, given_up_after] = committed;
  canon.all(rounds.size(), run);
  for (const auto& [number, round] : rounds) {
    const auto& [of, attempt, contributors, mean] = round;
    canon.all(number, of, attempt, contributors, mean);
  }
  canon.put(given_up_after);
}

void Inside::write(Canon& canon, const Generations& generations) {
  const auto& [current, follows, last_seen, waiting, trained, expected, lost] = generations;
  static_cast<void>(trained);  // follows from the sites that wait
  canon.all(current, follows, last_seen, lost);
  for (const auto& [link, each] : waiting) {
    const auto& [join, since, tell, announced] = each;
    canon.all(link, join, since, tell, announced);
  }
  for (const auto& [site, each] : expected) {
    const auto& [generation, until] = each;
    canon.all(site, generation, until);
  }
}

void Inside::write(Canon& canon, const Election& election) {
  const auto& [config, term, begun, begun_at, applicants, early, decision, decided_at, forgotten, waiting, last_gone,
               short_since, short_last, known_last, apart_last, doubt_at, led_before, led_before_until] = election;
  static_cast<void>(config);  // never changes
  canon.all(term, begun, begun_at, early, forgotten, waiting, last_gone, short_since, short_last, known_last,
            apart_last, doubt_at);
  canon.put(led_before.has_value());
  if (led_before) canon.all(led_before->anchor, led_before->voters, led_before_until);
  for (const auto& [link, each] : applicants) {
    const auto& [join, prepared, asked, promised, accepted, owes, set_aside, late, heard] = each;
    canon.all(link, join, prepared, asked, promised, accepted, owes, set_aside, late, heard);
  }
  canon.put(decision.has_value());
  if (!decision) return;
  const auto& [newest, settled, next_voters, given_up] = *decision;
  const auto& [anchor, voters] = newest;
  canon.all(decided_at, anchor, voters, settled, next_voters, given_up);
}

void Inside::write(Canon& canon, const Member& member) {
  const auto& [id, link, name, address, helper, early, ticket, join, contact, anchor, round] = member;
  const auto& [last_heard, suspect, unverified] = contact;
  const auto& [phase, sources, installing_since, progress, progressed_at, overtaken, unreachable_since, acceptor, run,
               foretold, greeted, not_used, recommitted, holds, renamed_from] = anchor;
  const auto& [ready, since, done, measured] = round;
  static_cast<void>(std::tie(progress, ticket));  // keys decide nothing here
  canon.all(id, link, name, address, helper, early, join.offer, join.report, join.expected_sites, join.resumed,
            join.init_from, last_heard, suspect, unverified, phase, sources, installing_since, progressed_at, overtaken,
            unreachable_since, acceptor, run, foretold, greeted, not_used, recommitted, holds, renamed_from, ready,
            since, done, measured.up_kbit, measured.down_kbit);
}

void Inside::write(Canon& canon, const ModelReference& reference) {
  const auto& [site, elements, settings, model, fingerprint, values_told] = reference;
  canon.all(site, elements, settings, model, fingerprint, values_told);
}

void Inside::write(Canon& canon, const AgreedMembership& agreed) {
  const auto& [voters, next_voters, history] = agreed;
  canon.all(voters, next_voters, history);
}

void Inside::write(Canon& canon, const Leadership& leadership) {
  const auto& [all, term, election, leads, founded, early, minority_since, births, depositions, disproved] = leadership;
  canon.all(term, election, leads, founded, early, minority_since, births, disproved);
  for (const auto& [voter, allowed] : depositions) canon.all(voter, allowed.left(all->now));
}

void Inside::write(Canon& canon, const GenerationGate& gate) {
  const auto& [all, generations, ended] = gate;
  static_cast<void>(all);
  canon.all(generations, ended);
}

void Inside::write(Canon& canon, const Admission& admission) {
  const auto& [all, claims, reference, refused_who, refused_why] = admission;
  static_cast<void>(all);
  canon.all(claims, reference, refused_who, refused_why);
}

void Inside::write(Canon& canon, const Membership& membership) {
  const auto& [all, members, links, tickets, changes, roster_due, rosters, unreachable_told, next_heartbeat, sequence] =
      membership;
  static_cast<void>(std::tie(all, tickets, changes, rosters, sequence));  // decide nothing later
  canon.all(members, links, roster_due, unreachable_told, next_heartbeat);
}

void Inside::write(Canon& canon, const AnchorChoice& choice) {
  const auto& [all, anchor, wanted, begins_from, gathered, gathering] = choice;
  static_cast<void>(all);
  canon.all(anchor, wanted, begins_from, gathered, gathering);
}

void Inside::write(Canon& canon, const AnchorInstaller& installer) {
  const auto& [all, ask_again_from, next_source] = installer;
  static_cast<void>(all);
  canon.all(ask_again_from, next_source);
}

void Inside::write(Canon& canon, const RoundGate& gate) {
  const auto& [all, stragglers, calls, vain_waits, guests_missing, guests_since, ready_then, guests_rest,
               majority_since, joiners_since, joiners_progressed, joiners_until, helpers_until, circle_since,
               circle_until] = gate;
  for (const auto& [site, late] : stragglers.late_) canon.all(site, late.rests, late.until);
  static_cast<void>(std::tie(all, guests_missing));
  canon.all(calls, vain_waits, guests_since, ready_then, guests_rest, majority_since, joiners_since, joiners_progressed,
            joiners_until, helpers_until, circle_since, circle_until);
}

void Inside::write(Canon& canon, const SliceOwners& slices) {
  const auto& [all, partition] = slices;
  static_cast<void>(all);
  canon.put(partition);
}

// Here the period is set and not chosen: nothing is kept.
void Inside::write(Canon& canon, const Period& period) {
  const auto& [all, choice, ready_at, waits, waited] = period;
  static_cast<void>(all);
  canon.all(choice.in_force(), ready_at.size(), waits.size(), waited.size());
}

void Inside::write(Canon& canon, const Round& machine) {
  const auto& [all, round, watch, reachability, last_skipped, attempt_base, highest_attempt] = machine;
  static_cast<void>(all);
  const auto& [waiting, limit, attempts, attempt, here, done, started, limits, slices, gone, declined, cut_because] =
      round;
  canon.all(waiting, limit, attempts, attempt, here, done, started, limits, slices, gone, declined, cut_because, watch,
            reachability, last_skipped, attempt_base, highest_attempt);
}

void Inside::write(Canon& canon, const Exclusions& part) {
  const auto& [all, faults] = part;
  static_cast<void>(all);
  const auto& [set_aside, gave_up, state_repairs, mean_repairs, newcomers_failed, newcomers_cost, newcomers_out,
               first_newcomer, newcomers_from] = faults;
  canon.all(set_aside, gave_up, state_repairs, mean_repairs, newcomers_failed, newcomers_cost, newcomers_out,
            first_newcomer, newcomers_from);
}

void Inside::write(Canon& canon, const Contributions& part) {
  const auto& [all, tally, duplicate_data, deltas] = part;
  static_cast<void>(std::tie(all, tally, deltas));  // nothing is decided by them
  canon.put(duplicate_data);
}

void Inside::write(Canon& canon, const Coordinator& machine) {
  const auto& [config, agreed, leadership, generation, admission, membership, anchor, installer, gate, slices, period,
               round, digests, exclusions, contributions, now, out, idle, changed] = *machine.parts_;
  static_cast<void>(std::tie(config, digests, out, idle, changed));  // decide nothing later
  write(canon, agreed);
  write(canon, leadership);
  write(canon, generation);
  write(canon, admission);
  write(canon, membership);
  write(canon, anchor);
  write(canon, installer);
  write(canon, gate);
  write(canon, slices);
  write(canon, period);
  write(canon, round);
  write(canon, exclusions);
  write(canon, contributions);
  canon.put(now);
}

std::size_t Inside::bytes_of(const Coordinator& machine) {
  Canon canon;
  write(canon, machine);
  return canon.bytes().size();
}

void Inside::write(Canon& canon, const CoordinatorLink& part) {
  const auto& [all, link, candidate, dial_out, dial_at, answer_by, backoff, last_reason, lost_at, last_heard,
               next_heartbeat, sequence, heartbeat, grace] = part;
  static_cast<void>(std::tie(all, sequence));  // of heartbeats
  canon.all(link, candidate, dial_out, dial_at, answer_by, backoff, last_reason, lost_at, last_heard, next_heartbeat,
            heartbeat, grace);
}

void Inside::write(Canon& canon, const SiteMembership& part) {
  const auto& [all, phase, join, self, was_member, join_done, join_sent, give_up, anchor_by, told, hold, held_at,
               was_held, asks_again, leave, leave_by] = part;
  static_cast<void>(all);
  canon.all(phase, join, self, was_member, join_done, join_sent, give_up, anchor_by, told, hold, held_at, was_held,
            asks_again, leave, leave_by);
}

void Inside::write(Canon& canon, const Inquiry& part) {
  const auto& [all, here, stays_until, of, link, last, next, looks] = part;
  static_cast<void>(all);
  canon.all(here, stays_until, of, link, last, next, looks);
}

void Inside::write(Canon& canon, const Acceptor& part) {
  const auto& [id, step, term, agreed, voters, member_left, attempted, holds_mean, settled, recent] = part;
  canon.all(id, step, term, agreed, voters, member_left, attempted, holds_mean, settled, recent);
}

// Counted from the newest that was asked for: how many there were before tells nothing.
void Inside::write(Canon& canon, const RecordWrites& part) {
  const auto& [all, asked, written, since, held] = part;
  static_cast<void>(all);
  canon.all(asked - written, since);
  for (const auto& [number, link, message] : held) canon.all(asked - number, link, message);
}

void Inside::write(Canon& canon, const SiteRoster& part) {
  const auto& [members, keys] = part;
  static_cast<void>(keys);
  canon.put(members);
}

void Inside::write(Canon& canon, const PeerLinks& part) {
  const auto& [all, peers, link_of, dials, next_to_dial, dials_out] = part;
  static_cast<void>(all);
  canon.put(peers.size());
  for (const auto& [link, peer] : peers) {
    const auto& [state, site, name, address, key, dialed, since] = peer;
    static_cast<void>(key);
    canon.all(link, state, site, name, address, dialed, since);
  }
  canon.all(link_of, dials.size());
  for (const auto& [site, dial] : dials) {
    const auto& [out, at, backoff, last_reason] = dial;
    canon.all(site, out, at, backoff, last_reason);
  }
  canon.all(next_to_dial, dials_out);
}

void Inside::write(Canon& canon, const HeldAnchor& part) {
  const auto& [all, anchor, fetches] = part;
  static_cast<void>(all);
  canon.all(anchor, fetches);
}

void Inside::write(Canon& canon, const AnchorInstallation& part) {
  const auto& [all, taking, overwritten] = part;
  static_cast<void>(all);
  canon.all(taking.has_value(), overwritten);
  if (!taking) return;
  const auto& [install, keeps, over, useless, overtaken, tries, here, here_then, unreachable_since, give_up] = *taking;
  canon.all(install, keeps, over, useless, overtaken, tries, here, here_then, unreachable_since, give_up);
}

void Inside::write(Canon& canon, const ContributedWork& work) {
  const auto& [pending, counted, given_up] = work;
  canon.all(pending.has_value(), given_up.samples, given_up.steps, counted.size());
  for (const auto& [fragment, of] : counted) canon.all(fragment, of.samples, of.steps);
  if (!pending) return;
  const auto& [total, fragment, first, snapshot] = *pending;
  canon.all(total.samples, total.steps, fragment, first, snapshot);
}

void Inside::write(Canon& canon, const SiteRound& part) {
  const auto& [all, round, work, owed, owed_base, skipped, period] = part;
  static_cast<void>(all);
  const auto& [phase, trigger, since, ready_sent, exchanged_since, start, attempts, link_by, both_dial, declined,
               of_before, result] = round;
  canon.all(phase, trigger, since, ready_sent, exchanged_since, start, attempts, link_by, both_dial, declined,
            of_before, result, work, owed, owed_base, skipped > 0, period);
}

void Inside::write(Canon& canon, const OptimizerFetch& part) {
  const auto& [all, fetch] = part;
  static_cast<void>(all);
  const auto& [phase, begun, members, from, link, until, give_up, silent, offer, asked, awaited, reasons] = fetch;
  canon.all(phase, begun, members, from, link, until, give_up, silent, offer, asked, awaited, reasons);
}

void Inside::write(Canon& canon, const Site& machine) {
  const auto& [config, coordinator, membership, inquiry, acceptor, writes, roster, peers, held, installation, round,
               optimizer, now, out] = *machine.parts_;
  static_cast<void>(std::tie(config, out));
  write(canon, coordinator);
  write(canon, membership);
  write(canon, inquiry);
  write(canon, acceptor);
  write(canon, writes);
  write(canon, roster);
  write(canon, peers);
  write(canon, held);
  write(canon, installation);
  write(canon, round);
  write(canon, optimizer);
  canon.put(now);
}

std::size_t Inside::bytes_of(const Site& machine) {
  Canon canon;
  write(canon, machine);
  return canon.bytes().size();
}

}  // namespace collab::protocol
