#include "tools/page/answers.h"

#include "page_html.h"
#include "tools/page/password.h"

namespace collab::page {
namespace {

// Against DNS rebinding: another website's script must not read this page under that website's name.
bool names_this_machine(std::string_view host) {
  const std::size_t port = host.rfind(':');
  if (port != std::string_view::npos && host.find(']', port) == std::string_view::npos) host = host.substr(0, port);
  const bool numeric = host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
  return numeric || host == "localhost" || host == "[::1]";
}

Answer plain(unsigned status, std::string text) { return {status, "text/plain; charset=utf-8", text + "\n", {}}; }

}  // namespace

Answers::Answers(Options options, std::function<Result<Texts>()> look)
    : options_(std::move(options)),
      look_(std::move(look)),
      policy_(
          "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'; script-src " +
          digest_of_element(kHtml, "script") + "; style-src " + digest_of_element(kHtml, "style")),
      texts_(unavailable("the coordinator was not asked yet [page.not-looked]")) {}

Answer Answers::answer(TimePoint now, const Request& request) {
  Answer answer = [&] {
    const bool known = may_see(request);
    if (!shares_.allow(now, request.network, known)) {
      return plain(429, "too many requests from your address: try again in a second");
    }
    if (request.method != "GET" && request.method != "HEAD") {
      Answer refusal = plain(405, "this page is read-only: use GET or HEAD");
      refusal.headers.emplace_back("Allow", "GET, HEAD");
      return refusal;
    }
    if (options_.passwords.empty() && options_.loopback && !names_this_machine(request.host)) {
      return plain(403, "without a token this page is for this machine only: use localhost or 127.0.0.1");
    }
    if (!known) {
      Answer refusal =
          plain(401, "the password is what `collab token --page-password` prints where the swarm's token is");
      refusal.headers.emplace_back("WWW-Authenticate", "Basic realm=\"collab\", charset=\"UTF-8\"");
      return refusal;
    }
    return shown(now, request.target.substr(0, request.target.find('?')));
  }();
  answer.headers.emplace_back("Cache-Control", "no-store");
  answer.headers.emplace_back("Content-Security-Policy", policy_);
  answer.headers.emplace_back("Referrer-Policy", "no-referrer");
  answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
  return answer;
}

bool Answers::may_see(const Request& request) const {
  return options_.passwords.empty() || is_one_of(password_in(request.authorization), options_.passwords);
}

Answer Answers::shown(TimePoint now, const std::string& path) {
  if (path == "/") return {200, "text/html; charset=utf-8", std::string(kHtml), {}};
  if (path != "/status.json" && path != "/metrics") {
    return plain(404, "this page has only /, /status.json and /metrics");
  }
  if (!has_looked_ || now - looked_ >= kLookAgain) {
    texts_ = look_();
    looked_ = now;
    has_looked_ = true;
  }
  if (!texts_.ok()) return plain(503, texts_.status().message());
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", texts_->metrics, {}};
  return {200, "application/json", texts_->status, {}};
}

}  // namespace collab::page
