// Derives the settings of a node's parts from its options, and warns of options that do not fit the model.
//
// Threads: pure, except for the log. Ownership: plain values; the result of storage_options() borrows the model.
#pragma once

#include <cstdint>

#include "core/protocol/fragments.h"
#include "core/protocol/site/site.h"
#include "core/runtime/data/data_settings.h"
#include "core/runtime/node.h"
#include "core/runtime/storage/site_storage.h"

namespace collab {

[[nodiscard]] protocol::SiteConfig site_config(const Node::Options& options);
// `elements`: of the whole vector.
[[nodiscard]] DataSettings data_settings(const Node::Options& options, std::uint64_t elements,
                                         const protocol::Fragments& fragments);
// Moves the record out of `options`.
[[nodiscard]] SiteStorage::Options storage_options(Node::Options& options, const protocol::Fragments& fragments);

}  // namespace collab
