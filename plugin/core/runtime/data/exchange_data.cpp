#include "core/runtime/data/exchange_data.h"

#include <algorithm>
#include <utility>

#include "core/base/digest.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/fragments.h"
#include "core/reduce/reduce.h"
#include "core/runtime/data/payload_buffer.h"
#include "core/runtime/tensors/not_finite.h"
#include "core/wire/limits.h"

namespace collab {
namespace {

constexpr std::uint64_t kMostLate = 2;  // in vectors: contributions to slices that another site owns by now

// The part of a buffer that an encoder has used: payloads of top-k are shorter than their bound.
[[nodiscard]] BufferPtr trimmed(BufferPtr payload, std::size_t used) {
  return as_buffer(protocol::Payload{std::move(payload), 0, used});
}

[[nodiscard]] auto order_of(RoundId round, AttemptId attempt) { return std::pair(round, attempt); }

void append(std::vector<protocol::SiteEvent>& events, std::vector<protocol::SiteEvent> more) {
  events.insert(events.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

ExchangeData::ExchangeData(const DataSettings& settings, const DataParts& parts, ChunkSender& sender,
                           ParameterReader& reader, Residual& residual)
    : settings_(settings),
      parts_(parts),
      sender_(sender),
      reader_(reader),
      residual_(residual),
      up_(settings.codec.up, settings.kept, parts.parameters->size()),
      down_(settings.codec.down, settings.kept, parts.parameters->size()),
      pool_(make_buffer_pool()),
      early_(std::max(up_.encoded_size({0, parts.parameters->size()}),
                      down_.encoded_size({0, parts.parameters->size()}))) {}

protocol::ExchangePlan ExchangeData::plan_for(const protocol::StartExchange& action) const {
  protocol::ExchangePlan plan{.start = action.start,
                              .self = action.self,
                              .chunk_elements = settings_.chunk_elements,
                              .peers = action.peers(),
                              .held = carried_.held(),
                              .delivered = carried_.delivered()};
  const std::size_t of_each =
      std::max(settings_.least_window_bytes, settings_.window_bytes / std::max<std::size_t>(1, plan.peers.size()));
  const auto chunks = [&](const MixedCodec& codec) {
    const std::size_t bytes = std::max<std::size_t>(1, codec.usual_size(settings_.chunk_elements));
    return static_cast<std::uint32_t>(std::max<std::size_t>(1, of_each / bytes));
  };
  plan.window = chunks(up_);
  plan.mean_window = chunks(down_);
  return plan;
}

ExchangeData::Events ExchangeData::start(const protocol::StartExchange& action) {
  cancel();
  carried_.begin(action.start, action.self, action.links);
  protocol::ExchangePlan plan = plan_for(action);
  const std::size_t peers = plan.peers.size();
  std::vector<double> weights;
  for (const wire::Participant& participant : action.start.participants) weights.push_back(participant.weight);
  std::vector<float> scales = mean_scales(weights);
  std::vector<float> shares;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) shares.push_back(scales[i]);
  }
  contributed_ = protocol::covered_by(action.start.slices);
  attempt_.emplace(Attempt{.start = action.start,
                           .self = action.self,
                           .range = contributed_,
                           .peers = peers,
                           .exchange = protocol::Exchange(std::move(plan)),
                           .scales = std::move(scales),
                           .step = RoundStep(settings_, contributed_, weights.size(), std::move(shares))});
  for (std::size_t i = 0; i < action.start.participants.size(); ++i) {
    attempt_->links[action.start.participants[i].site] = action.links[i];
  }
  residual_.start(action.start, action.self, scale_of_self());
  Events events = advance(protocol::ExchangeStart{}, action.self);
  // Chunks that came before the attempt was known here.
  for (IncomingChunk& incoming : early_.take()) {  // if the attempt fails meanwhile, the rest waits for the next
    append(events, accept(std::move(incoming)));
  }
  append(events, close_lossy());
  if (const auto gone = attempt_ ? attempt_->exchange.lacks() : std::nullopt) {
    append(events, fail(*gone, "it was lost, and its contribution is incomplete here"));
  }
  return events;
}

void ExchangeData::cancel() {
  attempt_.reset();
  chunks_in_flight_.clear();
}

std::optional<ExchangeData::Complete> ExchangeData::complete() {
  if (!attempt_ || !attempt_->complete) return std::nullopt;
  return Complete{attempt_->range, attempt_->step, attempt_->digests};
}

bool ExchangeData::is_complete(RoundId round, AttemptId attempt) const {
  return attempt_ && attempt_->complete && attempt_->start.round == round && attempt_->start.attempt == attempt;
}

// ---- messages in and out -----------------------------------------------------------------------------

ExchangeData::Events ExchangeData::on_chunk(IncomingChunk incoming) {
  traffic_.came(parts_.clock->now(), incoming.payload ? incoming.payload->bytes().size() : 0);
  return accept(std::move(incoming));
}

ExchangeData::Events ExchangeData::accept(IncomingChunk incoming) {
  const wire::Chunk& chunk = incoming.chunk;
  const auto order = order_of(chunk.round, chunk.attempt);
  const auto ours = attempt_ ? order_of(attempt_->start.round, attempt_->start.attempt) : decltype(order)();
  if (!attempt_ || chunk.run != attempt_->start.run || order > ours) {
    if (const std::optional<SealedAnchor> sealed = parts_.arena->sealed()) {
      early_.keep(sealed->run, sealed->round, std::move(incoming));
    }
    return {};
  }
  if (order == ours && attempt_->complete) return {};  // nothing is missing, and it may be committed
  attempt_->moved += incoming.payload ? incoming.payload->bytes().size() : 0;
  const bool older = order < ours;
  const bool of_round = chunk.round == attempt_->start.round && chunk.kind == wire::ChunkKind::kContribution;
  if (older && !of_round) return {};  // too late

  if (chunk.from != incoming.from) {
    return fail(incoming.from, "a chunk says it is from site " + std::to_string(chunk.from.value) +
                                   " but came from site " + std::to_string(incoming.from.value));
  }
  const std::size_t got = incoming.payload ? incoming.payload->bytes().size() : 0;
  if (const Status fits = check_payload(chunk, got); !fits.ok()) return fail(incoming.from, fits.message());
  if (hash64(incoming.payload->view()) != chunk.payload_hash) {
    return fail(incoming.from, "chunk " + text_of(chunk.range) + " was damaged on its way: its hash differs");
  }
  if (chunk.kind == wire::ChunkKind::kContribution) {
    using Arrival = protocol::Carryover<BufferPtr>::Arrival;
    const bool late = older && !attempt_->exchange.owns(chunk.range);
    if (late && carried_.elements_late() + chunk.range.size() > kMostLate * attempt_->range.size()) {
      return fail(incoming.from,
                  "contributions of earlier attempts, to slices that other sites own now, add up to more than " +
                      std::to_string(kMostLate) + " vectors");
    }
    const auto arrival = carried_.arrived(incoming.from, chunk.range, chunk.attempt, std::move(incoming.payload));
    if (arrival == Arrival::kStale || arrival == Arrival::kHeld) return {};
    // The sender or the slice may come back in an attempt of this round. The sender counts on what it has sent.
    if (late) carried_.took_late(chunk.range);
    if (late || (older && !attempt_->exchange.contributes(incoming.from))) return {};
    return advance(protocol::ContributionArrived{incoming.from, chunk.range}, incoming.from);
  }
  attempt_->means[chunk.range.begin] = std::move(incoming.payload);
  return advance(protocol::MeanArrived{incoming.from, chunk.range}, incoming.from);
}

// Chunks of these links were dropped before this attempt began. Nothing else that comes over them can be relied on, and
// their senders have to see that it was lost.
ExchangeData::Events ExchangeData::close_lossy() {
  Events events;
  for (const auto& [link, lossy] : early_.lossy()) {
    parts_.transport->close(link);
    if (!attempt_) continue;
    const auto used = attempt_->links.find(lossy.from);
    if (used != attempt_->links.end() && used->second == link) events = fail(lossy.from, lossy.why);
  }
  return events;
}

ExchangeData::Events ExchangeData::on_sent(std::uint64_t token) {
  const std::uint64_t left = traffic_.left(parts_.clock->now(), token);
  if (attempt_) attempt_->moved += left;
  const auto sent = chunks_in_flight_.extract(token);
  return sent ? advance(sent.mapped(), attempt_->self) : Events();
}

wire::Exchanged ExchangeData::exchanged() {
  if (!attempt_) return {};
  if (attempt_->complete) return {.moved = attempt_->moved};
  auto [means, sites] = attempt_->exchange.missing(wire::kMaxLacked);
  return {.moved = attempt_->moved, .means = means, .lacks = std::move(sites)};
}

ExchangeData::Events ExchangeData::advance(const protocol::ExchangeEvent& event, SiteId peer) {
  if (!attempt_) return {};
  Result<std::vector<protocol::ExchangeAction>> actions = attempt_->exchange.step(event);
  if (!actions.ok()) return fail(peer, actions.status().message());
  Events events;
  for (const protocol::ExchangeAction& action : *actions) {
    append(events, std::visit([this](const auto& each) { return run(each); }, action));
    if (!attempt_) break;  // the attempt failed
  }
  return events;
}

ExchangeData::Events ExchangeData::fail(SiteId peer, std::string reason) {
  if (!attempt_) return {};
  carried_.drop(peer);
  if (attempt_->complete) {  // it may be committed; an attempt after it sees that the link lost something
    if (const LinkId link = attempt_->links[peer]; link != LinkId(0)) parts_.transport->close(link);
    return {};
  }
  protocol::ExchangeFailed failed{attempt_->start.round, attempt_->start.attempt, peer, std::move(reason)};
  cancel();
  return {failed};
}

ExchangeData::Events ExchangeData::unfit(std::string reason) {
  protocol::ContributionUnfit event{attempt_->start.round, attempt_->start.attempt, std::move(reason)};
  cancel();
  return {event};
}

// Names the first tensor of the vector that is not finite. Which chunk is checked first depends on the owners.
ExchangeData::Events ExchangeData::not_finite(ElementRange range) {
  std::string reason =
      not_finite_text(*parts_.parameters, parts_.arena->anchor(), parts_.model, settings_.outer_elements);
  if (reason.empty()) {
    reason =
        "with what earlier payloads left out (COLLAB_ERROR_FEEDBACK) the delta is beyond float32 in " + text_of(range);
  }
  return unfit(std::move(reason));
}

// ---- of the attempt under way -------------------------------------------------------------------------

float ExchangeData::scale_of_self() const {
  const auto& in = attempt_->start.participants;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].site == attempt_->self) return attempt_->scales[i];
  }
  return 0;
}

