// The election of a leader: which candidate may lead, under which term, and which attempt of its predecessors it must
// finish.
//
// This is the first phase of Paxos for the value of one round. A term is a ballot. The sites are the acceptors. The
// newest agreed value names the membership that counts.
//
//   in         what happens                                                        then
//   waiting    more than half of the newest membership are here, enough of them    preparing: Prepare(term) to all
//              with their records
//   waiting    no site here has known a membership for a grace                     leads: it founds a swarm
//   waiting    records are short for a grace, or the missing sites are forgotten   leads, under a new run name
//   waiting    a voter without its record brings the anchor of a later run         likewise
//   preparing  the sites that promised are enough                                  frozen: Accept(term, ...) to them
//   frozen     the sites that answered are enough                                  leads
//   preparing  a voter comes without its record                                    again, with a higher term: at once
//                                                                                  if needed, else after 3 s
//   frozen     too few are left of those that promised                             waiting, with a higher term
//
// A site may claim that more was agreed on than the others know. Then they wait, because the membership that the claim
// names has to be here. A false claim would hold them up for ever. So the claim is set aside while the others can elect
// without it: once their promises disprove it, or after a grace if they outnumber the sites that claim more.
//
// Frozen: the past is decided once, from one set of promises, and not looked at again. If an older term may have
// committed an attempt, Accept carries it, so that it is accepted under the new term too. Each answer to Accept was
// sent after the last promise had come. So there was a moment at which all sites that answered had promised, and still
// had the memory with which they promised. That is why a site without its record can be counted by name, under terms
// that began after it came. The memory that it lost may have promised something to another candidate, but that promise
// can no longer be part of a set that is enough.
//
// Pure. Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/actions.h"
#include "core/protocol/agreement/election_result.h"
#include "core/protocol/agreement/quorum.h"
#include "core/protocol/formatting.h"

namespace collab::protocol {

class Election {
 public:
  struct Config {
    TermId term{1};  // at least
    Duration link_grace{};
    Duration forget_after = Duration::max();  // after this time a minority goes on without the missing sites
  };
  struct Newest {
    wire::Offer anchor{};
    std::vector<wire::Voter> voters{};  // empty: no site knows of any
  };
  explicit Election(const Config& config) : config_(config), term_(config.term) {}

  // A site asks to be a member. If it has an older link here, returns that link, for the caller to close.
  std::optional<LinkId> add_applicant(TimePoint now, LinkId link, const wire::Join& join);
  bool remove_applicant(TimePoint now, LinkId link);  // whether it was here
  void heard(TimePoint now, LinkId link);
  // When another process under the name of the joiner's site was heard last, if one is here.
  [[nodiscard]] std::optional<TimePoint> namesake_heard(const wire::Join& join) const;
  [[nodiscard]] std::string name_of(LinkId link) const { return applicants_.at(link).join.site; }
  [[nodiscard]] std::vector<LinkId> silent(TimePoint now) const;  // for a grace
  // True if it counts. Otherwise nothing has changed.
  bool on_promise(LinkId link, const wire::Promise& promise);
  bool on_accepted(LinkId link, const wire::Accepted& accepted);
  // This candidate led that membership until a site came that claims to have agreed on more since.
  void stepped_down(const Newest& membership, TimePoint now) {
    led_before_ = membership;
    led_before_until_ = later(now, config_.link_grace);
  }
  // The operator says that these sites will not come. This holds until they do, or until the others have gone on.
  void forget(const std::vector<std::string>& sites) { forgotten_.insert(sites.begin(), sites.end()); }
  [[nodiscard]] bool is_forgotten(const std::string& site) const { return forgotten_.count(site) != 0; }

  // Takes every step that is possible now: sends messages, and returns the result once there is one. Then it is empty.
  [[nodiscard]] std::optional<ElectionResult> advance(TimePoint now, std::vector<CoordinatorAction>& out);

  [[nodiscard]] bool empty() const { return applicants_.empty(); }
  [[nodiscard]] std::size_t size() const { return applicants_.size(); }
  [[nodiscard]] bool has(LinkId link) const { return applicants_.count(link) != 0; }
  [[nodiscard]] std::size_t trainers() const;  // how many are not helpers
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<LinkId> links() const;
  // The missing sites of the newest membership that the sites here know. Sites that left in good order are not missing.
  [[nodiscard]] std::vector<std::string> missing() const;
  // The newest agreement that the sites here know.
  [[nodiscard]] Newest newest() const;
  [[nodiscard]] TermId term() const { return term_; }
  // Removes all sites, and returns them by link.
  [[nodiscard]] std::map<LinkId, wire::Join> dismiss();

