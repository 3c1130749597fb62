#include "core/runtime/data/anchor_streams.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/protocol/formatting.h"
#include "core/runtime/storage/anchor_record.h"
#include "core/wire/encoding.h"

namespace collab {
namespace {

using wire::ChunkKind;

constexpr std::uint32_t kTransferWindow = 32;  // parts on their way to one joiner
constexpr std::size_t kMaxAsked = 256;         // parts that one joiner may ask for ahead
constexpr std::uint64_t kPartTiles = 4;        // of one request
constexpr std::uint64_t kListTiles = 64;       // in one request for digests
constexpr Duration kProgressEvery = std::chrono::seconds(3);

[[nodiscard]] bool is_outer(ChunkKind kind) { return kind == ChunkKind::kOuter || kind == ChunkKind::kOuterDigests; }
[[nodiscard]] bool is_list(ChunkKind kind) {
  return kind == ChunkKind::kAnchorDigests || kind == ChunkKind::kOuterDigests;
}

[[nodiscard]] std::vector<Digest> tiles_of(std::span<const float> elements, std::uint64_t tile_elements) {
  std::vector<Digest> tiles;
  for (std::size_t at = 0; at < elements.size(); at += tile_elements) {
    const std::size_t count = std::min<std::size_t>(tile_elements, elements.size() - at);
    tiles.push_back(hash128(as_bytes_of(elements.subspan(at, count))));
  }
  return tiles;
}

// A payload's digests: of its own tiles, or, if it is a list of digests, that list. Empty if it does not fit the range.
[[nodiscard]] std::vector<Digest> tiles_of(const wire::Chunk& chunk, const BufferPtr& payload,
                                           std::uint64_t tile_elements) {
  static_assert(sizeof(Digest) == 16 && std::is_trivially_copyable_v<Digest>);
  const std::span<const std::byte> bytes = payload ? payload->view() : std::span<const std::byte>();
  if (is_list(chunk.kind)) {
    if (bytes.size() % sizeof(Digest) != 0) return {};
    std::vector<Digest> tiles(bytes.size() / sizeof(Digest));
    if (!tiles.empty()) std::memcpy(static_cast<void*>(tiles.data()), bytes.data(), bytes.size());
    return tiles;
  }
  if (bytes.size() != chunk.range.size() * sizeof(float)) return {};
  return tiles_of(std::span(reinterpret_cast<const float*>(bytes.data()), chunk.range.size()), tile_elements);
}

[[nodiscard]] std::string size_of(std::uint64_t elements) { return in_megabytes(elements * sizeof(float)); }

// "[#####...............]"
[[nodiscard]] std::string bar(double percent) {
  constexpr std::size_t kWidth = 20;
  const std::size_t full = std::min(kWidth, static_cast<std::size_t>(percent / 100 * kWidth));
  return "[" + std::string(full, '#') + std::string(kWidth - full, '.') + "]";
}

// Says whether the sender had wrong data, or it was damaged on its way.
[[nodiscard]] std::string damage(const IncomingChunk* incoming) {
  const bool damaged =
      incoming != nullptr && incoming->payload && hash64(incoming->payload->view()) != incoming->chunk.payload_hash;
  return damaged ? " (they were damaged on the way)" : "";
}

}  // namespace

Digest state_digest(ArenaWriter& arena, std::span<const float> anchor, std::uint64_t tile_elements,
                    const std::function<void()>& passing) {
  const std::span<const float> outer = arena.outer();
  return digest_of_state(digest_of_vector(anchor, tile_elements, passing),
                         outer.empty() ? Digest{} : digest_of_vector(outer, tile_elements, passing));
}

AnchorStreams::AnchorStreams(Parts parts, std::uint64_t elements, std::uint64_t tile_elements)
    : parts_(std::move(parts)), elements_(elements), tile_elements_(tile_elements) {}

// ---- to a joiner -------------------------------------------------------------------------------------

Status AnchorStreams::send(const protocol::SendAnchor& action) {
  if (action.part.range.end > elements_ || (is_outer(action.part.kind) && parts_.arena->outer().empty())) {
    return corrupt("a site asks for elements of an anchor that it does not have [join.fetch-range]");
  }
  const std::uint64_t tiles = is_list(action.part.kind) ? kListTiles : kPartTiles;
  if (action.part.range.size() > tiles * tile_elements_) {
    return corrupt("a site asks for " + std::to_string(action.part.range.size()) +
                   " elements of an anchor at once, expected at most " + std::to_string(tiles * tile_elements_) +
                   " [join.fetch-too-large]");
  }
  Outgoing& job = outgoing_[action.to];
  if (job.asked.size() >= kMaxAsked)
    return corrupt("a site has more than " + std::to_string(kMaxAsked) +
                   " unanswered requests for parts of the anchor [join.fetch-too-much]");
  job.asked.push_back(action.part);
  pump(action.to, job);
  drop_idle();
  return {};
}

std::uint64_t AnchorStreams::bytes_of(const wire::FetchAnchor& part) const {
  if (!is_list(part.kind)) return part.range.size() * sizeof(float);
  return (part.range.size() + tile_elements_ - 1) / tile_elements_ * sizeof(Digest);
}

// A joiner that takes nothing holds no more than its share, so the others go on.
bool AnchorStreams::has_room(const Outgoing& job, std::uint64_t bytes) const {
  if (bytes_in_flight_ + bytes > kMostInAll) return false;
  return job.in_flight == 0 || job.bytes + bytes <= kShared / outgoing_.size();
}

std::optional<LinkId> AnchorStreams::stalled_receiver() const {
  const bool waits = std::ranges::any_of(outgoing_, [this](const auto& job) {
    return job.second.in_flight == 0 && !job.second.asked.empty() &&
           !has_room(job.second, bytes_of(job.second.asked.front()));
  });
  if (!waits) return std::nullopt;
  const TimePoint now = parts_.clock->now();
  const std::pair<const LinkId, Outgoing>* most = nullptr;
  for (const auto& job : outgoing_) {
    if (job.second.in_flight == 0 || now - job.second.since < kTakesNothing) continue;
    if (most == nullptr || job.second.bytes > most->second.bytes) most = &job;
  }
  return most == nullptr ? std::nullopt : std::optional(most->first);
}

void AnchorStreams::pump(LinkId to, Outgoing& job) {
  const std::optional<SealedAnchor> sealed = parts_.arena->sealed();
  const RunId run = sealed && !outer_overwritten_ ? sealed->run : RunId{};
  const RoundId round = sealed && !outer_overwritten_ ? sealed->round : RoundId{};
  while (!job.asked.empty() && job.in_flight < kTransferWindow) {
    const wire::FetchAnchor part = job.asked.front();
    const std::uint64_t bytes = bytes_of(part);
    if (!has_room(job, bytes)) return;
    job.asked.pop_front();
    if (part.run != run || part.round != round) {  // a commit has moved the anchor away
      parts_.sender->send_control(to, wire::AnchorMoved{run, round});
      continue;
    }
    BufferPtr payload = payload_of(part);
    const wire::Chunk chunk{.kind = part.kind,
                            .run = part.run,
                            .round = part.round,
                            .attempt = {},
                            .from = {},
                            .range = part.range,
                            .codec = CodecId::kFp32,
                            .payload_hash = hash64(payload->view())};
    if (job.in_flight++ == 0) job.since = parts_.clock->now();
    job.bytes += bytes;
    bytes_in_flight_ += bytes;
    const std::uint64_t token = parts_.sender->next_token();
    in_flight_[token] = {to, bytes};
    parts_.sender->send(to, chunk, std::move(payload), token);
  }
}

BufferPtr AnchorStreams::payload_of(const wire::FetchAnchor& part) const {
  const std::span<const float> whole = is_outer(part.kind) ? parts_.arena->outer() : parts_.arena->anchor();
  const std::span<const float> source = whole.subspan(part.range.begin, part.range.size());
  const std::vector<Digest> tiles = is_list(part.kind) ? tiles_of(source, tile_elements_) : std::vector<Digest>();
  const std::span<const std::byte> bytes = is_list(part.kind) ? std::as_bytes(std::span(tiles)) : std::as_bytes(source);
  // The pool is not kept: sites join rarely, and many joins at once would leave the process large for good.
  BufferPtr payload = make_buffer_pool()->take(bytes.size());
  std::memcpy(payload->bytes().data(), bytes.data(), bytes.size());
  return payload;
}

void AnchorStreams::pump_after(LinkId link) {
  const auto next = outgoing_.upper_bound(link);
  for (auto job = next; job != outgoing_.end(); ++job) pump(job->first, job->second);
  for (auto job = outgoing_.begin(); job != next; ++job) pump(job->first, job->second);
  drop_idle();
}

void AnchorStreams::drop_idle() {
  std::erase_if(outgoing_, [](const auto& job) { return job.second.asked.empty() && job.second.in_flight == 0; });
}

bool AnchorStreams::sent(std::uint64_t token) {
  const auto part = in_flight_.extract(token);
  if (!part) return false;
  const auto [to, bytes] = part.mapped();
  bytes_in_flight_ -= bytes;
  Outgoing& job = outgoing_.at(to);
  --job.in_flight;
  job.bytes -= bytes;
  job.since = parts_.clock->now();
  pump_after(to);
  return true;
}

// Parts on their way are dropped, and no sent() reports them.
void AnchorStreams::link_closed(LinkId link) {
  if (outgoing_.erase(link) == 0) return;
  std::erase_if(in_flight_, [&](const auto& part) {
    if (part.second.to != link) return false;
    bytes_in_flight_ -= part.second.bytes;
    return true;
  });
  pump_after(link);
}

// ---- from others -------------------------------------------------------------------------------------

void AnchorStreams::receive(const protocol::ReceiveAnchor& action) {
  const bool goes_on = receiving_ && receiving_->action.run == action.run && receiving_->action.round == action.round &&
                       receiving_->action.digest == action.digest;
  if (goes_on) return;
  protocol::AnchorFetchPlan plan{.run = action.run,
                                 .round = action.round,
                                 .digest = action.digest,
                                 .elements = elements_,
                                 .outer_state = !parts_.arena->outer().empty(),
                                 .tile_elements = tile_elements_,
                                 .part_elements = kPartTiles * tile_elements_,
                                 .list_elements = kListTiles * tile_elements_};
  if (parts_.arena->sealed()) {
    plan.held_anchor = tiles_of(parts_.arena->anchor(), tile_elements_);
    plan.held_outer = tiles_of(parts_.arena->outer(), tile_elements_);
  }
  receiving_.emplace(Receiving{.action = action, .fetch = protocol::AnchorFetch(std::move(plan))});
}

AnchorStreams::Events AnchorStreams::add_source(const protocol::AddAnchorSource& action) {
  if (!receiving_) return {};
  Receiving::Source& source = receiving_->sources[action.site];
  source.name = action.name;
  source.link = action.over;
  if (receiving_->began == kNever) receiving_->began = receiving_->told = parts_.clock->now();
  return fetch(protocol::SourceAdded{action.site}, nullptr);
}

AnchorStreams::Events AnchorStreams::drop_source(SiteId site) {
  if (!receiving_) return {};
  receiving_->sources[site].link.reset();
  return fetch(protocol::SourceLost{site}, nullptr);
}

void AnchorStreams::stop() {
  if (!receiving_) return;
  for (auto& [site, source] : receiving_->sources) source.link.reset();
  for (const auto& [site, source] : receiving_->sources) {
    for (const protocol::AnchorFetchAction& action : receiving_->fetch.step(protocol::SourceLost{site})) {
      static_cast<void>(action);  // includes questions to sources that are dropped
    }
  }
}

AnchorStreams::Events AnchorStreams::arrived(const IncomingChunk& incoming) {
  const wire::Chunk& chunk = incoming.chunk;
  // Answers may come after the anchor is complete, from the slower of two sources that were asked.
  if (!receiving_ || receiving_->action.run != chunk.run || receiving_->action.round != chunk.round) return {};
  std::vector<Digest> tiles = tiles_of(chunk, incoming.payload, tile_elements_);
  return fetch(protocol::PartArrived{incoming.from, chunk.kind, chunk.range, std::move(tiles)}, &incoming);
}

AnchorStreams::Events AnchorStreams::fetch(const protocol::AnchorFetchEvent& event, const IncomingChunk* incoming) {
  Events events;
  bool whole = false;
  for (const protocol::AnchorFetchAction& action : receiving_->fetch.step(event)) {
    if (const auto* ask = std::get_if<protocol::AskPart>(&action)) {
      if (const auto& link = receiving_->sources[ask->of].link) parts_.sender->send_control(*link, ask->message);
    } else if (const auto* part = std::get_if<protocol::TakePart>(&action)) {
      take_part(*part, *incoming);
    } else if (const auto* held = std::get_if<protocol::TakeHeld>(&action)) {
      if (held->kind == ChunkKind::kAnchor) {
        const auto from = parts_.arena->anchor().subspan(held->range.begin, held->range.size());
        std::ranges::copy(from, parts_.arena->next_anchor().begin() + static_cast<std::ptrdiff_t>(held->range.begin));
      }
    } else if (const auto* wrong = std::get_if<protocol::SourceWrong>(&action)) {
      events.emplace_back(protocol::AnchorSourceWrong{wrong->site, wrong->reason + damage(incoming),
                                                      receiving_->fetch.progress().here});
    } else {
      whole = true;
    }
  }
  report_progress(whole);
  if (whole) events.emplace_back(seal_received());
  return events;
}

void AnchorStreams::take_part(const protocol::TakePart& part, const IncomingChunk& incoming) {
  const bool outer = part.kind == ChunkKind::kOuter;
  if (outer && !std::exchange(outer_overwritten_, true)) parts_.arena->begin_outer_update();
  const std::span<float> target = outer ? parts_.arena->outer() : parts_.arena->next_anchor();
  const std::span<const std::byte> bytes = incoming.payload->view();
  std::memcpy(target.data() + part.range.begin, bytes.data(), bytes.size());
  receiving_->sources[incoming.from].elements += part.range.size();
}

protocol::SiteEvent AnchorStreams::seal_received() {
  const protocol::ReceiveAnchor wanted = receiving_->action;
  ArenaWriter& arena = *parts_.arena;
  const Digest state = state_digest(arena, arena.next_anchor(), tile_elements_, parts_.passing);
  // A wrong digest is not sealed: the state machine compares it and asks again.
  if (state == wanted.digest) {
    if (!arena.outer().empty()) arena.begin_outer_update();
    parts_.seal(with_membership({wanted.run, wanted.round, state}, wanted.membership));
    outer_overwritten_ = false;
  }
  forget();
  return protocol::AnchorInPlace{wanted.run, wanted.round, state};
}

// {"event":"fetch","round":4,"bytes":...,"percent":...,"bytes_per_second":...,"held_bytes":...,"sources":{"paris":...}}
void AnchorStreams::report_progress(bool whole) {
  const TimePoint now = parts_.clock->now();
  if (!parts_.tell || (!whole && now - receiving_->told < kProgressEvery)) return;
  receiving_->told = now;
  const protocol::AnchorFetch::Progress progress = receiving_->fetch.progress();
  const double seconds = std::chrono::duration<double>(now - receiving_->began).count();
  const std::uint64_t fetched = progress.here - progress.held;
  const double rate = seconds > 0 ? static_cast<double>(fetched * sizeof(float)) / seconds : 0;
  const double percent = 100.0 * static_cast<double>(progress.here) / static_cast<double>(progress.elements);
  std::vector<std::string> amounts;
  std::string counts;
  for (const auto& [site, source] : receiving_->sources) {
    if (source.elements == 0 && (whole || !source.link)) continue;
    amounts.push_back(source.name + " " + size_of(source.elements));
    counts +=
        (counts.empty() ? "" : ",") + json_quote(source.name) + ":" + std::to_string(source.elements * sizeof(float));
  }
  char line[128];
  std::snprintf(line, sizeof line, "%s %.0f %% of %s, %.1f MB/s", bar(percent).c_str(), percent,
                size_of(progress.elements).c_str(), rate / 1e6);
  const std::string held = progress.held == 0 ? "" : "; " + size_of(progress.held) + " were here already";
  parts_.tell(protocol::make_note(protocol::Note::Level::kInfo, "fetch",
                                  "the anchor of round " + std::to_string(receiving_->action.round.value) + ": " +
                                      line + " (" + protocol::join_words(amounts) + ")" + held,
                                  {{"round", std::to_string(receiving_->action.round.value)},
                                   {"percent", json_number(percent)},
                                   {"bytes", std::to_string(progress.elements * sizeof(float))},
                                   {"held_bytes", std::to_string(progress.held * sizeof(float))},
                                   {"seconds", json_number(seconds)},
                                   {"bytes_per_second", json_number(rate)},
                                   {"sources", "{" + counts + "}"}}));
}

}  // namespace collab
