// What the coordinator knows, shared by its sub-protocols: coordinator.cpp (dispatch) and coordinator_generation,
// _lead, _join, _anchor, _refusal, _reachability, _members, _round, _commit and _partition.cpp. Nobody else includes
// this.
//
// Threads: one caller at a time. Ownership: plain values.
//
//   candidate --elected (election.h)--> leads --a newer term, an older swarm, no majority, nobody here--> candidate
//
//   a member                                          the swarm
//
//        Join                              (no anchor) --enough sites joined: the best offer--> anchor (run, round)
//          v                                                                                     |        ^
//       joined --InstallAnchor--> installing       all ready, or a majority and the grace is over |        |
//        ^                           |    ^                                                      v        |
//        | Ready     AnchorInstalled |    | state differs: repair                        attempt 1, 2, .. -+
//        |                           v    |                            lost, declined, unreachable: | ^ all done and
//       stale <----left out------- active                              the next attempt             +-+ alike: commit
//
//   From every state a member goes by Leave, by a closed link, by silence longer than the grace, by a broken rule.
//   An attempt needs an accept quorum of the voters (quorum.h); where all are ready and they are fewer, all get a
//   RoundSkipped. A site that stands in a call of its world, and the call waits for one that is ready, cannot come: it
//   counts as if its grace were over.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/allocation/bandwidth_partition.h"
#include "core/protocol/attempt.h"
#include "core/protocol/coordinator/committed_rounds.h"
#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/coordinator/duplicate_data.h"
#include "core/protocol/coordinator/election.h"
#include "core/protocol/coordinator/exchange_watch.h"
#include "core/protocol/coordinator/generations.h"
#include "core/protocol/coordinator/reachability.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {

// Missed heartbeats after which a member is suspected, and after which its name may be taken over.
inline constexpr int kSuspectAfter = 5;
inline constexpr int kReplaceAfter = 3;
// Heartbeats for which those who are ready and those in a call wait for each other before they are parted: what waits
// in a call may be a thread beside the training, which comes to its round all the same. In a barrier of the world the
// trainings themselves stand, and cannot come: there is nothing to wait for.
inline constexpr int kCircleHeartbeats = 5;
inline constexpr std::size_t kMaxClaims = 64;
inline constexpr unsigned kMostVainWaits = 16;
// Heartbeats for which a round that is due waits for helpers that are not ready.
inline constexpr int kHelperHeartbeats = 3;
// Up to here everybody hears of every change at once; beyond, changes are gathered: a roster for all grows with the
// square.
inline constexpr std::size_t kSmallSwarm = 32;
// Sources an anchor is taken from at once.
inline constexpr std::size_t kSources = 8;
// How often one kind of trouble with one member or pair is answered with another attempt, within one round.
inline constexpr std::uint32_t kMaxRepeats = 3;
enum class MemberPhase : std::uint8_t {
  kJoined,      // waits until the swarm has an anchor whose digest is known
  kInstalling,  // was told the anchor; has not said yet that it is in place
  kActive,      // holds the anchor; rounds wait for it
  kStale,       // a round was committed without it, and it trains on; it takes the anchor at its next trigger
};

struct MemberRecord {
  SiteId id;
  std::string name;
  std::string address;
  bool unverified = false;  // the coordinator did not get through to that address; others may
  LinkId link;
  bool helper = false;  // it trains nothing: rounds begin with the others, and need it as soon as they do
  MemberPhase phase = MemberPhase::kJoined;
  wire::Offer offer;    // as it joined
  wire::Report report;  // as it joined
  std::uint32_t expected_sites = 1;
  bool resumed = false;                  // as it joined
  std::string init_from;                 // likewise
  bool passed_over = false;              // that what it had loaded is not used was told
  std::vector<SiteId> sources;           // kInstalling: where it was told to take the anchor from
  TimePoint installing_since = kNever;   // kInstalling
  std::uint64_t progress = 0;            // of what it fetches, as last told
  TimePoint progressed_at{};             // it was less before
  std::uint64_t process = 0;             // as it joined
  std::uint64_t ticket = 0;              // of its admission
  TimePoint unreachable_since = kNever;  // kJoined: who holds the anchor cannot be dialled, and it cannot either
  AcceptorId acceptor;                   // in the run it is of
  RunId run;                             // that one; 0: none yet
  bool early = false;                    // it was here before the term was begun
  bool greeted = false;                  // its 'join' was told
  bool recommitted = false;              // it was sent a commit that it had missed
  TimePoint last_heard{};
  bool suspect = false;
  std::optional<wire::AnchorInstalled> holds;  // what it last said is in place there
  std::optional<wire::Offer> renamed_from;     // as it said, where it is to hold that under the swarm's name
  std::optional<wire::Ready> ready;            // for the round to come
  AttemptId since{};                           // as in wire::Participant; 0: from its next attempt on
  std::optional<std::vector<Digest>> done;     // of the attempt in flight
  std::uint32_t up_kbit = 0;                   // as it measured last; 0: not known
  std::uint32_t down_kbit = 0;

