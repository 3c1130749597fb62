#include "transport/tcp/wire/tcp_decoder.h"

#include <algorithm>
#include <cstring>

namespace collab::tcp {

void FrameDecoder::expect(State state, std::size_t bytes) {
  state_ = state;
  have_ = 0;
  want_ = bytes;
}

Status FrameDecoder::feed(std::span<const std::byte> bytes, FrameSink& sink) {
  while (!bytes.empty()) {
    if (state_ == State::kData) {
      const std::size_t taken = std::min(bytes.size(), want_);
      if (placed_) {
        std::memcpy(place_.data(), bytes.data(), taken);
        COLLAB_RETURN_IF_ERROR(filled(taken, sink));
      } else {
        want_ -= taken;
        if (want_ == 0) COLLAB_RETURN_IF_ERROR(end_segment(sink));
      }
      bytes = bytes.subspan(taken);
      continue;
    }
    const std::size_t taken = std::min(bytes.size(), want_ - have_);
    std::memcpy(item_.data() + have_, bytes.data(), taken);
    have_ += taken;
    bytes = bytes.subspan(taken);
    if (have_ == want_) COLLAB_RETURN_IF_ERROR(item_complete(sink));
  }
  return {};
}

Status FrameDecoder::filled(std::size_t bytes, FrameSink& sink) {
  COLLAB_CHECK(bytes <= place_.size(), "more bytes were filled in than there was room for");
  place_ = place_.subspan(bytes);
  want_ -= bytes;
  return want_ == 0 ? end_segment(sink) : Status();
}

void FrameDecoder::forget_place() {
  place_ = {};
  placed_ = false;
}

Status FrameDecoder::item_complete(FrameSink& sink) {
  switch (state_) {
    case State::kPreface: {
      COLLAB_RETURN_IF_ERROR(check_preface(std::span(item_).first<kPrefaceBytes>()));
      expect(State::kPrefix, kPrefixBytes);
      return {};
    }
    case State::kPrefix: {
      const Result<Prefix> prefix = decode_prefix(std::span(item_).first<kPrefixBytes>());
      if (!prefix.ok()) return prefix.status();
      prefix_ = *prefix;
      if (prefix_.type == FrameType::kSegment) {
        expect(State::kFields, kSegmentFieldBytes);
        return {};
      }
      expect(State::kBody, prefix_.body_bytes);
      return want_ == 0 ? item_complete(sink) : Status();
    }
    case State::kFields: return begin_segment(sink);
    case State::kBody: {
      const std::span<const std::byte> body = std::span(item_).first(want_);
      expect(State::kPrefix, kPrefixBytes);
      ++count_;
      return sink.on_frame(prefix_.type, body);
    }
    case State::kData: break;
  }
  return internal_error("the decoder lost its place");
}

Status FrameDecoder::begin_segment(FrameSink& sink) {
  const Result<SegmentHeader> header = decode_segment(prefix_, std::span(item_).first<kSegmentFieldBytes>());
  if (!header.ok()) return header.status();
  segment_ = *header;
  const auto place = sink.on_segment_begin(*segment_);
  if (!place.ok()) return place.status();
  placed_ = place->has_value();
  place_ = placed_ ? **place : std::span<std::byte>();
  COLLAB_CHECK(!placed_ || place_.size() == header->length, "a segment was given a place that does not fit it");
  expect(State::kData, header->length);
  return want_ == 0 ? end_segment(sink) : Status();
}

Status FrameDecoder::end_segment(FrameSink& sink) {
  const SegmentHeader header = *segment_;
  const bool placed = placed_;
  segment_.reset();
  forget_place();
  expect(State::kPrefix, kPrefixBytes);
  ++count_;
  return sink.on_segment_end(header, placed);
}

}  // namespace collab::tcp
