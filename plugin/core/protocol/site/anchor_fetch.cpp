// Fetching an anchor from several members.
//
//   the list of digests, from two sources               a part of the anchor
//
//   asking --it is whole, and has the digest-------> waiting --window open--> asked of a source --it is right--> here
//     |  ^                                              ^  ^                    |      |
//     +--+ it does not: the source is wrong             |  +----source lost-----+      | it is not: the source is
//                                                       +------------------------------+ wrong
//
// A source with nothing left to do takes over from the source with the most to do. So the slowest source does not
// decide when all is here. The second copy of a part is ignored.
#include "core/protocol/site/anchor_fetch.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "collab/status.h"

namespace collab::protocol {
namespace {

using wire::ChunkKind;

// Two sources, so that a silent one does not hold up the list.
constexpr std::size_t kListSources = 2;
// Small, so that the first linked source is not asked for what the others could give.
constexpr std::uint32_t kFirstWindow = 4;

}  // namespace

struct AnchorFetch::State {
  struct Part {
    ChunkKind kind = ChunkKind::kAnchor;
    ElementRange range;
    bool here = false;
  };
  struct Source {
    std::set<std::size_t> asked;  // parts that have not come
    std::uint32_t window = 0;     // limit of `asked`: one more with each part that has come
    // The source's list of digests, until one list is known to be right.
    bool lists = false;
    std::size_t next_list = 0;
    std::set<std::size_t> lists_asked;
    std::vector<Digest> tiles;
  };

  explicit State(AnchorFetchPlan p) : plan(std::move(p)) {
    COLLAB_CHECK(plan.elements > 0 && plan.window > 0, "an anchor to fetch has elements, and questions are asked");
    COLLAB_CHECK(plan.part_elements % plan.tile_elements == 0 && plan.list_elements % plan.tile_elements == 0,
                 "what is asked for at once must be whole tiles");
    vector_tiles = (plan.elements + plan.tile_elements - 1) / plan.tile_elements;
    add_parts(ChunkKind::kAnchor, plan.part_elements, parts);
    add_parts(ChunkKind::kAnchorDigests, plan.list_elements, lists);
    if (plan.outer_state) add_parts(ChunkKind::kOuter, plan.part_elements, parts);
    if (plan.outer_state) add_parts(ChunkKind::kOuterDigests, plan.list_elements, lists);
    missing = parts.size();
  }

  void add_parts(ChunkKind kind, std::uint64_t size, std::vector<Part>& to) const {
    for (std::uint64_t begin = 0; begin < plan.elements; begin += size) {
      to.push_back({kind, {begin, std::min(plan.elements, begin + size)}, false});
    }
  }

  void on(const SourceAdded& event) {
    if (const auto [source, fresh] = sources.try_emplace(event.site); fresh) {
      source->second.window = std::min(kFirstWindow, plan.window);
    }
    ask();
  }

  void on(const SourceLost& event) {
    drop(event.site);
    ask();
  }

  void on(const PartArrived& event) {
    const auto source = sources.find(event.from);
    if (source == sources.end() || missing == 0) return;
    const bool list = event.kind == ChunkKind::kAnchorDigests || event.kind == ChunkKind::kOuterDigests;
    list ? on_list(source->second, event) : on_part(source->second, event);
    ask();
  }

  void on_list(Source& source, const PartArrived& event) {
    const std::size_t index = index_of(lists, event, plan.list_elements);
    if (known || source.lists_asked.erase(index) == 0) return;
    if (event.tiles.size() != tiles_in(event.range)) {
      return wrong(event.from, "what it sent as the digests of " + text_of(event.range) + " is not a list of " +
                                   std::to_string(tiles_in(event.range)));
    }
    std::ranges::copy(event.tiles, source.tiles.begin() + static_cast<std::ptrdiff_t>(first_tile(event)));
    if (!source.lists_asked.empty() || source.next_list < lists.size()) return;
    const Digest digest = state_of(source.tiles);
    if (digest != plan.digest) {
      return wrong(event.from, "its anchor has the digest " + to_hex(digest) + ", not " + to_hex(plan.digest));
    }
    known = true;
    tiles = std::move(source.tiles);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (is_held(parts[i])) {
        take(parts[i], true);
      } else {
        unasked.push_back(i);
      }
    }
  }

  void on_part(Source& source, const PartArrived& event) {
    const std::size_t index = index_of(parts, event, plan.part_elements);
    if (source.asked.erase(index) == 0 || parts[index].here) return;
    const auto expected = tiles.begin() + static_cast<std::ptrdiff_t>(first_tile(event));
    const std::size_t count = tiles_in(event.range);
    if (event.tiles.size() != count || !std::equal(event.tiles.begin(), event.tiles.end(), expected)) {
      source.asked.insert(index);
      return wrong(event.from, "its elements " + text_of(event.range) +
                                   (event.kind == ChunkKind::kOuter ? " of the outer state" : "") +
                                   " are not those agreed on");
    }
    source.window = std::min(source.window + 1, plan.window);
    take(parts[index], false);
  }

  void take(Part& part, bool was_held) {
    part.here = true;
    --missing;
    here += part.range.size();
    if (was_held) {
      held += part.range.size();
      out.emplace_back(TakeHeld{part.kind, part.range});
    } else {
      out.emplace_back(TakePart{part.kind, part.range});
    }
    if (missing == 0) out.emplace_back(AnchorWhole{});
  }

  void wrong(SiteId site, std::string reason) {
    out.emplace_back(SourceWrong{site, std::move(reason)});
    drop(site);
  }