  // So far as the coordinator knows; while it tries the address, too.
  [[nodiscard]] bool dialable() const { return !address.empty() && !unverified; }
};

struct AnchorRecord {
  RunId run;
  RoundId round;
  std::optional<Digest> digest;  // unknown between a commit and the first site that has applied it
};

// What the first joiner brought, and all others must have too. A helper knows no model.
struct Reference {
  std::string site;
  std::uint64_t elements = 0;
  std::vector<wire::Setting> settings;
  std::vector<wire::ModelEntry> model;
  Digest fingerprint{};
  bool values_told = false;  // that those of buffers left out differ somewhere
};

// A participant that was lost, and may have contributed all the same.
struct Gone {
  std::string name;
  double weight = 0;
  AttemptId since;
};

// The round being agreed on; cleared at its commit.
struct RoundRecord {
  WaitProgress waiting;  // from the first ready, or from the start of the last attempt
  TimePoint limit = kNever;
  std::uint32_t attempts = 0;                 // formed so far
  std::optional<wire::StartAttempt> attempt;  // in flight
  std::size_t here = 0;                       // of its participants
  std::size_t done = 0;                       // of those
  TimePoint started{};
  TimePoint majority_since = kNever;  // most of those who are waited for are ready
  TimePoint joiners_since = kNever;   // nothing is missing but joiners that take the anchor
  TimePoint joiners_until = kNever;   // then it goes on without them
  TimePoint helpers_until = kNever;   // likewise: all sites are ready, a helper is not
  TimePoint circle_since = kNever;    // all others are in calls that wait for those who are ready
  TimePoint circle_until = kNever;    // then they are parted
  bool stalled = false;               // an attempt ran into the limit and nobody had finished
  std::vector<wire::Slice> slices;    // of the last attempt
  // Lost since they took part in it, owning nothing: what they sent to the owners may be there whole.
  std::map<SiteId, Gone> gone;
  std::set<SiteId> declined;   // said their delta is unfit
  std::set<SiteId> set_aside;  // did not finish in time: the round goes on without them
  std::string cut_because;     // of the last pair that cannot exchange, or empty
  std::map<SiteId, std::uint32_t> state_repairs;
  std::map<SiteId, std::uint32_t> mean_repairs;
};

using Voters = std::map<SiteId, wire::Voter>;  // a member of one of their names has that number
[[nodiscard]] std::vector<wire::Voter> list_of(const Voters& voters);

[[nodiscard]] wire::Offer offer_of(const AnchorRecord& anchor);
[[nodiscard]] std::string anchor_text(RunId run, RoundId round);

// Why two sites cannot be in one swarm: the first difference with both sides' values; empty when alike.
[[nodiscard]] std::string first_difference(const wire::Join& join, const Reference& reference);

// The digest most have said, with the lowest site's word among equals; never called with nobody.
[[nodiscard]] Digest majority(const std::map<SiteId, Digest>& said);

struct Coordinator::State {
  explicit State(CoordinatorConfig c)
      : config(std::move(c)), term(TermId{config.term.value - 1}), election(election_config()) {}

  [[nodiscard]] Election::Config election_config() const {
    return {TermId{term.value + 1}, config.link_grace, config.forget_after};
  }

