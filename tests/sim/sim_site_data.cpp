// The data plane of a simulated site: chunks as vectors of floats, the weighted mean, anchors.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/digest.h"
#include "core/wire/encoding.h"
#include "tests/sim/sim_site.h"

namespace collab::sim {

using namespace protocol;

namespace {

using Floats = std::vector<float>;

std::shared_ptr<const Floats> cut(const Floats& from, const ElementRange& range) {
  return std::make_shared<const Floats>(from.begin() + static_cast<std::ptrdiff_t>(range.begin),
                                        from.begin() + static_cast<std::ptrdiff_t>(range.end));
}

void paste(const Floats& what, const ElementRange& range, Floats& into) {
  std::copy(what.begin(), what.end(), into.begin() + static_cast<std::ptrdiff_t>(range.begin));
}

void flip_one_bit(Floats& values, std::uint64_t index) {
  float& value = values[index % values.size()];
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 0x0040'0000U);
}

}  // namespace

// What is contributed is all that was trained and is not counted yet: no local step is lost, none comes twice.
void SimSite::expect_lossless() {
  if (!fit() || !sound_) return;
  for (std::size_t i = 0; i < theta_.size(); ++i) {
    const double delta = static_cast<double>(theta_[i]) - static_cast<double>(anchor_[i]);
    if (std::abs(delta - moves_[i]) < 1e-4) continue;
    return checkers_.fail(options_.process + ": element " + std::to_string(i) + " moved by " + std::to_string(delta) +
                          " from the anchor, and what was trained and not counted moved it by " +
                          std::to_string(moves_[i]));
  }
}

void SimSite::move_onto_anchor(Base base, const Floats& previous) {
  if (options_.mutation == Mutation::kLoseSteps && base == Base::kOldAnchor) theta_ = previous;
  if (base == Base::kSnapshot && !snapshot_) return checkers_.fail(options_.process + " has no snapshot");
  const bool outright = base == Base::kParameters || base == Base::kUnfit;
  if (base == Base::kFork) leave_branch(previous);
  const Floats& from = base == Base::kSnapshot ? snapshot_->theta : base == Base::kFork ? fork_->anchor : previous;
  for (std::size_t i = 0; i < theta_.size(); ++i) {
    theta_[i] = outright ? anchor_[i] : anchor_[i] + (theta_[i] - from[i]);
    moves_[i] = outright ? 0 : base == Base::kSnapshot ? moves_[i] - snapshot_->moves[i] : moves_[i];
  }
  if (base == Base::kUnfit) report_.undisturbed = false;
  if (outright) uncounted_from_ = report_.trained;
  if (base == Base::kSnapshot) uncounted_from_ = snapshot_->trained;
  report_.uncounted_from = uncounted_from_;
  if (std::exchange(rebase_owed_, false) && fork_ && base == Base::kSnapshot) fork_->uncounted_from = uncounted_from_;
  snapshot_.reset();
  if (base == Base::kFork) fork_.reset();
}

// What all of the branch have learned together is shared by them: each brings it, with the weight of its own samples.
void SimSite::leave_branch(const Floats& previous) {
  if (!fork_) return checkers_.fail(options_.process + " leaves a branch it was never in");
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    moves_[i] += static_cast<double>(previous[i]) - static_cast<double>(fork_->anchor[i]);
  }
  uncounted_from_ = fork_->uncounted_from;
  checkers_.leaves_branch(options_.process, uncounted_from_);
}

bool SimSite::fit() const {
  return std::all_of(theta_.begin(), theta_.end(), [](float value) { return std::isfinite(value); });
}

LinkId SimSite::link_to(SiteId site) const {
  for (std::size_t i = 0; i < attempt_->form.participants.size(); ++i) {
    if (attempt_->form.participants[i].site == site) return attempt_->links[i];
  }
  return LinkId{0};
}

// ---- one attempt -----------------------------------------------------------------------------------

