// What must hold whatever happens, as code: fed with every step of the machines in tests and in simulation, it says
// what was broken. The shortest true description of the protocol; plugin/PROTOCOL.md ("Invariants") lists the same.
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
  // After every Coordinator::step.
  void coordinator_step(const CoordinatorEvent& event, const std::vector<CoordinatorAction>& actions);
  // After every Site::step; `site` names one process, a restarted one gets another name.
  void site_step(const std::string& site, const SiteEvent& event, const std::vector<SiteAction>& actions);
  // The coordinator is gone; what it had sent stays on record.
  void coordinator_lost();
  // A fault was planted in this process's result: its digest of that round is not held against it.
  void excuse(const std::string& site, RoundId round) { excused_.insert({site, round}); }

  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }

 private:
  using Round = std::tuple<TermId, RoundId>;
  using Attempt = std::tuple<TermId, RoundId, AttemptId>;
  struct SiteRecord {
    TermId term;
    SiteId id;
    bool joined = false;
    bool over = false;
    std::optional<std::pair<RunId, RoundId>> anchor;
    std::optional<wire::Commit> applying;
    std::set<Attempt> started;
    std::map<Round, AttemptId> last_started;
    std::set<Attempt> done;
  };

  void check(bool holds, const std::string& what) {
    if (!holds) broken_.push_back(what);
  }
  void on_adopt(const wire::Adopt& adopt);
  void on_form(const wire::Form& form);
  void on_commit(const wire::Commit& commit);
  void on_apply(const std::string& site, SiteRecord& record, const ApplyCommit& apply);
  void on_applied(const std::string& site, SiteRecord& record, const Applied& applied);
  void on_site_action(const std::string& site, SiteRecord& record, const SiteAction& action);

  std::map<LinkId, SiteId> welcomed_;
  std::optional<std::pair<RunId, RoundId>> anchor_;  // the coordinator's
  std::map<Attempt, wire::Form> forms_;
  std::map<Round, AttemptId> last_attempt_;
  std::map<Round, wire::Commit> commits_;
  std::map<Attempt, std::map<SiteId, std::vector<Digest>>> done_;  // as the coordinator heard
  std::map<Attempt, std::set<SiteId>> done_sent_;                  // as the sites said
  std::map<std::string, SiteRecord> sites_;
  std::map<std::tuple<TermId, RunId, RoundId>, std::pair<Digest, std::string>> states_;
  std::set<std::pair<std::string, RoundId>> excused_;
  std::vector<std::string> broken_;
};

}  // namespace collab::protocol