  void drop(SiteId site) {
    const auto source = sources.find(site);
    if (source == sources.end()) return;
    const std::set<std::size_t> asked = std::move(source->second.asked);
    sources.erase(source);
    for (auto index = asked.rbegin(); index != asked.rend(); ++index) {
      const bool elsewhere =
          std::ranges::any_of(sources, [&](const auto& other) { return other.second.asked.count(*index) != 0; });
      if (!parts[*index].here && !elsewhere) unasked.push_front(*index);
    }
  }

  void ask() {
    if (missing == 0) return;
    if (!known) return ask_for_lists();
    // In turn, so that all sources have something to do from the start.
    for (bool more = true; more && !unasked.empty();) {
      more = false;
      for (auto& [site, source] : sources) {
        if (source.asked.size() >= source.window || unasked.empty()) continue;
        ask_for(site, source, unasked.front());
        unasked.pop_front();
        more = true;
      }
    }
    if (!unasked.empty()) return;
    for (auto& [site, source] : sources) {
      if (source.asked.empty()) take_over(site, source);
    }
  }

  void ask_for_lists() {
    auto busy = static_cast<std::size_t>(std::ranges::count_if(sources, [](const auto& s) { return s.second.lists; }));
    for (auto& [site, source] : sources) {
      if (!source.lists && busy < kListSources) {
        source.lists = true;
        source.tiles.resize((plan.outer_state ? 2 : 1) * vector_tiles);
        ++busy;
      }
      while (source.lists && source.next_list < lists.size() && source.lists_asked.size() < plan.window) {
        source.lists_asked.insert(source.next_list);
        ask_of(site, lists[source.next_list++]);
      }
    }
  }

  void ask_for(SiteId site, Source& source, std::size_t index) {
    source.asked.insert(index);
    ask_of(site, parts[index]);
  }

  // Takes half of what the busiest source still owes, from its end.
  void take_over(SiteId site, Source& idle) {
    const Source* busiest = &idle;
    for (const auto& [other, source] : sources) {
      if (source.asked.size() > busiest->asked.size()) busiest = &source;
    }
    if (busiest == &idle) return;
    std::vector<std::size_t> owed;
    std::ranges::copy_if(busiest->asked, std::back_inserter(owed), [this](std::size_t i) { return !parts[i].here; });
    for (std::size_t i = owed.size() / 2; i < owed.size(); ++i) ask_for(site, idle, owed[i]);
  }

  void ask_of(SiteId site, const Part& part) {
    out.emplace_back(AskPart{site, {plan.run, plan.round, part.kind, part.range}});
  }

  // The index of this exact part, or one that was requested from no source.
  [[nodiscard]] std::size_t index_of(const std::vector<Part>& among, const PartArrived& event,
                                     std::uint64_t size) const {
    const bool second = event.kind == ChunkKind::kOuter || event.kind == ChunkKind::kOuterDigests;
    const std::uint64_t index = event.range.begin / size + (second ? (plan.elements + size - 1) / size : 0);
    const bool fits = index < among.size() && among[index].kind == event.kind && among[index].range == event.range;
    return fits ? index : among.size();
  }

  [[nodiscard]] std::size_t first_tile(const PartArrived& event) const {
    const bool second = event.kind == ChunkKind::kOuter || event.kind == ChunkKind::kOuterDigests;
    return event.range.begin / plan.tile_elements + (second ? vector_tiles : 0);
  }
  [[nodiscard]] std::size_t tiles_in(const ElementRange& range) const {
    return (range.size() + plan.tile_elements - 1) / plan.tile_elements;
  }

  [[nodiscard]] Digest state_of(const std::vector<Digest>& all) const {
    DigestChain anchor;
    DigestChain outer;
    for (std::size_t i = 0; i < all.size(); ++i) (i < vector_tiles ? anchor : outer).add(all[i]);
    return digest_of_state(anchor.finish(), plan.outer_state ? outer.finish() : Digest{});
  }

  [[nodiscard]] bool is_held(const Part& part) const {
    const bool second = part.kind == ChunkKind::kOuter;
    const std::vector<Digest>& own = second ? plan.held_outer : plan.held_anchor;
    if (own.size() != vector_tiles) return false;
    const auto first = static_cast<std::ptrdiff_t>(part.range.begin / plan.tile_elements);
    const auto count = static_cast<std::ptrdiff_t>(tiles_in(part.range));
    const auto right = tiles.begin() + first + static_cast<std::ptrdiff_t>(second ? vector_tiles : 0);
    return std::equal(right, right + count, own.begin() + first);
  }

  AnchorFetchPlan plan;
  std::uint64_t vector_tiles = 0;
  std::vector<Part> lists;
  std::vector<Part> parts;  // of the anchor, then of the outer state
  bool known = false;       // `tiles` are the digests that were agreed on
  std::vector<Digest> tiles;
  std::map<SiteId, Source> sources;
  std::deque<std::size_t> unasked;
  std::size_t missing = 0;
  std::uint64_t here = 0;
  std::uint64_t held = 0;
  std::vector<AnchorFetchAction> out;  // of the current step
};

AnchorFetch::AnchorFetch(AnchorFetchPlan plan) : state_(std::make_unique<State>(std::move(plan))) {}
AnchorFetch::~AnchorFetch() = default;
AnchorFetch::AnchorFetch(AnchorFetch&&) noexcept = default;
AnchorFetch& AnchorFetch::operator=(AnchorFetch&&) noexcept = default;

std::vector<AnchorFetchAction> AnchorFetch::step(const AnchorFetchEvent& event) {
  state_->out.clear();
  std::visit([this](const auto& e) { state_->on(e); }, event);
  return std::move(state_->out);
}

AnchorFetch::Progress AnchorFetch::progress() const {
  const std::uint64_t vectors = state_->plan.outer_state ? 2 : 1;
  return {vectors * state_->plan.elements, state_->here, state_->held};
}

}  // namespace collab::protocol
