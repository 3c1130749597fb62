// The states of the chunks of one attempt.
//
//            a chunk that another member owns             a chunk of our own slice
//
//   to send --window open--> in flight              collecting --contribution--+
//                               |                        |  ^------------------+
//                          (owner reduces)               | the last one is here
//                               v                        v
//                             taken                    whole --a window open--> reduced
//
//   all taken and reduced: done; the means of reduced chunks go to each peer as its window opens
//
// A member of weight 0 sends nothing. The mean of a chunk comes only from the chunk's owner.
#include "core/protocol/exchange/exchange.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/wire/rules.h"

namespace collab::protocol {
namespace {

std::string text_of(SiteId site) { return "site " + std::to_string(site.value); }

}  // namespace

struct Exchange::State {
  struct OwnChunk {
    ElementRange range;
    std::set<SiteId> missing;  // contributors whose part has not come
    bool whole = false;
  };
  struct TheirChunk {
    ElementRange range;
    SiteId owner;
    bool taken = false;
  };
  struct Peer {
    std::vector<ElementRange> contributions{};  // in sending order
    std::size_t next_contribution = 0;
    bool gets_means = false;
    std::size_t next_mean = 0;  // index into `reduced`
    std::uint32_t contributions_away = 0, means_away = 0;
    Following more{};
  };

  explicit State(ExchangePlan p) : plan(std::move(p)) {
    COLLAB_CHECK(plan.chunk_elements > 0 && plan.chunk_elements % kBlockElements == 0,
                 "chunk_elements must be a positive multiple of kBlockElements");
    COLLAB_CHECK(plan.window > 0, "the window of an exchange must let at least one chunk out");
    std::set<SiteId> others;
    for (const wire::Participant& member : plan.start.participants) {
      if (member.weight > 0) others.insert(member.site);
    }
    const bool contributing = others.erase(plan.self) > 0;
    for (const SiteId peer : plan.peers) peers[peer].gets_means = true;
    std::set<std::tuple<SiteId, std::uint64_t, std::uint64_t>> delivered;
    for (const SendContribution& part : plan.delivered) {
      delivered.emplace(part.owner, part.range.begin, part.range.end);
    }
    std::uint64_t own_elements = 0;
    for (const wire::Slice& slice : plan.start.slices) {
      for (std::uint64_t begin = slice.range.begin; begin < slice.range.end; begin += plan.chunk_elements) {
        const ElementRange range{begin, std::min(slice.range.end, begin + plan.chunk_elements)};
        if (slice.owner == plan.self) {
          own.emplace(begin, OwnChunk{range, others, false});
          own_elements += range.size();
          continue;
        }
        theirs.emplace(begin, TheirChunk{range, slice.owner, false});
        if (!contributing || delivered.count({slice.owner, range.begin, range.end}) != 0) continue;
        Peer& owner = peers[slice.owner];
        owner.contributions.push_back(range);
        owner.more.contributions += range.size();
      }
    }
    for (auto& [site, peer] : peers) peer.more.means = peer.gets_means ? own_elements : 0;
    open = own.size() + theirs.size();
    for (const ContributionArrived& part : plan.held) {
      const auto chunk = own.find(part.range.begin);
      if (chunk != own.end() && chunk->second.range == part.range) chunk->second.missing.erase(part.from);
    }
  }

  void close_chunk(std::vector<ExchangeAction>& out) {
    if (--open == 0) out.emplace_back(ExchangeDone{});
  }

  void reduce_next(std::vector<ExchangeAction>& out) {
    const ElementRange range = whole.front();
    whole.pop_front();
    reduced.push_back(range);
    out.emplace_back(ReduceChunk{range});
    close_chunk(out);
  }

  // False: nothing can be sent now.
  bool send_next(SiteId site, Peer& peer, std::vector<ExchangeAction>& out) {
    if (peer.next_contribution < peer.contributions.size()) {
      if (peer.contributions_away >= plan.window) return false;
      ++peer.contributions_away;
      const ElementRange range = peer.contributions[peer.next_contribution++];
      peer.more.contributions -= range.size();
      out.emplace_back(SendContribution{site, range, peer.more});
      return true;
    }
    if (!peer.gets_means || peer.means_away >= plan.mean_window) return false;
    if (peer.next_mean == reduced.size() && !whole.empty()) reduce_next(out);
    if (peer.next_mean == reduced.size()) return false;
    ++peer.means_away;
    const ElementRange range = reduced[peer.next_mean++];
    peer.more.means -= range.size();
    out.emplace_back(SendMean{site, range, peer.more});
    return true;
  }

  // Round robin from the next site after self: no owner is flooded by all at once.
  void open_windows(std::vector<ExchangeAction>& out) {
    if (!started) return;
    for (bool more = true; more;) {
      more = false;
      for (auto it = peers.upper_bound(plan.self); it != peers.end(); ++it) {
        more |= send_next(it->first, it->second, out);
      }
      for (auto it = peers.begin(); it != peers.lower_bound(plan.self); ++it) {
        more |= send_next(it->first, it->second, out);
      }
    }
    while (plan.peers.empty() && !whole.empty()) reduce_next(out);
  }

