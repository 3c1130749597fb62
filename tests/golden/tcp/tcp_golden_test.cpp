// The bytes of the tcp transport's sessions against those on file: what one release writes, the next one must read.
//
// After a deliberate change of the wire: WRITE_GOLDEN=1 writes the file anew; the change then needs a new version or a
// "Wire" line in CHANGELOG.md, and docs/protocol/tcp.md.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "transport/tcp/wire/tcp_wire.h"

namespace collab::tcp {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4U];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::string samples() {
  Id link{};
  Id process{};
  for (std::uint8_t i = 0; i < 16; ++i) {
    link[i] = i;
    process[i] = static_cast<std::uint8_t>(0xF0 + i);
  }
  std::ostringstream text;
  text << "preface " << hex(encode_preface()) << "\n";
  text << "hello " << hex(encode(Hello{link, process, 3, false})) << "\n";
  text << "hello-opens " << hex(encode(Hello{link, process, 0, true})) << "\n";
  text << "welcome " << hex(encode_welcome(process)) << "\n";
  text << "refuse " << hex(encode(Refuse{Refusal::kUnknownLink, "not known"})) << "\n";
  text << "segment " << hex(encode(SegmentHeader{Lane::kData, 0x1122, 0x33, 200, 1'048'576, 65'736, 65'536})) << "\n";
  text << "ack " << hex(encode(Arrivals{LaneArrivals{5, {}}, LaneArrivals{7, {0b1010, 1}}})) << "\n";
  text << "ping " << hex(encode_ping(0x0102030405060708)) << "\n";
  text << "pong " << hex(encode(Pong{0x0102030405060708, 0x1112131415161718})) << "\n";
  text << "want " << hex(encode_want(8)) << "\n";
  text << "bye " << hex(encode(Bye{{9, 10}})) << "\n";
  text << "abort " << hex(encode_abort("its process ended")) << "\n";
  text << "allow " << hex(encode_allow(0x0102030405060708)) << "\n";
  return text.str();
}

TEST(TcpGolden, EveryFrameHasTheBytesOnFile) {
  const std::string path = std::string(GOLDEN_DIR) + "/frames.hex";
  if (std::getenv("WRITE_GOLDEN") != nullptr) std::ofstream(path) << samples();
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::ostringstream on_file;
  on_file << file.rdbuf();
  EXPECT_EQ(samples(), on_file.str());
}

}  // namespace
}  // namespace collab::tcp
