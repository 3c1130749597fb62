// The coordinator's page for a browser: it shows the sites and the current round. It is read-only.
//
// Threads: its owner makes and destroys it. HTTP runs on its own thread, which asks the coordinator's thread for a
// report at most once a second. Ownership: shares the coordinator.
#pragma once

#include <memory>
#include <string>

#include "collab/config.h"
#include "collab/session.h"
#include "collab/status.h"

namespace collab {

struct PageOptions {
  std::string http;         // HOST:PORT
  bool insecure = false;    // --http-insecure: serve other machines too, in the clear
  std::string certificate;  // --http-cert, --http-key: PEM files, read at the start; both or none
  std::string key;
  std::string objective;    // the purpose of the run, in the operator's words
  std::string leaderboard;  // a file; empty: none
  std::string join;         // the command with which a site joins; empty: one that dials the coordinator
};

class Page {
 public:
  virtual ~Page() = default;
  // A line for the user who started the page: its address, and how to get the password.
  [[nodiscard]] virtual std::string announcement() const = 0;
};

// `coordinator`: the address that sites dial. kInvalidArgument names the option that is wrong.
[[nodiscard]] Result<std::unique_ptr<Page>> serve_page(const PageOptions& options, const LoadedConfig& config,
                                                       std::shared_ptr<const CoordinatorServer> server,
                                                       const std::string& coordinator);

}  // namespace collab