void SimSite::start_exchange(const StartExchange& start) {
  self_ = start.self;
  double weight = 0;
  for (const wire::Participant& p : start.form.participants) {
    if (p.site == self_) weight = p.weight;
  }
  if (weight > 0) expect_lossless();
  Floats delta(options_.elements);
  for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = anchor_[i] - theta_[i];
  checkers_.contributes(start.form, self_, {options_.process, weight, uncounted_from_, report_.trained, delta});
  newest_ = {start.form.round, start.form.attempt};
  report_.exchanges[start.form.round].began = network_.now();
  wire::Form standing = start.form;
  if (options_.mutation == Mutation::kCarryStale) {
    for (wire::Participant& p : standing.participants) p.since = AttemptId{1};
  }
  carried_.begin(standing, self_, start.links);
  report_.carried += carried_.held().size();
  attempt_.emplace(Attempt{start.form,
                           start.links,
                           Exchange({start.form, self_, options_.chunk_elements, options_.window, options_.window,
                                     start.peers(), carried_.held(), carried_.delivered()}),
                           std::move(delta),
                           Floats(options_.elements),
                           {},
                           {}});
  if (weight > 0 && !fit()) {
    attempt_.reset();
    report_.undisturbed = false;
    return post(ContributionUnfit{start.form.round, start.form.attempt, "NaN in the delta"});
  }
  if (const auto gone = attempt_->exchange.lacks()) {
    attempt_.reset();
    return post(ExchangeFailed{start.form.round, start.form.attempt, *gone, "it is gone, and its part is not whole"});
  }
  step_exchange(ExchangeStart{}, self_);
  std::vector<Arrived> waiting;
  for (auto early = early_.begin(); early != early_.upper_bound(newest_); early = early_.erase(early)) {
    waiting.insert(waiting.end(), early->second.begin(), early->second.end());
  }
  for (const Arrived& arrived : waiting) take_chunk(arrived);
}

void SimSite::step_exchange(const ExchangeEvent& event, SiteId from) {
  if (!attempt_) return;
  const auto actions = attempt_->exchange.step(event);
  if (!actions.ok()) {
    const wire::Form form = attempt_->form;
    carried_.drop(from);
    return post(ExchangeFailed{form.round, form.attempt, from, actions.status().message()});
  }
  for (const ExchangeAction& action : *actions) {
    if (attempt_) perform(action);
  }
}

void SimSite::perform(const ExchangeAction& action) {
  if (const auto* send = std::get_if<SendContribution>(&action)) return send_contribution(*send);
  if (const auto* chunk = std::get_if<ReduceChunk>(&action)) return reduce(chunk->range);
  if (const auto* send = std::get_if<SendMean>(&action)) {
    const Payload& mean = attempt_->own_means.at(send->range.begin);
    return send_chunk(link_to(send->to), wire::ChunkKind::kMean, send->range, mean, send->to);
  }
  if (const auto* take = std::get_if<TakeMean>(&action)) {
    return paste(*attempt_->means.at(take->range.begin), take->range, attempt_->mean);
  }
  exchange_done();
}

void SimSite::send_chunk(LinkId link, wire::ChunkKind kind, const ElementRange& range, Payload payload,
                         std::optional<SiteId> to) {
  wire::Chunk chunk;
  chunk.kind = kind;
  chunk.from = self_;
  chunk.range = range;
  chunk.codec = CodecId::kFp32;
  if (attempt_) {
    chunk.round = attempt_->form.round;
    chunk.attempt = attempt_->form.attempt;
  }
  chunk.payload_hash = hash64(as_bytes_of(*payload));
  std::uint64_t token = 0;
  if (to) {
    token = next_sent_++;
    sent_[token] = {payload->size() * sizeof(float), {*to, kind}, newest_};
    up_.set_busy(network_.now(), true);
  }
  network_.send(node_, link, Frame{Lane::kData, wire::encode(chunk), std::move(payload)}, token);
}

void SimSite::send_contribution(const SendContribution& send) {
  const Payload part = cut(attempt_->delta, send.range);
  send_chunk(link_to(send.owner), wire::ChunkKind::kContribution, send.range, part, send.owner);
  carried_.sent(send.owner, send.range);
}

