#include "core/runtime/data/optimizer_transfer.h"

#include <cstdio>
#include <cstring>
#include <variant>

#include "core/base/digest.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/protocol/formatting.h"
#include "core/wire/encoding.h"
#include "core/wire/limits.h"

namespace collab {
namespace {

// A range of a copy as a payload, without copying it again.
class PartOfCopy final : public Buffer {
 public:
  PartOfCopy(std::shared_ptr<const OptimizerCopy> copy, ElementRange range) : copy_(std::move(copy)), range_(range) {}
  [[nodiscard]] std::span<std::byte> bytes() override {
    const std::span<const std::byte> part = copy_->bytes.subspan(range_.begin, range_.size());
    return {const_cast<std::byte*>(part.data()), part.size()};  // the sender only reads
  }

 private:
  std::shared_ptr<const OptimizerCopy> copy_;
  ElementRange range_;
};

}  // namespace

// ---- serving -----------------------------------------------------------------------------------------

void OptimizerTransfer::serve(std::string why_none) {
  why_none_ = std::move(why_none);
  if (wanted_ && !why_none_.empty()) given(unavailable(why_none_));
}

void OptimizerTransfer::asked(const protocol::ServeOptimizer& action, const std::string& why_none) {
  if (action.asked.snapshot == 0) {
    const std::string& why = why_none_.empty() ? why_none : why_none_;
    if (!why.empty()) return act(protocol::SendOptimizerState{action.to, {0, 0, {}, {}, why}});
    const auto line = asks_.allow(clock_.now(), action.name + " is joining and asks for the optimizer's state");
    if (line) log_info(*line);
  }
  run(protocol::LeaseAsked{action.to, action.asked});
}

void OptimizerTransfer::given(Result<OptimizerCopy> copy) {
  wanted_ = false;
  if (copy_) return;  // a copy that was asked for again before this one came
  protocol::LeaseMade made;
  if (!copy.ok()) {
    made.reason = copy.status().message();
  } else if (copy->bytes.empty() || copy->bytes.size() > wire::kMaxElements ||
             copy->description.size() > wire::kMaxJsonBytes) {
    made.reason =
        copy->bytes.empty() ? "its optimizer keeps no state" : "its optimizer's state is too large to be served";
  } else {
    made = {copy->bytes.size(), hash128(copy->bytes), copy->description, {}};
    copy_ = std::make_shared<const OptimizerCopy>(std::move(copy).value());
    const auto line = copies_.allow(clock_.now(), "a copy of the optimizer's state, " + in_megabytes(made.bytes) +
                                                      ", is kept until the site that asked has taken it");
    if (line) log_info(*line);
  }
  run(made);
}

void OptimizerTransfer::sent(std::uint64_t token) {
  const auto found = in_flight_.find(token);
  if (found == in_flight_.end()) return;
  const LinkId to = found->second;
  in_flight_.erase(found);
  run(protocol::LeasePartSent{to});
}

void OptimizerTransfer::link_closed(LinkId link) {
  std::erase_if(in_flight_, [&](const auto& each) { return each.second == link; });
  run(protocol::LeaseOver{link});
}

void OptimizerTransfer::run(const protocol::LeaseEvent& event) {
  for (const protocol::LeaseAction& action : lease_.step(clock_.now(), event)) {
    std::visit([this](const auto& each) { act(each); }, action);
  }
}

void OptimizerTransfer::act(const protocol::MakeCopy&) { wanted_ = true; }

void OptimizerTransfer::act(const protocol::DropCopy&) {
  wanted_ = false;
  copy_.reset();
}

void OptimizerTransfer::act(const protocol::SendOptimizerState& action) {
  transport_.send(action.to, {.lane = Lane::kControl, .head = wire::encode(action.message), .payload = nullptr}, 0);
}

void OptimizerTransfer::act(const protocol::SendPart& action) {
  if (!copy_) return;
  const auto payload = std::make_shared<PartOfCopy>(copy_, action.part.range);
  const wire::Chunk chunk{.kind = wire::ChunkKind::kOptimizer,
                          .run = {},
                          .round = RoundId(action.part.snapshot),
                          .attempt = {},
                          .from = {},
                          .range = action.part.range,
                          .codec = CodecId::kFp32,
                          .payload_hash = hash64(payload->view())};
  const std::uint64_t token = next_token_++;
  in_flight_[token] = action.to;
  TransportMessage message{.lane = Lane::kData, .head = wire::encode(chunk), .payload = payload};
  bytes_sent_ += message.bytes();
  transport_.send(action.to, std::move(message), token);
}

void OptimizerTransfer::act(const protocol::RefuseFetcher& action) {
  if (const auto line = refusals_.allow(clock_.now(), action.why)) log_warning(*line);
  transport_.close(action.link);
}

// ---- fetching ----------------------------------------------------------------------------------------

protocol::OptimizerPart OptimizerTransfer::arrived(LinkId link, const wire::Chunk& chunk, BufferPtr payload) {
  arriving_ = std::move(payload);
  const std::size_t bytes = arriving_ ? arriving_->view().size() : 0;
  const bool damaged = bytes != chunk.range.size() || hash64(arriving_->view()) != chunk.payload_hash;
  return {link, chunk.round.value, chunk.range, damaged};
}

void OptimizerTransfer::begin_taking() {
  if (offer_.state.bytes > 0) taken_ = make_buffer_pool()->take(offer_.state.bytes);
}

void OptimizerTransfer::take_part(const protocol::TakeOptimizerPart& action) {
  const std::span<const std::byte> part = arriving_->view();
  std::memcpy(taken_->bytes().data() + action.range.begin, part.data(), part.size());
}

Result<BufferPtr> OptimizerTransfer::complete() {
  if (hash128(taken_->view()) != offer_.state.digest)
    return corrupt("its bytes are not the ones that it offered [optimizer.other-bytes]");
  return std::move(taken_);
}

// {"event":"join-optimizer","source":"paris","bytes":...,"seconds":...}, or only with the reason.
protocol::Note OptimizerTransfer::ended(const std::string& cold) {
  taken_.reset();
  arriving_.reset();
  const protocol::OptimizerOffered offer = std::exchange(offer_, {});
  using Level = protocol::Note::Level;
  if (!cold.empty())
    return protocol::make_note(Level::kWarning, "join-optimizer",
                               "the optimizer starts cold: " + cold + " [optimizer.starts-cold]");
  const double seconds = std::chrono::duration<double>(clock_.now() - asked_at_).count();
  return protocol::make_note(Level::kInfo, "join-optimizer",
                             "the optimizer goes on from the state fetched from " + offer.from + ": " +
                                 in_megabytes(offer.state.bytes) + " in " +
                                 protocol::in_seconds(clock_.now() - asked_at_),
                             {{"source", json_quote(offer.from)},
                              {"bytes", std::to_string(offer.state.bytes)},
                              {"seconds", json_number(seconds)}});
}

}  // namespace collab