SiteId ExchangeData::owner_of(ElementRange chunk) const {
  for (const wire::Slice& slice : attempt_->start.slices) {
    if (slice.range.begin <= chunk.begin && chunk.end <= slice.range.end) return slice.owner;
  }
  return attempt_->self;
}

const MixedCodec& ExchangeData::codec_of(wire::ChunkKind kind) const {
  return kind == wire::ChunkKind::kContribution ? up_ : down_;
}

// Checks the length only. The decoder checks the bytes.
Status ExchangeData::check_payload(const wire::Chunk& chunk, std::size_t bytes) const {
  const MixedCodec& codec = codec_of(chunk.kind);
  const ElementRange range = chunk.range.end <= parts_.parameters->size() ? chunk.range : ElementRange{};
  const std::size_t norms = chunk.kind == wire::ChunkKind::kMean ? norms_size(range) : 0;
  const std::size_t bound = codec.encoded_size(range) + norms;
  const bool fits = codec.fixed_size() ? bytes == bound : bytes > norms && bytes <= bound;
  if (chunk.codec == codec.id() && range.size() > 0 && fits) return {};
  return corrupt((chunk.kind == wire::ChunkKind::kContribution ? "contribution " : "mean ") + text_of(chunk.range) +
                 ": expected " + (codec.fixed_size() ? "" : "at most ") + std::to_string(bound) + " bytes of " +
                 std::string(codec.name()) + ", got " + std::to_string(bytes) + " of codec " +
                 std::to_string(static_cast<int>(chunk.codec)));
}

