// The one table of codec names and their properties.
#include <algorithm>
#include <array>
#include <string>

#include "collab/codec.h"

namespace collab {
namespace {

constexpr std::array<std::string_view, 9> kNames{"fp32",      "bf16", "fp16",   "int8",   "int4",
                                                 "int4-e3m0", "int2", "topk64", "topk128"};

}  // namespace

std::string_view name_of(CodecId id) {
  const auto number = static_cast<std::size_t>(id);
  return number < kNames.size() ? kNames.at(number) : "unknown";
}

std::string name_of(const Codecs& codecs) {
  std::string name(name_of(codecs.up));
  if (codecs.down != codecs.up) name += "/" + std::string(name_of(codecs.down));
  return name;
}

Result<CodecId> codec_from_name(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<CodecId>(found - kNames.begin());
  std::string known;
  for (const std::string_view one : kNames) known += (known.empty() ? "" : ", ") + std::string(one);
  return invalid_argument("unknown codec \"" + std::string(name) + "\": expected one of " + known + " [knob.codec]");
}

Result<Codecs> codecs_from_name(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const Result<CodecId> up = codec_from_name(text.substr(0, slash));
  if (!up.ok()) return up.status();
  if (slash == text.size()) return Codecs(*up);
  const Result<CodecId> down = codec_from_name(text.substr(slash + 1));
  if (!down.ok()) return down.status();
  return Codecs(*up, *down);
}

bool has_top_k(const Codecs& codecs) {
  const auto is_top_k = [](CodecId id) { return id == CodecId::kTopK64 || id == CodecId::kTopK128; };
  return is_top_k(codecs.up) || is_top_k(codecs.down);
}

}  // namespace collab
