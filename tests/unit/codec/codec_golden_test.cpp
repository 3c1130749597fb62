// Every path of every codec gives the bytes of tests/golden/codec, which a second implementation (make.py) wrote.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/codec/samples.h"

namespace collab {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  if (text == "-") return bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<float> floats_from_hex(const std::string& text) {
  const std::vector<std::byte> bytes = from_hex(text);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The words after the first of every line, by the first.
std::map<std::string, std::vector<std::string>> read_golden(const std::string& file) {
  std::ifstream in(std::string(COLLAB_GOLDEN_DIR) + "/codec/" + file);
  std::map<std::string, std::vector<std::string>> cases;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (std::string word; words >> word;) cases[name].push_back(word);
  }
  return cases;
}

TEST(CodecGolden, EveryPathGivesTheGoldenBytes) {
  const auto short_inputs = read_golden("inputs.txt");
  ASSERT_GE(short_inputs.size(), 18U) << "no golden inputs in " COLLAB_GOLDEN_DIR;
  auto all_inputs = read_golden("long_inputs.txt");
  all_inputs.insert(short_inputs.begin(), short_inputs.end());
  ASSERT_GT(all_inputs.size(), short_inputs.size());
  for (const CodecId id : kAllCodecs) {
    const Codec& codec = codec_for(id);
    const auto& inputs = codec.fixed_size() ? short_inputs : all_inputs;
    const auto golden = read_golden(std::string(codec.name()) + ".txt");
    ASSERT_EQ(golden.size(), inputs.size()) << codec.name();
    for (const auto& [name, words] : golden) {
      const std::vector<float> input = floats_from_hex(inputs.at(name).at(0));
      const std::vector<std::byte> payload = from_hex(words.at(0));
      const std::vector<float> decoded = floats_from_hex(words.at(1));
      ASSERT_TRUE(payload.size() == codec.encoded_size(input.size()) || !codec.fixed_size());
      on_every_path([&, &case_name = name](codec::Path path) {
        SCOPED_TRACE(std::string(codec.name()) + " " + case_name + " " + std::string(codec::name_of(path)));
        EXPECT_EQ(payload_of(codec, input), payload);
        std::vector<float> back(input.size());
        const Status status = codec.decode(payload, back);
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(bits_of(back), bits_of(decoded));
      });
    }
  }
}

}  // namespace
}  // namespace collab
