// Which request is answered with what: routes, methods, the password, headers. No I/O.
//
// Threads: one caller at a time. Ownership: the texts.
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
  std::string target;         // as it stands in the first line
  std::string host;           // the header; empty: none
  std::string authorization;  // likewise
  std::string network = {};   // the asking one: an address of IPv4, or the first half of one of IPv6
};

struct Answer {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;  // of HEAD too, which is told its length alone
  std::vector<std::pair<std::string, std::string>> headers;
};

// What is shown, as of one moment.
struct Texts {
  std::string status;   // JSON
  std::string metrics;  // in Prometheus' text format
};

class Answers {
 public:
  static constexpr Duration kLookAgain = std::chrono::seconds(1);

  struct Options {
    std::vector<std::string> passwords;  // each of them opens it; none: it is open
    bool loopback = true;                // it listens where this machine alone reaches it
  };
  // `look` is called at most once in kLookAgain, however many ask.
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
