// The data of a round's attempts: carries out the Exchange machine's actions on real memory. Contributions are encoded
// and sent to the owners of slices, summed there, and the means sent to all.
//
//   the others' contributions to our slices, encoded   kept from one attempt to the next, until the commit (Carryover)
//   chunks for an attempt that has not begun here      held for it (EarlyChunks)
//   means                                              in the arena's free slot, where nobody looks before the commit
//
// An outer step without state is taken there at once (RoundStep): until the commit nobody sees it either.
//
// Threads: the node's loop thread only. Ownership: its buffers; borrows transport, arena, parameters and residual.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/protocol/exchange/exchange.h"
#include "core/protocol/site/carryover.h"
#include "core/runtime/data/anchor_streams.h"
#include "core/runtime/data/chunk_sender.h"
#include "core/runtime/data/data_settings.h"
#include "core/runtime/data/early_chunks.h"
#include "core/runtime/data/line_traffic.h"
#include "core/runtime/data/parameter_reader.h"
#include "core/runtime/data/round_step.h"
#include "core/runtime/tensors/residual.h"

namespace collab {

class ExchangeData {
 public:
  using Events = std::vector<protocol::SiteEvent>;

  struct Hashed {
    Digest digest;
    std::uint64_t elements = 0;
  };
  // An attempt whose mean is complete here.
  struct Complete {
    ElementRange range;  // the fragment that is averaged
    RoundStep& step;
    // Digests of what each chunk of the mean has become, by first element: the next anchor if the step was taken at
    // once, else the mean.
    const std::map<std::uint64_t, Hashed>& digests;
  };

  ExchangeData(const DataSettings& settings, const DataParts& parts, ChunkSender& sender, ParameterReader& reader,
               Residual& residual);

  Events start(const protocol::StartExchange& action);
  void cancel();                                     // contributions that are here stay, for the next attempt
  void forget_contributions() { carried_.clear(); }  // no later attempt can use them
  [[nodiscard]] std::size_t contributions_held() const { return carried_.held().size(); }
  Events on_chunk(IncomingChunk incoming);
  Events on_sent(std::uint64_t token);
  void link_closed(LinkId link) { early_.link_closed(link); }
  void round_is_past(RunId run, RoundId round) { early_.round_is_past(run, round); }
  // The progress of the exchange under way, and the sites whose parts are missing.
  [[nodiscard]] wire::Exchanged exchanged();

  // The attempt under way, if it is complete.
  [[nodiscard]] std::optional<Complete> complete();
  [[nodiscard]] bool is_complete(RoundId round, AttemptId attempt) const;
  // The fragment of the exchange that was started last.
  [[nodiscard]] ElementRange contributed() const { return contributed_; }

  // Chunks held for attempts that have not begun here.
  [[nodiscard]] const EarlyChunks& early() const { return early_; }
  [[nodiscard]] LineTraffic& traffic() { return traffic_; }
  [[nodiscard]] const LineTraffic& traffic() const { return traffic_; }

 private:
  struct OwnMean {
    wire::Chunk chunk;
    BufferPtr payload;
    std::size_t to_go = 0;  // peers that have not been sent it yet
  };
  struct Attempt {
    wire::StartAttempt start;
    SiteId self;
    ElementRange range;  // the fragment that is averaged: all slices
    std::map<SiteId, LinkId> links{};
    std::size_t peers = 0;  // peers that have a link
    protocol::Exchange exchange;
    std::vector<float> scales;  // per participant, site order
    RoundStep step;
    std::map<std::uint64_t, BufferPtr> means{};  // encoded means not yet decoded
    std::map<std::uint64_t, OwnMean> own_means{};
    std::map<std::uint64_t, Hashed> digests{};
    bool complete = false;
    std::uint64_t moved = 0;  // bytes of chunks that have come or left
  };
  // What went wrong, and with whose payload.
  struct Fault {
    SiteId with;
    Status why;
  };

  [[nodiscard]] protocol::ExchangePlan plan_for(const protocol::StartExchange& action) const;
  Events accept(IncomingChunk incoming);
  Events close_lossy();
  Events advance(const protocol::ExchangeEvent& event, SiteId peer);
  Events run(const protocol::SendContribution& action);
  Events run(const protocol::ReduceChunk& action);
  Events run(const protocol::SendMean& action);
  Events run(const protocol::TakeMean& action);
  Events run(const protocol::ExchangeDone& action);
  Events fail(SiteId peer, std::string reason);
  Events unfit(std::string reason);
  Events not_finite(ElementRange range);

  // ---- of the attempt under way
  [[nodiscard]] float scale_of_self() const;
  [[nodiscard]] SiteId owner_of(ElementRange chunk) const;
  [[nodiscard]] const MixedCodec& codec_of(wire::ChunkKind kind) const;
  [[nodiscard]] Status check_payload(const wire::Chunk& chunk, std::size_t bytes) const;
  // The size of the norms that follow the payload of a mean.
  [[nodiscard]] std::size_t norms_size(ElementRange chunk) const;
  // The weighted sum in site order; false: our own delta is not finite. With `rda`, also the squares of the terms.
  [[nodiscard]] bool reduce_into(std::span<float> sum, ElementRange range, std::vector<double>& squares,
                                 std::optional<Fault>& fault);
  // Decodes a mean into the arena's free slot, and reads the norms after it. A lossless mean's owner has it there.
  Status open_mean(ElementRange range, std::span<const std::byte> bytes, bool decode);
  void take_mean(std::uint64_t begin, std::span<float> mean);
  // The head that goes before a payload.
  [[nodiscard]] wire::Chunk announce(wire::ChunkKind kind, ElementRange range, Buffer& payload) const;
  void send_chunk(SiteId to, const wire::Chunk& chunk, BufferPtr payload, const protocol::Following& more);

  const DataSettings& settings_;
  const DataParts& parts_;
  ChunkSender& sender_;
  ParameterReader& reader_;
  Residual& residual_;
  MixedCodec up_;
  MixedCodec down_;
  std::shared_ptr<BufferPool> pool_;
  std::vector<float> measured_;  // what one site contributes to a chunk, with `rda`
  ElementRange contributed_{};
  std::optional<Attempt> attempt_;
  protocol::Carryover<BufferPtr> carried_;
  EarlyChunks early_;
  std::map<std::uint64_t, protocol::ChunkSent> chunks_in_flight_;  // of the attempt under way, by token
  LineTraffic traffic_;
};

}  // namespace collab