void SimSite::reduce(const ElementRange& range) {
  double total = 0;
  for (const wire::Participant& p : attempt_->form.participants) total += p.weight;
  Floats sum(range.size(), 0.0F);
  bool doubled = options_.mutation != Mutation::kCountTwice;
  for (const wire::Participant& p : attempt_->form.participants) {
    if (p.weight <= 0) continue;
    const Payload part = p.site == self_ ? cut(attempt_->delta, range) : *carried_.find(p.site, range);
    const auto scale = static_cast<float>(p.weight / total);
    for (int times = doubled ? 1 : 2; times > 0; --times) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += scale * (*part)[i];
    }
    doubled = true;
  }
  paste(sum, range, attempt_->mean);
  attempt_->own_means[range.begin] = std::make_shared<const Floats>(std::move(sum));
}

void SimSite::exchange_done() {
  if (flip_mean_ && attempt_->form.participants.size() > 1) {  // alone, nobody could tell
    flip_mean_ = false;
    flipped_ = newest_;
    report_.undisturbed = false;
    flip_one_bit(attempt_->mean, prng_.next());
    log_(options_.process, "FAULT a bit of the mean is flipped");
  }
  report_.exchanges[attempt_->form.round].ended = network_.now();
  std::vector<Digest> slices;
  for (const wire::Slice& slice : attempt_->form.slices) slices.push_back(digest_of(*cut(attempt_->mean, slice.range)));
  post(ExchangeComplete{attempt_->form.round, attempt_->form.attempt, std::move(slices)});
}

void SimSite::on_chunk(LinkId link, const wire::Chunk& chunk, const Payload& payload) {
  const auto peer = site_.peer_of(link);
  if (chunk.kind >= wire::ChunkKind::kAnchor) {
    if (!incoming_ || !peer) return;
    const bool list = chunk.kind == wire::ChunkKind::kAnchorDigests;
    std::vector<Digest> tiles = tiles_of(*payload);
    if (list) {  // a payload here is floats: a digest is four of them, as bits
      tiles.resize(payload->size() / 4);
      std::memcpy(static_cast<void*>(tiles.data()), payload->data(), payload->size() * sizeof(float));
    }
    return fetch(PartArrived{*peer, chunk.kind, chunk.range, std::move(tiles)}, payload);
  }
  if (!peer || *peer != chunk.from || !payload || hash64(as_bytes_of(*payload)) != chunk.payload_hash) {
    return checkers_.fail(options_.process + " got a chunk from a link that is not its sender's, or damaged");
  }
  down_.add(network_.now(), payload->size() * sizeof(float));
  const std::pair at{chunk.round, chunk.attempt};
  if (attempt_ && at <= newest_) return take_chunk({chunk, payload});
  early_[at].push_back({chunk, payload});
  std::size_t held = 0;
  for (const auto& [key, list] : early_) held += list.size();
  const std::size_t bound = 64 * (options_.elements / options_.chunk_elements + 2);
  if (held > bound) checkers_.fail(options_.process + " holds " + std::to_string(held) + " early chunks");
}

void SimSite::take_chunk(const Arrived& arrived) {
  if (!attempt_) return;
  const wire::Chunk& chunk = arrived.chunk;
  const bool older = std::pair(chunk.round, chunk.attempt) < newest_;
  const bool contribution = chunk.kind == wire::ChunkKind::kContribution;
  if (older && !(contribution && chunk.round == newest_.first && attempt_->exchange.owns(chunk.range))) return;
  if (contribution) {
    using Arrival = Carryover<Payload>::Arrival;
    const auto arrival = carried_.arrived(chunk.from, chunk.range, chunk.attempt, arrived.payload);
    if (arrival == Arrival::kStale || arrival == Arrival::kHeld) return;
    if (older && !attempt_->exchange.contributes(chunk.from)) return;
    return step_exchange(ContributionArrived{chunk.from, chunk.range}, chunk.from);
  }
  attempt_->means[chunk.range.begin] = arrived.payload;
  step_exchange(MeanArrived{chunk.from, chunk.range}, chunk.from);
}

// ---- anchors ---------------------------------------------------------------------------------------

void SimSite::keep_anchor(const KeepAnchor& keep) {
  if (anchor_.empty()) anchor_ = theta_;
  saved_ = Saved{keep.run, keep.round, anchor_};
  report_.run = keep.run;
  report_.round = keep.round;
  post(AnchorInPlace{keep.run, keep.round, digest_of(anchor_)});
}