  CoordinatorConfig config;
  TermId term;        // it leads under, or led last
  Election election;  // while it does not lead
  bool leads = false;
  Voters voters;                      // the membership as of the anchor
  std::set<LinkId> early;             // of those who came before the term was begun
  TimePoint minority_since = kNever;  // those who are here are too few to accept anything
  CommittedRounds history;
  Voters next_voters;  // of the attempt in flight
  std::map<SiteId, MemberRecord> members;
  std::map<LinkId, SiteId> links;  // of the members
  Generations generations;
  std::map<LinkId, wire::Join> claims;   // joins under a name whose old link may be dead
  std::optional<Reference> reference;    // set by the first joiner, cleared when the last member goes
  std::optional<AnchorRecord> anchor;    // set when enough sites joined, cleared when nobody holds it any more
  std::string forks;                     // why the anchor that is chosen next begins another run; empty: it does not
  bool founded = false;                  // nobody who came knew of a membership
  bool gathered = false;                 // enough sites were here once
  bool ended = false;                    // its last site has left in good order, and none came since
  WaitProgress gathering;                // until then
  std::string refused_who, refused_why;  // the last one; those who wait are told
  std::uint64_t births = 0;              // fresh runs begun here
  std::uint64_t tickets = 0;             // members admitted
  unsigned vain_waits = 0;               // for joiners that did not come, less those who came since
  // The anchor that was agreed on, and nobody here holds: somebody may bring it within the grace.
  std::optional<std::pair<RunId, RoundId>> wanted;
  std::uint64_t next_source = 0;  // round robin over the sources, where there are many
  Reachability reachability;
  bool unreachable_told = false;  // that none of those who are here can be dialled
  RoundRecord round;
  ExchangeWatch watch;                           // of the attempt in flight
  std::pair<RoundId, std::string> last_skipped;  // told once: it is the same at every trigger
  BandwidthPartition partition;
  DuplicateData duplicate_data;
  std::map<std::string, InCall> calls;  // by site's name, as last told
  // Attempts of a round are never numbered alike, by two terms or after a lost round is agreed on anew: chunks sent for
  // the one must not be taken for the other's.
  std::uint32_t attempt_base = 0;
  std::uint32_t highest_attempt = 0;
  TimePoint next_heartbeat = kNever;
  std::uint64_t heartbeat_sequence = 0;
  std::uint64_t changes = 0;  // of who is a member
  bool roster_due = false;
  bool idle = false;     // in step(): nothing has become possible
  bool changed = false;  // in advance(): somebody was removed, look again
  // Of the step under way.
  TimePoint now{};
  std::vector<CoordinatorAction> out;

  // coordinator.cpp
  void on_event(const Received& event);
  void on_event(const Closed& event);
  void on_event(const Tick& event);
  void on_event(const CallsUnderWay& event);
  void advance();  // whatever has become possible
  void send(const MemberRecord& to, wire::Message message) { out.emplace_back(Send{to.link, std::move(message)}); }
  void note(Note::Level level, std::string event, std::string text,
            std::vector<std::pair<std::string, std::string>> fields = {}) {
    out.emplace_back(make_note(level, std::move(event), std::move(text), std::move(fields)));
  }
  [[nodiscard]] TimePoint next_deadline() const;

  // coordinator_generation.cpp
  // Sites that are members, or ask to be; helpers train nothing.
  [[nodiscard]] std::size_t trainers_here() const;
  [[nodiscard]] bool trains_here() const { return trainers_here() > 0; }
  [[nodiscard]] std::string trainers_text() const;
  [[nodiscard]] bool fits_generation(const wire::Join& join) const;
  void settle_generations();  // who waits may be let in, or is behind
  void begin_generation(std::uint32_t generation);
  void tell_stale(LinkId link, const std::string& who);
  void tell_who_waits();
  void on_generation_tick();

