// The chunks of one attempt.
//
//            a chunk that another member owns             a chunk of our own slice
//
//   to send --window open--> on its way             collecting --contribution--+
//                               |                        |  ^------------------+
//                          (owner reduces)               | the last one is here
//                               v                        v
//                             taken                   reduced          all taken and reduced: done
//
// A member whose weight is 0 sends nothing; the mean of a chunk comes back only from the chunk's owner.
#include "core/protocol/exchange.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace collab::protocol {
namespace {

std::string in_words(const ElementRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

std::string in_words(SiteId site) { return "site " + std::to_string(site.value); }

}  // namespace

struct Exchange::State {
  struct OwnChunk {
    ElementRange range;
    std::set<SiteId> missing;  // contributors whose part is not here
    bool reduced = false;
  };
  struct TheirChunk {
    ElementRange range;
    SiteId owner;
    bool taken = false;
  };

  explicit State(ExchangePlan p) : plan(std::move(p)) {
    COLLAB_CHECK(plan.chunk_elements > 0 && plan.chunk_elements % kBlockElements == 0,
                 "chunk_elements must be a positive multiple of kBlockElements");
    COLLAB_CHECK(plan.window > 0, "the window of an exchange must let at least one chunk out");
    std::set<SiteId> others;
    for (const wire::Participant& member : plan.form.participants) {
      if (member.weight <= 0) continue;
      if (member.site == plan.self) {
        contributes = true;
      } else {
        others.insert(member.site);
      }
    }
    std::map<SiteId, std::vector<ElementRange>> by_owner;
    for (const wire::Slice& slice : plan.form.slices) {
      for (std::uint64_t begin = slice.range.begin; begin < slice.range.end; begin += plan.chunk_elements) {
        const ElementRange range{begin, std::min(slice.range.end, begin + plan.chunk_elements)};
        if (slice.owner == plan.self) {
          own.emplace(begin, OwnChunk{range, others, false});
        } else {
          theirs.emplace(begin, TheirChunk{range, slice.owner, false});
          by_owner[slice.owner].push_back(range);
        }
      }
    }
    open = own.size() + theirs.size();
    for (const ContributionArrived& part : plan.held) {
      const auto chunk = own.find(part.range.begin);
      if (chunk != own.end() && chunk->second.range == part.range) chunk->second.missing.erase(part.from);
    }
    if (contributes) queue_sends(by_owner);
    std::set<std::tuple<SiteId, std::uint64_t, std::uint64_t>> delivered;
    for (const SendContribution& part : plan.delivered) {
      delivered.emplace(part.owner, part.range.begin, part.range.end);
    }
    std::erase_if(sends, [&](const auto& send) {
      return delivered.count({send.owner, send.range.begin, send.range.end}) != 0;
    });
  }

  // Round robin over the owners, the next site after self first: no owner is flooded by all at once.
  void queue_sends(const std::map<SiteId, std::vector<ElementRange>>& by_owner) {
    std::vector<std::pair<SiteId, const std::vector<ElementRange>*>> owners;
    for (auto it = by_owner.upper_bound(plan.self); it != by_owner.end(); ++it)
      owners.emplace_back(it->first, &it->second);
    for (auto it = by_owner.begin(); it != by_owner.end() && it->first < plan.self; ++it) {
      owners.emplace_back(it->first, &it->second);
    }
    bool more = true;
    for (std::size_t row = 0; more; ++row) {
      more = false;
      for (const auto& [owner, ranges] : owners) {
        if (row >= ranges->size()) continue;
        sends.push_back({owner, (*ranges)[row]});
        more = true;
      }
    }
  }

  void open_window(std::vector<ExchangeAction>& out) {
    while (next_send < sends.size() && on_their_way.size() < plan.window) {
      const SendContribution& send = sends[next_send++];
      on_their_way.insert(send.range.begin);
      out.emplace_back(send);
    }
  }

