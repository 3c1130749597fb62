// One site's data plane; the other site is played by the test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/digest.h"
#include "core/runtime/data/data_plane.h"
#include "core/wire/encoding.h"
#include "tests/unit/codec/samples.h"
#include "tests/unit/runtime/private_arena.h"

namespace collab::testing {

using ::testing::IsEmpty;

inline constexpr std::uint64_t kElements = 4 * 4096;
inline constexpr ElementRange kOurs{0, 8192};
inline constexpr ElementRange kTheirs{8192, kElements};
inline constexpr SiteId kSelf{0};
inline constexpr SiteId kPeer{1};
inline constexpr LinkId kLink{5};

class Vector final : public ParameterVector {
 public:
  [[nodiscard]] std::uint64_t size() const override { return values.size(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override {
    return elsewhere ? std::span<float>() : std::span(values).subspan(offset, count);
  }
  Status read(std::uint64_t offset, std::span<float> out) override {
    if (elsewhere) read_at_once.push_back(out.size());
    std::ranges::copy(std::span(values).subspan(offset, out.size()), out.begin());
    return {};
  }
  Status write(std::uint64_t offset, std::span<const float> in) override {
    if (elsewhere) written_at_once.push_back(in.size());
    std::ranges::copy(in, values.begin() + static_cast<std::ptrdiff_t>(offset));
    return {};
  }
  [[nodiscard]] std::uint64_t tile() const override { return tile_elements; }

  std::vector<float> values;
  std::uint64_t tile_elements = kDigestChunkElements;
  bool elsewhere = false;  // on a device: there is no view
  std::vector<std::size_t> read_at_once;
  std::vector<std::size_t> written_at_once;
};

struct Sent {
  wire::Chunk chunk;
  std::vector<std::byte> payload;
};

// Takes what is sent down.
class Recorder final : public Transport {
 public:
  [[nodiscard]] std::string name() const override { return "recorder"; }
  [[nodiscard]] Abilities abilities() const override { return {}; }
  Status start(TransportHandler* /*handler*/) override { return {}; }
  Result<std::string> listen(const std::string& address) override { return address; }
  LinkId connect(const std::string& /*address*/, Duration /*timeout*/) override { return kLink; }
  void send(LinkId /*link*/, TransportMessage message, std::uint64_t /*token*/) override {
    const Result<wire::Message> decoded = wire::decode(message.head);
    ASSERT_TRUE(decoded.ok());
    const auto bytes = message.payload->view();
    sent.push_back({std::get<wire::Chunk>(*decoded), {bytes.begin(), bytes.end()}});
  }
  void close(LinkId link) override { closed.push_back(link); }
  std::vector<Sent> sent;
  std::vector<LinkId> closed;
};

class DataPlaneByHand : public ::testing::Test {
 protected:
  void begin(const Codecs& codecs, bool feedback = true) {
    codecs_ = codecs;
    arena_ = private_arena(kElements, has_outer_state(outer_.id));
    ASSERT_NE(arena_, nullptr);
    vector_.values = normal_vector(random_, kElements, 1.0);
    plane_ = std::make_unique<DataPlane>(DataPlane::Settings{.codec = codecs,
                                                             .error_feedback = feedback,
                                                             .kept = kept_,
                                                             .radial = radial_,
                                                             .outer = outer_,
                                                             .outer_elements = outer_elements_,
                                                             .chunk_elements = 8192,
                                                             .tile_elements = tile_elements_},
                                         DataPlane::Parts{.transport = &transport_,
                                                          .clock = &clock_,
                                                          .arena = arena_.get(),
                                                          .parameters = &vector_,
                                                          .model = model_,
                                                          .passing = [this] { ++passed_; }});
    ASSERT_TRUE(plane_->keep_anchor({RunId(3), RoundId(0), {}}).ok());
    train();
  }
  void train() {
    const std::vector<float> delta = normal_vector(random_, kElements, 1e-2);
    for (std::size_t i = 0; i < kElements; ++i) vector_.values[i] -= delta[i];
  }
  // One attempt of the round after the anchor's; we send our contribution.
  DataPlane::Events start(std::uint32_t attempt, double weight = 1) {
    attempt_ = AttemptId(attempt);
    transport_.sent.clear();
    wire::StartAttempt start{.term = TermId(1),
                             .run = RunId(3),
                             .round = round(),
                             .attempt = attempt_,
                             .participants = {{kSelf, "self", weight, attempt_}, {kPeer, "peer", 1, attempt_}},
                             .slices = {{kSelf, kOurs}, {kPeer, kTheirs}}};
    return plane_->start({start, kSelf, {LinkId(0), link_}});
  }
  [[nodiscard]] RoundId round() const { return RoundId(arena_->sealed()->round.value + 1); }
  DataPlane::Events arrives(wire::ChunkKind kind, ElementRange range, CodecId codec, std::vector<std::byte> bytes) {
    BufferPtr payload = pool_->take(bytes.size());
    std::ranges::copy(bytes, payload->bytes().begin());
    const wire::Chunk chunk{kind, RunId(3), round(), attempt_, kPeer, range, codec, hash64(bytes)};
    return plane_->on_chunk(link_, kPeer, chunk, std::move(payload));
  }
  DataPlane::Events arrives(wire::ChunkKind kind, ElementRange range) {
    const CodecId codec = kind == wire::ChunkKind::kContribution ? codecs_.up : codecs_.down;
    return arrives(kind, range, codec, *payload_of(codec_for(codec), normal_vector(random_, range.size(), 1e-2)));
  }
  // The peer's part, until we are done.
  void complete() {
    EXPECT_THAT(arrives(wire::ChunkKind::kContribution, kOurs), IsEmpty());
    const DataPlane::Events events = arrives(wire::ChunkKind::kMean, kTheirs);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_TRUE(std::holds_alternative<protocol::ExchangeComplete>(events[0]));
  }
  DataPlane::Applied commit(protocol::Base base) {
    const auto applied = plane_->apply({{TermId(1), RunId(3), round(), attempt_, {kSelf, kPeer}}, base});
    EXPECT_TRUE(applied.ok()) << applied.status().to_string();
    return applied.ok() ? *applied : DataPlane::Applied{};
  }
  void run_round() {
    start(1);
    complete();
    commit(protocol::Base::kParameters);
    train();
  }
  [[nodiscard]] std::vector<std::byte> sent(wire::ChunkKind kind) const {
    for (const Sent& each : transport_.sent) {
      if (each.chunk.kind == kind) return each.payload;
    }
    return {};
  }
  [[nodiscard]] std::vector<float> left_out() const {
    return {plane_->residual().values().begin(), plane_->residual().values().end()};
  }
  static protocol::ExchangeFailed failure_of(const DataPlane::Events& events) {
    EXPECT_EQ(events.size(), 1U);
    const auto* failed = events.empty() ? nullptr : std::get_if<protocol::ExchangeFailed>(&events[0]);
    EXPECT_NE(failed, nullptr);
    return failed == nullptr ? protocol::ExchangeFailed{} : *failed;
  }

  Prng random_{51};
  SteadyClock clock_;
  Recorder transport_;
  Vector vector_;
  const std::vector<TensorInfo> model_{{"wte.weight", "float32", {4096}, TensorKind::kAveraged, {}},
                                       {"attn.mask", "float32", {64, 64}, TensorKind::kLeftOut, {1, 1}},
                                       {"h.0.weight", "float32", {3, 4096}, TensorKind::kAveraged, {}}};
  std::shared_ptr<BufferPool> pool_ = make_buffer_pool();
  std::unique_ptr<ArenaWriter> arena_;
  std::unique_ptr<DataPlane> plane_;
  Codecs codecs_;
  std::vector<ElementRange> kept_;
  std::vector<ElementRange> radial_;
  std::uint64_t outer_elements_ = UINT64_MAX;
  std::uint64_t tile_elements_ = kDigestChunkElements;
  int passed_ = 0;  // how often a pass has said that it goes on
  OuterConfig outer_{.id = OuterId::kAverage, .lr = 1.0F, .momentum = 0.0F};
  AttemptId attempt_;
  LinkId link_ = kLink;  // to the peer
};

}  // namespace collab::testing
