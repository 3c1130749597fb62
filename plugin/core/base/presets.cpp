#include "core/base/presets.h"

#include <algorithm>
#include <array>

namespace collab {
namespace {

using Value = std::pair<std::string_view, std::string_view>;

constexpr auto kLan = std::to_array<Value>({{"sync_every", "50"}, {"codec", "fp16"}});
constexpr auto kWan = std::to_array<Value>({{"outer_optimizer", "average"},
                                            {"sync_every", "32"},
                                            {"overlap", "1"},
                                            {"codec", "int4"},
                                            {"keep_fp16", "small"}});
constexpr auto kSlow =
    std::to_array<Value>({{"sync_every", "100"}, {"overlap", "1"}, {"codec", "topk64/int4"}, {"keep_fp16", "small"}});
constexpr auto kPretrain = std::to_array<Value>({{"outer_optimizer", "nesterov"},
                                                 {"outer_momentum", "0.9"},
                                                 {"outer_lr", "auto"},
                                                 {"sync_every", "32"},
                                                 {"overlap", "1"},
                                                 {"codec", "int4"},
                                                 {"keep_fp16", "small"}});

constexpr auto kPresets = std::to_array<Preset>({
    {"lan", "Sites in one building, or lines of 1 Gbit/s and more.", kLan},
    {"wan", "Sites in several cities, lines of about 100 Mbit/s.", kWan},
    {"slow", "Lines of about 10 Mbit/s.", kSlow},
    {"pretrain", "As wan, for training from random parameters: DiLoCo's momentum.", kPretrain},
});

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset* preset_named(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &Preset::name);
  return found == kPresets.end() ? nullptr : &*found;
}

}  // namespace collab
