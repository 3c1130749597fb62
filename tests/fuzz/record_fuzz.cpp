// A record as a site reads it back: any bytes are refused in words, or are what would have been written.
#include "core/wire/encoding.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/wire/random_messages.h"

namespace collab::fuzz {

std::vector<Input> seed_inputs() {
  std::vector<Input> inputs;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Prng prng(seed);
    const auto bytes = wire::encode_record(wire::random_record(prng));
    if (bytes.size() <= 4096) inputs.push_back(to_input(bytes));
  }
  inputs.push_back(to_input(wire::encode_record({})));
  return inputs;
}

}  // namespace collab::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto record = collab::wire::decode_record(bytes);
  if (!record.ok()) {
    FUZZ_CHECK(record.status().code() == collab::StatusCode::kCorrupt);
    FUZZ_CHECK(!record.status().message().empty());
    return 0;
  }
  const auto again = collab::wire::encode_record(*record);
  FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
  return 0;
}
