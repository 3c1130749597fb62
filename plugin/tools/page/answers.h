// Answers requests: routes, methods, the password, headers. No I/O.
//
// Threads: one caller at a time. Ownership: owns the texts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collab/clock.h"
#include "collab/status.h"
#include "tools/page/shares.h"

namespace collab::page {

struct Request {
  std::string method;
  std::string target;         // as in the request line
  std::string host;           // the Host header; empty: none
  std::string authorization;  // the Authorization header; empty: none
  std::string network = {};   // of the client: an IPv4 address, or the first half of an IPv6 address
};

struct Answer {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;  // also set for HEAD, which sends only its length
  std::vector<std::pair<std::string, std::string>> headers;
};

// A snapshot of the shown content.
struct Texts {
  std::string status;   // JSON
  std::string metrics;  // in Prometheus' text format
};

class Answers {
 public:
  static constexpr Duration kLookAgain = std::chrono::seconds(1);

  struct Options {
    std::vector<std::string> passwords;  // each one opens the page; none: the page is open
    bool loopback = true;                // the page listens on a loopback address
  };
  // `look` is called at most once per kLookAgain, however many clients ask.
  Answers(Options options, std::function<Result<Texts>()> look);

  [[nodiscard]] Answer answer(TimePoint now, const Request& request);
  // The passwords that open the page from now on.
  void take(std::vector<std::string> passwords) { options_.passwords = std::move(passwords); }

 private:
  [[nodiscard]] Answer shown(TimePoint now, const std::string& path);
  [[nodiscard]] bool may_see(const Request& request) const;

  Options options_;
  const std::function<Result<Texts>()> look_;
  const std::string policy_;
  Shares shares_;
  Result<Texts> texts_;
  TimePoint looked_{};
  bool has_looked_ = false;
};

}  // namespace collab::page