  // coordinator_lead.cpp
  void seek();
  void on_election_tick();
  void on_forget(LinkId link, const wire::Forget& forget);
  [[nodiscard]] std::string no_use_text(const wire::Forget& forget, const std::vector<std::string>& missed) const;
  [[nodiscard]] std::vector<std::string> missed() const;  // of the membership, by those who are here
  [[nodiscard]] std::vector<std::string> missed_by(const std::set<SiteId>& present) const;
  void take_lead(Mandate mandate);
  void inherit(const Mandate& mandate);  // anchor, membership and history
  [[nodiscard]] bool is_acceptor_of(AcceptorId acceptor, const std::string& site) const;
  [[nodiscard]] bool is_older(const wire::Join& join) const;  // its swarm, than the one that was founded here
  void step_down(const std::string& reason);
  void stop_leading();
  [[nodiscard]] Presence presence_of(const wire::Voter& voter, const MemberRecord& member) const;
  [[nodiscard]] Quorum quorum_among(const std::set<SiteId>& present) const;
  void judge_quorum();  // steps down where no round can come about
  [[nodiscard]] RunId next_run() { return RunId{config.fresh_run.value + births++}; }
  [[nodiscard]] std::string quorum_text(const std::set<SiteId>& present) const;
  [[nodiscard]] std::set<SiteId> all_members() const;
  [[nodiscard]] wire::Counted counted(const MemberRecord& member) const;

  // coordinator_join.cpp
  void on_join(LinkId link, const wire::Join& join);
  void apply(LinkId link, const wire::Join& join);  // a site comes while we do not lead
  void admit(LinkId link, const wire::Join& join);
  bool repeat_commit(MemberRecord& member);
  [[nodiscard]] std::string refusal(const wire::Join& join) const;  // coordinator_refusal.cpp
  void compare_left_out(const wire::Join& join, const MemberRecord& joiner);
  void send_keys(const MemberRecord& joiner);
  [[nodiscard]] std::optional<TimePoint> namesake_heard(const wire::Join& join) const;
  [[nodiscard]] TimePoint free_at(const wire::Join& join) const;  // its name is
  [[nodiscard]] const MemberRecord* member_named(const std::string& name) const;
  void settle_claims();
  void claim(LinkId link, const wire::Join& join);
  void refuse_claims_of(const std::string& name, const std::string& address);
  [[nodiscard]] SiteId pick_id(const wire::Join& join) const;
  void refuse_link(LinkId link, const std::string& who, const std::string& reason);
  [[nodiscard]] std::uint32_t sites_wanted() const;
  [[nodiscard]] std::size_t sites_here() const;  // members that train
  void believe_holders();
  void offer_anchor();  // InstallAnchor to those who wait for one
  void on_anchor_installed(MemberRecord& member, const wire::AnchorInstalled& installed);
  [[nodiscard]] bool holds_anchor(const MemberRecord& member) const;
  [[nodiscard]] std::vector<SiteId> pick_sources(const MemberRecord& joiner);
  void send_install(MemberRecord& to, std::vector<SiteId> sources);

  // coordinator_anchor.cpp
  [[nodiscard]] wire::Offer brought_by(const MemberRecord& member) const;  // what it holds, or joined with
  [[nodiscard]] bool wanted_missed() const;
  [[nodiscard]] bool wanted_may_come() const;
  [[nodiscard]] bool anybody_resumes() const;
  [[nodiscard]] std::pair<std::string, std::string> init_from() const;  // the site named, and by whom; or nothing
  [[nodiscard]] std::string init_from_difference(const wire::Join& join) const;
  [[nodiscard]] bool init_from_missed() const;  // the swarm waits for that site
  void choose_anchor();
  [[nodiscard]] static AcceptorId acceptor_in(const MemberRecord& member, RunId run);
  void give_up_wanted(const std::string& why);
  void tell_whose(const MemberRecord& best, bool newborn);  // the anchor is, and who is passed over
  void tell_passed_over(MemberRecord& member, const std::string& why, const std::string& or_else);
  void tell_late(MemberRecord& joiner);
  void start_gathering();
  [[nodiscard]] std::string gathered_text() const;
  void give_up_gathering(const std::string& reason);
  void on_gathering_tick();

  // coordinator_reachability.cpp
  void on_event(const Undialable& event);
  [[nodiscard]] bool reaches_any(const MemberRecord& member, const std::vector<SiteId>& sources) const;
  [[nodiscard]] bool waits_until_reachable(MemberRecord& joiner, const std::vector<SiteId>& sources);
  void spare_links();                                 // that the attempt in flight needs and nobody can make
  void tell_unreachable(const std::string& because);  // once, while none of those who are here can be dialled

