// What a coordinator knows of its swarm. `collab status` and the page for a browser show this.
//
// Threads and ownership: plain values. Names and texts come from members: code that shows them must escape them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collab/types.h"

namespace collab {

// A site's latest measurements; 0: not known.
struct MemberTimes {
  // A round's time runs from its trigger until its mean is in the parameters. It includes the wait for slower sites.
  double step_seconds = 0, round_seconds = 0;
  // Shares of the time between the last two triggers. `waited`: the script stood still for a round. `overlapped`: a
  // round ran behind the training. `merged`: its result was put into the parameters, a part of `waited`.
  double waited = 0, overlapped = 0, merged = 0;
};

struct MemberStatus {
  SiteId site;
  std::string name;
  std::string address;  // empty: it cannot be dialled
  std::string state;    // joined, installing, active, stale or suspect
  bool helper = false;
  bool ready = false;  // it waits at its trigger for the next round
  RoundId round;       // of the anchor it holds
  double weight = 0;   // of the delta that it is ready to contribute
  std::uint64_t samples = 0;
  double up_mbit = 0, down_mbit = 0;  // as measured; 0: not known
  double share = 0;                   // the share of the vector that it reduces
  std::optional<double> loss;         // logged by its script before the last round it was ready for
  MemberTimes times;
  std::uint64_t heartbeat_age_ms = 0;
};

// What sites of one name have contributed.
struct Contributed {
  std::string name;
  std::uint64_t samples = 0;
  std::uint64_t rounds = 0;
  bool operator==(const Contributed&) const = default;
};

struct SwarmStatus {
  std::string swarm;
  TermId term;
  std::uint32_t generation = 1;
  RunId run;
  RoundId round;                         // being agreed on
  std::uint32_t period = 0;              // steps per round, if the leader chooses
  AttemptId attempt{};                   // in progress; 0: none
  std::optional<double> spread, cosine;  // of the last round's deltas; see the event `round`
  std::string waiting_for;               // in words; empty while all sites train
  bool leads = false;
  std::vector<std::string> voters, recovering, missing, applicants;
  std::vector<MemberStatus> members;
  std::vector<Contributed> contributed;  // since this coordinator started; the largest first
};

[[nodiscard]] std::string to_json(const std::vector<Contributed>& contributed);
[[nodiscard]] std::string to_json(const SwarmStatus& status);

// One recent event of a coordinator.
struct RecentEvent {
  double at = 0;      // Unix seconds
  std::string event;  // as in COLLAB_EVENTS_FILE
  std::string text;
};

struct CoordinatorReport {
  SwarmStatus status;
  std::vector<RecentEvent> rounds, events;  // the last ones, the newest last
};

}  // namespace collab