std::size_t ExchangeData::norms_size(ElementRange chunk) const {
  return attempt_->step.norms() != nullptr ? attempt_->step.norms()->size(chunk) : 0;
}

wire::Chunk ExchangeData::announce(wire::ChunkKind kind, ElementRange range, Buffer& payload) const {
  return {.kind = kind,
          .run = attempt_->start.run,
          .round = attempt_->start.round,
          .attempt = attempt_->start.attempt,
          .from = attempt_->self,
          .range = range,
          .codec = codec_of(kind).id(),
          .payload_hash = hash64(payload.view())};
}

// ---- the machine's actions ----------------------------------------------------------------------------

ExchangeData::Events ExchangeData::run(const protocol::SendContribution& action) {
  const ElementRange range = action.range;
  const Result<std::span<const float>> parameters = reader_.at(range);
  if (!parameters.ok()) return unfit("the parameters could not be read: " + parameters.status().message());
  BufferPtr payload = pool_->take(up_.encoded_size(range));
  const std::span<const float> anchor = parts_.arena->anchor().subspan(range.begin, range.size());
  const std::optional<std::size_t> used = residual_.encode_contribution(range, anchor, *parameters, payload->bytes());
  if (!used) return not_finite(range);
  payload = trimmed(std::move(payload), *used);
  const wire::Chunk chunk = announce(wire::ChunkKind::kContribution, range, *payload);
  send_chunk(action.owner, chunk, std::move(payload), action.more);
  carried_.sent(action.owner, range);
  return {};
}