  void note_if_whole(OwnChunk& chunk) {
    if (chunk.whole || !chunk.missing.empty()) return;
    chunk.whole = true;
    whole.push_back(chunk.range);
  }

  ExchangePlan plan;
  bool started = false;
  std::map<SiteId, Peer> peers;
  std::deque<ElementRange> whole;              // of our own slice, not reduced yet
  std::vector<ElementRange> reduced;           // in the order of reduction
  std::map<std::uint64_t, OwnChunk> own;       // by begin of the range
  std::map<std::uint64_t, TheirChunk> theirs;  // by begin of the range
  std::size_t open = 0;                        // chunks neither reduced nor taken

  using Actions = std::vector<ExchangeAction>;

  Result<Actions> on(const ExchangeStart&) {
    if (started) return internal_error("an exchange was started twice");
    started = true;
    Actions out;
    for (auto& [begin, chunk] : own) note_if_whole(chunk);
    open_windows(out);
    if (own.empty() && theirs.empty()) out.emplace_back(ExchangeDone{});
    return out;
  }

  Result<Actions> on(const ContributionArrived& event) {
    const std::string what = "contribution " + text_of(event.range) + " from " + text_of(event.from);
    const auto found = own.find(event.range.begin);
    if (found == own.end() || found->second.range != event.range) {
      const std::string expected =
          found == own.end() ? "a chunk of this site's own slice" : "the chunk " + text_of(found->second.range);
      return corrupt(what + ": expected " + expected + " [round.chunk-range]");
    }
    OwnChunk& chunk = found->second;
    if (event.from == plan.self || !wire::contributes(plan.start, event.from))
      return corrupt(what +
                     ": expected contributions of the attempt's other contributors only [round.chunk-not-contributor]");
    if (chunk.missing.erase(event.from) == 0) return corrupt(what + ": it came twice [round.chunk-twice]");
    if (started) note_if_whole(chunk);
    Actions out;
    open_windows(out);
    return out;
  }

  Result<Actions> on(const MeanArrived& event) {
    const std::string what = "mean " + text_of(event.range) + " from " + text_of(event.from);
    const auto found = theirs.find(event.range.begin);
    if (found == theirs.end())
      return corrupt(what + ": expected a chunk of another member's slice [round.mean-not-theirs]");
    TheirChunk& chunk = found->second;
    if (chunk.range != event.range)
      return corrupt(what + ": expected the chunk " + text_of(chunk.range) + " [round.mean-range]");
    if (chunk.owner != event.from)
      return corrupt(what + ": expected it from its owner, " + text_of(chunk.owner) + " [round.mean-not-owner]");
    if (chunk.taken) return corrupt(what + ": it came twice [round.mean-twice]");
    chunk.taken = true;
    Actions out;
    out.emplace_back(TakeMean{chunk.range});
    close_chunk(out);
    return out;
  }

  Result<Actions> on(const ChunkSent& event) {
    const auto peer = peers.find(event.to);
    const bool mean = event.kind == wire::ChunkKind::kMean;
    if (peer == peers.end() || (mean ? peer->second.means_away : peer->second.contributions_away) == 0) {
      return internal_error("a chunk for " + text_of(event.to) + " has left, but none was on its way");
    }
    --(mean ? peer->second.means_away : peer->second.contributions_away);
    Actions out;
    open_windows(out);
    return out;
  }
};

Exchange::Exchange(ExchangePlan plan) : state_(std::make_unique<State>(std::move(plan))) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

Result<std::vector<ExchangeAction>> Exchange::step(const ExchangeEvent& event) {
  return std::visit([this](const auto& what) { return state_->on(what); }, event);
}

std::optional<SiteId> Exchange::lacks() const {
  for (const wire::Participant& member : state_->plan.start.participants) {
    const auto misses = [&](const auto& entry) { return entry.second.missing.count(member.site) != 0; };
    if (!member.here && std::any_of(state_->own.begin(), state_->own.end(), misses)) return member.site;
  }
  return std::nullopt;
}

Exchange::Missing Exchange::missing(std::size_t most) const {
  std::set<SiteId> sites;
  for (const auto& [begin, chunk] : state_->own) sites.insert(chunk.missing.begin(), chunk.missing.end());
  const bool means = sites.empty();
  for (const auto& [begin, chunk] : state_->theirs) {
    if (means && !chunk.taken) sites.insert(chunk.owner);
  }
  Missing found{means, {sites.begin(), sites.end()}};
  if (found.sites.size() > most) found.sites.resize(most);
  return found;
}

bool Exchange::contributes(SiteId site) const { return wire::contributes(state_->plan.start, site); }

bool Exchange::owns(const ElementRange& chunk) const {
  const auto found = state_->own.find(chunk.begin);
  return found != state_->own.end() && found->second.range == chunk;
}

bool Exchange::done() const { return state_->started && state_->open == 0; }

}  // namespace collab::protocol