  void close_chunk(std::vector<ExchangeAction>& out) {
    if (--open == 0) out.emplace_back(ExchangeDone{});
  }

  void reduce_if_whole(OwnChunk& chunk, std::vector<ExchangeAction>& out) {
    if (!started || chunk.reduced || !chunk.missing.empty()) return;
    chunk.reduced = true;
    out.emplace_back(ReduceChunk{chunk.range});
    close_chunk(out);
  }

  [[nodiscard]] bool weighs(SiteId site) const {
    const auto& in = plan.form.participants;
    return std::any_of(in.begin(), in.end(), [&](const auto& p) { return p.site == site && p.weight > 0; });
  }

  ExchangePlan plan;
  bool contributes = false;
  bool started = false;
  std::vector<SendContribution> sends;  // in the order they leave
  std::size_t next_send = 0;
  std::set<std::uint64_t> on_their_way;        // begins
  std::map<std::uint64_t, OwnChunk> own;       // by begin
  std::map<std::uint64_t, TheirChunk> theirs;  // by begin
  std::size_t open = 0;                        // chunks neither reduced nor taken

  using Actions = std::vector<ExchangeAction>;

  Result<Actions> on(const ExchangeStart&) {
    if (started) return internal_error("an exchange was started twice");
    started = true;
    Actions out;
    open_window(out);
    for (auto& [begin, chunk] : own) reduce_if_whole(chunk, out);
    if (own.empty() && theirs.empty()) out.emplace_back(ExchangeDone{});
    return out;
  }

  Result<Actions> on(const ContributionArrived& event) {
    const std::string what = "contribution " + in_words(event.range) + " from " + in_words(event.from);
    const auto found = own.find(event.range.begin);
    if (found == own.end() || found->second.range != event.range) {
      return corrupt(what + (found == own.end() ? ": expected a chunk of our own slice"
                                                : ": expected the chunk " + in_words(found->second.range)));
    }
    OwnChunk& chunk = found->second;
    if (event.from == plan.self || !weighs(event.from))
      return corrupt(what + ": expected contributions of the attempt's other contributors only");
    if (chunk.missing.erase(event.from) == 0) return corrupt(what + ": it came twice");
    Actions out;
    reduce_if_whole(chunk, out);
    return out;
  }

  Result<Actions> on(const MeanArrived& event) {
    const std::string what = "mean " + in_words(event.range) + " from " + in_words(event.from);
    const auto found = theirs.find(event.range.begin);
    if (found == theirs.end()) return corrupt(what + ": expected a chunk of another member's slice");
    TheirChunk& chunk = found->second;
    if (chunk.range != event.range) return corrupt(what + ": expected the chunk " + in_words(chunk.range));
    if (chunk.owner != event.from) return corrupt(what + ": expected it from its owner, " + in_words(chunk.owner));
    if (chunk.taken) return corrupt(what + ": it came twice");
    chunk.taken = true;
    Actions out;
    out.emplace_back(TakeMean{chunk.range});
    close_chunk(out);
    return out;
  }

  Result<Actions> on(const ContributionSent& event) {
    if (on_their_way.erase(event.range.begin) == 0) {
      return internal_error("contribution " + in_words(event.range) + " left, but it was not on its way");
    }
    Actions out;
    open_window(out);
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
  for (const wire::Participant& member : state_->plan.form.participants) {
    const auto misses = [&](const auto& entry) { return entry.second.missing.count(member.site) != 0; };
    if (!member.here && std::any_of(state_->own.begin(), state_->own.end(), misses)) return member.site;
  }
  return std::nullopt;
}

bool Exchange::contributes(SiteId site) const { return state_->weighs(site); }

bool Exchange::owns(const ElementRange& chunk) const {
  const auto found = state_->own.find(chunk.begin);
  return found != state_->own.end() && found->second.range == chunk;
}

bool Exchange::done() const { return state_->started && state_->open == 0; }

}  // namespace collab::protocol