bool ExchangeData::reduce_into(std::span<float> sum, ElementRange range, std::vector<double>& squares,
                               std::optional<Fault>& fault) {
  bool first = true;
  if (attempt_->step.norms() != nullptr) measured_.resize(range.size());
  const auto& participants = attempt_->start.participants;
  for (std::size_t i = 0; i < participants.size(); ++i) {
    const SiteId site = participants[i].site;
    if (participants[i].weight == 0) continue;
    const float scale = attempt_->scales[i];
    if (site == attempt_->self) {
      const Result<std::span<const float>> parameters = reader_.at(range);
      if (!parameters.ok()) {
        fault = Fault{site, parameters.status()};
        return true;
      }
      const std::span<const float> anchor = parts_.arena->anchor().subspan(range.begin, range.size());
      if (!accumulate_difference(anchor, *parameters, scale, first, sum)) return false;
      if (attempt_->step.norms() != nullptr)
        static_cast<void>(accumulate_difference(anchor, *parameters, 1.0F, true, measured_));
    } else {
      const BufferPtr* encoded = carried_.find(site, range);
      COLLAB_CHECK(encoded != nullptr, "the exchange reduces a contribution that has not arrived");
      const std::span<const std::byte> bytes = (*encoded)->view();
      Status added =
          first ? up_.decode_scaled(range, bytes, scale, sum) : up_.decode_accumulate(range, bytes, scale, sum);
      if (added.ok() && attempt_->step.norms() != nullptr) added = up_.decode(range, bytes, measured_);
      if (!added.ok()) {
        fault = Fault{site, added};
        return true;
      }
    }
    if (attempt_->step.norms() != nullptr) attempt_->step.norms()->measure(range, measured_, squares);
    first = false;
  }
  return true;
}

ExchangeData::Events ExchangeData::run(const protocol::ReduceChunk& action) {
  const ElementRange range = action.range;
  const std::span<float> mean = parts_.arena->mean().subspan(range.begin, range.size());
  std::optional<Fault> fault;
  std::vector<double> squares;
  const bool fit = reduce_into(mean, range, squares, fault);
  if (fault && fault->with == attempt_->self) {
    return unfit("the parameters could not be read: " + fault->why.message());
  }
  if (fault) return fail(fault->with, "the contribution " + text_of(range) + ": " + fault->why.message());
  if (!fit) return not_finite(range);

  if (attempt_->start.participants.size() > 1) {
    const std::size_t bound = down_.encoded_size(range);
    const std::size_t norms = norms_size(range);
    BufferPtr payload = pool_->take(bound + norms);
    const std::optional<std::size_t> used = residual_.encode_mean(range, mean, payload->bytes().first(bound));
    if (!used) return fail(attempt_->self, "the sum of the deltas overflows float32 in " + text_of(range));
    if (attempt_->step.norms() != nullptr)
      attempt_->step.norms()->write(range, squares, mean, payload->bytes().subspan(*used, norms));
    payload = trimmed(std::move(payload), *used + norms);
    // All sites apply the decoded bytes, the owner too.
    if (const Status status = open_mean(range, payload->view(), !down_.lossless() || residual_.on()); !status.ok()) {
      return fail(attempt_->self, status.message());
    }
    const wire::Chunk chunk = announce(wire::ChunkKind::kMean, range, *payload);
    if (attempt_->peers > 0) attempt_->own_means[range.begin] = {chunk, std::move(payload), attempt_->peers};
  }
  take_mean(range.begin, mean);
  return {};
}

