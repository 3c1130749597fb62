// Drives an Election by hand: sites come and go, promise and accept.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/agreement/election.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {

inline const std::vector<std::string> kNames{"paris", "tokyo", "lima"};
inline const wire::Offer kAnchor{RunId{7}, RoundId{4}, kRight};

// A voter of three, or of those who are named, with its record.
inline wire::Join voter(const std::string& name, std::uint64_t promised = 1,
                        const std::vector<std::string>& names = kNames) {
  wire::Join join = member_of(name, kAnchor, voters_of(names));
  join.report.record.promised = TermId{promised};
  return join;
}
// One that was started again and has lost it; it knows the anchor from its state file.
inline wire::Join forgetful(const std::string& name) {
  wire::Join join = voter(name, 0);
  join.report.record.acceptor = acceptor_of(name, 1);
  return join;
}
// One that has lost all.
inline wire::Join fresh(const std::string& name) {
  wire::Join join = join_of(name);
  join.report.record.acceptor = acceptor_of(name, 1);
  return join;
}

struct ElectionWorld {
  ElectionWorld() : ElectionWorld(config()) {}
  explicit ElectionWorld(const Election::Config& config) : election(config) {}
  static Election::Config config() { return {TermId{1}, seconds(60)}; }

  std::optional<ElectionResult> advance() {
    std::vector<CoordinatorAction> more;
    auto elected = election.advance(now, more);
    for (auto& action : more) out.push_back(std::move(action));
    return elected;
  }
  std::optional<ElectionResult> come(std::uint64_t link, const wire::Join& join) {
    said[link] = join;
    replaced = election.add_applicant(now, LinkId{link}, join);
    return advance();
  }
  std::optional<ElectionResult> go(std::uint64_t link) {
    election.remove_applicant(now, LinkId{link});
    return advance();
  }
  void hear(std::uint64_t link, const wire::Promise& promise) { election.on_promise(LinkId{link}, promise); }
  void hear(std::uint64_t link, const wire::Accepted& accepted) { election.on_accepted(LinkId{link}, accepted); }
  // As the site on that link answers what it was asked last, from what it has said so far.
  std::optional<ElectionResult> promise(std::uint64_t link) {
    wire::Join& join = said.at(link);
    const std::map<int, int> asked = last_of(prepared());
    if (asked.count(static_cast<int>(link)) == 0) return advance();
    join.report.record.promised = TermId{static_cast<std::uint64_t>(asked.at(static_cast<int>(link)))};
    hear(link, wire::Promise{join.report.record.promised, join.offer, join.report});
    return advance();
  }
  std::optional<ElectionResult> accept(std::uint64_t link) {
    for (const auto& [to, accept] : sent<wire::Accept>(out)) {
      if (to != LinkId{link} || accept.term != term()) continue;
      auto& proposals = said.at(link).report.record.proposals;
      proposals.insert(proposals.end(), accept.proposals.begin(), accept.proposals.end());
      hear(link, wire::Accepted{accept.term});
      break;
    }
    return advance();
  }
  // All who are here, and will be.
  std::optional<ElectionResult> elect() {
    for (int phase = 0; phase < 2; ++phase) {
      for (const auto& [link, join] : std::map(said)) {
        if (!election.has(LinkId{link})) continue;
        if (auto elected = phase == 0 ? promise(link) : accept(link)) return elected;
      }
    }
    return std::nullopt;
  }
  std::optional<ElectionResult> pass(Duration time) {
    for (const TimePoint end = now + time; now < end;) {
      now = std::min(end, std::max(now + seconds(0.5), election.next_deadline(now)));
      if (auto elected = advance()) return elected;
      if (const auto line = election.waiting(now)) lines += *line + "\n";
    }
    return std::nullopt;
  }

  [[nodiscard]] TermId term() const { return election.term(); }
  // Whom it has asked so far, and for which term.
  [[nodiscard]] std::vector<std::pair<int, int>> prepared() const { return terms_of<wire::Prepare>(); }
  [[nodiscard]] std::vector<std::pair<int, int>> asked_to_accept() const { return terms_of<wire::Accept>(); }
  [[nodiscard]] std::vector<wire::Accept> accepts() const {
    std::vector<wire::Accept> all;
    for (const auto& [link, accept] : sent<wire::Accept>(out)) all.push_back(accept);
    return all;
  }
  template <typename M>
  [[nodiscard]] std::vector<std::pair<int, int>> terms_of() const {
    std::vector<std::pair<int, int>> asked;
    for (const auto& [link, message] : sent<M>(out)) {
      asked.emplace_back(static_cast<int>(link.value), static_cast<int>(message.term.value));
    }
    return asked;
  }
  [[nodiscard]] static std::map<int, int> last_of(const std::vector<std::pair<int, int>>& asked) {
    std::map<int, int> last;
    for (const auto& [link, term] : asked) last[link] = term;
    return last;
  }

  Election election;
  TimePoint now{};
  std::vector<CoordinatorAction> out{};
  std::map<std::uint64_t, wire::Join> said{};  // with what each has promised and accepted since
  std::optional<LinkId> replaced{};
  std::string lines{};
};

}  // namespace collab::protocol