  // Tells the user what is missing, and what to do about it. Empty if no site is here.
  [[nodiscard]] std::string waiting_text(TimePoint at) const;
  // The same text, when a log line is due. It is also sent to each waiting site.
  [[nodiscard]] std::optional<std::string> waiting(TimePoint now);
  [[nodiscard]] TimePoint next_deadline(TimePoint now) const;

 private:
  struct Applicant {
    wire::Join join;
    TermId prepared{};         // the term it was asked to promise
    TimePoint asked = kNever;  // when it was asked
    bool promised = false;
    bool accepted = false;
    bool overdue = false;    // has not promised for a grace: it counts as missing until it does
    bool set_aside = false;  // its claims about the past are ignored
    bool late = false;       // it came without its record after the term was begun
    TimePoint heard{};
  };
  // Taken from the promises, once.
  struct Decision {
    Newest newest;
    std::optional<wire::Proposal> settled;
    std::vector<wire::Voter> next_voters{};  // as of `settled`, without voters that left since
    std::optional<wire::StartAttempt> given_up;
  };
  struct Step {
    std::optional<ElectionResult> elected{};
    bool again = false;  // a claim was set aside: try again
  };
  // How a claim about the last agreement compares with what the sites that promised know.
  enum class Claim : std::uint8_t { kStands, kOpen, kSetAside };

  template <typename Counts>
  [[nodiscard]] Newest newest_of(Counts counts) const;
  template <typename Counts>
  [[nodiscard]] Quorum here(const std::vector<wire::Voter>& membership, Counts counts) const;
  template <typename Counts>
  [[nodiscard]] Decision decide(Counts counts) const;
  template <typename Counts>
  [[nodiscard]] Quorum weakest(const Decision& decision, Counts counts) const;
  [[nodiscard]] TermId least_term() const;
  void begin_where_due(TimePoint now, const Decision& known);
  [[nodiscard]] bool is_late(LinkId link, const wire::Join& join, const std::vector<wire::Voter>& membership) const;
  void begin(TimePoint now, TermId term);
  template <typename Is>
  void set_aside_if(Is is);
  [[nodiscard]] Step try_elect_once(TimePoint now, std::vector<CoordinatorAction>& out);
  [[nodiscard]] bool waits_for_accepted(TimePoint now);
  void ask_for_promises(TimePoint now, std::vector<CoordinatorAction>& out);
  [[nodiscard]] Claim judge_claim(TimePoint now, const wire::Offer& newest, const wire::Offer& promised);
  void begin_accept_phase(TimePoint now, Decision decision, std::vector<CoordinatorAction>& out);
  void count_again();
  [[nodiscard]] bool doubt(TimePoint now);
  [[nodiscard]] bool waits_for_former_members(TimePoint now, const Newest& known) const;
  template <typename Counts>
  [[nodiscard]] bool is_disproved(const wire::Offer& claim, Counts counts) const;
  [[nodiscard]] std::string reason_for_new_run(TimePoint now, const Decision& known, const Quorum& quorum);
  // A voter without its record that brings the anchor of a later run; null: there is none.
  [[nodiscard]] const wire::Join* voter_of_later_run(const Decision& known) const;
  [[nodiscard]] std::vector<std::string> missing(const Decision& known) const;
  [[nodiscard]] bool missing_are_forgotten(TimePoint now, const Decision& known) const;
  [[nodiscard]] ElectionResult lead(const std::string& new_run, const Decision& decision);
  [[nodiscard]] std::string missing_text(const Decision& known) const;
  [[nodiscard]] std::string remedy_text(TimePoint at, const Decision& known) const;

  friend struct Inside;
  Config config_;
  TermId term_;         // the term under way, or the next one
  bool begun_ = false;  // Prepare(term_) was sent
  TimePoint begun_at_{};
  std::map<LinkId, Applicant> applicants_;
  std::set<LinkId> early_;  // here before term_ was begun
  std::optional<Decision> decision_;
  TimePoint decided_at_{};
  std::set<std::string> forgotten_;  // named by the operator
  WaitProgress waiting_;             // since the first applicant came
  TimePoint last_gone_{};            // when the last applicant went
  // Sites come and go between candidates: a state counts as lasting while it is not interrupted for longer than a
  // grace.
  TimePoint short_since_ = kNever;  // more than half are here, too few of them with records
  TimePoint short_last_{};
  TimePoint known_last_ = kNever;  // when a site was last here that knows a membership
  TimePoint apart_last_{};         // when sites here last differed about the newest agreement
  TimePoint doubt_at_ = kNever;
  std::optional<Newest> led_before_;  // led until it stepped down; waits for its sites until led_before_until_
  TimePoint led_before_until_{};
};

}  // namespace collab::protocol