  // coordinator_members.cpp
  void remove(SiteId id, const std::string& reason);
  void expel(SiteId id, const std::string& reason);  // Refuse, Hangup, remove
  void on_leave(MemberRecord& member, const wire::Leave& leave);
  void strike(const MemberRecord& member);  // from the membership: it agrees that the others go on without it
  void tell_sources(const MemberRecord& to);
  void add_source(const MemberRecord& holder);  // one more has the anchor, while others are fetching it
  void forget_everything();                     // nobody is here
  void send_roster();                           // at once in a small swarm, else with the next heartbeat or attempt
  void flush_roster();
  [[nodiscard]] wire::Roster roster() const;
  void heard(MemberRecord& member);
  void judge_silence();
  void on_heartbeat_tick();
  [[nodiscard]] std::string name_of(SiteId id) const;
  [[nodiscard]] std::vector<std::string> member_list() const;  // names, ascending SiteId
  [[nodiscard]] std::string status_json(TimePoint at) const;
  [[nodiscard]] std::vector<SiteId> waited_for() const;  // by the attempt in flight, or by the one to form
  [[nodiscard]] std::string waiting_for() const;         // the same in words; empty while everybody trains

  // coordinator_round.cpp
  void on_ready(MemberRecord& member, const wire::Ready& ready);
  void on_done(MemberRecord& member, const wire::Done& done);
  void on_decline(MemberRecord& member, const wire::Decline& decline);
  void on_peer_unreachable(MemberRecord& member, const wire::PeerUnreachable& unreachable);
  [[nodiscard]] std::set<SiteId> eligible_sites() const;  // whom the next attempt waits for
  [[nodiscard]] std::set<SiteId> ready_sites() const;     // those of them who are ready
  struct Count {
    std::size_t all = 0;      // that train
    std::size_t settled = 0;  // of those, who have a say or are ready
    std::size_t ready = 0;
    bool helped = true;  // every helper is ready
    Quorum quorum;       // of those who are ready, helpers too
  };
  [[nodiscard]] Count count_eligible() const;
  void try_to_start();
  [[nodiscard]] Reachability::Sites addresses_of(const std::set<SiteId>& sites) const;
  [[nodiscard]] std::set<SiteId> set_aside_the_cut(std::set<SiteId> sites);
  struct Circle {
    std::string words;   // empty: there is none
    bool stands = true;  // the training of each of the others stands in its call
  };
  [[nodiscard]] Circle find_circle() const;
  [[nodiscard]] bool waits_for_joiners();
  [[nodiscard]] TimePoint installing_until(const MemberRecord& member) const;
  [[nodiscard]] bool states_agree(const std::set<SiteId>& sites);
  void start(const std::set<SiteId>& sites);
  void part_with(const MemberRecord& lost);    // who takes part in the attempt that is given up
  void skip_round(const std::string& reason);  // those who are ready train on; the anchor stands
  void begin_round_again();
  void clear_round() {
    round = RoundRecord{};
    reachability.begin_round();
  }
  void start_afresh();
  void abandon_attempt();  // it will not be committed; another may be formed
  void judge_exchange();
  void on_round_tick();
  void on_round_limit();
  [[nodiscard]] bool in_attempt(AttemptId attempt, RoundId number) const;
  [[nodiscard]] RoundId number() const { return RoundId{anchor ? anchor->round.value + 1 : 1}; }

  // coordinator_commit.cpp
  void finish_attempt();  // all are done: compare, then commit or try again
  void commit(AttemptId attempt, const std::vector<SiteId>& contributors);
  void compare(const wire::StartAttempt& start);  // what the contributors learned
  [[nodiscard]] bool somebody_ready() const;

  // coordinator_partition.cpp
  [[nodiscard]] std::vector<Line> lines_of(const std::set<SiteId>& sites) const;
  void partition_slices(wire::StartAttempt& start, const std::set<SiteId>& sites);  // its slices
  void judge_partition(const wire::StartAttempt& committed, Duration took);
  void tell_partition(const std::vector<Share>& shares, double takes);
};

}  // namespace collab::protocol
