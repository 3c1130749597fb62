// The places of arenas, and the names of their files: collab-UID-<run and site>-<model>.arena
//
// In a folder that all may write, anyone can predict that name and take it first. Then a random part is added to it.
// The model is a separate part, so that a rank with another model finds its leader's arena and can report that.
// Threads: pure functions. Ownership: plain values.
#pragma once

#include <string>
#include <vector>

#include "core/arena/arena.h"

namespace collab::arena {

[[nodiscard]] std::string name_prefix();                     // of this user's arenas: "collab-1000-"
[[nodiscard]] std::string site_prefix(const ArenaKey& key);  // of this site's arenas, whatever the model
[[nodiscard]] std::string file_name(const ArenaKey& key);
[[nodiscard]] std::string chance_name(const ArenaKey& key);  // with a random part
// The existing arenas that have the key's names, whatever their owner.
[[nodiscard]] std::vector<std::string> named_for(const ArenaKey& key, const std::vector<ArenaPlace>& places);
// Full paths of the files in the places whose name starts with the prefix and ends in .arena; sorted.
[[nodiscard]] std::vector<std::string> list_arenas(const std::vector<ArenaPlace>& places, const std::string& prefix);
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);  // "1.50 GiB"

}  // namespace collab::arena