ExchangeData::Events ExchangeData::run(const protocol::SendMean& action) {
  const auto found = attempt_->own_means.find(action.range.begin);
  COLLAB_CHECK(found != attempt_->own_means.end(), "the exchange sends a mean that it has not reduced");
  OwnMean& mean = found->second;
  const bool last = --mean.to_go == 0;
  send_chunk(action.to, mean.chunk, last ? std::move(mean.payload) : mean.payload, action.more);
  if (last) attempt_->own_means.erase(found);
  return {};
}

ExchangeData::Events ExchangeData::run(const protocol::TakeMean& action) {
  const ElementRange range = action.range;
  const auto found = attempt_->means.find(range.begin);
  COLLAB_CHECK(found != attempt_->means.end(), "the exchange takes a mean that has not arrived");
  if (const Status status = open_mean(range, found->second->view(), true); !status.ok()) {
    return fail(owner_of(range), "the mean of " + text_of(range) + " cannot be decoded: " + status.message());
  }
  attempt_->means.erase(found);
  take_mean(range.begin, parts_.arena->mean().subspan(range.begin, range.size()));
  return {};
}

Status ExchangeData::open_mean(ElementRange range, std::span<const std::byte> bytes, bool decode) {
  const std::size_t encoded = bytes.size() - norms_size(range);
  if (attempt_->step.norms() != nullptr)
    COLLAB_RETURN_IF_ERROR(attempt_->step.norms()->take(range, bytes.subspan(encoded)));
  if (!decode) return {};
  return down_.decode(range, bytes.first(encoded), parts_.arena->mean().subspan(range.begin, range.size()));
}

void ExchangeData::take_mean(std::uint64_t begin, std::span<float> mean) {
  // An outer step without state can be taken while the mean is in cache and the next chunk is on its way. Until the
  // commit its result stands in the arena's free slot, which nothing reads. Then `Done` has the digest of the coming
  // parameters, and the commit need not compute it again.
  if (attempt_->step.is_taken_at_once()) {
    attempt_->step.take(begin, parts_.arena->anchor().subspan(begin, mean.size()), mean, {});
  }
  Digest digest = hash128(as_bytes_of(mean));
  if (attempt_->step.norms() != nullptr) {
    DigestChain both;
    both.add(digest);
    both.add(hash128(std::as_bytes(attempt_->step.norms()->taken(begin))));
    digest = both.finish();
  }
  attempt_->digests[begin] = {digest, mean.size()};
}

ExchangeData::Events ExchangeData::run(const protocol::ExchangeDone&) {
  protocol::ExchangeComplete complete{attempt_->start.round, attempt_->start.attempt, {}};
  for (const wire::Slice& slice : attempt_->start.slices) {
    DigestChain chain;
    for (auto chunk = attempt_->digests.lower_bound(slice.range.begin);
         chunk != attempt_->digests.end() && chunk->first < slice.range.end; ++chunk) {
      chain.add(chunk->second.digest);
    }
    complete.slices.push_back(chain.finish());
  }
  attempt_->complete = true;
  attempt_->step.close();
  return {complete};
}

void ExchangeData::send_chunk(SiteId to, const wire::Chunk& chunk, BufferPtr payload, const protocol::Following& more) {
  const std::uint64_t token = sender_.next_token();
  chunks_in_flight_.insert({token, {to, chunk.kind}});
  traffic_.leaves(parts_.clock->now(), token, payload->bytes().size());
  const std::uint64_t follows = up_.usual_size(more.contributions) + down_.usual_size(more.means);
  traffic_.sending(sender_.send(attempt_->links[to], chunk, std::move(payload), token, follows));
}

}  // namespace collab