void SimSite::send_anchor(const SendAnchor& send) {
  Payload part = cut(anchor_, send.part.range);
  if (send.part.kind == wire::ChunkKind::kAnchorDigests) {
    const std::vector<Digest> tiles = tiles_of(*part);
    Floats bits(4 * tiles.size());
    std::memcpy(bits.data(), tiles.data(), bits.size() * sizeof(float));
    part = std::make_shared<const Floats>(std::move(bits));
  } else if (++sound_parts_ > 200 && prng_.chance(options_.damaged_parts)) {  // one in a while is no broken memory
    sound_parts_ = 0;
    Floats damaged = *part;
    flip_one_bit(damaged, prng_.next());
    part = std::make_shared<const Floats>(std::move(damaged));
  }
  send_chunk(send.to, send.part.kind, send.part.range, std::move(part));
}

void SimSite::receive_anchor(const ReceiveAnchor& receive) {
  attempt_.reset();
  carried_.clear();
  AnchorFetchPlan plan{.run = receive.run,
                       .round = receive.round,
                       .digest = receive.digest,
                       .elements = options_.elements,
                       .tile_elements = kTileElements,
                       .part_elements = kTileElements,
                       .list_elements = 4 * kTileElements,
                       .window = 4};
  if (saved_) plan.held_anchor = tiles_of(anchor_);
  incoming_.emplace(Incoming{receive, AnchorFetch(std::move(plan)), Floats(options_.elements)});
}

void SimSite::fetch(const AnchorFetchEvent& event, const Payload& payload) {
  bool whole = false;
  for (const AnchorFetchAction& action : incoming_->fetch.step(event)) {
    if (const auto* ask = std::get_if<AskPart>(&action)) {
      send(incoming_->links.at(ask->of), ask->message);
    } else if (const auto* part = std::get_if<TakePart>(&action)) {
      paste(*payload, part->range, incoming_->anchor);
    } else if (const auto* held = std::get_if<TakeHeld>(&action)) {
      paste(*cut(anchor_, held->range), held->range, incoming_->anchor);
    } else if (const auto* wrong = std::get_if<SourceWrong>(&action)) {
      post(AnchorSourceWrong{wrong->site, wrong->reason, incoming_->fetch.progress().here});
    } else {
      whole = true;
    }
  }
  if (whole) anchor_whole();
}

void SimSite::anchor_whole() {
  const Incoming done = std::move(*incoming_);
  incoming_.reset();
  const auto& [run, round, expected] = done.wanted;
  const Digest digest = digest_of(done.anchor);
  if (digest != expected) checkers_.fail(options_.process + " was given a whole anchor with another digest");
  if (saved_ && saved_->run == run && saved_->round == round) sound_ = false;  // of two, the wrong one stayed
  previous_ = std::exchange(anchor_, done.anchor);
  saved_ = Saved{run, round, anchor_};
  report_.run = run;
  report_.round = round;
  post(AnchorInPlace{run, round, digest});
}

void SimSite::apply(const ApplyCommit& apply) {
  const wire::Commit& commit = apply.commit;
  const Floats previous = anchor_;
  if (!commit.contributors.empty()) {
    if (!attempt_) return checkers_.fail(options_.process + " is to apply an exchange it has not kept");
    // A successor that knows of nobody else who was done has nothing to compare it with.
    const bool unseen = flipped_ == std::pair(commit.round, commit.attempt) && commit.term != attempt_->form.term;
    if (unseen) sound_ = false;
    if (!unseen) checkers_.applied(options_.process, attempt_->form, commit, attempt_->mean);
    for (std::size_t i = 0; i < anchor_.size(); ++i) anchor_[i] -= attempt_->mean[i];
  }
  if (flip_anchor_ || (options_.mutation == Mutation::kFlipBit && commit.round.value == 3)) {
    if (flip_anchor_) {
      checkers_.invariants.excuse(options_.process, commit.round);
      log_(options_.process, "FAULT a bit of the anchor is flipped");
      report_.undisturbed = sound_ = false;
    }
    flip_anchor_ = false;
    flip_one_bit(anchor_, prng_.next());
  }
  move_onto_anchor(apply.base, previous);
  attempt_.reset();
  carried_.clear();
  saved_ = Saved{report_.run, commit.round, anchor_};
  post(Applied{commit.round, digest_of(anchor_)});
}

}  // namespace collab::sim
