// Moves the tensors of one site: the chunks of a round's attempts (ExchangeData), the outer step at the commit with
// what becomes of the parameters (AnchorTensors), and anchors to joiners (AnchorStreams).
//
// Memory, in multiples of the parameters: the arena's two slots (2), the contributions of the others to our own slices,
// encoded (at most 1 with equal shares and fp32), a window of contributions on their way out, and the encoded means of
// our own slices that the slowest peer has not been sent yet. With error feedback one more for the residual, and, for
// what our own means leave out, as much as we own. Chunks that come before their attempt: at most two encoded vectors.
// While it is unknown whether a complete attempt was committed, and the site trains on: a copy of the parameters and
// one of the mean. When the training copy is moved onto an anchor of others: one copy of its old values (TrainingCopy).
// Threads: the node's loop thread only. Ownership: its buffers; borrows transport, arena and parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/runtime/data/anchor_streams.h"
#include "core/runtime/data/anchor_tensors.h"
#include "core/runtime/data/chunk_sender.h"
#include "core/runtime/data/data_settings.h"
#include "core/runtime/data/exchange_data.h"
#include "core/runtime/data/parameter_reader.h"
#include "core/runtime/tensors/residual.h"

namespace collab {

struct Traffic {  // sent: heads and payloads; received: payloads
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

class DataPlane {
 public:
  using Events = std::vector<protocol::SiteEvent>;
  using Parts = DataParts;
  using Settings = DataSettings;
  using Applied = AppliedCommit;

  // `residual`: as read from disk.
  DataPlane(const Settings& settings, const Parts& parts, std::optional<StoredResidual> residual = {});
  DataPlane(const DataPlane&) = delete;
  DataPlane& operator=(const DataPlane&) = delete;

  // ---- exchange
  Events start(const protocol::StartExchange& action);
  void cancel();                                                     // contributions stay, for the next attempt
  void forget_contributions() { exchange_.forget_contributions(); }  // no later attempt can use them
  // Contributions of the others to our slices, for this attempt and the next.
  [[nodiscard]] std::size_t contributions_held() const { return exchange_.contributions_held(); }
  Events on_chunk(LinkId link, SiteId from, const wire::Chunk& chunk, BufferPtr payload);
  Events on_sent(std::uint64_t token);
  // The progress of the exchange under way, and the sites whose parts are missing.
  [[nodiscard]] wire::Exchanged exchanged() { return exchange_.exchanged(); }

  // ---- anchor and parameters: see AnchorTensors
  Result<Applied> apply(const protocol::ApplyCommit& action);
  Status rebase(protocol::Base base) { return tensors_.rebase(base); }
  Status take_snapshot() { return tensors_.take_snapshot(); }
  Status publish_parameters() { return tensors_.publish_parameters(); }
  [[nodiscard]] std::vector<float> sample_delta() const { return tensors_.sample_delta(); }
  [[nodiscard]] bool is_unchanged() const { return tensors_.is_unchanged(); }
  Result<SealedAnchor> keep_anchor(const protocol::KeepAnchor& action) { return tensors_.keep_anchor(action); }
  // What payloads have left out so far. It changes in apply() and rebase() only, and when the first anchor is in place.
  [[nodiscard]] const Residual& residual() const { return residual_; }

  // ---- anchors in transit
  [[nodiscard]] AnchorStreams& anchors() { return anchors_; }
  // From here on the arena's free slot is for this anchor.
  void receive_anchor(const protocol::ReceiveAnchor& action);
  void link_closed(LinkId link) {
    anchors_.link_closed(link);
    exchange_.link_closed(link);
  }
  // Chunks held for attempts that have not begun here.
  [[nodiscard]] const EarlyChunks& early() const { return exchange_.early(); }

  [[nodiscard]] Traffic traffic() const { return {sender_.bytes(), bytes_received_}; }
  [[nodiscard]] const RoundTraffic& round_traffic() const { return exchange_.traffic().round(); }
  void start_round_clock() { exchange_.traffic().begin_round(); }
  // The rates that rounds have reached, per second; 0: not known.
  [[nodiscard]] std::uint32_t up_kbit() const { return exchange_.traffic().up_kbit(); }
  [[nodiscard]] std::uint32_t down_kbit() const { return exchange_.traffic().down_kbit(); }

 private:
  const Settings settings_;
  const Parts parts_;
  Residual residual_;
  ParameterReader reader_;
  ChunkSender sender_;
  ExchangeData exchange_;
  AnchorStreams anchors_;
  AnchorTensors tensors_;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace collab
