// The decoder of frames: any bytes; and any body behind a header that is right, so that a checksum hides nothing.
#include "core/base/digest.h"
#include "core/wire/encoding.h"
#include "core/wire/limits.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/wire/random_messages.h"

namespace collab::fuzz {
namespace {

void check(std::span<const std::byte> frame) {
  const auto decoded = wire::decode(frame);
  if (!decoded.ok()) {
    FUZZ_CHECK(decoded.status().code() == StatusCode::kCorrupt || decoded.status().code() == StatusCode::kRefused);
    FUZZ_CHECK(!decoded.status().message().empty());
    return;
  }
  // One message, one encoding: what is accepted is what we would have sent.
  const auto again = wire::encode(*decoded);
  FUZZ_CHECK(std::equal(again.begin(), again.end(), frame.begin(), frame.end()));
}

// The same bytes with magic, version, length, reserved bytes and checksum set right; the type is left as it came.
std::vector<std::byte> sealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> frame(bytes.begin(), bytes.end());
  frame.resize(std::max(frame.size(), wire::kFrameHeaderBytes));
  const auto put = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) frame[at + i] = static_cast<std::byte>(value >> (8 * i));
  };
  put(0, 0x31424C43, 4);
  put(4, wire::kProtocolVersion, 4);
  put(18, 0, 2);
  put(20, frame.size() - wire::kFrameHeaderBytes, 4);
  put(24, 0, 8);
  put(8, hash64(std::span(frame).subspan(16)), 8);
  return frame;
}

}  // namespace

std::vector<Input> seed_inputs() {
  std::vector<Input> inputs;
  for (std::size_t type = 1; type <= std::variant_size_v<wire::Message>; ++type) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Prng prng(seed);
      const auto frame = wire::encode(wire::random_message(type, prng));
      if (frame.size() <= 4096) inputs.push_back(to_input(frame));
    }
  }
  return inputs;
}

}  // namespace collab::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  collab::fuzz::check(bytes);
  collab::fuzz::check(collab::fuzz::sealed(bytes));
  return 0;
}
