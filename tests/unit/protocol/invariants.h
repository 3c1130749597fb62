// What must hold whatever happens, as code: fed with every step of the machines in tests and in simulation, it says
// what was broken. The shortest true description of the protocol; "Invariants" in docs/protocol/states.md lists them.
//
// Threads: one caller at a time. Ownership: its own record of what it saw.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/protocol/actions.h"

namespace collab::protocol {

class Invariants {
 public:
  // After every Coordinator::step; `coordinator` names one process.
  void coordinator_step(const std::string& coordinator, const CoordinatorEvent& event,
                        const std::vector<CoordinatorAction>& actions);
  // After every Site::step; `site` names one process, a restarted one gets another name.
  void site_step(const std::string& site, const SiteEvent& event, const std::vector<SiteAction>& actions);
  // The process is gone; what it had sent stays on record.
  void coordinator_lost(const std::string& coordinator) { coordinators_.erase(coordinator); }
  void site_lost(const std::string& site) { sites_[site].over = true; }
  [[nodiscard]] bool is_committed(RunId run, RoundId round) const { return commits_.count({run, round}) != 0; }
  // The coordinators' own COLLAB_INIT_FROM.
  void names_first(const std::string& site) { init_from_ = site; }
  // A fault was planted in this process's result: its digest of that round is not held against it.
  void excuse(const std::string& site, RoundId round) { excused_.insert({site, round}); }
  // What a site of that name says it holds may not be so: what it is told of that is not looked at.
  void distrust(const std::string& site) { distrusted_.insert(site); }

  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }

 private:
  using Round = std::tuple<RunId, RoundId>;
  using Memory = std::pair<std::string, AcceptorId>;  // of a site
  using Attempt = std::tuple<RunId, RoundId, AttemptId>;
  // A site that has joined, with what it brought.
  struct Applicant {
    std::string name;
    bool helper = false;
    std::uint32_t generation = 1;
    bool resumed = false;
    std::string init_from;
    Digest digest;
    bool holds = false;                // an anchor
    bool knows = false;                // of a membership
    bool left = false;                 // the run of the anchor that it holds, for one of which it holds none
    wire::Offer held{};                // which one, as it said last
    std::vector<wire::Past> recent{};  // commits that its last promise told of
    TermId promised{};                 // in that one
    AcceptorId acceptor{};             // likewise
    AcceptorId memory{};               // as it said last
    std::optional<SiteId> site{};      // a member
  };
  // A site that had promised the leader's term.
  struct Elector {
    AcceptorId acceptor;
    bool early = false;  // was there when the term was begun
  };
  struct CoordinatorRecord {
    std::map<LinkId, Applicant> applicants;
    std::set<RunId> begun;  // at round 0
    std::map<LinkId, SiteId> welcomed;
    std::optional<Round> anchor;
    TermId term;
    std::set<Attempt> started;
    std::set<Round> committed;
    TermId accepting;                                        // by those whose promise it has
    std::set<std::string> accepted;                          // names, under that term
    std::map<TermId, std::vector<wire::Proposal>> proposed;  // as in Accept
    std::set<Round> led;                                     // committed under its present term
    std::map<TermId, std::set<LinkId>> asked;                // to promise, at first
    std::map<std::string, Elector> electors;                 // when the first was let in under its present term
  };
  struct SiteRecord {
    std::string name{};  // of the site
    TermId term;
    SiteId id;
    bool joined = false;
    bool over = false;
    std::optional<std::pair<RunId, RoundId>> anchor;
    std::optional<wire::Commit> applying;
    std::set<Attempt> started;
    std::map<Round, AttemptId> last_started;
    std::set<Attempt> done;
    std::map<std::uint64_t, wire::Record> asked;  // to be durable, by number
    std::uint64_t written = 0;                    // of those, the newest that is, or could not be
    std::optional<wire::Record> durable;          // by this process
    std::optional<wire::Accept> to_accept;        // as it was asked last
    bool let_in = false;                          // since it was asked to promise
    std::set<AcceptorId> lost{};                  // of what this process could not write
    std::map<AcceptorId, RunId> runs{};           // the one each of its memories is of
  };

  void check(bool holds, const std::string& what) {
    if (!holds) broken_.push_back(what);
  }
  void on_sent(const std::string& coordinator, CoordinatorRecord& record, LinkId link, const wire::Message& message);
  void on_received(CoordinatorRecord& record, const Received& received);
  void on_first_install(CoordinatorRecord& record, const wire::InstallAnchor& install);
  void on_renamed(const CoordinatorRecord& record, const wire::InstallAnchor& install);
  void on_install_anchor(CoordinatorRecord& record, const wire::InstallAnchor& install);
  void on_start_attempt(CoordinatorRecord& record, const wire::StartAttempt& start);
  void on_commit(CoordinatorRecord& record, const wire::Commit& commit);
  void on_membership(const Round& round, const std::vector<wire::Voter>& voters);
  void check_quorum(const CoordinatorRecord& record, const wire::StartAttempt& start, const wire::Commit& commit);
  void check_election_result(const std::string& coordinator, const CoordinatorRecord& record,
                             const wire::InstallAnchor& install);
  void check_leave(const CoordinatorRecord& record, const Received& received,
                   const std::vector<CoordinatorAction>& actions);
  void check_voters(const wire::StartAttempt& start);
  void check_unknown(const CoordinatorRecord& record, LinkId link, const wire::InstallAnchor& install);
  void leads(const std::string& coordinator, RunId run, TermId term);
  void on_apply(const std::string& site, SiteRecord& record, const ApplyCommit& apply);
  void on_applied(const std::string& site, SiteRecord& record, const Applied& applied);
  void on_site_action(const std::string& site, SiteRecord& record, const SiteAction& action);
  void on_site_sent(const std::string& site, SiteRecord& record, const wire::Message& message);
  void on_persisted(const std::string& site, SiteRecord& record, const Persisted& persisted);
  void check_promise(const std::string& site, const SiteRecord& record, const wire::Promise& promise);
  void check_memory(const std::string& site, SiteRecord& record, const wire::Record& kept);
  void check_member_left(const std::string& site, const wire::MemberLeft& left, const std::vector<SiteAction>& actions);
  void check_membership(const std::string& site, const SiteRecord& record, const KnownMembership& kept);
  void says_as(const std::string& site, const SiteRecord& record, AcceptorId acceptor);

  std::string init_from_;
  std::map<std::string, CoordinatorRecord> coordinators_;
  std::map<Attempt, wire::StartAttempt> starts_;
  std::map<Round, AttemptId> last_attempt_;
  std::map<Round, wire::Commit> commits_;
  std::map<Round, std::map<std::string, AcceptorId>> memberships_;  // as of that round's commit
  std::set<std::pair<std::string, AcceptorId>> left_;               // sites and their acceptors
  std::map<std::pair<RunId, TermId>, std::string> leaders_;
  std::map<Attempt, std::map<SiteId, std::vector<Digest>>> done_;  // as a coordinator heard
  std::map<Attempt, std::set<SiteId>> done_sent_;                  // as the sites said
  std::map<std::string, SiteRecord> sites_;
  std::map<Memory, TermId> promised_;  // last, as said
  std::set<Memory> heard_;             // something was said under its name
  std::map<Memory, RunId> runs_;       // the one each is a memory of, durably
  std::map<Round, std::pair<Digest, std::string>> states_;
  std::set<std::pair<std::string, RoundId>> excused_;
  std::set<std::string> distrusted_;
  std::vector<std::string> broken_;
};

}  // namespace collab::protocol
